"""A check that an array fits into memory, before it is allocated.

Linux grants more memory than there is, and kills the process that uses it: NumPy's
MemoryError comes too late, or never.
"""

from __future__ import annotations

import os
from pathlib import Path

GIB = 2**30
_MEMINFO = Path("/proc/meminfo")
# The limit of a container or a batch job: control groups of version 2 and 1.
_LIMITS = (Path("/sys/fs/cgroup/memory.max"), Path("/sys/fs/cgroup/memory/memory.limit_in_bytes"))


def require(n_bytes, purpose, remedy):
    """Raise MemoryError if ``n_bytes`` are more than is available.

    Parameters
    ----------
    n_bytes : int
    purpose : str
        What the memory is for; the start of the message.
    remedy : str
        What to do instead; the end of the message.
    """
    found = available()
    if found is not None and n_bytes > found:
        raise MemoryError(
            f"{purpose} needs {n_bytes / GIB:.3g} GiB of memory, and {found / GIB:.3g} GiB are available; {remedy}."
        )


def available():
    """Return the number of bytes that can be allocated; None if the system does not report it."""
    known = [size for size in (_unused(), *map(_limit, _LIMITS)) if size is not None]
    return min(known, default=None)


def _unused():
    """Memory that no process needs, including file caches; if unknown, all physical memory."""
    if _MEMINFO.exists():
        fields = dict(line.split(":", 1) for line in _MEMINFO.read_text().splitlines())
        if "MemAvailable" in fields:
            return 1024 * int(fields["MemAvailable"].split()[0])
    names = getattr(os, "sysconf_names", {})
    if not {"SC_PHYS_PAGES", "SC_PAGE_SIZE"} <= set(names):
        return None
    size = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    return size if size > 0 else None


def _limit(path):
    """The limit in a control group's file; None if there is no file, or if it contains "max"."""
    text = path.read_text().strip() if path.exists() else ""
    return int(text) if text.isdigit() else None
