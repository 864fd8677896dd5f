"""The checkpoint of a fit on several processes: the first process writes and reads it."""

from __future__ import annotations

from .._backend import processes
from .checkpoint import Checkpoint

_ROWS = ("X", "y", "sample_weight", "offset", "known parts")


class SharedCheckpoint:
    """`Checkpoint` of the first process, which tells the others the result.

    Parameters
    ----------
    place, identity, seconds_between
        As for `Checkpoint`, with the rows of this process. A refusal is raised in all processes.
    """

    def __init__(self, place, identity, seconds_between=5.0):
        # Another number of processes, or another division of the rows, is another fit.
        parts = processes.exchanged({name: identity[name] for name in _ROWS if name in identity})
        identity = identity | {"the rows of each process": [sorted(part.items()) for part in parts]}
        self._own = self._by_first(lambda: Checkpoint(place, identity, seconds_between), keep=True)

    def rewind(self, random_state):
        """Return the random state with which the fit began, in the first process."""
        return self._own.rewind(random_state) if self._own is not None else random_state

    def resume(self, monitor, state):
        """The saved progress, or None, in all processes."""
        return self._by_first(lambda: self._own.resume(monitor, state))

    def __call__(self, monitor, state):
        """Save the progress of training; this is the last of the callbacks."""
        if self._own is not None:
            self._own(monitor, state)

    def remove(self):
        """Delete the file: the fit is complete."""
        if self._own is not None:
            self._own.remove()

    @staticmethod
    def _by_first(function, keep=False):
        """What a function returns in the first process, or raises there; with ``keep`` only there."""
        found = error = None
        if processes.index() == 0:
            try:
                found = function()
            except (OSError, ValueError) as caught:
                error = caught
        told, refused = processes.of_first((None if keep else found, error))
        if refused is not None:
            raise error or refused
        return found if keep else told
