"""A check that an array fits into memory, before it is allocated.

Linux grants more memory than is available, and kills the process when it uses it: NumPy's MemoryError comes too late,
or never.
"""

from __future__ import annotations

import math
import os
from pathlib import Path

# Bytes of a GiB.
GIB = 2**30
_MEMINFO = Path("/proc/meminfo")
# The limit of a container or a batch job, and what it uses: control groups of version 2 and 1. A group's own folder is
# named in the second file; inside of a container it is the first.
_GROUPS, _MEMBERSHIP = Path("/sys/fs/cgroup"), Path("/proc/self/cgroup")
_FILES = (("", "memory.max", "memory.current"), ("memory", "memory.limit_in_bytes", "memory.usage_in_bytes"))


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
    if n_bytes > found:
        raise MemoryError(
            f"{purpose} needs {n_bytes / GIB:.3g} GiB of memory, and {found / GIB:.3g} GiB are available; {remedy}."
        )


def available():
    """Return the number of bytes that can be allocated; infinity if the system does not report it."""
    return min(_unused(), *_left_in_groups(), math.inf)


def _unused():
    """Memory that no process needs, including file caches; if unknown, all physical memory."""
    if _MEMINFO.exists():
        fields = dict(line.split(":", 1) for line in _MEMINFO.read_text().splitlines())
        if "MemAvailable" in fields:
            return 1024 * int(fields["MemAvailable"].split()[0])
    names = getattr(os, "sysconf_names", {})
    if not {"SC_PHYS_PAGES", "SC_PAGE_SIZE"} <= set(names):
        return math.inf
    size = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    return size if size > 0 else math.inf


def _left_in_groups():
    """What the limits of this process' control group, and of all groups around it, leave."""
    for controller, limit, usage in _FILES:
        for folder in _folders(controller):
            most, used = _number(folder / limit), _number(folder / usage)
            if most is not None:
                yield max(most - max((used or 0) - _file_cache(folder), 0), 0)


def _folders(controller):
    """The folders of the control groups that this process is in, the innermost first."""
    root = _GROUPS / controller
    lines = _MEMBERSHIP.read_text().splitlines() if _MEMBERSHIP.exists() else []
    fields = (line.split(":", 2) for line in lines)
    paths = [path for _, names, path in fields if controller in names.split(",")]
    own = root / paths[0].lstrip("/") if paths else root
    return [own, *(folder for folder in own.parents if folder == root or root in folder.parents)]


def _number(path):
    """The number in a control group's file; None if there is no file, or if it contains "max"."""
    text = path.read_text().strip() if path.exists() else ""
    return int(text) if text.isdigit() else None


def _file_cache(folder):
    """Bytes of files that a group's usage counts, and that are given up when memory is needed."""
    path = folder / "memory.stat"
    lines = path.read_text().splitlines() if path.exists() else []
    fields = dict(line.split() for line in lines if len(line.split()) == 2)
    return int(fields.get("total_inactive_file", fields.get("inactive_file", 0)))
