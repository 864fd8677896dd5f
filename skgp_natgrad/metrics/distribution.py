"""The predicted distribution of y at the rows of a table: what every kind of it answers."""

from __future__ import annotations

import functools

import numpy as np
from scipy.special import ndtr

from .._backend.types import ArrayLike, Floats, Seed
from ..estimators.arguments import checks
from . import _quadrature
from .proper_scores import crps_of_draws, crps_of_normal


class PredictiveDistribution:
    """The predicted distribution of y at the rows of a table, as `predictive_distribution` finds it.

    Each row has a distribution of its own. With several outputs these are the distributions of each output, taken as
    independent: the density is the product of all of them. Joint draws of correlated outputs are those of ``sample_y``.

    Attributes
    ----------
    shape : tuple of int
        Of one value for each row: (n_samples,) or (n_samples, n_outputs).

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn.compose import TransformedTargetRegressor
    >>> from sklearn.linear_model import BayesianRidge
    >>> from skgp_natgrad import predictive_distribution
    >>> X = np.linspace(0, 1, 100)[:, None]
    >>> y = np.exp(X[:, 0] + 0.1 * np.random.default_rng(0).normal(size=100))
    >>> model = TransformedTargetRegressor(BayesianRidge(), func=np.log, inverse_func=np.exp).fit(X, y)
    >>> found = predictive_distribution(model, X)
    >>> lower, upper = found.interval(0.9)
    >>> bool(np.mean((lower <= y) & (y <= upper)) > 0.8)
    True
    >>> bool(np.allclose(found.quantile(0.5), model.predict(X))), bool(np.all(found.mean() > found.quantile(0.5)))
    (True, True)
    """

    shape: tuple[int, ...]
    # With values that have a probability instead of a density: of counts, or beside others.
    _discrete = False
    _mixed = None
    _may_lack = False
    # Whether it is normal, and whether quantiles take no search: `crps` is then exact.
    _normal = False
    _closed = False
    # Normal scores up to which `_at_scores` is exact.
    _reach = 8.0

    def __repr__(self):
        return f"<PredictiveDistribution ({type(self).__name__}) of shape {self.shape}>"

    def mean(self) -> Floats:
        """Mean of y.

        That of a nonlinear TransformedTargetRegressor is not its ``predict``, which transforms the mean back.

        Returns
        -------
        mean : ndarray of shape (n_samples,) or (n_samples, n_outputs)
            Infinite where the tails of the distribution are too heavy for a mean.
        """
        return self._moments[0]

    def std(self) -> Floats:
        """Standard deviation of y, noise included.

        Returns
        -------
        std : ndarray of shape (n_samples,) or (n_samples, n_outputs)
            Infinite where the tails of the distribution are too heavy for a variance.
        """
        return self._moments[1]

    def quantile(self, q: ArrayLike) -> Floats:
        """Quantiles of y.

        Parameters
        ----------
        q : float or array-like of shape (n_quantiles,)
            Probabilities, strictly between 0 and 1.

        Returns
        -------
        quantiles : ndarray of shape (n_samples[, n_outputs][, n_quantiles])
            Without the last axis for a single ``q``.
        """
        levels = checks.levels("q", q)
        found = self._quantile(np.ravel(levels))
        return found if np.ndim(levels) else found[..., 0]

    def interval(self, coverage: float = 0.9) -> tuple[Floats, Floats]:
        """Central interval of y: both tails have the same probability.

        Parameters
        ----------
        coverage : float, default=0.9
            Probability that y lies in the interval, strictly between 0 and 1.

        Returns
        -------
        lower, upper : ndarray of shape (n_samples,) or (n_samples, n_outputs)
        """
        coverage = checks.levels("coverage", coverage, several=False)
        ends = self._quantile(np.array([0.5 - 0.5 * coverage, 0.5 + 0.5 * coverage]))
        return ends[..., 0], ends[..., 1]

    def cdf(self, y: ArrayLike) -> Floats:
        """P(Y <= y).

        Parameters
        ----------
        y : float or array-like of shape (n_samples,) or (n_samples, n_outputs)

        Returns
        -------
        probability : ndarray of shape (n_samples,) or (n_samples, n_outputs)
        """
        return self._pit(self._targets(y))[0]

    def log_density(self, y: ArrayLike) -> Floats:
        """Log density of y; minus its mean is the negative log predictive density (NLPD).

        Parameters
        ----------
        y : float or array-like of shape (n_samples,) or (n_samples, n_outputs)

        Returns
        -------
        log_density : ndarray of shape (n_samples,)
            In nats, in the units of y, summed over the outputs; for counts the log of a probability.
        """
        return self._log_density(self._targets(y, self._may_lack))

    def crps(self, y: ArrayLike, n_draws: int = 1000, random_state: Seed = 0) -> Floats:
        """Continuous ranked probability score, in the units of y; lower is better.

        Parameters
        ----------
        y : float or array-like of shape (n_samples,) or (n_samples, n_outputs)
        n_draws : int, default=1000
            Draws for each row. They are used for the likelihoods whose quantiles have no closed form; the score is
            exact for normal distributions, and integrated numerically for mixtures and transformations.
        random_state : int, RandomState instance or None, default=0
            Of the draws.

        Returns
        -------
        crps : ndarray of shape (n_samples,) or (n_samples, n_outputs)
            Infinite where the tails of the distribution are too heavy for it.
        """
        y = self._targets(y)
        if self._normal:
            return crps_of_normal(y, *self._moments)
        if self._closed:
            return _quadrature.crps(self, y)
        return crps_of_draws(y, self.sample(n_draws, random_state))

    def sample(self, n_samples: int = 1, random_state: Seed = 0) -> Floats:
        """Draw y, each row independently of the others.

        Parameters
        ----------
        n_samples : int, default=1
            Number of draws.
        random_state : int, RandomState instance or None, default=0

        Returns
        -------
        draws : ndarray of shape (n_samples_X[, n_outputs], n_samples)
        """
        return self._draws(checks.of_type("n_samples", n_samples, int, least=1), checks.random_numbers(random_state))

    def _targets(self, y, may_lack=False):
        """``y`` in the shape of one value for each row, finite; with ``may_lack`` some are NaN."""
        y = np.asarray(y, dtype=float)
        bad = y[~(np.isfinite(y) | (may_lack & np.isnan(y)))]
        if bad.size:
            raise ValueError(f"y holds {bad[0]}, which is not finite; leave out such rows.")
        if not (y.ndim == 0 or (y.size == np.prod(self.shape) and len(y) == self.shape[0])):
            raise ValueError(
                f"y has the shape {y.shape}, but the predicted distribution has {self.shape}; make them equal."
            )
        return np.broadcast_to(y, self.shape) if y.ndim == 0 else y.reshape(self.shape)

    # -- what a kind defines, or improves ---------------------------------------------------------

    @functools.cached_property
    def _moments(self):
        """Mean and standard deviation."""
        return _quadrature.moments(self)

    def _quantile(self, levels):
        """Quantiles (..., Q) at levels (Q,)."""
        raise NotImplementedError

    def _at_scores(self, scores):
        """Quantiles (..., Q) at the probabilities of normal scores (Q,)."""
        return self._quantile(ndtr(scores))

    def _knots(self, n_knots):
        """Values (..., J) between which the distribution function is smooth."""
        return self._at_scores(_quadrature.scores_of_knots(n_knots))

    def _cdf_at(self, y, rows, k):
        """P(Y <= y) (n,) of the output ``k`` at the rows of these indices (n,)."""
        raise NotImplementedError

    def _pit(self, y):
        """P(Y <= y), and P(Y < y) if some y have a probability or None."""
        columns, rows = y.reshape(len(y), -1), np.arange(len(y))
        each = [self._cdf_at(column, rows, k) for k, column in enumerate(columns.T)]
        return np.stack(each, axis=-1).reshape(self.shape), None

    def _log_density(self, y):
        raise NotImplementedError

    def _draws(self, n_draws, random_state):
        """Draws (..., n_draws)."""
        raise NotImplementedError

    def _check_possible(self, y):
        """ValueError where what is known of a row excludes its target, such as more successes than trials."""

    def _observed(self, y):
        """Targets as they would be without rounding: a limit of censored ones may have no single precision number."""
        return y
