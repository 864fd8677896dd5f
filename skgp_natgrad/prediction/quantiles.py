"""Distribution functions and quantiles of predictions.

The distribution function of y is P(Y <= y | f) averaged over the latent posterior. A quantile is the smallest y at
which it reaches a level, in closed form or by a search between brackets.
"""

from __future__ import annotations

from collections.abc import Callable

import jax
import numpy as np
from scipy.optimize import elementwise

from .._backend.types import Floats
from ..likelihoods import RegressionLikelihood

# Rows whose quadratures are held at a time.
_CHUNK_ROWS = 2048
_BETWEEN = {"xatol": 0.0, "xrtol": 1e-13, "fatol": 0.0, "frtol": 0.0}
# The status of a search between two ends with the same sign.
_NO_BRACKET = -1
_TOLERANCES = {"xatol": 1e-12, "xrtol": 1e-11, "fatol": 0.0, "frtol": 0.0}
# Half a bracket to begin with, in latent deviations and in units of f.
_FIRST_REACH = 2.0, 0.1
# Where the search of a count ends: doubles are not finite much beyond it.
_LARGEST_COUNT = 1e300


def cumulative(
    likelihood: RegressionLikelihood, mean: Floats, var: Floats, y: Floats, known: Floats | None = None
) -> Floats:
    """P(Y <= y), the distribution function of the prediction.

    Parameters
    ----------
    likelihood : RegressionLikelihood
        That of a `Model`.
    mean, var : ndarray of shape (K, N)
        Latent moments.
    y : ndarray of shape (T, N)
    known : ndarray of shape (P T, N), optional
        What is known of the rows: see `likelihoods.Likelihood.given`.

    Returns
    -------
    probability : ndarray of shape (T, N)

    Examples
    --------
    >>> import numpy as np
    >>> from skgp_natgrad import likelihoods, svgp
    >>> likelihood = likelihoods.Gaussian(variance=1.0)
    >>> svgp.cumulative(likelihood, np.zeros((1, 2)), np.ones((1, 2)), np.array([[0.0, 1.0]])).round(2)
    array([[0.5 , 0.76]])
    """
    chunks = range(0, y.shape[1], _CHUNK_ROWS)
    slices = [slice(start, start + _CHUNK_ROWS) for start in chunks]
    parts = [
        likelihood.given(_some(known, rows)).predictive_cdf(mean[:, rows], var[:, rows], y[:, rows]) for rows in slices
    ]
    # Weights of a quadrature sum to one up to rounding.
    return np.clip(np.concatenate([np.empty((len(y), 0)), *parts], axis=1), 0.0, 1.0)


def _some(known, rows):
    return None if known is None else known[:, rows]


def quantiles(
    likelihood: RegressionLikelihood, mean: Floats, var: Floats, levels: Floats, known: Floats | None = None
) -> Floats:
    """The quantiles of the prediction at some levels.

    Parameters
    ----------
    likelihood : RegressionLikelihood
        That of a `Model`.
    mean, var : ndarray of shape (K, N)
        Latent moments.
    levels : ndarray of shape (Q,)
        Strictly between 0 and 1.
    known : ndarray of shape (P T, N), optional
        What is known of the rows: see `likelihoods.Likelihood.given`.

    Returns
    -------
    quantiles : ndarray of shape (T, N, Q)
        Integers, as floats, where the likelihood is discrete.

    Examples
    --------
    >>> import numpy as np
    >>> from skgp_natgrad import likelihoods, svgp
    >>> svgp.quantiles(likelihoods.Poisson(), np.array([[2.0]]), np.array([[0.1]]), np.array([0.05, 0.5, 0.95]))
    array([[[ 3.,  7., 15.]]])
    """
    n_targets = len(mean) // likelihood.n_latent(1, 0)
    each = [_of_target(likelihood, mean, var, known, t, n_targets) for t in range(n_targets)]
    return np.stack([np.stack([_quantile(*target, level) for level in levels], axis=-1) for target in each])


def _of_target(likelihood, mean, var, known, t, n_targets):
    """The likelihood of one target, the moments of its latent functions, and what is known of its rows."""
    likelihood = jax.tree.map(lambda leaf: np.asarray(leaf)[t : t + 1], likelihood)
    return likelihood, mean[t::n_targets], var[t::n_targets], None if known is None else known[t::n_targets]


def _quantile(likelihood, mean, var, known, level):
    """One quantile of one target (N,), from its latent moments (1 or 2, N)."""
    closed = likelihood.given(known).predictive_quantile(mean, var, level)
    if closed is not None:
        return closed[0]

    def excess(y, row):
        """P(Y <= y) less the level, for values y (n,) of some rows."""
        row = row.astype(int)
        return cumulative(likelihood, mean[:, row], var[:, row], y[None], _some(known, row))[0] - level

    row = np.arange(mean.shape[1], dtype=float)
    if likelihood.discrete:
        return _integer_root(excess, row)
    if likelihood.atom is None:
        return _root(excess, row, likelihood.support, mean, var)
    found = np.full(len(row), likelihood.atom)
    # Not a number is no probability of the atom: the search for a root refuses it.
    rest = np.flatnonzero(~(excess(found, row) >= 0.0))
    found[rest] = _root(excess, row[rest], likelihood.support, mean[:, rest], var[:, rest])
    return found


def _root(excess, row, support, mean, var):
    """Where the distribution function of a continuous y reaches the level (N,)."""

    def of_raw(raw, row):
        return excess(support.from_raw(raw, np), row)

    of_deviation, least = _FIRST_REACH
    start, reach = mean[0], of_deviation * np.sqrt(var[0]) + least
    bracket = elementwise.bracket_root(of_raw, start - reach, start + reach, args=(row,))
    root = elementwise.find_root(of_raw, bracket.bracket, args=(row,), tolerances=_TOLERANCES)
    found = bracket.success & root.success
    if not np.all(found):
        raise FloatingPointError(
            f"No quantile was found at {np.sum(~found)} of {len(row)} rows, where the predicted distribution is too "
            "wide or too narrow for double precision; leave these rows out."
        )
    return support.from_raw(root.x, np)


def _integer_root(excess, row):
    """The smallest integer whose distribution function reaches the level (N,)."""
    below, above = np.full(len(row), -1.0), np.ones(len(row))
    while True:
        short = (excess(above, row) < 0.0) & (above < _LARGEST_COUNT)
        if not np.any(short):
            break
        below, above = np.where(short, above, below), np.where(short, 2.0 * above, above)
    while True:
        middle = np.floor(0.5 * (below + above))
        # Beyond 2^53, neighbouring doubles are more than one apart.
        if not np.any((below < middle) & (middle < above)):
            return above
        reached = excess(middle, row) >= 0.0
        below, above = np.where(reached, below, middle), np.where(reached, middle, above)


def quantile_between(excess: Callable[[Floats, Floats], Floats], low: Floats, high: Floats, discrete: bool) -> Floats:
    """The smallest y of each row, between two numbers, at which a distribution function reaches a level.

    Parameters
    ----------
    excess : callable
        The distribution function less the level, of values y (n,) and the positions of their rows (n,), as floats.
    low, high : ndarray of shape (N,)
    discrete : bool
        Whether y is an integer.

    Returns
    -------
    quantile : ndarray of shape (N,)

    Examples
    --------
    >>> import numpy as np
    >>> from scipy.special import ndtr
    >>> from skgp_natgrad import svgp
    >>> svgp.quantile_between(lambda y, row: ndtr(y) - 0.5, np.array([-2.0]), np.array([1.0]), False).round(9) + 0.0
    array([0.])
    """
    rows = np.arange(len(low), dtype=float)
    if discrete:
        low = low - 1.0
        while np.any(high - low > 1.0):
            middle = np.floor(0.5 * (low + high))
            reached = excess(middle, rows) >= 0.0
            low, high = np.where(reached, low, middle), np.where(reached, middle, high)
        return high
    root = elementwise.find_root(excess, (low, high), args=(rows,), tolerances=_BETWEEN)
    if np.any(root.status < _NO_BRACKET):
        raise FloatingPointError(
            f"No quantile was found at {np.sum(root.status < _NO_BRACKET)} of {len(low)} rows; leave them out."
        )
    # Where the parts of a mixture agree, rounding may hide the change of sign.
    at_end = np.where(excess(low, rows) >= 0.0, low, high)
    return np.where(root.status == _NO_BRACKET, at_end, root.x)
