"""Compiled programs: dropped before their number becomes too large.

JAX keeps every program that it has compiled. Linux allows a process 65530 memory maps, and a program takes ten to
thirty: after fits to sixty tables of different widths there would be none left, and XLA then ends the process.
"""

from __future__ import annotations

import threading
import time
from pathlib import Path

import jax

_MAPS, _LIMIT = Path("/proc/self/maps"), Path("/proc/sys/vm/max_map_count")
# Of the maps that are allowed, for programs: some hundred fits of different structures, whose programs and traces take
# 20 MiB each; and for all maps, which others may have taken as well.
_SHARE, _SHARE_OF_ALL, _USUAL_LIMIT = 0.3, 0.8, 65_530
# Maps are counted once in so many seconds at most: to read a full list takes some hundredths of a second, in which
# hardly a program is compiled.
_SECONDS = 1.0
_counting = threading.Lock()
_counted = 0.0
# Maps that are no programs: those before the first computation, and those that were left when programs were dropped.
_others = None


def n_maps():
    """Number of memory maps of this process; 0 where the system does not tell."""
    try:
        return _MAPS.read_bytes().count(b"\n")
    except OSError:
        return 0


def most_maps(n_others):
    """Number of memory maps above which programs are dropped; infinite where the system has no limit.

    Parameters
    ----------
    n_others : int
        Maps that are no programs.
    """
    try:
        limit = int(_LIMIT.read_text())
    except (OSError, ValueError):
        return float("inf")
    # Where more are allowed, it is memory that programs are dropped for.
    return min(n_others + _SHARE * min(limit, _USUAL_LIMIT), _SHARE_OF_ALL * limit)


def drop_if_many():
    """Drop all compiled programs if there are too many memory maps; those in use end first.

    A program that is needed again is compiled again, to the same bits.
    """
    global _counted, _others
    if time.monotonic() - _counted < _SECONDS or not _counting.acquire(blocking=False):
        return
    try:
        found = n_maps()
        _others = found if _others is None else _others
        if found > most_maps(_others):
            jax.clear_caches()
            _others = n_maps()
        _counted = time.monotonic()
    finally:
        _counting.release()
