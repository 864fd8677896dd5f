"""A table under one scaling of X, and where the hyperparameters of a kernel start there.

The view sorts the columns, so that the user's order does not matter: sums in another order round otherwise, and would
lead a search to other hyperparameters.
"""

from __future__ import annotations

import jax
import numpy as np

from .. import kernels
from .._backend.flat import flat
from .._backend.repeated import at_most_one
from .._backend.rows import filled_up
from ..kernels.tied import Tied
from .effects import MOST, WithEffects, with_few_levels
from .evidence import Hyperparameters
from .scale import deviations, fit_common_scale, fit_scale, in_blocks

# The prior's centre of the noise variance; that of a lengthscale is sqrt(D) standard deviations of its column.
_CENTRE = 0.03
# Bounds of the kernel's lengthscales, as multiples of sqrt(D) standard deviations.
_SHORTEST, _LONGEST = 1e-5, 1e5
# Prior deviation of the log lengthscales of a sum's terms from one another, relative to each term's mean; and for a
# table of few rows, which cannot tell so many apart, and up to how many these are.
_APART, _APART_OF_FEW, _FEW_FOR_LENGTHS = 1.0, 0.3, 600
# The upper bound in the search, where a column has no effect; the kernel's bound lets training go further. Then the
# lower bounds of a coarse search, for many and for few columns.
_TRIED_LONGEST = 1e3
_COARSE, _COARSE_OF_FEW = 0.05, 0.005
# Along each of so few columns a function may go up and down many times.
FEW_COLUMNS = 3
# Bounds of the noise variance, as shares of the targets' variance: of measurements, and of class labels. With too
# little noise for labels a kernel interpolates them, with lengthscales that reach only the nearest neighbours.
NOISE_BOUNDS, NOISE_BOUNDS_OF_LABELS = (1e-8, 1e2), (0.05, 1e2)
# Where searches start: lengthscales as multiples of sqrt(D) standard deviations of the columns, and noise as a share of
# the targets' variance. With few columns shorter ones are tried, too; and a start that is nearly noise.
_STARTS, _SHORT = ((1.0, 0.1), (0.3, 0.05), (0.1, 0.05)), ((0.03, 0.05), (0.01, 0.05))
NEARLY_NOISE = 1.0, 0.9
# Columns are filled up to a multiple of this number, so that similar tables share programs.
_COLUMNS = 8
# Rows by which columns are sorted.
_FIRST_ROWS = 64


def starts_of(n_numbers):
    """Lengthscales and noises with which searches start, for so many columns of numbers."""
    return _STARTS + (_SHORT if n_numbers <= FEW_COLUMNS else ())


class View:
    """A table under one scaling of X, its columns in a fixed order and filled up with columns of zeros.

    Parameters
    ----------
    table : Table
    in_common_unit : bool, default=False
        Whether all columns have one unit, so that they begin with one lengthscale.
    coarse : bool, default=False
        Whether the model cannot resolve variation within a small part of a column's standard deviation.
    noises : pair of floats, default=NOISE_BOUNDS
        Bounds of the noise variance.
    shortest : float, optional
        The smallest lengthscale in the search, as a multiple of sqrt(D) standard deviations.
    blocks : sequence of sequence of int, default=()
        Columns that are no numbers: see `Plan`. Those of a category have one lengthscale, and count as one column.

    Attributes
    ----------
    longest : ndarray
        sqrt(D) times the columns' deviations, the lengthscales of the first start.
    limits : pair of floats
        The smallest and the largest lengthscale in the search.
    apart : float
        See `weak_prior`.
    """

    # In the order of the view; and the group of each column, None if all have lengthscales of their own.
    blocks, _owner = (), None

    def __init__(self, table, in_common_unit=False, coarse=False, noises=NOISE_BOUNDS, shortest=None, blocks=()):
        self._order = _order_of_columns(table.X)
        X = table.X[:, self._order]
        weight, place = at_most_one(table.weight), np.argsort(self._order)
        self.blocks = tuple(tuple(sorted(place[list(block)].tolist())) for block in blocks)
        scale = in_blocks(fit_scale("X", X, weight, active=True), deviations(X, weight), self.blocks)
        deviation = (fit_common_scale(scale) if in_common_unit else scale).scale
        self.width = len(deviation)
        X = with_columns_of_zeros(X)
        n_columns = X.shape[1]
        longest = np.sqrt(self.n_features) * deviation
        if shortest is None:
            shortest = _SHORTEST if not coarse else _COARSE if self.n_numbers > FEW_COLUMNS else _COARSE_OF_FEW
        self.limits = shortest * longest.min(), _TRIED_LONGEST * longest.max()
        # Columns that fill up hardly contribute to sums over columns.
        self.longest = filled_up(longest, n_columns, value=self.limits[1])
        self.table, self.noises = table._replace(X=X), noises
        self.apart = _APART if len(X) > _FEW_FOR_LENGTHS else _APART_OF_FEW
        # Constant columns, among them those that fill up, do not contribute to distances.
        self.varies = np.ptp(X, axis=0) > 0.0
        categories = [block for block in self.blocks if len(block) > 1]
        if categories:
            owner = np.arange(n_columns)
            for block in categories:
                owner[list(block)] = block[0]
            self._owner = np.unique(owner, return_inverse=True)[1]
            self._effects = sorted(categories, key=len, reverse=True)[:MOST]

    @property
    def n_columns(self):
        """Number of columns that vary."""
        return np.count_nonzero(self.varies)

    @property
    def n_features(self):
        """Number of columns, of which a category is one."""
        return self.width - sum(len(block) - 1 for block in self.blocks)

    @property
    def n_numbers(self):
        """Number of columns that are numbers, along which a function may go up and down."""
        return self.width - sum(map(len, self.blocks))

    @property
    def of_numbers(self):
        """Positions of the numbers that vary."""
        return np.setdiff1d(np.flatnonzero(self.varies), [k for block in self.blocks for k in block])

    def turn(self, table):
        """A table with the columns of the view: see `turned.TurnedView`."""
        return table

    def start(self, make, length_scale, noise, tie):
        """Start, bounds and weak prior for the hyperparameters of a kernel of `candidates`; ``noise`` is a log."""
        kernel = self._logarithms(make, np.clip(length_scale, *self.limits))[0]
        centre, *bounds = self._centre_and_bounds(make)
        varies = self.varies if self._owner is None else np.bincount(self._owner, self.varies) > 0.0
        prior = weak_prior(centre, varies, tie, self.apart)
        if self._owner is not None:
            # Columns for further levels are zero in all rows.
            prior = with_few_levels(prior, [np.count_nonzero(self.varies[list(block)]) for block in self._effects])
        return Hyperparameters(kernel, noise), tuple(bounds), prior

    def length_scale(self, log_kernel):
        """The lengthscales of a kernel of logarithms in the search, one for each column: those of its first term."""
        spread = log_kernel.spread() if isinstance(log_kernel, Tied) else log_kernel
        return np.exp(next(each for each in jax.tree.leaves(spread) if np.ndim(each)))

    def _logarithms(self, make, length_scale):
        """Logarithms of the values and the bounds of a kernel, as JAX kernels whose categories are tied."""
        found = kernels.from_sklearn(self._with_effects(make)(length_scale, self.limits), len(self.longest))
        found = [jax.tree.map(np.log, each) for each in found]
        return found if self._owner is None else [Tied.of(each, self._owner) for each in found]

    def _with_effects(self, make):
        """The same kernel with the random effects of the categories."""
        if self._owner is None:
            return make
        ranges = np.ptp(self.table.X, axis=0)
        return WithEffects(
            make, tuple(self._effects), tuple(ranges[list(block)].max() or 1.0 for block in self._effects)
        )

    def _centre_and_bounds(self, make):
        """The centre of the prior of a kernel's hyperparameters, and their bounds: the same for all splits."""
        known = self.__dict__.setdefault("_known", {})
        if make not in known:
            kernels_of = self._logarithms(make, self.longest)
            noises = np.log([_CENTRE, *self.noises])
            known[make] = [Hyperparameters(*each) for each in zip(kernels_of, noises, strict=True)]
        return known[make]

    def to_sklearn(self, make, log_kernel):
        """The kernel of scikit-learn with these logarithms, without the columns that fill up."""
        longest = self._own_columns(self.longest)
        limits = _SHORTEST * np.min(longest), _LONGEST * np.max(longest)
        log_kernel = log_kernel.spread() if isinstance(log_kernel, Tied) else log_kernel
        values = jax.tree.map(lambda logs: self._own_columns(np.exp(logs)), log_kernel)
        make = self._with_effects(make)
        # A kernel on single columns has their positions.
        make = make.given(self._order) if hasattr(make, "given") else make
        return kernels.to_sklearn(make(longest, limits), values)

    def _own_columns(self, values):
        """The values (at least D,) of the columns in the order given."""
        if not np.ndim(values):
            return values
        found = np.empty(self.width)
        found[self._order] = values[: self.width]
        return found


def with_columns_of_zeros(X):
    """X (N, D), filled up with columns of zeros to a multiple of some columns."""
    return filled_up(X, -(-X.shape[1] // _COLUMNS) * _COLUMNS, 1, value=0.0)


def _order_of_columns(X):
    """An order of the columns that depends neither on the order given nor on signs."""
    first = X[:_FIRST_ROWS]
    told = np.argmax(first != 0.0, axis=0)
    return np.lexsort((first * np.sign(first[told, np.arange(X.shape[1])]))[::-1])


# A weak prior on the hyperparameters of the default kernel, under which the evidence is maximised.

# Standard deviation of the logarithms. The prior is weak: it only fixes what the rows do not determine.
_DEVIATION = 3.0
# That around the values of an earlier fit, which have had this prior. Without any, few rows overfit many lengthscales.
_NEAR = 1.0


def weak_prior(centre, varies, tie=np.inf, apart=np.inf):
    """A normal prior on the logarithms around ``centre``.

    Parameters
    ----------
    centre : Hyperparameters
    varies : ndarray of shape (D,)
        Whether a column of X varies: only the lengthscales of such columns are tied.
    tie : float, default=inf
        Standard deviation of a kernel's log lengthscales around their mean, both relative to ``centre``.
    apart : float, default=inf
        That of a column's log lengthscales in the terms of a sum around their mean over the terms, each relative to the
        mean of its term: a column that matters in one term matters in the others.

    Returns
    -------
    log_prior : callable
        Takes all logarithms as a vector (`flat`); returns their log density up to a constant, and its gradient.
    """
    middle, groups = flat(centre), np.array(_lengthscales(centre, varies))

    def log_prior(x):
        far = x - middle
        within, between = np.zeros((2, len(far)))
        for group in groups:
            within[group] = far[group] - far[group].mean()
        if len(groups) > 1:
            between[groups] = within[groups] - within[groups].mean(0)
        parts = (far, _DEVIATION), (within, tie), (between, apart)
        value = -0.5 * sum(float(part @ part) / deviation**2 for part, deviation in parts)
        return value, -sum(part / deviation**2 for part, deviation in parts)

    return log_prior


def near(found):
    """A normal prior on the logarithms (`flat`) of a default kernel, around those that an earlier fit has found."""

    def log_prior(x):
        far = (x - found) / _NEAR
        return -0.5 * float(far @ far), -far / _NEAR

    return log_prior


def _lengthscales(tree, varies):
    """The positions of each kernel's lengthscales in the vector of the leaves of ``tree``."""
    if not np.any(varies):
        return []
    leaves = jax.tree.leaves(tree)
    ends = np.cumsum([np.size(leaf) for leaf in leaves], dtype=int)
    starts = [end - np.size(leaf) for leaf, end in zip(leaves, ends, strict=True) if np.ndim(leaf)]
    return [start + np.flatnonzero(varies) for start in starts]
