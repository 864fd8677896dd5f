"""The predictive objective."""

from __future__ import annotations

import numbers

import numpy as np

from ._base import Objective


class Predictive(Objective):
    """The log density of each row's own prediction, minus the weighted KL divergence.

    Training maximises

        sum_n log E_q[p(y_n | f_n)] - kl_weight * KL(q || p)

    (the parametric Gaussian process regressor "PPGPR" of [1]_), which has the logarithm outside of the
    expectation: the variance of q is fitted to the errors, whereas the evidence lower bound fits it to
    the uncertainty about f. Predictions are better calibrated if the model is wrong, for example if the
    noise depends on X, but q no longer approximates the posterior. It is not a bound on the evidence
    either; ``elbo_`` and ``elbo_curve_`` hold the value of the sum above.

    For a Gaussian likelihood the expectation is N(y_n; mean_n, var_n + s^2); for others it has a closed form or
    is computed by quadrature, see `Likelihood.training_log_density`. The best q has no closed form: natural
    gradient steps may have negative curvature, which is then ignored.

    Parameters
    ----------
    kl_weight : float, default=1.0
        Weight of the KL divergence, positive. Smaller weights fit the rows more closely; tune it on
        held-out rows, as ``objective__kl_weight``.

    References
    ----------
    .. [1] M. Jankowiak, G. Pleiss, J. Gardner (2020). "Parametric Gaussian Process Regressors." ICML.

    Examples
    --------
    >>> from skgp_natgrad.objectives import Predictive
    >>> Predictive(kl_weight=0.2)
    Predictive(kl_weight=0.2)
    """

    name = "predictive"
    parameters = ("kl_weight",)
    closed_form = False

    def __init__(self, kl_weight: float = 1.0) -> None:
        self.kl_weight = kl_weight

    def check(self, likelihood):
        weight = self.kl_weight
        if isinstance(weight, bool) or not isinstance(weight, numbers.Real) or not 0.0 < weight < np.inf:
            raise ValueError(f"objective Predictive(kl_weight={weight!r}): kl_weight must be positive and finite.")
        if not hasattr(likelihood, "log_predictive_density"):
            raise ValueError(
                f"objective 'predictive' needs a predictive density, but likelihood {type(likelihood).__name__} has no "
                "log_predictive_density; define this method, or use objective='elbo'."
            )

    def data_term(self, likelihood, mean, var, residual, y):
        # The divergence that training subtracts has weight one.
        return likelihood.training_log_density(mean, var, y) / self.kl_weight

    def reported(self, bound):
        return self.kl_weight * bound
