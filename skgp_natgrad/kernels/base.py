"""The base class of JAX kernels, and the registry from scikit-learn classes to JAX kernels.

A JAX kernel is a small dataclass whose fields have scikit-learn's names. It is a
pytree: the fields are its leaves, and fields that select a formula (``nu``, an
exponent, columns) are part of its structure. So one compiled program serves every
value of the hyperparameters, and ``jax.vjp`` gives gradients in the form of the
kernel itself.
"""

from __future__ import annotations

import dataclasses
import functools
from typing import Any, ClassVar, NamedTuple

import jax
import numpy as np
from sklearn.gaussian_process.kernels import Kernel as SklearnKernel

from .._backend.types import Array

_JAX_KERNELS = {}


class Inputs(NamedTuple):
    """The columns that a kernel sees: all columns of X, or inside `Columns` the selected ones.

    ``description`` is used in messages, after "for".
    """

    n_columns: int
    names: tuple[str, ...] | None
    description: str

    @classmethod
    def of_table(cls, n_columns, names=None):
        """All columns of X."""
        return cls(n_columns, names, f"X with {n_columns} columns")


class Kernel:
    """Base class of the JAX kernels; subclasses become dataclasses and pytrees.

    A subclass declares its fields by annotation, names those that are part of
    the structure (not trained, compiled in) in ``static``, and defines
    ``__call__`` and ``diag``. ``per_column`` names the fields that may have one
    value for each column of X; by default all may. ``sized`` names those whose
    number of values `structure` checks instead. Hyperparameters are positive, and
    trained as logarithms; those that ``signed`` names have any sign and shape, and
    the JAX kernel holds their exponentials.

    A static field may hold a number, a string, or a tuple of these. A subclass
    refuses unknown values in ``__post_init__``.

    Examples
    --------
    A user-defined kernel: its scikit-learn class and its JAX kernel.

    >>> import numpy as np
    >>> from sklearn.gaussian_process.kernels import DotProduct
    >>> from skgp_natgrad import kernels
    >>> class Linear(DotProduct):
    ...     "A dot product kernel under a name of its own."
    >>> class JaxLinear(kernels.Kernel):
    ...     sigma_0: object
    ...     per_column = ()
    ...     def __call__(self, X: Array, Z: Array) -> Array:
    ...         return self.sigma_0**2 + X @ Z.T
    ...     def diag(self, X: Array) -> Array:
    ...         return self.sigma_0**2 + (X * X).sum(1)
    >>> kernels.register(Linear, JaxLinear)
    """

    static: ClassVar[tuple[str, ...]] = ()
    signed: ClassVar[tuple[str, ...]] = ()
    per_column: ClassVar[tuple[str, ...] | None] = None
    sized: ClassVar[tuple[str, ...]] = ()

    def __init_subclass__(cls, **kwargs):
        super().__init_subclass__(**kwargs)
        dataclasses.dataclass(frozen=True, eq=False)(cls)
        jax.tree_util.register_pytree_node(cls, _flatten, lambda meta, leaves: _unflatten(cls, meta, leaves))

    def __call__(self, X: Array, Z: Array) -> Array:
        """Covariance of ``X`` (N, D) and ``Z`` (M, D): (N, M)."""
        raise NotImplementedError

    def diag(self, X: Array) -> Array:
        """Variance at ``X`` (N, D): (N,)."""
        raise NotImplementedError

    @classmethod
    def structure(cls, kernel: SklearnKernel, inputs: Inputs) -> tuple[dict[str, Any], Inputs]:
        """Return the static fields of a scikit-learn ``kernel``, by name, and the `Inputs` of the kernels in it."""
        return {name: _hashable(kernel, name) for name in cls.static}, inputs


def _hashable(kernel, name):
    """The value of a static field: a number as a float, a string, None, or a tuple of these."""
    value = getattr(kernel, name)
    try:
        return _frozen(value)
    except TypeError:
        raise ValueError(
            f"kernel contains {type(kernel).__name__} with {name}={value!r}; this field is compiled in, "
            "and must be a number, a string, or a tuple of these."
        ) from None


def _frozen(value):
    if isinstance(value, (np.ndarray, np.generic)):
        value = value.tolist()
    if value is None or isinstance(value, (str, bool)):
        return value
    if isinstance(value, (list, tuple)):
        return tuple(map(_frozen, value))
    return float(value)


# The fields are looked up late: a class that cloudpickle rebuilds in another process gets
# its fields only after it has been registered.


def _fields(cls, static):
    # `vars`, since a subclass has fields of its own.
    known = vars(cls).get("_field_names")
    if known is None:
        known = cls._field_names = tuple(_selected(cls, each) for each in (False, True))
    return known[static]


def _selected(cls, static):
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


def register(sklearn_class: type[SklearnKernel], jax_class: type[Kernel]) -> None:
    """Let the package use a scikit-learn kernel class of your own.

    Parameters
    ----------
    sklearn_class : type
        Subclass of :class:`sklearn.gaussian_process.kernels.Kernel`. Its
        positive hyperparameters have ``hyperparameter_<name>`` properties, as
        scikit-learn asks.
    jax_class : type
        Subclass of `Kernel` with fields of the same names: the JAX kernel.

    Examples
    --------
    >>> from sklearn.gaussian_process.kernels import RBF
    >>> from skgp_natgrad import kernels
    >>> class Narrow(RBF):
    ...     "An RBF kernel of half the lengthscale."
    ...     def __call__(self, X, Y=None, eval_gradient=False):
    ...         return RBF(0.5 * self.length_scale)(X, Y, eval_gradient)
    >>> class JaxNarrow(kernels.Kernel):
    ...     length_scale: object
    ...     def __call__(self, X, Z):
    ...         return jax.numpy.exp(-0.5 * kernels.scaled_squared_distance(X, Z, 0.5 * self.length_scale))
    ...     def diag(self, X):
    ...         return jax.numpy.ones(len(X))
    >>> kernels.register(Narrow, JaxNarrow)
    """
    if not (isinstance(jax_class, type) and issubclass(jax_class, Kernel)):
        raise TypeError(f"jax_class={jax_class!r} must be a subclass of skgp_natgrad.kernels.Kernel.")
    _JAX_KERNELS[sklearn_class] = jax_class
    if not sklearn_class.__module__.startswith("sklearn."):
        # Stored in the class, it reaches other processes, in which this function was not called.
        sklearn_class._skgp_jax_kernel = jax_class


def registered(sklearn_class):
    """Return the JAX kernel of a scikit-learn class; None if it has none."""
    return _JAX_KERNELS.get(sklearn_class) or vars(sklearn_class).get("_skgp_jax_kernel")


def is_signed(kernel, name):
    """Whether a hyperparameter of a scikit-learn kernel, by its name in ``set_params``, may have any sign."""
    *path, last = name.split("__")
    return last in registered(type(functools.reduce(getattr, path, kernel))).signed


def known():
    """Return the names of the scikit-learn classes that have a JAX kernel, in alphabetical order."""
    return sorted(cls.__name__ for cls in _JAX_KERNELS)
