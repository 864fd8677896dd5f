"""What a saved estimator says about the version that saved it.

`BaseNGDSVGP` stamps the state that pickle, joblib, copy and skops take from it. The number counts
the forms of the fitted attributes, not the releases: files of older forms are to be read by newer
packages, and a file of a newer form is refused by name instead of failing at some later call.
"""

from __future__ import annotations

from .._backend.version import __version__

# To be raised with every change of the attributes that a fitted estimator holds.
FORMAT = 2
_KEY = "_saved_by"


def stamped(state):
    """Return an estimator's state with the form it has, and the package that it was saved by."""
    return {**state, _KEY: {"format": FORMAT, "skgp_natgrad": __version__}}


def unstamped(name, state):
    """Return the state without its stamp.

    Parameters
    ----------
    name : str
        The estimator's class, for the error.
    state : dict
        One without a stamp is taken as it is: a subclass may have a ``__getstate__`` of its own.

    Raises
    ------
    ValueError
        If a newer package saved it in a form that this one does not know.
    """
    stamp = state.get(_KEY)
    if stamp is not None and stamp["format"] > FORMAT:
        raise ValueError(
            f"This {name} was saved by skgp_natgrad {stamp['skgp_natgrad']} in format {stamp['format']}, and version "
            f"{__version__} reads formats up to {FORMAT}; install skgp_natgrad>={stamp['skgp_natgrad']} to load it."
        )
    return {key: value for key, value in state.items() if key != _KEY}
