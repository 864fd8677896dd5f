"""JAX twins of :mod:`sklearn.gaussian_process.kernels`.

A twin is a small dataclass whose fields carry the names that scikit-learn gives
them. It is a pytree: the fields are its leaves, and what selects a formula
(``nu``, an exponent) is part of its structure. So one compiled program serves
every value of the hyperparameters, and ``jax.vjp`` gives gradients in the shape
of the kernel itself.

`from_sklearn` and `to_sklearn` convert; `register` adds the twin of a kernel of
your own.
"""

from __future__ import annotations

import dataclasses
from typing import ClassVar, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from sklearn.base import clone
from sklearn.gaussian_process import kernels as sklearn_kernels

from .distances import (
    gaussian,
    matern12,
    matern32,
    matern52,
    safe_sqrt,
    scaled,
    scaled_squared_distance,
    squared_distance,
)

__all__ = [
    "Kernel",
    "KernelSpec",
    "from_sklearn",
    "register",
    "scaled_squared_distance",
    "squared_distance",
    "to_sklearn",
]

_TWINS = {}


class Kernel:
    """Base class of the twins; subclasses become dataclasses and pytrees.

    A subclass declares its fields by annotation, names those that are part of
    the structure (not trained, compiled in) in ``static``, and defines
    ``__call__`` and ``diag``. ``per_column`` names the fields that may have one
    value for each column of X; by default all may.

    Examples
    --------
    A kernel of your own, with its scikit-learn side and its twin:

    >>> import numpy as np
    >>> from sklearn.gaussian_process.kernels import DotProduct
    >>> from skgp_natgrad import kernels
    >>> class Linear(DotProduct):
    ...     "A dot product kernel under a name of its own."
    >>> class LinearTwin(kernels.Kernel):
    ...     sigma_0: object
    ...     per_column = ()
    ...     def __call__(self, X, Z):
    ...         return self.sigma_0**2 + X @ Z.T
    ...     def diag(self, X):
    ...         return self.sigma_0**2 + (X * X).sum(1)
    >>> kernels.register(Linear, LinearTwin)
    """

    static: ClassVar[tuple] = ()
    per_column: ClassVar[tuple | None] = None

    def __init_subclass__(cls, **kwargs):
        super().__init_subclass__(**kwargs)
        dataclasses.dataclass(frozen=True, eq=False)(cls)
        jax.tree_util.register_pytree_node(cls, _flatten, lambda meta, leaves: _unflatten(cls, meta, leaves))

    def __call__(self, X, Z):
        """Covariance of ``X`` (N, D) and ``Z`` (M, D): (N, M)."""
        raise NotImplementedError

    def diag(self, X):
        """Variance at ``X`` (N, D): (N,)."""
        raise NotImplementedError


# The fields are looked up at each call: a class that cloudpickle rebuilds in another process gets
# them only after it was registered.


def _fields(cls, static):
    return [field.name for field in dataclasses.fields(cls) if (field.name in cls.static) == static]


def _flatten(kernel):
    leaves, meta = ([getattr(kernel, name) for name in _fields(type(kernel), static)] for static in (False, True))
    return leaves, tuple(meta)


def _unflatten(cls, meta, leaves):
    # Leaves may be placeholders here, so that nothing is checked.
    kernel = object.__new__(cls)
    for static, values in ((True, meta), (False, leaves)):
        for name, value in zip(_fields(cls, static), values, strict=True):
            object.__setattr__(kernel, name, value)
    return kernel


def register(sklearn_class, twin_class):
    """Let the package use a scikit-learn kernel class of your own.

    Parameters
    ----------
    sklearn_class : type
        Subclass of :class:`sklearn.gaussian_process.kernels.Kernel`. Its
        positive hyperparameters have ``hyperparameter_<name>`` properties, as
        scikit-learn asks.
    twin_class : type
        Subclass of `Kernel` with fields of the same names.
    """
    if not (isinstance(twin_class, type) and issubclass(twin_class, Kernel)):
        raise TypeError(f"twin_class={twin_class!r} must be a subclass of skgp_natgrad.kernels.Kernel.")
    _TWINS[sklearn_class] = twin_class
    if not sklearn_class.__module__.startswith("sklearn."):
        # With the class it reaches other processes, where this call was not made.
        sklearn_class._skgp_twin = twin_class


def _twin_of(sklearn_class):
    return _TWINS.get(sklearn_class) or vars(sklearn_class).get("_skgp_twin")


_MATERN = {0.5: matern12, 1.5: matern32, 2.5: matern52, float("inf"): gaussian}


# -- the twins ----------------------------------------------------------------------------


class _UnitVariance(Kernel):
    """Kernels with k(x, x) = 1."""

    def diag(self, X):
        return jnp.ones(X.shape[0], X.dtype)


class Constant(Kernel):
    """k(x, z) = constant_value."""

    constant_value: jax.Array
    per_column: ClassVar[tuple] = ()

    def __call__(self, X, Z):
        return jnp.broadcast_to(self.constant_value, (X.shape[0], Z.shape[0]))

    def diag(self, X):
        return jnp.broadcast_to(self.constant_value, (X.shape[0],))


class RBF(_UnitVariance):
    """k(x, z) = exp(-r^2 / 2), r the distance in lengthscales."""

    length_scale: jax.Array

    def __call__(self, X, Z):
        return gaussian(scaled_squared_distance(X, Z, self.length_scale))


class Matern(_UnitVariance):
    """Matern kernel of smoothness ``nu`` in {1/2, 3/2, 5/2, inf}."""

    length_scale: jax.Array
    nu: float
    static: ClassVar[tuple] = ("nu",)

    def __post_init__(self):
        if self.nu not in _MATERN:
            raise ValueError(f"Matern(nu={self.nu!r}): nu must be one of 0.5, 1.5, 2.5 and inf.")

    def __call__(self, X, Z):
        return _MATERN[self.nu](scaled_squared_distance(X, Z, self.length_scale))


class RationalQuadratic(_UnitVariance):
    """k(x, z) = (1 + r^2 / (2 alpha))^-alpha, r the distance in lengthscales."""

    length_scale: jax.Array
    alpha: jax.Array
    per_column: ClassVar[tuple] = ()

    def __call__(self, X, Z):
        square = scaled_squared_distance(X, Z, self.length_scale)
        return jnp.exp(-self.alpha * jnp.log1p(square / (2.0 * self.alpha)))


class ExpSineSquared(_UnitVariance):
    """k(x, z) = exp(-2 sin^2(pi d / periodicity) / length_scale^2), d the distance."""

    length_scale: jax.Array
    periodicity: jax.Array
    per_column: ClassVar[tuple] = ()

    def __call__(self, X, Z):
        distance = safe_sqrt(squared_distance(X, Z))
        sine = jnp.sin(jnp.pi * distance / self.periodicity)
        return jnp.exp(-2.0 * (sine / self.length_scale) ** 2)


class DotProduct(Kernel):
    """k(x, z) = sigma_0^2 + x . z."""

    sigma_0: jax.Array
    per_column: ClassVar[tuple] = ()

    def __call__(self, X, Z):
        return self.sigma_0**2 + X @ Z.T

    def diag(self, X):
        return self.sigma_0**2 + (X * X).sum(1)


class Sum(Kernel):
    """k1 + k2."""

    k1: Kernel
    k2: Kernel

    def __call__(self, X, Z):
        return self.k1(X, Z) + self.k2(X, Z)

    def diag(self, X):
        return self.k1.diag(X) + self.k2.diag(X)


class Product(Kernel):
    """k1 * k2."""

    k1: Kernel
    k2: Kernel

    def __call__(self, X, Z):
        for factor, kernel in ((self.k1, self.k2), (self.k2, self.k1)):
            if isinstance(factor, Constant):
                return scaled(factor.constant_value, kernel(X, Z))
        return self.k1(X, Z) * self.k2(X, Z)

    def diag(self, X):
        return self.k1.diag(X) * self.k2.diag(X)


class Exponentiation(Kernel):
    """kernel ** exponent."""

    kernel: Kernel
    exponent: float
    static: ClassVar[tuple] = ("exponent",)

    def __post_init__(self):
        if not self.exponent > 0:
            raise ValueError(f"kernel contains an Exponentiation of exponent={self.exponent!r}; it must be positive.")

    def __call__(self, X, Z):
        return self.kernel(X, Z) ** self.exponent

    def diag(self, X):
        return self.kernel.diag(X) ** self.exponent


register(sklearn_kernels.ConstantKernel, Constant)
for _name in ("RBF", "Matern", "RationalQuadratic", "ExpSineSquared", "DotProduct"):
    register(getattr(sklearn_kernels, _name), globals()[_name])
for _name in ("Sum", "Product", "Exponentiation"):
    register(getattr(sklearn_kernels, _name), globals()[_name])


# -- conversion ---------------------------------------------------------------------------


class KernelSpec(NamedTuple):
    """A kernel's values and bounds, as three twins of one structure."""

    value: Kernel
    lower: Kernel
    upper: Kernel


def _unsupported(kernel):
    known = ", ".join(sorted(cls.__name__ for cls in _TWINS))
    if isinstance(kernel, sklearn_kernels.WhiteKernel):
        return ValueError(
            f"kernel contains {kernel!r}: the likelihood owns the noise here. Leave the "
            "WhiteKernel out and start the noise with likelihoods.Gaussian(variance=...)."
        )
    if not isinstance(kernel, sklearn_kernels.Kernel):
        return TypeError(
            f"kernel={kernel!r} must be a kernel of sklearn.gaussian_process.kernels "
            "(an object, not a class or a name), or None for the default."
        )
    return ValueError(
        f"kernel contains {kernel!r}, whose class {type(kernel).__name__} has no twin. Known: "
        f"{known}. Add one with skgp_natgrad.kernels.register({type(kernel).__name__}, YourTwin)."
    )


def _leaf(kernel, name, n_features, per_column):
    """Value, lower and upper bound of one hyperparameter, as float arrays."""
    try:
        value = np.asarray(getattr(kernel, name), dtype=float)
    except (TypeError, ValueError):
        raise ValueError(
            f"kernel contains {type(kernel).__name__} with {name}={getattr(kernel, name)!r}: not a number."
        ) from None
    if not per_column and value.size > 1:
        raise ValueError(
            f"kernel contains {type(kernel).__name__}({name}={getattr(kernel, name)!r}), which takes one number for "
            "all columns; give one, or use a kernel with a value for each, such as RBF."
        )
    if value.ndim > 1 or value.size not in (1, n_features):
        raise ValueError(
            f"kernel contains {type(kernel).__name__}({name}={getattr(kernel, name)!r}): {value.size} "
            f"values for X with {n_features} columns; give one value, or one a column."
        )
    if not (np.all(np.isfinite(value)) and np.all(value >= 0)):
        raise ValueError(f"kernel contains {type(kernel).__name__}({name}={value}): must be positive and finite.")
    parameter = getattr(kernel, f"hyperparameter_{name}")
    if parameter.fixed:
        return value, value, value
    if not np.all(value > 0):
        raise ValueError(
            f"kernel contains {type(kernel).__name__}({name}={value}): a trained hyperparameter "
            f'must be positive; set {name}_bounds="fixed" to keep it at zero.'
        )
    lower, upper = _bounds(parameter, value.shape)
    if not np.all((lower > 0) & (lower <= value) & (value <= upper)):
        raise ValueError(
            f"kernel contains {type(kernel).__name__}({name}={value}) with {name}_bounds={parameter.bounds.tolist()}: "
            'the value must lie within positive bounds, the lower first; or set them to "fixed".'
        )
    return value, lower, upper


def _bounds(parameter, shape):
    """Lower and upper bounds of a scikit-learn hyperparameter, in the shape of its value."""
    pairs = np.broadcast_to(np.asarray(parameter.bounds, dtype=float), (int(np.prod(shape)), 2))
    return pairs[:, 0].reshape(shape), pairs[:, 1].reshape(shape)


def from_sklearn(kernel, n_features):
    """Return the twin of a scikit-learn kernel, with its bounds.

    Parameters
    ----------
    kernel : sklearn.gaussian_process.kernels.Kernel
        A kernel expression.
    n_features : int
        Number of columns of X, which anisotropic lengthscales must match.

    Returns
    -------
    spec : KernelSpec
        Twins of NumPy leaves: the values and their bounds. A hyperparameter
        with fixed bounds has both bounds at its value.

    Raises
    ------
    ValueError, TypeError
        For a kernel that has no twin, naming it and the remedy.
    """
    twin = _twin_of(type(kernel))
    if twin is None:
        raise _unsupported(kernel)
    columns = ([], [], [])
    for field in dataclasses.fields(twin):
        value = getattr(kernel, field.name)
        if field.name in twin.static:
            parts = (float(value),) * 3
        elif isinstance(value, sklearn_kernels.Kernel):
            parts = from_sklearn(value, n_features)
        else:
            per_column = twin.per_column is None or field.name in twin.per_column
            parts = _leaf(kernel, field.name, n_features, per_column)
        for column, part in zip(columns, parts, strict=True):
            column.append(part)
    return KernelSpec(*(twin(*column) for column in columns))


def to_sklearn(kernel, twin):
    """Return a copy of the scikit-learn ``kernel`` with the values of ``twin``."""
    kernel = clone(kernel)
    _assign(kernel, twin)
    return kernel


def _assign(kernel, twin):
    for field in dataclasses.fields(twin):
        value = getattr(twin, field.name)
        if field.name in twin.static:
            continue
        if isinstance(value, Kernel):
            _assign(getattr(kernel, field.name), value)
            continue
        parameter = getattr(kernel, f"hyperparameter_{field.name}")
        if not parameter.fixed:
            # The exponential of a bound's logarithm may lie beyond it by rounding.
            value = np.clip(np.asarray(value, dtype=float), *_bounds(parameter, np.shape(value)))
            setattr(kernel, field.name, value if value.ndim else float(value))
