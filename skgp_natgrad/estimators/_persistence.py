"""A saved estimator: plain arrays and public types, with the version that saved it.

The state that pickle, joblib, copy and skops save names no private module, so that files stay
readable when code moves. The format number counts changes of the fitted attributes, not releases:
newer packages read files of older formats, and refuse a file of a newer format with a clear error
instead of failing at some later call.
"""

from __future__ import annotations

import operator

import jax
import numpy as np
from sklearn.base import clone

from .. import kernels, svgp
from .._backend.version import __version__
from ..kernels.columns import by_position
from ..objectives import ELBO
from ..start.normal_scores import NormalScores
from ..start.scale import Scale
from . import _constructor, _warm_start
from ._arguments import one_or_each
from ._calibration import calibration_of
from ._units import in_units_of_X

# Raise it with every change of the attributes that a fitted estimator holds.
FORMAT = 9
_KEY = "_saved_by"
_SCALES = ("_x_scale", "_y_scale")
# Fields of `svgp.Previous` that are records of arrays.
_RECORDS = ("q", "masks")
# What the present defaults were called before format 8.
_FORMER_DEFAULTS = {"n_mean_inducing": 0, "mean_solver": "adam"}
# And before format 9.
_FORMER_INITS = {"greedy_variance": "auto"}


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
        If a newer package saved it in a format that this one does not know.
    """
    stamp = state.get(_KEY)
    state = {key: value for key, value in state.items() if key != _KEY}
    if stamp is None:
        return state
    if stamp["format"] > FORMAT:
        raise ValueError(
            f"This {cls.__name__} was saved by skgp_natgrad {stamp['skgp_natgrad']} in format {stamp['format']}, and "
            f"version {__version__} reads formats up to {FORMAT}; to load it, install "
            f"skgp_natgrad>={stamp['skgp_natgrad']}."
        )
    if stamp["format"] < 8:
        state |= {name: "auto" for name, former in _FORMER_DEFAULTS.items() if state.get(name) == former}
    if stamp["format"] < 9 and isinstance(state.get("inducing_init"), str):
        state |= {"inducing_init": _FORMER_INITS.get(state["inducing_init"], state["inducing_init"])}
    # Arguments that the version which saved it did not have.
    state = {name: value for name, value in _constructor.defaults(cls).items() if name not in state} | state
    if "_posterior" not in state:
        return state
    state.setdefault("_calibration", None)
    state.setdefault("_dispersion", None)
    state.setdefault("log_prior_", 0.0)
    if "mean_function" in state:
        state.setdefault("mean_function_", None)
    if stamp["format"] < 3:
        return _with_former_init(_of_former_format(state))
    state["_posterior"] = svgp.Posterior(**state["_posterior"])
    if state.get("_calibration") is not None:
        state["_calibration"] = svgp.Calibration(**state["_calibration"])
    if state.get("_dispersion") is not None:
        fields = state["_dispersion"]
        state["_dispersion"] = svgp.Dispersion(**fields | {"posterior": svgp.Posterior(**fields["posterior"])})
    state["_warm_state"] = _restored_previous(state["_warm_state"], state)
    state |= {name: _restored_scale(state[name]) for name in _SCALES}
    return state if stamp["format"] >= 9 else _with_former_init(state | {"kernel_": _in_units_of_X(state)})


def _with_former_init(state):
    """The state whose record has the present default of the points' start."""
    before = dict(state["_trained_with"])
    former = before.get("inducing_init")
    if isinstance(former, str):
        before["inducing_init"] = _FORMER_INITS.get(former, former)
    return state | {"_trained_with": before}


def _in_units_of_X(state):
    """The fitted kernels of a format in which all their numbers were in the units of the scaled X."""
    former, names = state["kernel_"], state.get("feature_names_in_")
    kernels = [by_position(each, names) for each in one_or_each(former)]
    found = in_units_of_X(kernels, state["_x_scale"])
    if all(map(operator.is_, found, kernels)):
        return former
    return list(found) if isinstance(former, list) else found[0]


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


def _of_former_format(state):
    """The state of a model that was saved in format 1 or 2."""
    former = state["_warm_state"]
    parameters, jitter = former.parameters, former.jitter or float(state["jitter"])
    state = {"objective": "elbo", **state}
    state["_warm_state"] = svgp.Previous(
        former.q, parameters, parameters, former.masks, former.prior_mean, former.weight, jitter
    )
    state["_trained_with"] = _former_arguments(state) if former.arguments is None else former.arguments
    state["_trained_with"] = {"objective": ELBO(), **state["_trained_with"]}
    return state


def _former_arguments(state):
    """The arguments with which a model of format 1 was fitted, taken from the loaded state where it has them."""
    fitted, likelihood = state["likelihood_"], state["likelihood"]
    if isinstance(likelihood, str):
        likelihood = type(fitted)()
    started = {name: getattr(likelihood, name, None) for name in fitted.parameters}
    started = {name: value for name, value in started.items() if value is not None}
    normalize_y = "classes_" not in state and state["normalize_y"] and fitted.standardises
    return _warm_start.recorded(state, clone(fitted).set_params(**started), ELBO(), normalize_y)
