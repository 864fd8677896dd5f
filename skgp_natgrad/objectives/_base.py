"""What an objective is: the rows' part of what training raises, beside the KL divergence."""

from __future__ import annotations

from typing import ClassVar

import jax
from sklearn.base import BaseEstimator

REGISTRY = {}


class Objective(BaseEstimator):
    """Base class of the objectives.

    Training raises ``sum_n weight_n data_term_n - KL(q || p)``. A subclass is a pytree whose
    leaves are its ``parameters``, numbers that compiled programs take as arguments: another
    value compiles nothing.

    Attributes
    ----------
    name : str
        What the estimators' argument ``objective`` calls it.
    parameters : tuple of str
        Arguments that are numbers.
    needs_residual : bool
        Whether the data term reads what the inducing points leave open of the prior variance.
    closed_form : bool
        Whether the data term depends on q as the expected log-likelihood does. The best q then has a
        closed form where it has one for the evidence lower bound, the exact mean can be solved for,
        and what rows have said can be passed on to ``partial_fit``.
    """

    name: ClassVar[str] = ""
    parameters: ClassVar[tuple] = ()
    needs_residual: ClassVar[bool] = False
    closed_form: ClassVar[bool] = True

    def __init_subclass__(cls, **kwargs):
        super().__init_subclass__(**kwargs)
        jax.tree_util.register_pytree_node(cls, _flatten, lambda _, leaves: _unflatten(cls, leaves))
        if "name" in vars(cls):
            REGISTRY[cls.name] = cls

    def check(self, likelihood):
        """Raise ValueError if the objective is not defined for a likelihood."""

    def data_term(self, likelihood, mean, var, residual, y):
        """What each row adds: (B,).

        Parameters
        ----------
        likelihood : Likelihood
        mean, var : arrays of shape (K, B)
            Latent moments.
        residual : array of shape (K, B) or None
            The part of ``var`` that the inducing points leave open, k_xx - q_xx; None unless
            ``needs_residual``.
        y : array of shape (T, B)
        """
        raise NotImplementedError

    def reported(self, bound):
        """The bound that training raises in the units in which it is reported: nats of the rows' log density."""
        return bound


def _flatten(objective):
    return [getattr(objective, name) for name in objective.parameters], None


def _unflatten(cls, leaves):
    # Leaves may be tracers or placeholders here, so that nothing is checked.
    objective = object.__new__(cls)
    for name, value in zip(cls.parameters, leaves, strict=True):
        object.__setattr__(objective, name, value)
    return objective
