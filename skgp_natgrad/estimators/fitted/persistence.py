"""A saved estimator: plain arrays and public types, with the version that saved it.

The state that pickle, joblib, copy and skops save names no private module, so that files stay
readable when code moves. The format number counts changes of the fitted attributes, not releases:
a file of another format is refused with a clear error, instead of failing at some later call.
"""

from __future__ import annotations

import jax
import numpy as np

from ... import kernels, svgp
from ..._backend import __version__
from ...start.normal_scores import NormalScores
from ...start.scale import Scale
from ..arguments.reading import one_or_each
from .attributes import calibration_of

# Raise it with every change of the attributes that a fitted estimator holds.
FORMAT = 11
_KEY = "_saved_by"
_SCALES = ("_x_scale", "_y_scale")
# Fields of `svgp.Previous` that are records of arrays.
_RECORDS = ("q", "masks")


def plain(state):
    """Return an estimator's state as plain arrays and public types, with its format."""
    state = {**state, _KEY: {"format": FORMAT, "skgp_natgrad": __version__}}
    if "_posterior" in state:
        # A function belongs to the program that defines it, and a saved model must load in any other.
        state["callback"] = None
        state.pop("_skl_callbacks", None)
        state["_posterior"] = dict(state["_posterior"]._asdict())
        state["_warm_state"] = _plain_previous(state["_warm_state"])
        calibration = calibration_of(state)
        state["_calibration"] = None if calibration is None else dict(calibration._asdict())
        if state.get("_dispersion") is not None:
            fields = state["_dispersion"]._asdict()
            state["_dispersion"] = dict(fields) | {"posterior": dict(fields["posterior"]._asdict())}
        state |= {name: dict(state[name]._asdict()) for name in _SCALES}
    return state


def restored(cls, state):
    """Undo `plain`: return the state of the estimator.

    Parameters
    ----------
    cls : type
        The estimator's class.
    state : dict
        A state without a stamp is returned unchanged: a subclass may have its own ``__getstate__``.

    Raises
    ------
    ValueError
        If it was saved in another format.
    """
    stamp = state.get(_KEY)
    state = {key: value for key, value in state.items() if key != _KEY}
    if stamp is None:
        return state
    if stamp["format"] != FORMAT:
        raise ValueError(
            f"This {cls.__name__} was saved by skgp_natgrad {stamp['skgp_natgrad']} in format {stamp['format']}, and "
            f"version {__version__} reads only format {FORMAT}; to load it, install "
            f"skgp_natgrad=={stamp['skgp_natgrad']}, or fit it again."
        )
    if "_posterior" not in state:
        return state
    state["_posterior"] = svgp.Posterior(**state["_posterior"])
    if state["_calibration"] is not None:
        state["_calibration"] = svgp.Calibration(**state["_calibration"])
    if state.get("_dispersion") is not None:
        fields = state["_dispersion"]
        state["_dispersion"] = svgp.Dispersion(**fields | {"posterior": svgp.Posterior(**fields["posterior"])})
    state["_warm_state"] = _restored_previous(state["_warm_state"], state)
    state |= {name: _restored_scale(state[name]) for name in _SCALES}
    return state


def _restored_scale(fields):
    return (NormalScores if "knots" in fields else Scale)(**fields)


def _n_columns(fields):
    return np.shape(fields["knots"])[1] if "knots" in fields else len(fields["scale"])


def _plain_previous(previous):
    fields = previous._asdict()
    parameters, _ = fields.pop("parameters"), fields.pop("whitened_by")
    fields |= {name: dict(fields[name]._asdict()) for name in _RECORDS}
    fields["hyperparameters"] = [np.asarray(leaf) for leaf in jax.tree.leaves(parameters[:2])]
    fields |= {name: dict(getattr(parameters, name)._asdict()) for name in ("points", "weights")}
    return dict(fields)


def _restored_previous(fields, state):
    structure = _structure(state)
    hyperparameters = jax.tree.unflatten(structure, fields["hyperparameters"])
    points, weights = svgp.Points(**fields["points"]), svgp.Weights(**fields["weights"])
    parameters = svgp.Parameters(*hyperparameters, points, weights)
    return svgp.Previous(
        svgp.Gaussian(**fields["q"]),
        parameters,
        parameters,
        svgp.Masks(**fields["masks"]),
        fields["prior_mean"],
        fields["weight"],
        fields["jitter"],
    )


def _structure(state):
    """The structure of the trained hyperparameters: that of the fitted kernels and likelihood."""
    n_features, n_targets = (_n_columns(state[name]) for name in _SCALES)
    names = state.get("feature_names_in_")
    specs = [kernels.from_sklearn(kernel, n_features, names).value for kernel in one_or_each(state["kernel_"])]
    return jax.tree.structure((tuple(specs), state["likelihood_"].value_and_bounds(n_targets)[0]))
