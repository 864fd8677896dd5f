"""Checks of given inducing points, and their conversion to the units of the model."""

from __future__ import annotations

import numpy as np

from ...svgp import INDUCING_INITS
from ..arguments import checks
from . import inputs


def with_points(plan, estimator, n_features, scale):
    """The plan with ``inducing_init`` checked and the user's points in the units of the model."""
    if isinstance(plan.inducing_init, str):
        checks.choice("inducing_init", plan.inducing_init, ("auto", *INDUCING_INITS))
        return plan
    if plan.n_inducing is None:
        raise ValueError(
            f"n_inducing={estimator.n_inducing!r} puts an inducing point at every row, but inducing_init also "
            "gives points; leave one of the two at its default."
        )
    _check_names_of(plan.inducing_init, getattr(estimator, "feature_names_in_", None))
    given = _given_points(plan.inducing_init, n_features)
    exact = plan.settings.algorithm.solves_mean
    sized = plan.n_inducing != "auto"
    if exact and plan.n_mean_inducing and sized and len(given) == plan.n_inducing + plan.n_mean_inducing:
        raise ValueError(
            f"inducing_init has {len(given)} points, but mean_solver='exact' places the mean-only points "
            "itself; give only the inducing points."
        )
    return plan._replace(inducing_init=scale.forward(given))


def _check_names_of(inducing_init, names):
    """Refuse a data frame of points whose columns are not those of X, in their order."""
    columns = getattr(inducing_init, "columns", None)
    if names is not None and columns is not None and list(columns) != list(names):
        raise ValueError(
            f"inducing_init has the columns {list(columns)}, but X has {list(names)}; give the same ones in the same "
            "order."
        )


def _given_points(inducing_init, n_features):
    """The user's array of points, checked."""
    inputs.refuse_masked("inducing_init", inducing_init)
    try:
        given = np.asarray(inducing_init, dtype=float)
    except (TypeError, ValueError):
        given = np.empty(0)
    if given.ndim != 2 or given.shape[1] != n_features or len(given) == 0 or not np.all(np.isfinite(given)):
        raise ValueError(
            f"inducing_init={inducing_init!r} must be one of 'auto', {', '.join(map(repr, INDUCING_INITS))}, "
            f"or a finite array of points of shape (n_points, {n_features}) in the units of X."
        )
    return given
