"""Warnings: a first line that says what it is about, in words that stay the same, and then the details.

Under Python's default filter a warning is shown once at each line of a program. Python compares whole texts for this,
figures included, and forgets them whenever scikit-learn checks an array: in a loop of fits every warning would be
shown. Here first lines are compared, and the last places are remembered. All other filters do as always.
"""

from __future__ import annotations

import re
import sys
import sysconfig
import threading
import warnings
from pathlib import Path
from typing import NamedTuple

_PACKAGE = str(Path(__file__).parents[1])
# Files that the user has not written: a search or a pipeline calls `fit` from there.
_LIBRARIES = re.compile(rf"{re.escape(sysconfig.get_path('stdlib'))}|.*[/\\](site|dist)-packages[/\\]")
# Where warnings of each kind were shown, the last place last; and how many are remembered.
_shown: dict[tuple, None] = {}
_MOST, _lock = 1000, threading.Lock()


class Notice(NamedTuple):
    """A warning that may be given.

    Attributes
    ----------
    kind : str
        The first line: a sentence without figures or names.
    details : str
        What was found, and what can be done.
    category : type
    """

    kind: str
    details: str
    category: type[Warning] = UserWarning

    def give(self) -> None:
        """Give the warning, as of the line of the user's program that has called the package."""
        frame = _caller()
        name, file, line = frame.f_globals.get("__name__", "<unknown>"), frame.f_code.co_filename, frame.f_lineno
        text = f"{self.kind}\n{self.details}"
        place = self.kind, self.category, file, line, _cell()
        is_repeated = place in _shown and _is_shown_once(text, self.category, name, line)
        with _lock:
            _shown.pop(place, None)
            _shown[place] = None
            while len(_shown) > _MOST:
                _shown.pop(next(iter(_shown)), None)
        if not is_repeated:
            warnings.warn_explicit(text, self.category, file, line, name)


def shown(value, most):
    """What a value looks like, in so many characters at most, for messages."""
    text = repr(value)
    return text if len(text) <= most else f"{text[:most]}..."


def _caller():
    """The nearest frame of the user's own code; where there is none, as in a worker, the one that calls the package."""
    frame = outside = sys._getframe(1)
    while frame is not None:
        if frame.f_code.co_filename.startswith(_PACKAGE):
            outside = frame.f_back or frame
        elif not _LIBRARIES.match(frame.f_code.co_filename):
            return frame
        frame = frame.f_back
    return outside


def _cell():
    """The number of the cell that runs in a notebook: the same cell, run again, is another place."""
    shell = getattr(sys.modules.get("IPython"), "get_ipython", lambda: None)()
    return getattr(shell, "execution_count", None)


def _is_shown_once(text, category, module, line):
    """Whether the first of Python's filters that suits asks to show a warning once."""
    for action, start, of, where, at in warnings.filters:
        if issubclass(category, of) and _suits(start, text) and _suits(where, module) and at in (0, line):
            return action in ("default", "module", "once")
    return True


def _suits(pattern, text):
    return pattern is None or (pattern == text if isinstance(pattern, str) else pattern.match(text) is not None)
