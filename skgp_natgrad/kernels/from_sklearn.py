"""From a scikit-learn kernel to the JAX kernel with its bounds, and back with trained values."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from sklearn.base import clone
from sklearn.gaussian_process import kernels as sklearn_kernels

from .algebra import Constant, DotProduct, Exponentiation, Product, Sum
from .base import Inputs, Kernel, known, register, registered
from .columns import Columns, SelectedColumns
from .coregionalization import Coregionalization, JaxCoregionalization
from .laplacian import JaxLaplacian, Laplacian
from .linear_transform import JaxLinearTransform, LinearTransform
from .nugget import JaxNugget, Nugget
from .stationary import RBF, ExpSineSquared, Matern, RationalQuadratic

register(Columns, SelectedColumns)
register(Coregionalization, JaxCoregionalization)
register(Laplacian, JaxLaplacian)
register(LinearTransform, JaxLinearTransform)
register(Nugget, JaxNugget)
register(sklearn_kernels.ConstantKernel, Constant)
for _jax_class in (RBF, Matern, RationalQuadratic, ExpSineSquared, DotProduct, Sum, Product, Exponentiation):
    register(getattr(sklearn_kernels, _jax_class.__name__), _jax_class)


class KernelSpec(NamedTuple):
    """A kernel's values and bounds, as three JAX kernels of one structure.

    Attributes
    ----------
    value, lower, upper : Kernel

    Examples
    --------
    >>> from sklearn.gaussian_process.kernels import RBF
    >>> from skgp_natgrad import kernels
    >>> isinstance(kernels.from_sklearn(RBF(), n_features=1), kernels.KernelSpec)
    True
    """

    value: Kernel
    lower: Kernel
    upper: Kernel


def from_sklearn(
    kernel: sklearn_kernels.Kernel, n_features: int, feature_names: Sequence[str] | None = None
) -> KernelSpec:
    """Return the JAX kernel of a scikit-learn kernel, with its bounds.

    Parameters
    ----------
    kernel : sklearn.gaussian_process.kernels.Kernel
        A kernel expression.
    n_features : int
        Number of columns of X, which anisotropic lengthscales must match.
    feature_names : sequence of str, default=None
        Names of the columns of X, by which `Columns` may select some.

    Returns
    -------
    spec : KernelSpec
        JAX kernels of NumPy leaves: the values and their bounds. A hyperparameter
        with fixed bounds has both bounds at its value.

    Raises
    ------
    ValueError, TypeError
        If a kernel has no JAX kernel; the message names it and the remedy.

    Examples
    --------
    >>> from sklearn.gaussian_process.kernels import RBF
    >>> from skgp_natgrad import kernels
    >>> spec = kernels.from_sklearn(RBF(2.0, length_scale_bounds=(1.0, 3.0)), n_features=1)
    >>> float(spec.value.length_scale), float(spec.lower.length_scale), float(spec.upper.length_scale)
    (2.0, 1.0, 3.0)
    """
    names = None if feature_names is None else tuple(feature_names)
    return _convert(kernel, Inputs.of_table(n_features, names))


def _convert(kernel, inputs):
    """The `KernelSpec` of a kernel and, by recursion, of the kernels of which it is made."""
    jax_class = registered(type(kernel))
    if jax_class is None:
        raise _unsupported(kernel)
    structure, inputs_of_parts = jax_class.structure(kernel, inputs)
    columns = ([], [], [])
    for field in dataclasses.fields(jax_class):
        if field.name in jax_class.static:
            parts = (structure[field.name],) * 3
        elif isinstance(getattr(kernel, field.name), sklearn_kernels.Kernel):
            parts = _convert(getattr(kernel, field.name), inputs_of_parts)
        elif field.name in jax_class.signed:
            parts = _exponentials(kernel, field.name)
        else:
            per_column = jax_class.per_column is None or field.name in jax_class.per_column
            parts = _parameter(kernel, field.name, None if field.name in jax_class.sized else inputs, per_column)
        for column, part in zip(columns, parts, strict=True):
            column.append(part)
    return KernelSpec(*(jax_class(*column) for column in columns))


def _unsupported(kernel):
    if isinstance(kernel, sklearn_kernels.WhiteKernel):
        return ValueError(
            f"kernel contains {kernel!r}: the noise belongs to the likelihood. A WhiteKernel that is added to a single "
            "kernel is read as Gaussian noise; elsewhere (in a product, a power or a list) leave it out, and set the "
            "initial noise by likelihood=likelihoods.Gaussian(variance=...)."
        )
    if not isinstance(kernel, sklearn_kernels.Kernel):
        return TypeError(
            f"kernel={kernel!r} must be a kernel of sklearn.gaussian_process.kernels "
            "(an object, not a class or a name), or None for the default."
        )
    name = type(kernel).__name__
    return ValueError(
        f"kernel contains {kernel!r}, whose class {name} has no JAX kernel. Known: {', '.join(known())}. Add one with "
        f"skgp_natgrad.kernels.register({name}, YourJaxKernel)."
    )


def _parameter(kernel, name, inputs, per_column):
    """Value, lower and upper bound of one hyperparameter, as float arrays; without ``inputs`` of any size."""
    try:
        value = np.asarray(getattr(kernel, name), dtype=float)
    except (TypeError, ValueError):
        raise ValueError(
            f"kernel contains {type(kernel).__name__} with {name}={getattr(kernel, name)!r}; it must be a number."
        ) from None
    if inputs is not None:
        _check_size(value, kernel, name, inputs, per_column)
    if not (np.all(np.isfinite(value)) and np.all(value >= 0)):
        raise ValueError(f"kernel contains {type(kernel).__name__}({name}={value}): must be positive and finite.")
    parameter = getattr(kernel, f"hyperparameter_{name}")
    if parameter.fixed:
        return value, value, value
    return value, *_checked_bounds(kernel, parameter, value)


def _check_size(value, kernel, name, inputs, per_column):
    """Refuse more values than one for all columns, or one for each if there may be one ``per_column``."""
    fits_columns = value.ndim <= 1 and value.size in (1, inputs.n_columns)
    if fits_columns and (per_column or value.size == 1):
        return
    given = f"{type(kernel).__name__}({name}={getattr(kernel, name)!r})"
    if not per_column and value.size > 1:
        raise ValueError(
            f"kernel contains {given}, which takes one number for all columns; give one number, or use a kernel with a "
            "value for each column, such as RBF."
        )
    raise ValueError(
        f"kernel contains {given}: {value.size} values for {inputs.description}; give one value, or one for each "
        "column."
    )


def _exponentials(kernel, name):
    """Value, lower and upper bound of a hyperparameter of any sign, as their exponentials."""
    parameter, value = getattr(kernel, f"hyperparameter_{name}"), np.asarray(getattr(kernel, name), dtype=float)
    if parameter.fixed:
        return (np.exp(value),) * 3
    lower, upper = _bounds(parameter, value.shape)
    if not np.all((lower <= value) & (value <= upper)):
        raise ValueError(
            f"kernel contains {type(kernel).__name__} with {name}_bounds={parameter.bounds[0].tolist()}, but {name} "
            f'has entries from {value.min():g} to {value.max():g}; widen the bounds, or set them to "fixed".'
        )
    return tuple(map(np.exp, (value, lower, upper)))


def _checked_bounds(kernel, parameter, value):
    """Lower and upper bounds of a hyperparameter that is trained; its value must lie within them."""
    name = parameter.name
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
    return lower, upper


def _bounds(parameter, shape):
    """Lower and upper bounds of a scikit-learn hyperparameter, in the shape of its value."""
    pairs = np.broadcast_to(np.asarray(parameter.bounds, dtype=float), (int(np.prod(shape)), 2))
    return pairs[:, 0].reshape(shape), pairs[:, 1].reshape(shape)


def to_sklearn(kernel: sklearn_kernels.Kernel, jax_kernel: Kernel) -> sklearn_kernels.Kernel:
    """Return a copy of a scikit-learn kernel with the values of a JAX kernel.

    Parameters
    ----------
    kernel : sklearn.gaussian_process.kernels.Kernel
    jax_kernel : Kernel
        With the structure of ``from_sklearn(kernel, ...)``. Its values of fixed hyperparameters are not used.

    Returns
    -------
    kernel : sklearn.gaussian_process.kernels.Kernel

    Examples
    --------
    >>> import jax
    >>> from sklearn.gaussian_process.kernels import RBF
    >>> from skgp_natgrad import kernels
    >>> value = kernels.from_sklearn(RBF(2.0), n_features=1).value
    >>> kernels.to_sklearn(RBF(2.0), jax.tree.map(lambda leaf: 2.0 * leaf, value))
    RBF(length_scale=4)
    """
    kernel = clone(kernel)
    _assign(kernel, jax_kernel)
    return kernel


def _assign(kernel, jax_kernel):
    for field in dataclasses.fields(jax_kernel):
        value = getattr(jax_kernel, field.name)
        if field.name in jax_kernel.static:
            continue
        if isinstance(value, Kernel):
            _assign(getattr(kernel, field.name), value)
            continue
        parameter = getattr(kernel, f"hyperparameter_{field.name}")
        if not parameter.fixed:
            value = np.log(value) if field.name in jax_kernel.signed else value
            # The exponential of a bound's logarithm may exceed the bound by rounding.
            value = np.clip(np.asarray(value, dtype=float), *_bounds(parameter, np.shape(value)))
            setattr(kernel, field.name, value if value.ndim else float(value))
