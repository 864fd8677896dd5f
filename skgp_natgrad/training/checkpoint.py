"""A fit's progress in a file: another process, or a fit that paused, continues with the same result to the bit.

The file holds the arrays of the state but not its structure: a resumed fit makes the initial state again, from the
random state with which the fit began, and replaces its arrays.
"""

from __future__ import annotations

import hashlib
import json
import os
import time
from pathlib import Path

import jax
import numpy as np
from sklearn.utils import check_random_state

from .._backend import __version__, processes
from .._backend.notices import Notice, shown
from . import checkpoint_file
from .checkpoint_file import Header

# Smallest time between two writes as a multiple of the duration of the last write, so that large models do not spend
# their time writing.
_TIMES_LAST_WRITE = 20.0
_LONGEST_SHOWN = 40
_SEPARATORS = tuple(filter(None, (os.sep, os.altsep)))


class Checkpoint:
    """The file of one fit; of processes that fit together the first one writes and reads it, and tells the others.

    Parameters
    ----------
    place : str or os.PathLike
        A file, or a folder: one that exists, or whose name ends in a separator, and is then made. In a
        folder each fit has a file of its own, named by the digest of its identity.
    identity : dict
        Everything that determines the fit's result, by the name of the argument, with the rows of this process; see
        `described`. A file with another identity is refused.
    seconds_between : float, default=5.0
        Smallest time between two writes.
    is_shared : bool, default=False
        Whether all processes have this fit in common. What is refused in the first one is refused in all.

    Raises
    ------
    ValueError
        If the file exists and is damaged, or belongs to another fit.
    OSError
        If it cannot be written.
    """

    def __init__(self, place, identity, seconds_between=5.0, is_shared=False):
        if is_shared:
            # Another number of processes, or another division of the rows, is another fit.
            parts = processes.exchanged({name: identity[name] for name in checkpoint_file.ROWS if name in identity})
            identity = identity | {"the rows of each process": [sorted(part.items()) for part in parts]}
        self.identity = json.loads(json.dumps({"skgp_natgrad": __version__, **identity}))
        self.seconds_between, self._writes = seconds_between, not is_shared or processes.index() == 0
        opened = _told_by_first if is_shared else (lambda function: function())
        self.path, self._header, self._arrays = opened(lambda: _opened(place, self.identity))
        self._start, self._has_warned = None, False
        self._next_write = time.monotonic() + seconds_between

    def rewind(self, random_state):
        """Return the random state with which the fit began: that of a new fit is ``random_state``, or seeded by it."""
        if random_state is check_random_state(None):
            # NumPy's global random state is shared with other threads, whose draws could not be repeated.
            seed = None if self._header is not None else random_state.randint(np.iinfo(np.int32).max)
            random_state = np.random.RandomState(seed)
        if self._header is not None:
            random_state.set_state(self._header.start)
        self._start = random_state.get_state(legacy=False)
        return random_state

    def __call__(self, monitor, state):
        """Save the progress of training; this is the last of the callbacks."""
        self.keep(*monitor.progress(state), last=not monitor.running)

    def resume(self, monitor, state):
        """The saved progress as ``(tree, values)``; None if there is none."""
        if self._header is None:
            return None
        fresh, structure = _named_leaves(monitor.progress(state)[0])
        kinds, saved = ({n: (leaf.dtype, leaf.ndim) for n, leaf in each.items()} for each in (fresh, self._arrays))
        if kinds != saved:
            raise ValueError(
                f"checkpoint={str(self.path)!r} does not have the structure of this fit: it was written with another "
                "version of JAX, optax or NumPy. Continue with that version, or delete the file to start anew."
            )
        return structure.unflatten([self._arrays[name] for name in fresh]), self._header.values

    def keep(self, tree, values, last):
        """Write ``tree`` (arrays) and ``values`` (JSON) if a write is due, or if this is the last call.

        A failed write does not end the fit: the first failure gives a warning, and later writes are tried as usual.
        """
        if not self._writes or (not last and time.monotonic() < self._next_write):
            return
        began = time.monotonic()
        try:
            checkpoint_file.write(self.path, Header(self.identity, self._start, values), _named_leaves(tree)[0])
        except OSError as error:
            self._warn("The checkpoint cannot be written; the fit continues without it.", error)
        ended = time.monotonic()
        self._next_write = ended + max(self.seconds_between, _TIMES_LAST_WRITE * (ended - began))

    def remove(self):
        """Delete the file: the fit is complete."""
        if not self._writes:
            return
        try:
            self.path.unlink(missing_ok=True)
        except OSError as error:
            self._warn("The checkpoint cannot be deleted after the fit.", error)

    def _warn(self, kind, error):
        if not self._has_warned:
            self._has_warned = True
            Notice(kind, f"checkpoint={str(self.path)!r}: {error}").give()


def _opened(place, identity):
    """The path of a fit's file, and its header (None if there is none) and arrays."""
    try:
        path = _path_of(place, identity)
        checkpoint_file.prepare(path)
        header, arrays = checkpoint_file.read(path) or (None, {})
    except OSError as error:
        raise OSError(
            f"checkpoint={str(place)!r} cannot be written or read: {error}. Name a file or a folder that can, or set "
            "checkpoint=None."
        ) from error
    theirs = identity if header is None else header.identity
    names = [name for name in {**theirs, **identity} if theirs.get(name) != identity.get(name)]
    if names:
        pairs = ([shown(each.get(name), _LONGEST_SHOWN) for each in (theirs, identity)] for name in names)
        parts = (f"{name} ({one} in the file, {other} now)" for name, (one, other) in zip(names, pairs, strict=True))
        raise ValueError(
            f"checkpoint={str(path)!r} belongs to another fit, which differs in {', '.join(parts)}. To continue that "
            "fit, give the same data and arguments again; to start anew, delete the file or name another one; name a "
            "folder to keep a file for each fit."
        )
    return path, header, arrays


def _told_by_first(function):
    """What a function returns in the first process, or raises there, in all processes."""
    found = error = None
    if processes.index() == 0:
        try:
            found = function()
        except (OSError, ValueError) as caught:
            error = caught
    found, refused = processes.of_first((found, error))
    if refused is not None:
        raise error or refused
    return found


def is_folder(place):
    """Whether ``place`` means a folder, with a file for each fit: it exists as one, or ends in a separator."""
    text = os.fsdecode(place)
    return text.endswith(_SEPARATORS) or os.path.isdir(text)


def _path_of(place, identity):
    """The path of a fit's file."""
    path = Path(os.fsdecode(place))
    if not is_folder(place):
        return path
    path.mkdir(exist_ok=True)
    text = json.dumps(identity, sort_keys=True)
    return path / f"{hashlib.sha256(text.encode()).hexdigest()[:32]}.npz"


def _named_leaves(tree):
    """The leaves as NumPy arrays, by their paths, and the structure of the tree."""
    leaves, structure = jax.tree_util.tree_flatten_with_path(tree)
    return {jax.tree_util.keystr(path): np.asarray(leaf) for path, leaf in leaves}, structure
