"""A fit's progress in a file, from which another process can continue with the same result to the bit.

The file is a NumPy archive of plain arrays and a JSON header, so that reading it runs no code. It
holds leaves but no structure: a resumed fit makes its initial state anew, from the random state with
which the fit began, and replaces the leaves. The file is written under a temporary name and then
renamed, so that a process killed at any moment leaves either the old file or the new one.
"""

from __future__ import annotations

import hashlib
import io
import json
import os
import time
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

import jax
import numpy as np
from sklearn.utils import check_random_state

from .._backend.version import __version__

# Smallest time between two writes: in seconds, and as a multiple of the duration of the last write, so that large
# models do not spend their time writing.
SECONDS_BETWEEN = 5.0
_TIMES_LAST_WRITE = 20.0
_LONGEST_SHOWN = 40


class Checkpoint:
    """The file of one fit.

    Parameters
    ----------
    path : str or os.PathLike
    identity : dict
        Everything that the fit's result depends on, by the name of the argument; see `described`. A
        file of another identity is refused.

    Raises
    ------
    ValueError
        If the file exists and is damaged, or belongs to another fit.
    """

    def __init__(self, path, identity):
        self.path = Path(path)
        self.identity = _as_read({"skgp_natgrad": __version__, **identity})
        self._header, self._arrays = _read(self.path) if self.path.exists() else (None, {})
        self._check_identity()
        self._start = None
        self._next_write = time.monotonic() + SECONDS_BETWEEN

    def rewind(self, random_state):
        """Return the random state with which the fit began; for a new fit this is ``random_state``."""
        if self._header is not None:
            if random_state is check_random_state(None):
                # NumPy's global random state is shared: it is not changed.
                random_state = np.random.RandomState()
            random_state.set_state(self._header.start)
        self._start = random_state.get_state(legacy=False)
        return random_state

    def saved(self, tree):
        """Return the saved progress as ``(tree, values)``, in the structure of ``tree``; None if there is none."""
        if self._header is None:
            return None
        fresh, structure = _named_leaves(tree)
        if {name: _kind(leaf) for name, leaf in fresh.items()} != {n: _kind(leaf) for n, leaf in self._arrays.items()}:
            raise ValueError(
                f"checkpoint={str(self.path)!r} does not have the structure of this fit: it was written with another "
                "version of JAX, optax or NumPy. Continue with that version, or delete the file to start anew."
            )
        return structure.unflatten([self._arrays[name] for name in fresh]), self._header.values

    def __call__(self, monitor, state):
        """Save the progress of training; this is the last of the callbacks."""
        self.keep(*monitor.progress(state), last=not monitor.running)

    def resume(self, monitor, state):
        """The saved progress, or None."""
        return self.saved(monitor.progress(state)[0])

    def keep(self, tree, values, last):
        """Write ``tree`` (arrays) and ``values`` (JSON) if a write is due, or if this is the last call."""
        if not last and time.monotonic() < self._next_write:
            return
        began = time.monotonic()
        _replace(self.path, _Header(self.identity, self._start, values), _named_leaves(tree)[0])
        ended = time.monotonic()
        self._next_write = ended + max(SECONDS_BETWEEN, _TIMES_LAST_WRITE * (ended - began))

    def remove(self):
        """Delete the file: the fit is complete."""
        self.path.unlink(missing_ok=True)
        _beside(self.path).unlink(missing_ok=True)

    def _check_identity(self):
        if self._header is None:
            return
        theirs = self._header.identity
        names = [name for name in {**theirs, **self.identity} if theirs.get(name) != self.identity.get(name)]
        if names:
            differences = ", ".join(_difference(name, theirs.get(name), self.identity.get(name)) for name in names)
            raise ValueError(
                f"checkpoint={str(self.path)!r} belongs to another fit, which differs in {differences}. To continue "
                "that fit, give the same data and arguments again; to start anew, delete the file or name another one."
            )


# -- the file -----------------------------------------------------------------------------


# Exceptions that the readers of NumPy and zipfile raise for damaged bytes in memory.
_DAMAGE = (zipfile.BadZipFile, ValueError, KeyError, TypeError, EOFError, OSError, RuntimeError)


class _Header(NamedTuple):
    """What is saved beside the arrays: the fit's identity, its initial random state, and further values."""

    identity: dict
    start: dict
    values: dict


def _beside(path):
    return path.with_name(path.name + ".part")


def _replace(path, header, arrays):
    """Write a file beside ``path``, flush it to the disk, and rename it to ``path``."""
    with open(_beside(path), "wb") as file:
        text = json.dumps(header._asdict(), default=np.ndarray.tolist)
        np.savez(file, header=np.array(text), **arrays)
        file.flush()
        os.fsync(file.fileno())
    os.replace(_beside(path), path)


def _read(path):
    """The header and the arrays by name; nothing is unpickled."""
    content = path.read_bytes()
    try:
        with zipfile.ZipFile(io.BytesIO(content)) as archive:
            # Checked before any content, above all a size, is trusted.
            damaged = archive.testzip()
        if damaged is not None:
            raise zipfile.BadZipFile(f"the checksum of {damaged} is wrong")
        with np.load(io.BytesIO(content), allow_pickle=False) as archive:
            arrays = {name: archive[name] for name in archive.files}
        return _Header(**json.loads(str(arrays.pop("header")))), arrays
    except _DAMAGE as error:
        raise ValueError(
            f"checkpoint={str(path)!r} is not a checkpoint of skgp_natgrad, or is damaged. Delete the file to "
            "start anew, or name another one."
        ) from error


def _named_leaves(tree):
    """The leaves as NumPy arrays, by their paths, and the structure of the tree."""
    leaves, structure = jax.tree_util.tree_flatten_with_path(tree)
    return {jax.tree_util.keystr(path): np.asarray(leaf) for path, leaf in leaves}, structure


def _kind(leaf):
    return leaf.dtype, leaf.ndim


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


def _class_name(value):
    return f"{type(value).__module__}.{type(value).__qualname__}"


def _as_read(value):
    return json.loads(json.dumps(value))


def _difference(name, theirs, ours):
    short = all(len(repr(value)) <= _LONGEST_SHOWN for value in (theirs, ours))
    return f"{name} ({theirs!r} in the file, {ours!r} now)" if short else name
