"""The docstrings of the estimators: their own, with the arguments of the table and what both have in common."""

from __future__ import annotations

import inspect
import re
from typing import TypeVar

_Class = TypeVar("_Class", bound=type)
_PACKAGE = __name__.partition(".")[0]


def documented(cls: _Class) -> _Class:
    """Insert the sections of its bases into a class's docstring; arguments stand in the order of the constructor."""
    if cls.__doc__ is None:
        # Python runs without docstrings (-OO).
        return cls
    bases = [base for base in cls.__mro__[1:] if base.__module__.startswith(_PACKAGE) and vars(base).get("__doc__")]
    (start, own), *above = map(_sections, [cls, *bases])
    of_all = [own, *(sections for _, sections in above)]
    parameters = _entries("Parameters", of_all)
    groups = {base.__name__.lower(): next(iter(base._arguments)) for base in cls._groups}
    shared = {
        "Parameters": "\n".join(parameters[name] for name in cls._arguments),
        "Attributes": "\n".join(_entries("Attributes", of_all).values()),
        "References": next(sections["References"] for sections in of_all if "References" in sections),
    }
    told = ", ".join(f"{name} (from ``{first}``)" for name, first in groups.items())
    start = f"{start}\nThe parameters stand in groups: {told}.\n"
    texts = shared | {name: text for name, text in own.items() if name not in shared}
    cls.__doc__ = start + "".join(f"\n{name}\n{'-' * len(name)}\n{text}\n" for name, text in texts.items())
    return cls


def _sections(cls):
    """The text before the first section of a class's docstring, and the sections by name."""
    start, *rest = re.split(r"^([A-Z][a-z]+)\n-{3,}\n", inspect.cleandoc(cls.__doc__), flags=re.MULTILINE)
    return start.rstrip("\n") + "\n", {name: text.strip("\n") for name, text in zip(rest[::2], rest[1::2], strict=True)}


def _entries(section, of_classes):
    """The entries of a section by their names, from the first class that has each."""
    text = "\n".join(sections[section] for sections in of_classes if section in sections)
    found = {}
    for entry in re.findall(r"^\w+ : .*\n(?:[ \n].*\n?)*", text + "\n", flags=re.MULTILINE):
        found.setdefault(entry.split(" : ")[0], entry.rstrip("\n"))
    return found
