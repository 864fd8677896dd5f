"""The ordinal likelihood: levels in an order."""

from __future__ import annotations

from typing import Literal

import jax.numpy as jnp
import numpy as np
from jax.scipy.stats import norm
from scipy.special import ndtr, ndtri

from .._backend.types import ArrayLike, Bounds
from ._base import RegressionLikelihood
from ._families import ClassLikelihood
from ._quadrature import log_ndtr

BINS = ("uniform", "learned")
# An open end of a bin is placed this many noise deviations below its other end.
_OPEN_END = 40.0


class Ordinal(RegressionLikelihood, ClassLikelihood):
    """Ordered levels 0, 1, ..., R - 1: the bin that holds f + noise is observed.

    p(y = c | f) = Phi((b_{c+1} - f) / s) - Phi((b_c - f) / s), Phi the normal distribution
    function, b_0 = -inf, b_R = inf (Chu and Ghahramani 2005, "Gaussian processes for
    ordinal regression"). The R - 1 inner edges are centred at zero.

    The expectation is by quadrature, to 1e-9 where the latent deviation is at most five times the
    scale and to 1e-4 beyond; all predictions have closed forms.

    In a regressor, y holds the integers and the prediction is the mean of y. In a classifier the labels are the levels.
    Their order is given by

    - ``levels``, if given;
    - otherwise the type of y, if it is an ordered Categorical of pandas or an Enum of Polars;
    - otherwise the sorted labels. For strings a warning tells the order, since the alphabetical order is seldom meant.

    All given levels are classes, including levels that do not occur in y, for instance in a fold.

    Parameters
    ----------
    bins : {"uniform", "learned"}, default="uniform"
        Inner edges at equal distances, or at distances that are trained.
    half_width : float, default=2.0
        The inner edges start spread evenly over [-half_width, half_width].
    n_levels : int or None, default=None
        Number of levels R; None takes it from the y of the fit, its largest value plus one.
    scale : float or array of shape (n_outputs,), default=0.5
        Initial scale s of the noise, in the units of the latent function.
    widths : float, array of shape (n_outputs, n_levels - 2) or None, default=None
        Initial distances between the inner edges; None spreads them by ``half_width``.
    scale_bounds : pair of floats or "fixed", default=(1e-3, 1e2)
        Bounds of ``scale`` while training.
    widths_bounds : pair of floats or "fixed", default=(1e-4, 1e2)
        Bounds of ``widths`` while training; uniform bins are not trained.
    levels : sequence of labels or None, default=None
        All labels of a classifier, from the lowest to the highest. They are an argument of this likelihood because no
        other one uses an order of the classes.

    Examples
    --------
    >>> from skgp_natgrad.likelihoods import Ordinal
    >>> Ordinal(bins="learned")
    Ordinal(bins='learned')

    The order of the strings is given, since the alphabetical order differs:

    >>> import numpy as np
    >>> from skgp_natgrad import NGDSVGPClassifier
    >>> X = np.linspace(0, 1, 60)[:, None]
    >>> y = np.repeat(["low", "mid", "high"], 20)
    >>> likelihood = Ordinal(levels=["low", "mid", "high"])
    >>> clf = NGDSVGPClassifier(likelihood=likelihood, n_inducing=8, tol=0.05, random_state=0).fit(X, y)
    >>> clf.classes_.tolist()
    ['low', 'mid', 'high']
    """

    name = "ordinal"
    tasks = ("regression", "classification")
    parameters = ("scale", "widths")
    options = ("n_levels",)
    discrete = True
    ordered = True

    def __init__(
        self,
        bins: Literal["uniform", "learned"] = "uniform",
        half_width: float = 2.0,
        n_levels: int | None = None,
        scale: ArrayLike = 0.5,
        widths: ArrayLike | None = None,
        scale_bounds: Bounds = (1e-3, 1e2),
        widths_bounds: Bounds = (1e-4, 1e2),
        levels: ArrayLike | None = None,
    ) -> None:
        self.bins = bins
        self.half_width = half_width
        self.n_levels = n_levels
        self.scale = scale
        self.widths = widths
        self.scale_bounds = scale_bounds
        self.widths_bounds = widths_bounds
        self.levels = levels

    # -- the data ------------------------------------------------------------------------

    def prepare(self, y, n_classes):
        self._check_options()
        if self.levels is not None and not n_classes:
            raise ValueError(
                f"likelihood Ordinal(levels={self.levels!r}) is for the labels of NGDSVGPClassifier; the y of "
                "NGDSVGPRegressor holds the integers 0, 1, ..., n_levels - 1. Leave levels out."
            )
        n_levels = self.n_levels
        if n_levels is None:
            n_levels = n_classes or max(2, int(np.max(y)) + 1)
        if n_classes not in (0, n_levels):
            raise ValueError(
                f"likelihood Ordinal(n_levels={n_levels}), but y has {n_classes} classes; leave n_levels out."
            )
        widths = self.widths
        if widths is None:
            widths = 2.0 * self.half_width / max(n_levels - 2, 1)
        bounds = self.widths_bounds if self.bins == "learned" else "fixed"
        ready = type(self)(
            **{**self.get_params(deep=False), "n_levels": n_levels, "widths": widths, "widths_bounds": bounds}
        )
        ready.check_targets(y)
        return ready

    def _check_options(self):
        if self.bins not in BINS:
            raise ValueError(f"likelihood Ordinal(bins={self.bins!r}): bins must be one of {', '.join(BINS)}.")
        if not (np.isscalar(self.half_width) and 0.0 < self.half_width < np.inf):
            raise ValueError(f"likelihood Ordinal(half_width={self.half_width!r}): half_width must be positive.")
        n = self.n_levels
        if n is not None and not (isinstance(n, (int, np.integer)) and n >= 2):
            raise ValueError(f"likelihood Ordinal(n_levels={n!r}): n_levels must be an integer, 2 or more, or None.")

    def check_targets(self, y):
        last = np.inf if self.n_levels is None else self.n_levels - 1
        self._refuse(
            y,
            (y >= 0) & (y <= last) & (y == np.floor(y)),
            "levels, the integers 0, 1, ..." + ("" if self.n_levels is None else f", {last}"),
            "number the levels from 0, or pass n_levels if the y of the fit lacks the highest ones",
        )

    def initial_latent(self, y, weight, n_classes):
        # Least squares between the edges and the normal quantiles of the cumulative frequencies.
        level = np.arange(1, self.n_levels)[:, None, None]
        below = np.clip(
            np.average(y < level, axis=2, weights=np.broadcast_to(weight, (len(level), *y.shape))), 1e-6, 1.0 - 1e-6
        )
        model = self.value_and_bounds(len(y))[0]
        edges = np.asarray(model._edges(len(y))).T
        spread = np.sqrt(1.0 + model.scale[:, 0] ** 2)
        return np.average(edges - spread * ndtri(below), axis=0, weights=below * (1.0 - below))

    def _parameter_shape(self, name, n_targets):
        return (n_targets, self.n_levels - 2) if name == "widths" else (n_targets, 1)

    # -- the bins ------------------------------------------------------------------------

    def _edges(self, n_targets):
        """Inner edges (T, R - 1)."""
        widths = jnp.reshape(self.widths, (n_targets, self.n_levels - 2))
        edges = jnp.pad(jnp.cumsum(widths, axis=1), ((0, 0), (1, 0)))
        return edges - 0.5 * edges[:, -1:]

    def _scale_beside(self, f):
        """The scale (T, 1, ...), with as many axes as ``f``."""
        return jnp.reshape(self.scale, (len(f),) + (1,) * (f.ndim - 1))

    def _log_proba(self, f, y, scale):
        """log p(y | f) with noise of that scale; f, y and scale are (T, ...) and broadcast."""
        n_targets = len(f)
        edges = jnp.pad(self._edges(n_targets), ((0, 0), (1, 1)))
        level = y.astype(int)
        lower, upper = (
            (jnp.take_along_axis(edges, (level + side).reshape(n_targets, -1), axis=1).reshape(y.shape) - f) / scale
            for side in (0, 1)
        )
        return _log_interval(lower, upper, level == 0, level == self.n_levels - 1)

    # -- the likelihood ------------------------------------------------------------------

    def log_prob(self, f, y):
        return self._log_proba(f, y, self._scale_beside(f))

    def log_density_each(self, mean, var, y):
        return self._log_proba(mean, y, jnp.sqrt(self.scale**2 + var))

    def _moments(self, f, scale):
        # E[y] and E[y^2] as sums of p(y >= c) and (2 c - 1) p(y >= c) for c = 1, ..., R - 1, and those of R - 1 - y in
        # the same way: of the variance that of the nearer end has more digits.
        edges = self._edges(len(f)).reshape(len(f), *(f.ndim - 1) * (1,), -1)
        z = (f[..., None] - edges) / scale[..., None]
        exceed, below = norm.cdf(z), norm.cdf(-z)[..., ::-1]
        odd, mean = 2.0 * np.arange(1, self.n_levels) - 1.0, exceed.sum(-1)
        from_first, from_last = exceed @ odd - mean**2, below @ odd - below.sum(-1) ** 2
        var = jnp.where(mean > 0.5 * (self.n_levels - 1), from_last, from_first)
        # Positive also where it underflows, so that its root has a derivative.
        return mean, jnp.maximum(var, jnp.finfo(var.dtype).tiny ** 0.5)

    def conditional_moments(self, f):
        return self._moments(f, self._scale_beside(f))

    def predictive_moments(self, mean, var):
        return self._moments(mean, jnp.sqrt(self.scale**2 + var))

    def log_class_probabilities(self, mean, var):
        levels = jnp.arange(self.n_levels).reshape((1, -1) + (1,) * (mean.ndim - 1))
        scale = jnp.sqrt(self.scale**2 + var)
        return self._log_proba(mean[:, None], levels, scale[:, None])[0]

    def conditional_probabilities(self, f):
        return jnp.exp(self.log_class_probabilities(f, jnp.zeros_like(f)))

    def conditional_cdf(self, f, y):
        return self.predictive_cdf(f, 0.0 * f, y)

    def predictive_cdf(self, mean, var, y):
        widths = np.reshape(self.widths, (len(mean), self.n_levels - 2))
        edges = np.pad(np.cumsum(widths, axis=1), ((0, 0), (1, 0)))
        edges = np.pad(edges - 0.5 * edges[:, -1:], ((0, 0), (1, 1)), constant_values=(-np.inf, np.inf))
        above = np.clip(np.floor(y) + 1.0, 0, self.n_levels).astype(int)
        return ndtr((np.take_along_axis(edges, above, axis=1) - mean) / np.sqrt(self.scale**2 + var))

    def sample(self, f, rng):
        noisy = np.asarray(f + self.scale * rng.standard_normal(np.shape(f)))
        edges = np.asarray(self._edges(len(f)))
        return np.stack([np.searchsorted(*pair) for pair in zip(edges, noisy, strict=True)])


def _log_interval(lower, upper, first, last):
    """log(Phi(upper) - Phi(lower)); ``first``: lower is -inf, ``last``: upper is inf.

    Intervals on the right are mirrored to the left, where the logarithm of Phi keeps
    its precision however far out they lie.
    """
    mirror = last | (~first & (lower + upper > 0.0))
    high, low = jnp.where(mirror, -lower, upper), jnp.where(mirror, -upper, lower)
    low = jnp.where(first | last, jnp.minimum(high, 0.0) - _OPEN_END, low)
    log_high = log_ndtr(high)
    # Below zero by rounding too, so that the logarithm and its derivative exist.
    difference = jnp.minimum(log_ndtr(low) - log_high, -1e-15)
    return log_high + jnp.log(-jnp.expm1(difference))
