"""The file of a checkpoint, written whole or not at all and read without running code; and the identity of its fit.

It is a NumPy archive of plain arrays and a JSON header. Its last line holds the number of its format and a digest of
everything before it, so that an intact file of another format is not reported as damaged. It is written under a unique
temporary name and then renamed: if the process is killed, either the old file or the new one is there, complete.
"""

from __future__ import annotations

import contextlib
import hashlib
import io
import json
import os
import tempfile
import time
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

import numpy as np

_PREFIX, _SUFFIX = ".skgp_natgrad-", ".part"
# Seconds after which a temporary file that nobody has written to is taken for one of a killed process. Process numbers
# would not tell: the folder may be shared with other machines and containers.
_STALE = 600.0
# Raise it with every change of the file or of what the header means.
FORMAT = 2
_LAST_LINE = b"\nskgp_natgrad checkpoint %d "
# The arrays of a table, by the names of the arguments.
ROWS = ("X", "y", "sample_weight", "offset", "known parts", "mean_function(X)")


class Header(NamedTuple):
    """What is saved beside the arrays: the fit's identity, its initial random state, and further values."""

    identity: dict
    start: dict
    values: dict


def write(path, header, arrays):
    """Replace the file; the new one is on the disk before the old one is removed.

    Parameters
    ----------
    path : Path
    header : Header
    arrays : dict of str to ndarray
    """
    with _temporary(path.parent) as name:
        with open(name, "w+b") as file:
            text = json.dumps(header._asdict(), default=np.ndarray.tolist)
            np.savez(file, header=np.array(text), **arrays)
            file.write(_LAST_LINE % FORMAT)
            file.seek(0)
            digest = hashlib.file_digest(file, "sha256").hexdigest()
            file.write(digest.encode())
            file.flush()
            os.fsync(file.fileno())
        os.replace(name, path)


def read(path):
    """The header and the arrays by name, or None if there is no file; nothing is unpickled.

    Raises
    ------
    ValueError
        If the file is damaged, or of another format.
    """
    try:
        content = path.read_bytes()
    except FileNotFoundError:
        return None
    # Before any content, above all a size, is trusted.
    whole, digest = content[:-64], content[-64:]
    damaged = ValueError(
        f"checkpoint={str(path)!r} is not a checkpoint of skgp_natgrad, or is damaged. Delete the file to start anew, "
        "or name another one."
    )
    if hashlib.sha256(whole).hexdigest().encode() != digest:
        raise damaged
    if not whole.endswith(_LAST_LINE % FORMAT):
        raise ValueError(
            f"checkpoint={str(path)!r} was written by another version of skgp_natgrad, and this one reads format "
            f"{FORMAT}; it is not damaged. Continue with that version, or delete the file to start anew."
        )
    try:
        with np.load(io.BytesIO(whole), allow_pickle=False) as archive:
            arrays = {name: np.asarray(archive[name]) for name in archive}
        parts = json.loads(str(arrays.pop("header")))
        return Header(**{name: dict(part) for name, part in parts.items()}), arrays
    except (ValueError, TypeError, KeyError, AttributeError, zipfile.BadZipFile) as error:
        raise damaged from error


def prepare(path):
    """Raise OSError if a file cannot be written at ``path``; remove what killed processes left in its folder."""
    with _temporary(path.parent) as name, open(name, "wb") as file:
        file.write(bytes(1024))
        file.flush()
        os.fsync(file.fileno())
    # Fails if the name is too long, which the temporary name is not.
    with contextlib.suppress(FileNotFoundError):
        path.stat()
    _remove_stale(path.parent)


@contextlib.contextmanager
def _temporary(folder):
    """The name of a new file of this thread alone, which is removed in the end unless it was renamed."""
    handle, name = tempfile.mkstemp(_SUFFIX, _PREFIX, folder)
    os.close(handle)
    try:
        yield name
    finally:
        Path(name).unlink(missing_ok=True)


def _remove_stale(folder):
    for path in folder.glob(f"{_PREFIX}*{_SUFFIX}"):
        # Another process may have removed it by now, or own it.
        with contextlib.suppress(FileNotFoundError, PermissionError):
            if time.time() - path.stat().st_mtime > _STALE:
                path.unlink()


# -- the identity -------------------------------------------------------------------------


def described(value):
    """Return an argument's value as JSON, which is the same for equal values in all processes.

    Arrays become digests, objects with parameters their class and parameters; of any other
    value only the class is compared.
    """
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    if isinstance(value, np.generic):
        return value.item()
    if hasattr(value, "get_params") and not isinstance(value, type):
        return [_class_name(value), described(value.get_params(deep=False))]
    if isinstance(value, Mapping):
        return sorted(([described(key), described(item)] for key, item in value.items()), key=repr)
    if isinstance(value, (list, tuple)):
        return [described(item) for item in value]
    array = np.asarray(value)
    return _class_name(value) if array.dtype == object else digest([array])


def digest(arrays):
    """Return a string that identifies the values, shapes and types of some arrays."""
    found = hashlib.sha256()
    for array in map(np.asarray, arrays):
        found.update(f"{array.dtype.str}{array.shape}".encode())
        found.update(np.ascontiguousarray(array).data)
    return found.hexdigest()


def of_table(array):
    """Return the shape of an array and its digest, as text that people can compare."""
    return f"{' x '.join(map(str, np.shape(array)))}, {digest([array])}"


def of_rows(table):
    """`of_table` of each array of a table, by the name of the argument; a long table is read once, by blocks."""
    if isinstance(table, tuple):
        # The table's own order depends on all columns. The rows are sorted by X first here: if only y differs, X does
        # not appear to differ as well.
        columns = [np.atleast_2d(each) for each in (table.weight, *(part for part in table[1:] if part is not None))]
        table = table.rows(np.lexsort([*np.vstack(columns)[::-1], *table.X.T[::-1]]))
        return {name: of_table(array) for name, array in zip(ROWS, table, strict=True) if array is not None}
    digests = {}
    for part in table.blocks():
        for name, array in zip(ROWS, part, strict=True):
            if array is not None:
                digests.setdefault(name, hashlib.sha256()).update(np.ascontiguousarray(array).data)
    return {name: f"{table.n_rows} rows, {found.hexdigest()}" for name, found in digests.items()}


def _class_name(value):
    return f"{type(value).__module__}.{type(value).__qualname__}"
