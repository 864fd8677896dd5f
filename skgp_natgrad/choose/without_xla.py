"""The covariance of few rows and its derivative in NumPy, for the usual sums of kernels.

To compile a program takes a third of a second, and a search calls one of few rows some sixty times for some
milliseconds each: a first fit of a process would wait for compilers above all. Terms are a constant times stationary
kernels with lengthscales, periodic ones, inner products, and their products and powers, also on some of the columns;
with r the scaled distance and g the slope in r^2, it is

    d k / d log c = k,    d k / d log l_d = -2 c g (x_d - z_d)^2 / l_d^2

for a stationary one, and sums over pairs of rows are products with the rows (`kernels.stationary` has the same in JAX).
"""

from __future__ import annotations

import functools
from typing import NamedTuple

import numpy as np
from scipy.spatial.distance import cdist

from .._backend.flat import flat
from ..kernels import algebra, columns, laplacian, stationary, tied

# Most rows: of 400 they take half of XLA's time, of 1000 the same, and XLA holds fewer arrays.
MOST_ROWS = 1024
# Rows whose absolute differences are summed at a time: they stay in the cache.
_BLOCK_ROWS = 32


class Term(NamedTuple):
    """A constant times a kernel: the position of its logarithm, the kernel without numbers, and where these are."""

    constant: int
    of: object
    at: slice


def terms_of(kernel, first=0, owner=None):
    """The `Term`s of a JAX kernel in the order of its logarithms (`flat`); None if it is none of the usual sums.

    ``owner`` is the group of each column if those of a group share a lengthscale (`tied.Tied`).
    """
    if isinstance(kernel, tied.Tied):
        return terms_of(kernel.kernel, first, kernel.owner)
    if isinstance(kernel, algebra.Sum):
        left, right = terms_of(kernel.k1, first, owner), terms_of(kernel.k2, first + flat(kernel.k1).size, owner)
        return None if left is None or right is None else left + right
    if not (isinstance(kernel, algebra.Product) and isinstance(kernel.k1, algebra.Constant)):
        return None
    of = _part(kernel.k2, owner)
    return None if of is None else [Term(first, of, slice(first + 1, first + 1 + flat(kernel.k2).size))]


def _part(kernel, owner):
    """What makes a part for rows, of a kernel without a constant; None if it is none of the usual."""
    of = _PARTS.get(type(kernel), lambda *_: None)(kernel, owner)
    has_groups = owner is not None and np.ndim(getattr(kernel, "length_scale", 0.0))
    return functools.partial(_Tied, of, np.array(owner)) if has_groups and of is not None else of


class Covariance:
    """The covariance of rows (N, D) with themselves, for vectors of logarithms; its arrays are used again."""

    def __init__(self, terms, X):
        X = np.asarray(X, float)
        self._parts = [(constant, at, of(X)) for constant, of, at in terms]
        self._total, self._scaled = np.empty((2, len(X), len(X)))

    def of_rows(self, x):
        """The matrix (N, N); `pulled_back` uses what it has computed, until the next call."""
        places, diagonal = np.arange(len(self._total)), 0.0
        self._total[:] = 0.0
        # The caller decides about values that are not finite.
        with np.errstate(all="ignore"):
            self._constants = [np.exp(x[constant]) for constant, _, _ in self._parts]
            for c, (_, at, part) in zip(self._constants, self._parts, strict=True):
                part.move(x[at])
                self._total += np.multiply(part.value, c, out=self._scaled)
                diagonal = diagonal + c * part.diagonal
        # Rounding spoils distances of zero.
        self._total[places, places] = diagonal
        return self._total

    def pulled_back(self, diagonal, rest):
        """The gradient in the logarithms, from those in the diagonal (N,) and in the rest of the matrix (N, N)."""
        found = []
        with np.errstate(all="ignore"):
            for c, (_, _, part) in zip(self._constants, self._parts, strict=True):
                of_value = np.vdot(rest, part.value) + float((diagonal * part.diagonal).sum())
                found += [[c * of_value], c * part.slope(diagonal, rest, self._scaled)]
        return np.concatenate(found)


class _InnerProduct:
    """sigma_0^2 + x . z."""

    def __init__(self, X):
        self._products, self._squares, self.value = X @ X.T, (X * X).sum(1), np.empty((len(X), len(X)))

    def move(self, logs):
        self._square = float(np.exp(2.0 * logs[0]))
        np.add(self._products, self._square, out=self.value)
        self.diagonal = self._squares + self._square

    def slope(self, diagonal, rest, space):
        return np.array([2.0 * self._square * (rest.sum() + diagonal.sum())])


class _Stationary:
    """A function of the scaled distance, which is one at zero."""

    diagonal = 1.0

    def __init__(self, X):
        self._X, self._one = X - X[:1], np.ones(len(X))
        self.value, self._in_square, self._space = np.empty((3, len(X), len(X)))

    def move(self, logs):
        self._size, x = len(logs), self._X * np.exp(-logs)
        self._x, squares, one = x, (x * x).sum(1), self._one
        # Squared distances below this are rounding.
        self._rounding = 8.0 * np.finfo(float).eps * squares.max(initial=0.0)
        left, right = np.column_stack([-2.0 * x, squares, one]), np.column_stack([x, one, squares])
        square = np.matmul(left, right.T, out=self._space)
        self._set(np.maximum(square, 0.0, out=square))

    def slope(self, diagonal, rest, space):
        weight, x = np.multiply(rest, self._in_square, out=space), self._x
        pairs = (weight.sum(1) + weight.sum(0)) @ (x * x) - 2.0 * (x * (weight @ x)).sum(0)
        return -2.0 * (pairs if self._size > 1 else pairs.sum(keepdims=True))

    def _decay(self, r):
        """exp(-r) in ``value``."""
        return np.exp(np.negative(r, out=self.value), out=self.value)


class _Matern12(_Stationary):
    def _set(self, square):
        r = np.sqrt(square, out=square)
        self._decay(r)
        # Nearly equal rows have a slope that nothing is left of in the lengthscales.
        r[r <= self._rounding**0.5] = np.inf
        np.multiply(np.divide(self.value, r, out=self._in_square), -0.5, out=self._in_square)


class _Matern32(_Stationary):
    def _set(self, square):
        square *= 3.0
        r = np.sqrt(square, out=square)
        np.multiply(self._decay(r), -1.5, out=self._in_square)
        r += 1.0
        self.value *= r


class _Matern52(_Stationary):
    def _set(self, square):
        square *= 5.0
        third = np.divide(square, 3.0, out=self._in_square)
        r = np.sqrt(square, out=square)
        decay = self._decay(r)
        r += 1.0
        third += r
        # (1 + r + r^2 / 3) exp(-r), and -5/6 (1 + r) exp(-r).
        third *= decay
        r *= decay
        self.value[:] = third
        np.multiply(r, -5.0 / 6.0, out=self._in_square)


class _Gaussian(_Stationary):
    def _set(self, square):
        square *= 0.5
        np.multiply(self._decay(square), -0.5, out=self._in_square)


class _Laplacian:
    """exp(-r), r the sum of absolute differences in lengthscales."""

    diagonal = 1.0

    def __init__(self, X):
        self._X, self.value = X - X[:1], np.empty((len(X), len(X)))

    def move(self, logs):
        self._size, self._x = len(logs), self._X * np.exp(-logs)
        cdist(self._x, self._x, "cityblock", out=self.value)
        np.exp(np.negative(self.value, out=self.value), out=self.value)

    def slope(self, diagonal, rest, space):
        weight, x, found = np.multiply(rest, self.value, out=space), self._x.T.copy(), np.zeros(self._x.shape[1])
        for first in range(0, len(weight), _BLOCK_ROWS):
            rows = slice(first, first + _BLOCK_ROWS)
            for k, column in enumerate(x):
                away = np.subtract.outer(column[rows], column)
                found[k] += np.vdot(weight[rows], np.abs(away, out=away))
        return found if self._size > 1 else found.sum(keepdims=True)


class _Tied:
    """A part whose columns share lengthscales, by the group of each."""

    diagonal = 1.0

    def __init__(self, of, owner, X):
        self._of, self._owner = of(X), owner

    def move(self, logs):
        self._of.move(logs[self._owner])
        self.value = self._of.value

    def slope(self, diagonal, rest, space):
        return np.bincount(self._owner, self._of.slope(diagonal, rest, space))


class _Periodic:
    """exp(-2 sin^2(pi d / p) / l^2), d the distance."""

    diagonal = 1.0

    def __init__(self, X):
        X = X - X[:1]
        self._distance = np.sqrt(sum((x[:, None] - x) ** 2 for x in X.T if x.any()) + np.zeros((len(X), len(X))))
        self._angle, self._far, self.value = np.empty((3, *self._distance.shape))

    def move(self, logs):
        square, rate = np.exp(2.0 * logs[0]), 2.0 * np.pi * np.exp(-logs[1])
        angle = np.multiply(self._distance, rate, out=self._angle)
        # Not 1 - cos(2 a), which loses the digits of small distances.
        far = np.multiply(angle, 0.5, out=self._far)
        np.square(np.sin(far, out=far), out=far)
        far *= 2.0 / square
        np.exp(np.negative(far, out=self.value), out=self.value)
        self._square = square

    def slope(self, diagonal, rest, space):
        of_value = np.multiply(rest, self.value, out=space)
        of_length = 2.0 * np.vdot(of_value, self._far)
        of_value *= self._angle
        return np.array([of_length, np.vdot(of_value, np.sin(self._angle)) / self._square])


class _Product:
    """One part times another, whose ``size`` logarithms follow those of the first."""

    def __init__(self, first, second, size, X):
        self._parts, self._size = (first(X), second(X)), size
        self.value, self._rest = np.empty((2, len(X), len(X)))

    def move(self, logs):
        first, second = self._parts
        first.move(logs[: -self._size])
        second.move(logs[-self._size :])
        np.multiply(first.value, second.value, out=self.value)
        self.diagonal = first.diagonal * second.diagonal

    def slope(self, diagonal, rest, space):
        found = []
        for part, other in (self._parts, self._parts[::-1]):
            of_part = np.multiply(rest, other.value, out=self._rest)
            found.append(part.slope(diagonal * other.diagonal, of_part, space))
        return np.concatenate(found)


class _Power:
    """A part to a power of at least one."""

    def __init__(self, of, exponent, X):
        self._of, self._exponent = of(X), exponent
        self.value, self._rest = np.empty((2, len(X), len(X)))

    def move(self, logs):
        self._of.move(logs)
        self.value[:] = self._of.value**self._exponent
        self.diagonal = self._of.diagonal**self._exponent

    def slope(self, diagonal, rest, space):
        n = self._exponent
        of_base = np.multiply(n * self._of.value ** (n - 1), rest, out=self._rest)
        return self._of.slope(diagonal * n * self._of.diagonal ** (n - 1), of_base, space)


def _product(kernel, owner):
    first, second = _part(kernel.k1, owner), _part(kernel.k2, owner)
    if first is None or second is None:
        return None
    return functools.partial(_Product, first, second, flat(kernel.k2).size)


def _power(kernel, owner):
    of = _part(kernel.kernel, owner)
    return None if of is None or kernel.exponent < 1.0 else functools.partial(_Power, of, kernel.exponent)


def _on_columns(kernel, _):
    chosen = list(kernel.columns)
    # A `Tied` kernel has one lengthscale for all columns that are chosen (`effects`).
    of = _part(kernel.kernel, None)
    return None if of is None else lambda X: of(np.ascontiguousarray(X[:, chosen]))


_MATERN = {0.5: _Matern12, 1.5: _Matern32, 2.5: _Matern52}
# What makes the part of a JAX kernel, given the groups of columns; None for one that has none.
_PARTS = {
    stationary.Matern: lambda kernel, _: _MATERN.get(kernel.nu),
    stationary.RBF: lambda *_: _Gaussian,
    stationary.ExpSineSquared: lambda *_: _Periodic,
    laplacian.JaxLaplacian: lambda *_: _Laplacian,
    columns.SelectedColumns: _on_columns,
    algebra.DotProduct: lambda *_: _InnerProduct,
    algebra.Product: _product,
    algebra.Exponentiation: _power,
}
