"""Directions instead of columns: a view of a table, turned by what a first kernel has learned.

With f the posterior mean under the first kernel, the eigenvectors of the mean of grad f (grad f)^T over rows are the
linear combinations of columns along which the function changes (active subspaces, Constantine 2015; Radhakrishnan,
Beaglehole, Pandit and Belkin 2024 for feature machines). The kernel is fitted again with a lengthscale for each
eigenvector: a full matrix of lengthscales (Vivarelli and Williams 1998) of which the evidence sets only the scales.
Held-out rows decide whether it predicts better, and there are further rounds while it does.
"""

from __future__ import annotations

import jax
import numpy as np
from sklearn.gaussian_process.kernels import Sum

from .._backend.rows import filled_up
from ..kernels import LinearTransform
from . import evidence
from .candidates import matern52
from .refinement import Candidate
from .splits import Split
from .view import View

# Numbers of columns for which directions are tried: two columns have few, and very many columns too many.
COLUMNS = 3, 60
# Each round must raise the density of held-out rows by so many nats.
CLEARLY = 0.01
# The smallest deviation of a direction, as a share of the largest.
_FLAT = 1e-6
# With a smaller share of the squared outer products beside the diagonal, the directions are the columns.
_OFF_DIAGONAL = 0.01


class TurnedView(View):
    """A view whose columns are linear combinations of those of another one.

    Parameters
    ----------
    base : View
    outer : ndarray of shape (D, D)
        The mean outer product of gradients in the columns of ``base``, filled up as these are.

    Attributes
    ----------
    base : View
    matrix : ndarray of shape (D, R)
        The weights of the combinations: eigenvectors of ``outer`` among the columns that vary, those of the largest
        eigenvalues first.
    """

    def __init__(self, base, outer):
        self.base, self.noises, self.apart = base, base.noises, base.apart
        varies = np.flatnonzero(base.varies)
        vectors = np.linalg.eigh(outer[np.ix_(varies, varies)])[1][:, ::-1]
        self.matrix = np.zeros((len(base.longest), len(varies)))
        # Their signs are arbitrary: the largest loading is positive.
        self.matrix[varies] = vectors * np.sign(vectors[np.abs(vectors).argmax(0), np.arange(len(varies))])
        deviation = self._combined(base.table.X).std(0)
        # Columns may depend on one another.
        kept = deviation > _FLAT * deviation.max()
        self.matrix, deviation = self.matrix[:, kept], deviation[kept]
        self.width, n_columns = len(deviation), len(base.longest)
        longest, of_base = np.sqrt(self.width) * deviation, base.longest[: base.width]
        shortest, tried_longest = base.limits[0] / of_base.min(), base.limits[1] / of_base.max()
        self.limits = shortest * longest.min(), tried_longest * longest.max()
        self.longest = filled_up(longest, n_columns, value=self.limits[1])
        self.varies = np.arange(n_columns) < self.width
        self.table = self.turn(base.table)

    def _combined(self, X):
        # Not by a matrix product, so that equal rows stay equal to the bit.
        return sum(column[:, None] * weights for column, weights in zip(X.T, self.matrix, strict=True))

    def turn(self, table):
        """A table of the base view in the columns of this one."""
        return table._replace(X=filled_up(self._combined(table.X), len(self.longest), 1, value=0.0))

    def to_sklearn(self, make, log_kernel):
        """The kernel of scikit-learn with these logarithms, on linear combinations of the columns given."""
        matrix = np.stack([self.base._own_columns(each) for each in self.matrix.T], axis=1)
        return _on_combinations(super().to_sklearn(make, log_kernel), matrix)

    def _own_columns(self, values):
        return values[: self.width] if np.ndim(values) else values


def _on_combinations(kernel, matrix):
    """A kernel of `candidates`, a sum of constants times kernels, with each of these on linear combinations."""
    if isinstance(kernel, Sum):
        return _on_combinations(kernel.k1, matrix) + _on_combinations(kernel.k2, matrix)
    return kernel.k1 * LinearTransform(kernel.k2, matrix)


def suits(view):
    """Whether directions are tried for a table of so many columns."""
    # A combination of levels is no level.
    return COLUMNS[0] <= view.n_columns <= COLUMNS[1] and not view.blocks


def first(view, parts, candidate):
    """Matern 5/2 on the best directions, if they predict held-out rows clearly better than the columns.

    Parameters
    ----------
    view : View
    parts : list of Split
        One split of its rows.
    candidate : Candidate
        The best Matern 5/2 in ``view``.

    Returns
    -------
    view : TurnedView or None
    parts : list of Split
    candidate : Candidate
    """
    best = None, parts, candidate
    while suits(view):
        found = _turned(view, parts, *best)
        if found is None or not found[2].density > best[2].density + CLEARLY:
            return best
        best = found
    return best


def _turned(base, base_parts, view, parts, candidate):
    """The next round: a view turned by what a candidate in a view has learned, its parts, and its candidate."""
    at = candidate.best[0].hyperparameters
    outer = _outer(at, view or base, parts[0].rows)
    if outer is None or not _beside_diagonal(outer) > _OFF_DIAGONAL:
        return None
    turned = TurnedView(base, outer)
    parts = [Split(turned.turn(part.rows), turned.turn(part.others), part.index) for part in base_parts]
    kernel = _along(at.kernel, view or base, turned)
    _, bounds, prior = turned.start(matern52, turned.longest, at.noise, np.inf)
    best = evidence.maximise(at._replace(kernel=kernel), bounds, parts[0].rows, prior)
    density = evidence.held_out_density(best.hyperparameters, parts[0].rows, parts[0].others)
    return turned, parts, Candidate(matern52, np.inf, (best,), density)


def _outer(hyperparameters, view, rows):
    """The mean outer product of gradients at rows of a view, in the columns of its base; None if there is none."""
    outer = evidence.outer_product_of_slopes(hyperparameters, rows)
    if outer is None or not np.all(np.isfinite(outer)):
        return None
    return view.matrix @ outer[: view.width, : view.width] @ view.matrix.T if isinstance(view, TurnedView) else outer


def _beside_diagonal(outer):
    """The share of the squared entries beside the diagonal; zero for a constant function."""
    squares = outer**2
    return 1.0 - np.trace(squares) / squares.sum() if squares.sum() > 0.0 else 0.0


def _along(kernel, view, turned):
    """The kernel of logarithms of a view, its lengthscales along the directions of another view of the same base."""
    matrix = view.matrix if isinstance(view, TurnedView) else np.eye(len(view.longest))
    squares = (turned.matrix.T @ matrix) ** 2

    def along(logs):
        rates = squares @ np.exp(-2.0 * logs[: matrix.shape[1]])
        return np.log(np.clip(filled_up(rates**-0.5, len(logs), value=np.inf), *turned.limits))

    return jax.tree.map(lambda logs: along(logs) if np.ndim(logs) else logs, kernel)
