"""The covariance of few rows and its derivative in NumPy, for the usual sums of kernels.

To compile a program takes a third of a second, and a search calls one of few rows some sixty times for some
milliseconds each: a first fit of a process would wait for compilers above all. Terms are a constant times a stationary
kernel with lengthscales, or times an inner product; with r the scaled distance and g the slope in r^2,

    d k / d log c = k,    d k / d log l_d = -2 c g (x_d - z_d)^2 / l_d^2

and sums over pairs of rows are products with the rows (`kernels.stationary` has the same in JAX).
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from .._backend.flat import flat
from ..kernels import algebra, stationary

# Most rows: of 400 they take half of XLA's time, of 1000 the same, and XLA holds fewer arrays.
MOST_ROWS = 1024


class Term(NamedTuple):
    """A constant times a kernel: the position of its logarithm, the kernel without numbers, and where these are."""

    constant: int
    of: object
    at: slice


def terms_of(kernel, first=0):
    """The `Term`s of a JAX kernel in the order of its logarithms (`flat`); None if it is none of the usual sums."""
    if isinstance(kernel, algebra.Sum):
        left, right = terms_of(kernel.k1, first), terms_of(kernel.k2, first + flat(kernel.k1).size)
        return None if left is None or right is None else left + right
    if not (isinstance(kernel, algebra.Product) and isinstance(kernel.k1, algebra.Constant)):
        return None
    of = _PARTS.get(type(kernel.k2), lambda kernel: None)(kernel.k2)
    return None if of is None else [Term(first, of, slice(first + 1, first + 1 + flat(kernel.k2).size))]


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


_MATERN = {0.5: _Matern12, 1.5: _Matern32, 2.5: _Matern52}
# The class for a JAX kernel; None for one that is no such kernel.
_PARTS = {
    stationary.Matern: lambda kernel: _MATERN.get(kernel.nu),
    stationary.RBF: lambda kernel: _Gaussian,
    algebra.DotProduct: lambda kernel: _InnerProduct,
}
