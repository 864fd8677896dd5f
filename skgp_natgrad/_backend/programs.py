"""Compiled programs of this process, which are dropped before it has more memory maps than the system allows.

JAX keeps every program that it has compiled. Linux gives a process 65530 memory maps, of which a program takes ten to
thirty: a process that fits sixty tables of different widths would not get the next one, and XLA ends a process that
gets none.
"""

from __future__ import annotations

import threading
import time
from pathlib import Path

import jax

_MAPS, _LIMIT = Path("/proc/self/maps"), Path("/proc/sys/vm/max_map_count")
# Of the maps that are allowed: some hundred fits of different structures, whose programs and traces take 20 MiB each.
_SHARE = 0.3
# Maps are counted once in so many seconds at most: to read a full list takes some hundredths of a second, in which
# hardly a program is compiled.
_SECONDS = 1.0
_counting = threading.Lock()
_counted = 0.0


def n_maps():
    """Number of memory maps of this process; 0 where the system does not tell."""
    try:
        return _MAPS.read_bytes().count(b"\n")
    except OSError:
        return 0


def most_maps():
    """Number of memory maps above which programs are dropped; infinite where the system has no limit."""
    try:
        return _SHARE * int(_LIMIT.read_text())
    except (OSError, ValueError):
        return float("inf")


def drop_if_many():
    """Drop all compiled programs if there are too many memory maps; those in use end first.

    A program that is needed again is compiled again, to the same bits.
    """
    global _counted
    if time.monotonic() - _counted < _SECONDS or not _counting.acquire(blocking=False):
        return
    try:
        if n_maps() > most_maps():
            jax.clear_caches()
        _counted = time.monotonic()
    finally:
        _counting.release()
