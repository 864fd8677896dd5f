"""Fits that pause after a part of their iterations, and continue from there when they are fitted again."""

from __future__ import annotations

import os
from pathlib import Path

from ..svgp import STEPS_PER_CALL
from ..training.checkpoint import Checkpoint

_UNFINISHED = "unfinished"


class Rung(os.PathLike):
    """A folder for the progress of fits that pause after a share of their iterations, in place of ``checkpoint``.

    The same fit at a higher rung of the same folder continues where it paused, with the same steps as a fit without a
    pause.

    Parameters
    ----------
    folder : str
        Exists.
    share : float
        Of ``max_iter``, in (0, 1]; one lets fits end.
    """

    def __init__(self, folder, share):
        self.folder, self.share = folder, share

    def __fspath__(self):
        return self.folder

    def __repr__(self):
        return f"{type(self).__name__}({self.folder!r}, {self.share:.3g})"

    def of_fit(self, identity, max_iter):
        """The `Checkpoint` of one fit."""
        # Callbacks are called after whole chunks.
        n_chunks = max(1, round(self.share * max_iter / STEPS_PER_CALL))
        return _Pausing(self.folder, identity, max_iter if self.share >= 1.0 else n_chunks * STEPS_PER_CALL)

    @property
    def left_unfinished(self):
        """Whether a fit has paused here, and not ended since."""
        return any(Path(self.folder).glob(f"*.{_UNFINISHED}"))


class _Pausing(Checkpoint):
    """A checkpoint that is written once, at the iteration at which the fit pauses or at its end."""

    def __init__(self, folder, identity, last):
        super().__init__(folder, identity)
        self._last, self._mark = last, self.path.with_suffix(f".{_UNFINISHED}")

    def __call__(self, monitor, state):
        """Save the progress of a fit that pauses or ends; whether it pauses."""
        pauses = monitor.running and monitor.n_iter >= self._last
        if pauses or not monitor.running:
            # The file does not say that training ends here: a fit that resumes it continues.
            self.keep(*monitor.progress(state), last=True)
        if pauses:
            self._mark.touch()
        elif not monitor.running:
            self._mark.unlink(missing_ok=True)
        return pauses

    def remove(self):
        """Nothing: the next rung reads the file, and whoever made the folder removes it."""
