"""Corrupted checkpoints are refused, or change no bit; none of them runs code.

    python examples/campaigns/corruption.py --results campaigns.jsonl

Four fits are interrupted, twice each; every case writes one of their files anew, corrupted, and fits
again. The fit must either refuse the file by a ValueError that names it, or end at the bits of a fit
that nothing interrupted. Bits are flipped, blocks lost or overwritten, files cut, lengthened and put
together from two; archives are written again, with valid checksums, from the members of two files, with
changed arrays or headers, with pickles in them, and with sizes that no memory has. Numbers in a file with a right
digest are believed, but it must have the structure and the identity of the fit.
"""

from __future__ import annotations

import copy
import functools
import hashlib
import io
import json
import pickle
import sys
import tempfile
import warnings
import zipfile
from pathlib import Path
from typing import NamedTuple

import _campaign
import numpy as np
from sklearn.gaussian_process.kernels import RBF

from skgp_natgrad import NGDSVGPClassifier, NGDSVGPRegressor
from skgp_natgrad.training import checkpoint, checkpoint_file

X = np.random.default_rng(0).normal(size=(60, 2))
Y = np.sin(2.0 * X[:, 0]) + 0.1 * X[:, 1]
COMMON = {"kernel": RBF(0.8), "n_inducing": 4, "max_iter": 60, "tol": 0.0, "random_state": 0, "checkpoint_every": 0.0}
FITS = {
    "minibatches": (NGDSVGPRegressor(**COMMON, batch_size=16, n_mean_inducing=3), Y),
    "float32": (NGDSVGPRegressor(**COMMON, dtype="float32", gamma_schedule=0.1), Y),
    "softmax": (NGDSVGPClassifier(**COMMON, batch_size=16), np.digitize(Y, [-0.5, 0.5])),
    "labels in float32": (NGDSVGPClassifier(**COMMON, dtype="float32"), Y > 0),
}


class Saved(NamedTuple):
    """An interrupted fit: the files at two moments, and the bits at which it ends."""

    model: object
    y: np.ndarray
    early: bytes
    late: bytes
    bits: tuple


class Interrupted(Exception):
    """Raised in a callback."""


def bits_of(model):
    """What a fit ends with."""
    predict = model.predict_proba if hasattr(model, "predict_proba") else model.predict
    return model.elbo_, model.elbo_curve_.tobytes(), predict(X).tobytes()


@functools.cache
def saved(kind):
    """Interrupt a fit at two iterations."""
    model, y = FITS[kind]
    with tempfile.TemporaryDirectory() as folder:
        path, files = Path(folder) / "fit.npz", []
        for last in (20, 40):

            def stop(n_iter, _, last=last):
                if n_iter > last:
                    raise Interrupted

            try:
                copy.deepcopy(model).set_params(checkpoint=path, callback=stop).fit(X, y)
            except Interrupted:
                files.append(path.read_bytes())
    return Saved(model, y, *files, bits_of(copy.deepcopy(model).fit(X, y)))


# -- bytes --------------------------------------------------------------------------------


def flip_bits(rng, content, other):
    content = bytearray(content)
    for position in rng.integers(len(content), size=rng.integers(1, 9)):
        content[position] ^= 1 << rng.integers(8)
    return bytes(content)


def flip_in_directory(rng, content, other):
    """In the list of members at the end, of which few flips elsewhere hit anything."""
    start = content.rindex(b"PK\x05\x06")
    directory = int.from_bytes(content[start + 16 : start + 20], "little")
    return content[:directory] + flip_bits(rng, content[directory:], other)


def truncate(rng, content, other):
    return content[: rng.integers(len(content))]


def lengthen(rng, content, other):
    extra = rng.bytes(rng.integers(1, 2000))
    return content + extra if rng.integers(2) else extra + content


def lose_block(rng, content, other):
    start, length = rng.integers(len(content)), rng.integers(1, 600)
    block = content[start : start + length]
    return (
        content[:start] + [b"", bytes(len(block)), rng.bytes(len(block))][rng.integers(3)] + content[start + length :]
    )


def splice(rng, content, other):
    cut = rng.integers(min(len(content), len(other)))
    return content[:cut] + other[cut:]


# -- members, with valid checksums ----------------------------------------------------------


def parted(content):
    """The archive, and the last line, which holds the digest that the package has put into the file."""
    start = content.rindex(checkpoint_file._LAST_LINE % checkpoint_file.FORMAT)
    return content[:start], content[start:]


def members_of(content):
    with zipfile.ZipFile(io.BytesIO(parted(content)[0])) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def archive_of(members, last_line, compression=zipfile.ZIP_STORED):
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", compression) as archive:
        for name, value in members.items():
            archive.writestr(name, value)
    return file.getvalue() + last_line


def sealed(members):
    """An archive with its right digest: by somebody who knows the package."""
    whole = archive_of(members, checkpoint_file._LAST_LINE % checkpoint_file.FORMAT)
    return whole + hashlib.sha256(whole).hexdigest().encode()


def as_member(array, allow_pickle=False):
    file = io.BytesIO()
    np.lib.format.write_array(file, np.asarray(array), allow_pickle=allow_pickle)
    return file.getvalue()


def splice_members(rng, content, other):
    """Some members of another file, which is whole itself."""
    members, others = members_of(content), members_of(other)
    names = [name for name in members if name in others and members[name] != others[name]]
    chosen = rng.permutation(names)[: rng.integers(1, max(2, len(names)))]
    return archive_of({name: (others if name in chosen else members)[name] for name in members}, parted(content)[1])


def change_array(rng, content, other):
    """One number of one array."""
    members = members_of(content)
    names = [name for name, value in members.items() if np.lib.format.read_array(io.BytesIO(value)).dtype.kind in "fiu"]
    name = names[rng.integers(len(names))]
    array = np.lib.format.read_array(io.BytesIO(members[name])).copy()
    if array.size:
        flat = array.reshape(-1)
        flat[rng.integers(flat.size)] += 1
    else:
        array = np.ones(1, array.dtype)
    return archive_of(members | {name: as_member(array)}, parted(content)[1])


def change_header(rng, content, other):
    """One character of the header, often still JSON."""
    members = members_of(content)
    text = str(np.lib.format.read_array(io.BytesIO(members["header.npy"])))
    at = rng.integers(len(text))
    changed = as_member(text[:at] + "0123456789abcdef"[rng.integers(16)] + text[at + 1 :])
    return archive_of(members | {"header.npy": changed}, parted(content)[1])


class Payload:
    """Leaves a trace where it is unpickled."""

    def __init__(self, trace):
        self.trace = trace

    def __reduce__(self):
        return Path.touch, (Path(self.trace),)


def pickled(rng, content, other, trace):
    members, payload = members_of(content), np.array([Payload(trace)], dtype=object)
    value = as_member(payload, allow_pickle=True) if rng.integers(2) else pickle.dumps(Payload(trace))
    if rng.integers(8) == 0:
        return value
    return sealed(members | {list(members)[rng.integers(len(members))]: value})


def boundless(rng, content, other):
    """An array that says it has more numbers than any memory."""
    members = members_of(content)
    name = list(members)[rng.integers(len(members))]
    head = f"{{'descr': '<f8', 'fortran_order': False, 'shape': ({10 ** rng.integers(10, 30)},), }}".ljust(117) + "\n"
    value = b"\x93NUMPY\x01\x00" + len(head).to_bytes(2, "little") + head.encode("latin1") + bytes(64)
    return archive_of(
        members | {name: value}, parted(content)[1], [zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED][rng.integers(2)]
    )


# -- another structure or identity, in a file that is right in all else ------------------------


def wrong_content(rng, path):
    """Written by the package itself."""
    header, arrays = checkpoint_file.read(path)
    # A copy that can be changed, of the tuple's dictionaries too.
    header = checkpoint_file.Header(**json.loads(json.dumps(header._asdict())))
    floats = [name for name, value in arrays.items() if ".q." in name and value.dtype.kind == "f" and value.size]
    name = floats[rng.integers(len(floats))]
    kind = rng.integers(4)
    if kind == 0:
        arrays[name] = arrays[name].astype(">i2")
    elif kind == 1:
        del arrays[name]
    elif kind == 2:
        arrays["more"] = np.ones(2)
    else:
        header.identity[list(header.identity)[rng.integers(len(header.identity))]] = "another"
    checkpoint_file.write(path, header, arrays)


ON_BYTES = (
    *(flip_bits, flip_in_directory, truncate, lengthen, lose_block, splice),
    *(splice_members, change_array, change_header, boundless),
)
KINDS = (*(function.__name__ for function in ON_BYTES), "pickled", "wrong_content")


def perform(number, args):
    """Corrupt one file, and fit."""
    rng = _campaign.rng_of(args, number)
    fit = list(FITS)[rng.integers(len(FITS))]
    found, kind = saved(fit), KINDS[number % len(KINDS)]
    one, other = (found.early, found.late) if rng.integers(2) else (found.late, found.early)
    if rng.integers(3) == 0:
        other = saved(list(FITS)[rng.integers(len(FITS))]).late
    about = {"dtype": found.model.dtype, "kind": kind}
    with tempfile.TemporaryDirectory() as folder:
        path, trace = Path(folder) / "fit.npz", Path(folder) / "trace"
        if kind == "wrong_content":
            path.write_bytes(one)
            wrong_content(rng, path)
        elif kind == "pickled":
            path.write_bytes(pickled(rng, one, other, trace))
        else:
            path.write_bytes(ON_BYTES[KINDS.index(kind)](rng, one, other))
        content = path.read_bytes()
        outcome = outcome_of(found, path)
        assert not trace.exists(), f"{kind}: code was run"
        assert outcome == "same bits" or path.read_bytes() == content, f"{kind}: a file that is refused was changed"
    return {**about, "outcome": outcome}


def outcome_of(found, path):
    """Fit from a file; anything but a refusal that names it and the same bits raises."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            model = copy.deepcopy(found.model).set_params(checkpoint=path).fit(X, found.y)
    except ValueError as error:
        if repr(str(path)) not in str(error):
            raise
        return "refused"
    assert bits_of(model) == found.bits, "altered content was accepted"
    return "same bits"


def main(argv=None):
    args = _campaign.parser(__doc__, 10_000).parse_args(argv)
    checkpoint._TIMES_LAST_WRITE = 0.0
    warnings.simplefilter("ignore")
    # The four fits' programs serve all cases.
    return _campaign.run(args, "corruption", lambda number: perform(number, args), keep_programs=True)


if __name__ == "__main__":
    sys.exit(main())
