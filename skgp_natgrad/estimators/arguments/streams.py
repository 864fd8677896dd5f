"""Which estimators have ``partial_fit``."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from sklearn.utils.metaestimators import available_if

from ... import objectives
from ...svgp import refused_in_stream

_Method = TypeVar("_Method", bound=Callable[..., Any])


def can_stream(estimator):
    """Whether an estimator has ``partial_fit``: its q must contain all information from the data.

    Invalid arguments are not refused here, but in `fit`.

    Raises
    ------
    AttributeError
        Names the arguments and the remedy.
    """
    refused = refused_in_stream(estimator.n_mean_inducing, estimator.basis, estimator.mean_solver, estimator.solver)
    here = f"{type(estimator).__name__} has no partial_fit with"
    if refused:
        given = ", ".join(f"{name}={getattr(estimator, name)!r}" for name in refused)
        raise AttributeError(
            f"{here} {given}: only what the inducing points have learned can be passed on to later rows. Use "
            "n_mean_inducing=0, basis='orthogonal', mean_solver='adam' and solver='ngd'."
        )
    if not _q_is_posterior(estimator.objective):
        raise AttributeError(
            f"{here} objective={estimator.objective!r}: its q is not a posterior, from which later rows could start. "
            "Use objective='elbo'."
        )
    return True


def streaming(method: _Method) -> _Method:
    """Decorate ``partial_fit``, which only estimators have that can stream."""
    return available_if(can_stream)(method)


def _q_is_posterior(objective):
    if not isinstance(objective, objectives.Objective):
        objective = objectives.by_name(objective if objective in objectives.names() else "elbo")
    return objective.closed_form
