"""The binomial likelihood."""

from __future__ import annotations

from typing import Literal

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import gammaln
from scipy.special import betainc, expit, logit, ndtr, ndtri

from ._base import RegressionLikelihood
from ._quadrature import expectation, log_ndtr
from .bernoulli import LINKS


class Binomial(RegressionLikelihood):
    """Counts of successes out of known numbers of trials: y ~ Binomial(n, link(f)).

    Each row has its own n, the argument ``trials`` of `fit` and of the predictions; without it n is one. The mean of
    y given f is n link(f): without ``trials`` predictions are probabilities of success, with it counts. A row of n
    trials is equivalent to n rows of `Bernoulli`, at the cost of one.

    Parameters
    ----------
    link : {"probit", "logit"}, default="probit"
        The normal or the logistic distribution function.

    Examples
    --------
    >>> from skgp_natgrad.likelihoods import Binomial
    >>> Binomial(link="logit")
    Binomial(link='logit')
    """

    name = "binomial"
    options = ("link",)
    discrete = True
    known = ("trials",)

    def __init__(self, link: Literal["probit", "logit"] = "probit") -> None:
        self.link = link

    @property
    def trials(self):
        """The numbers of trials (T, B), or one."""
        return 1.0 if self.rows is None else self.rows[0]

    def value_and_bounds(self, n_targets):
        if self.link not in LINKS:
            raise ValueError(f"likelihood Binomial(link={self.link!r}): link must be one of {', '.join(LINKS)}.")
        return super().value_and_bounds(n_targets)

    # -- the data ------------------------------------------------------------------------

    def check_targets(self, y):
        self._refuse(
            y,
            (y >= 0) & (y == np.floor(y)),
            "counts of successes, the integers 0, 1, 2, ...",
            'multiply proportions by the numbers of trials, and give these as trials=, or take "beta"',
        )

    def known_everywhere(self, n_targets):
        return np.ones((n_targets, 1))

    def check_rows(self, y):
        trials = np.broadcast_to(self.trials, y.shape)
        bad = np.argwhere(y > trials)
        if len(bad):
            place = tuple(bad[0])
            raise ValueError(
                f"likelihood Binomial: y[{place[1]}]={y[place]:g} is more than its number of trials, "
                f"{trials[place]:g}; give y as counts of successes, and trials= with the number of trials of each row."
            )

    def without_offset(self, y, weight, offset):
        return y / self.trials, weight * self.trials

    def initial_latent(self, y, weight, n_classes):
        mean, total = np.average(y, axis=1, weights=weight), weight.sum(-1)
        # A column of failures, or of successes, counts as half a trial of the other kind.
        mean = np.clip(mean, 0.5 / (total + 1.0), 1.0 - 0.5 / (total + 1.0))
        return ndtri(mean) if self.link == "probit" else logit(mean)

    # -- the distribution ------------------------------------------------------------------

    def _log_link(self, f):
        return log_ndtr(f) if self.link == "probit" else jax.nn.log_sigmoid(f)

    def _log_prob(self, y, success, failure):
        """The log probability, from the log probabilities of success and failure or from their expectations."""
        n, rest = self.trials, self.trials - y
        ways = gammaln(n + 1.0) - gammaln(y + 1.0) - gammaln(rest + 1.0)
        return ways + y * success + rest * failure

    def log_prob(self, f, y):
        return self._log_prob(y, self._log_link(f), self._log_link(-f))

    def expectation_each(self, mean, var, y):
        deviation = jnp.sqrt(var)
        return self._log_prob(y, *(expectation(self._log_link, side * mean, deviation) for side in (1.0, -1.0)))

    def conditional_moments(self, f):
        success, failure = (jnp.exp(self._log_link(side * f)) for side in (1.0, -1.0))
        mean = self.trials * success
        # Positive also where it underflows.
        return mean, jnp.maximum(mean * failure, jnp.finfo(mean.dtype).tiny ** 0.5)

    def conditional_cdf(self, f, y):
        failure = ndtr(-f) if self.link == "probit" else expit(-f)
        n, y = self.trials, np.floor(y)
        inside = np.clip(y, 0.0, np.maximum(n - 1.0, 0.0))
        return np.where(y < 0.0, 0.0, np.where(y >= n, 1.0, betainc(n - inside, inside + 1.0, failure)))

    def sample(self, f, rng):
        success = np.exp(np.asarray(self._log_link(f), dtype=float))
        return rng.binomial(np.broadcast_to(self.trials, success.shape).astype(int), success).astype(float)
