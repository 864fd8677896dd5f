"""The evidence lower bound."""

from __future__ import annotations

from ._base import Objective


class ELBO(Objective):
    """The evidence lower bound: sum_n E_q[log p(y_n | f_n)] - KL(q || p).

    Examples
    --------
    >>> from skgp_natgrad.objectives import ELBO
    >>> ELBO()
    ELBO()
    """

    name = "elbo"
    closed_form = True

    def data_term(self, likelihood, mean, var, residual, y):
        return likelihood.expected_log_prob(mean, var, y)
