"""Objectives, which training maximises; one in each file."""

from __future__ import annotations

from ._base import REGISTRY, Objective
from .elbo import ELBO
from .predictive import Predictive
from .tightened import Tightened

__all__ = ["ELBO", "Objective", "Predictive", "Tightened", "by_name", "names"]


# Saved models name the place from which users import a class, wherever its file lies.
for _class in [value for value in list(globals().values()) if isinstance(value, type)]:
    _class.__module__ = __name__


def names() -> list[str]:
    """Return the names of all objectives.

    Returns
    -------
    names : list of str
        Sorted.

    Examples
    --------
    >>> from skgp_natgrad import objectives
    >>> objectives.names()
    ['elbo', 'predictive', 'tightened']
    """
    return sorted(REGISTRY)


def by_name(name: str) -> Objective:
    """Return the objective of a name, with its default parameters.

    Parameters
    ----------
    name : str
        One of `names`.

    Returns
    -------
    objective : Objective

    Examples
    --------
    >>> from skgp_natgrad import objectives
    >>> objectives.by_name("predictive")
    Predictive()
    """
    return REGISTRY[name]()
