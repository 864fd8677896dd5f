"""The rate at which a kernel falls along each column of X: the unit of distances between rows."""

from __future__ import annotations

import functools

import numpy as np

from ..kernels.algebra import Constant, DotProduct, Exponentiation, Product, Sum
from ..kernels.columns import SelectedColumns
from ..kernels.linear_transform import JaxLinearTransform
from ..kernels.nugget import JaxNugget
from ..kernels.stationary import ExpSineSquared
from ..kernels.tied import Tied


def rates(kernel, n_columns):
    """Inverse lengthscales of the columns: rows are near if their difference times these is small.

    The squared rates of a sum are means over its terms, weighted by their variances. The rate of a column that the
    kernel does not read is zero. Those of linear combinations say how fast the kernel falls along a single column.

    Parameters
    ----------
    kernel : Kernel
        A JAX kernel of NumPy leaves: see `kernels.from_sklearn`.
    n_columns : int

    Returns
    -------
    rates : ndarray of shape (D,)

    Examples
    --------
    >>> from sklearn.gaussian_process.kernels import RBF, Matern
    >>> from skgp_natgrad import kernels
    >>> rates(kernels.from_sklearn(3.0 * RBF([1.0, 2.0]) + Matern([0.5, 2.0]), n_features=2).value, 2).round(3)
    array([1.323, 0.5  ])
    """
    _, squares = _parts(kernel, n_columns)
    return np.sqrt(squares)


@functools.singledispatch
def _parts(kernel, n_columns):
    """The variance, and the squared rates (D,). A kernel without lengthscales has rate one for all columns."""
    length_scale = np.asarray(getattr(kernel, "length_scale", 1.0), float)
    return 1.0, np.broadcast_to(length_scale**-2.0, n_columns)


@_parts.register
def _(kernel: Constant, n_columns):
    return float(kernel.constant_value), np.zeros(n_columns)


@_parts.register
def _(kernel: DotProduct, n_columns):
    # Far rows determine a plane as well as near ones.
    return 0.0, np.zeros(n_columns)


@_parts.register
def _(kernel: JaxNugget, n_columns):
    # All other rows are equally far.
    return 0.0, np.zeros(n_columns)


@_parts.register
def _(kernel: ExpSineSquared, n_columns):
    # Near zero it is exp(-r^2 / 2) with this rate.
    rate = 2.0 * np.pi / (float(kernel.periodicity) * float(kernel.length_scale))
    return 1.0, np.full(n_columns, rate**2)


@_parts.register
def _(kernel: Sum, n_columns):
    of_terms = [_parts(each, n_columns) for each in (kernel.k1, kernel.k2)]
    variance = sum(each for each, _ in of_terms)
    # Under a sum of constants no row is nearer than another.
    return variance, sum(each * squares for each, squares in of_terms) / (variance or 1.0)


@_parts.register
def _(kernel: Product, n_columns):
    (first, of_first), (second, of_second) = (_parts(each, n_columns) for each in (kernel.k1, kernel.k2))
    return first * second, of_first + of_second


@_parts.register
def _(kernel: Exponentiation, n_columns):
    variance, squares = _parts(kernel.kernel, n_columns)
    return variance**kernel.exponent, kernel.exponent * squares


@_parts.register
def _(kernel: SelectedColumns, n_columns):
    variance, selected = _parts(kernel.kernel, len(kernel.columns))
    squares = np.zeros(n_columns)
    squares[list(kernel.columns)] = selected
    return variance, squares


@_parts.register
def _(kernel: Tied, n_columns):
    return _parts(kernel.spread(), n_columns)


@_parts.register
def _(kernel: JaxLinearTransform, n_columns):
    matrix = np.log(kernel.matrix)
    variance, squares = _parts(kernel.kernel, matrix.shape[1])
    return variance, matrix**2 @ squares
