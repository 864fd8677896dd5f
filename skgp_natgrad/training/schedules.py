"""Step size schedules: ``schedule(iteration) -> value``.

A schedule is a plain object with public parameters: it can be pickled, printed
and tuned like any estimator (``gamma_schedule__final``). Schedules are evaluated
in NumPy on the host, and the compiled step receives numbers: changing a schedule
never recompiles anything.
"""

from __future__ import annotations

import numbers
from abc import ABC, abstractmethod
from collections.abc import Callable

import numpy as np
from scipy import optimize
from sklearn.base import BaseEstimator

from .._backend.types import ArrayLike, Floats

__all__ = ["Auto", "Constant", "Cosine", "LineSearch", "Linear", "LogLinear", "Schedule"]


class Schedule(BaseEstimator, ABC):
    """Base class of the schedules.

    To write your own schedule, subclass it, store the parameters under their own
    names in ``__init__`` and define ``__call__``.

    Examples
    --------
    >>> import numpy as np
    >>> from skgp_natgrad import Schedule
    >>> class Harmonic(Schedule):
    ...     def __init__(self, first=0.1):
    ...         self.first = first
    ...     def __call__(self, iteration):
    ...         return self.first / (1.0 + np.asarray(iteration))
    >>> Harmonic(first=0.6)(np.arange(3)).round(2).tolist()
    [0.6, 0.3, 0.2]
    """

    @abstractmethod
    def __call__(self, iteration: ArrayLike) -> Floats:
        """Return the value at ``iteration`` (int or integer array, from 0)."""

    def _fraction(self, iteration):
        """Fraction of the way from the first to the last value, in [0, 1]."""
        if not self.n_steps >= 1:
            raise ValueError(
                f"{type(self).__name__}(n_steps={self.n_steps!r}): n_steps must be at "
                "least 1; give the number of iterations from the first to the last value."
            )
        return np.clip(np.asarray(iteration, dtype=float) / self.n_steps, 0.0, 1.0)


class Constant(Schedule):
    """The same value at every iteration.

    Parameters
    ----------
    value : float, default=0.1
        The value.

    Examples
    --------
    >>> from skgp_natgrad import Constant
    >>> float(Constant(0.5)(7))
    0.5
    """

    def __init__(self, value: float = 0.1) -> None:
        self.value = value

    def __call__(self, iteration: ArrayLike) -> Floats:
        return np.full(np.shape(iteration), self.value, dtype=float)


class Linear(Schedule):
    """From ``initial`` to ``final`` in equal steps, then ``final``.

    Parameters
    ----------
    initial : float, default=1e-5
        Value at iteration 0.
    final : float, default=0.1
        Value from iteration ``n_steps`` on.
    n_steps : int, default=100
        Number of iterations between the two.

    Examples
    --------
    >>> from skgp_natgrad import Linear
    >>> [round(float(Linear(0.0, 0.1, n_steps=4)(t)), 3) for t in range(6)]
    [0.0, 0.025, 0.05, 0.075, 0.1, 0.1]
    """

    def __init__(self, initial: float = 1e-5, final: float = 0.1, n_steps: int = 100) -> None:
        self.initial = initial
        self.final = final
        self.n_steps = n_steps

    def __call__(self, iteration: ArrayLike) -> Floats:
        return self.initial + (self.final - self.initial) * self._fraction(iteration)


class LogLinear(Schedule):
    """From ``initial`` to ``final`` by equal factors, then ``final``.

    The schedule of Salimbeni, Eleftheriadis and Hensman (2018), section 5, for
    likelihoods that are not conjugate: the first natural gradient steps are
    small because the prior is far from the posterior.

    Parameters
    ----------
    initial : float, default=1e-3
        Value at iteration 0; positive.
    final : float, default=0.1
        Value from iteration ``n_steps`` on; positive.
    n_steps : int, default=20
        Number of iterations between the two.

    Examples
    --------
    >>> from skgp_natgrad import LogLinear
    >>> [round(float(LogLinear(1e-4, 0.1, n_steps=3)(t)), 6) for t in range(5)]
    [0.0001, 0.001, 0.01, 0.1, 0.1]
    """

    def __init__(self, initial: float = 1e-3, final: float = 0.1, n_steps: int = 20) -> None:
        self.initial = initial
        self.final = final
        self.n_steps = n_steps

    def __call__(self, iteration: ArrayLike) -> Floats:
        if not (self.initial > 0 and self.final > 0):
            raise ValueError(
                f"LogLinear(initial={self.initial!r}, final={self.final!r}): both values "
                "must be positive; use Linear to start from zero."
            )
        return self.initial * (self.final / self.initial) ** self._fraction(iteration)


class Cosine(Schedule):
    """From ``initial`` to ``final`` along half a period of a cosine.

    Parameters
    ----------
    initial : float, default=0.02
        Value at iteration 0.
    final : float, default=0.0
        Value from iteration ``n_steps`` on.
    n_steps : int, default=1000
        Number of iterations between the two.

    Examples
    --------
    >>> from skgp_natgrad import Cosine
    >>> [round(float(Cosine(1.0, 0.0, n_steps=2)(t)), 3) for t in range(4)]
    [1.0, 0.5, 0.0, 0.0]
    """

    def __init__(self, initial: float = 0.02, final: float = 0.0, n_steps: int = 1000) -> None:
        self.initial = initial
        self.final = final
        self.n_steps = n_steps

    def __call__(self, iteration: ArrayLike) -> Floats:
        remaining = 0.5 * (1.0 + np.cos(np.pi * self._fraction(iteration)))
        return self.final + (self.initial - self.final) * remaining


class Auto(Schedule):
    """Adapt the natural gradient's step size during training, instead of a fixed schedule.

    Each step has the best size for the noise in the gradients of the minibatches (Schaul, Zhang and LeCun 2013): it
    grows while the minibatches agree, up to one on the full batch, and shrinks when they differ only by noise. Only for
    ``gamma_schedule``.

    Parameters
    ----------
    maximum : float, default=1.0
        The largest step size.

    Examples
    --------
    >>> from skgp_natgrad import Auto, NGDSVGPRegressor
    >>> NGDSVGPRegressor(gamma_schedule=Auto(maximum=0.5))
    NGDSVGPRegressor(gamma_schedule=Auto(maximum=0.5))
    """

    def __init__(self, maximum: float = 1.0) -> None:
        self.maximum = maximum

    def __call__(self, iteration: ArrayLike) -> Floats:
        return np.full(np.shape(iteration), self.maximum, dtype=float)


class LineSearch(Schedule):
    """The step size that raises the bound most, found anew at every iteration.

    Brent's method over the logarithm of the step size, as in section 5.1 of
    Salimbeni, Eleftheriadis and Hensman (2018). It needs the full batch, and about twenty evaluations per iteration.

    Parameters
    ----------
    maximum : float, default=1.0
        The largest step size, which is also tried itself.
    minimum : float, default=1e-8
        The smallest.
    precision : float, default=1e-2
        Precision of the logarithm of the step size at which the search ends.

    Examples
    --------
    >>> from skgp_natgrad import LineSearch
    >>> float(round(LineSearch().best(lambda size: -(size - 0.3) ** 2), 2))
    0.3
    """

    def __init__(self, maximum: float = 1.0, minimum: float = 1e-8, precision: float = 1e-2) -> None:
        self.maximum = maximum
        self.minimum = minimum
        self.precision = precision

    def __call__(self, iteration: ArrayLike) -> Floats:
        if not 0 < self.minimum < self.maximum:
            raise ValueError(
                f"LineSearch(maximum={self.maximum!r}, minimum={self.minimum!r}): give two positive numbers, the "
                "minimum below the maximum."
            )
        return np.full(np.shape(iteration), self.maximum, dtype=float)

    def best(self, bound: Callable[[float], float]) -> float:
        """Return the step size of the largest ``bound(size)``; values that are not finite are ignored."""

        def loss(log_size):
            value = bound(np.exp(log_size))
            return -value if np.isfinite(value) else np.inf

        limits = np.log([self.minimum, self.maximum])
        found = optimize.minimize_scalar(loss, bounds=limits, method="bounded", options={"xatol": self.precision})
        return self.maximum if loss(limits[1]) <= found.fun else float(np.exp(found.x))


class FromFunction(Schedule):
    """The values of any function of the iteration, such as a schedule of optax.

    Parameters
    ----------
    function : callable
        Called with one iteration, an int from 0.

    Examples
    --------
    >>> from skgp_natgrad.training.schedules import FromFunction
    >>> FromFunction(lambda i: 0.1 / (1 + i))([0, 1]).tolist()
    [0.1, 0.05]
    """

    def __init__(self, function: Callable[[int], float]) -> None:
        self.function = function

    def __call__(self, iteration: ArrayLike) -> Floats:
        values = [self.function(int(i)) for i in np.ravel(iteration)]
        try:
            numbers_ = np.array(values, dtype=float)
        except ValueError as error:
            raise TypeError(f"it must return a number, not {values[0]!r}") from error
        return np.reshape(numbers_, np.shape(iteration))


# Iterations whose step sizes are computed at once.
_BLOCK = 2**16
# More iterations than a fit of days can make.
_MOST = 10**8

_NAMED = {
    "auto": Auto,
    "constant": Constant,
    "linear": Linear,
    "log_linear": LogLinear,
    "cosine": Cosine,
    "line_search": LineSearch,
}


def names():
    """Return the names that stand for a schedule with its default parameters."""
    return sorted(_NAMED)


def blocks(n_iterations):
    """Yield all iterations in blocks: for tens of millions, one table of values would take a GiB.

    Of more than a fit can make, evenly spaced ones.
    """
    if n_iterations > _MOST:
        yield np.linspace(0, n_iterations - 1, _BLOCK).astype(int)
        return
    for start in range(0, n_iterations, _BLOCK):
        yield np.arange(start, min(start + _BLOCK, n_iterations))


def as_schedule(value):
    """Return ``value`` as a schedule: a number as `Constant`, a name with defaults, a function as `FromFunction`."""
    if isinstance(value, numbers.Real) and not isinstance(value, bool):
        return Constant(float(value))
    if isinstance(value, str):
        return _NAMED[value]()
    return value if isinstance(value, Schedule) else FromFunction(value)
