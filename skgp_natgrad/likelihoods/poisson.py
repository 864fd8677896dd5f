"""The Poisson likelihood."""

from __future__ import annotations

from jax.scipy.special import gammaln

from ._base import bounded_exp
from ._families import CountLikelihood, draw_counts, poisson_cdf


class Poisson(CountLikelihood):
    """Counts of mean exp(f): p(y | f) = exp(f y - exp(f)) / y!.

    E[log p] = y m - exp(m + v / 2) - log y! (Seeger and Bouchard 2012). If the variance of counts exceeds their mean,
    use `NegativeBinomial`; if they have too many zeros, `ZeroInflatedPoisson`.

    Examples
    --------
    >>> from skgp_natgrad.likelihoods import Poisson
    >>> Poisson()
    Poisson()
    """

    name = "poisson"
    by_newton = True

    def log_prob(self, f, y):
        return y * f - bounded_exp(f) - gammaln(y + 1.0)

    def expectation_each(self, mean, var, y):
        return y * mean - bounded_exp(mean + 0.5 * var) - gammaln(y + 1.0)

    def variance_coefficients(self):
        return 1.0, 0.0

    def conditional_cdf(self, f, y):
        return poisson_cdf(f, y)

    def sample(self, f, rng):
        return draw_counts(bounded_exp(f), rng)
