"""The base class of the objectives: the sum over the rows, from which training subtracts the KL divergence."""

from __future__ import annotations

from typing import Any, ClassVar

import jax
from sklearn.base import BaseEstimator

from .._backend.types import Array
from ..likelihoods import Likelihood

REGISTRY = {}


class Objective(BaseEstimator):
    """Base class of the objectives.

    Training maximises ``sum_n weight_n data_term_n - KL(q || p)``. A subclass is a pytree whose
    leaves are its ``parameters``, numbers that compiled programs take as arguments: a new value
    needs no compilation.

    Attributes
    ----------
    name : str
        Its name for the estimators' argument ``objective``.
    parameters : tuple of str
        Arguments that are numbers.
    needs_residual : bool
        Whether the data term uses the prior variance that the inducing points do not explain, k_xx - q_xx.
    closed_form : bool
        Whether the data term depends on q as the expected log-likelihood does. Then the best q has a
        closed form if it has one for the evidence lower bound, the exact mean is available, and so is
        ``partial_fit``.
    """

    name: ClassVar[str] = ""
    parameters: ClassVar[tuple[str, ...]] = ()
    needs_residual: ClassVar[bool] = False
    closed_form: ClassVar[bool] = False

    def __init_subclass__(cls, **kwargs):
        super().__init_subclass__(**kwargs)
        jax.tree_util.register_pytree_node(cls, _flatten, lambda options, leaves: _unflatten(cls, options, leaves))
        if "name" in vars(cls):
            taken = REGISTRY.setdefault(cls.name, cls)
            if (taken.__module__, taken.__qualname__) != (cls.__module__, cls.__qualname__):
                raise ValueError(
                    f"{cls.__qualname__}: {taken.__qualname__} has the name {cls.name!r} already; choose another name."
                )

    def check(self, likelihood: Likelihood) -> None:
        """Raise ValueError if the objective is not defined for a likelihood."""

    def data_term(self, likelihood: Any, mean: Array, var: Array, residual: Array | None, y: Array) -> Array:
        """The terms of the rows: (B,).

        Parameters
        ----------
        likelihood : Likelihood
        mean, var : arrays of shape (K, B)
            Latent moments.
        residual : array of shape (K, B) or None
            The part of ``var`` that the inducing points do not explain, k_xx - q_xx; None unless
            ``needs_residual``.
        y : array of shape (T, B)
        """
        raise NotImplementedError

    def reported(self, bound: Array) -> Array:
        """The maximised bound in the reported units: nats of the rows' log density."""
        return bound


def _flatten(objective):
    options = [name for name in objective._get_param_names() if name not in objective.parameters]
    leaves = [getattr(objective, name) for name in objective.parameters]
    return leaves, tuple((name, getattr(objective, name)) for name in options)


def _unflatten(cls, options, leaves):
    # Leaves may be tracers or placeholders here, so that nothing is checked.
    objective = object.__new__(cls)
    for name, value in (*options, *zip(cls.parameters, leaves, strict=True)):
        object.__setattr__(objective, name, value)
    return objective
