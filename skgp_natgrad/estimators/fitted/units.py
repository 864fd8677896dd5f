"""Hyperparameters of a given kernel that are in the units of X, although the model sees scaled columns.

Periods and fixed lengthscales are given in the units of X, and are converted. The initial value and bounds of a trained
lengthscale are for standardised columns.
"""

from __future__ import annotations

import jax
import numpy as np
from sklearn.base import clone
from sklearn.gaussian_process import kernels as sklearn_kernels

from ...kernels import Columns, Laplacian, from_sklearn
from ...start.normal_scores import NormalScores
from ...start.scale import fit_common_scale

_NAMES = {"periodicity": "period", "length_scale": "fixed lengthscale"}
_OF_DISTANCES = sklearn_kernels.RBF, sklearn_kernels.RationalQuadratic, Laplacian


def in_units_of_model(kernels, scale):
    """Kernels (by position of columns) with the numbers that are in the units of X in those of the scaled X.

    Parameters
    ----------
    kernels : iterable of sklearn.gaussian_process.kernels.Kernel
    scale : Scale or NormalScores

    Returns
    -------
    kernels : tuple of sklearn.gaussian_process.kernels.Kernel
        The same objects where nothing changes.
    """
    return _converted(kernels, scale, np.divide)


def in_units_of_X(kernels, scale):
    """Undo `in_units_of_model`."""
    return _converted(kernels, scale, np.multiply)


def common_where_needed(scale, kernels):
    """The scale of X, with one number for all columns where a period, or a fixed length, is one for several of them.

    Raises
    ------
    ValueError
        As `checked_lengths`.
    """
    found = checked_lengths(kernels, scale)
    units = [scale.scale[columns] for leaf, name, columns in found if np.size(getattr(leaf, name)) == 1]
    return fit_common_scale(scale) if any(np.ptp(each) > 0.0 for each in units) else scale


def checked_lengths(kernels, scale):
    """What has the units of X in the kernels: a list, as of `_lengths`.

    Raises
    ------
    ValueError
        If there is what is no kernel; or a length where X is mapped to normal scores, which have no unit.
    """
    n_columns = _n_columns(scale)
    for kernel in kernels:
        # Refused before its parts are looked for.
        from_sklearn(kernel, n_columns)
    found = [each for kernel in kernels for each in _lengths(kernel, np.arange(n_columns))]
    if found and isinstance(scale, NormalScores):
        leaf, name, _ = found[0]
        raise ValueError(
            f"kernel contains {leaf!r}, whose {_NAMES[name]} has no meaning with normalize_X='quantile': equal "
            "distances of X are not equal in normal scores. Use normalize_X=True or False, or leave a lengthscale to "
            "training."
        )
    return found


def logarithms_of_units(kernels, scale, n_features):
    """What is added to the logarithms of the model's hyperparameters for those of `in_units_of_X`: JAX kernels."""
    pairs = zip(in_units_of_X(kernels, scale), kernels, strict=True)
    specs = [[from_sklearn(each, n_features).upper for each in pair] for pair in pairs]
    return tuple(jax.tree.map(_log_ratio, *each) for each in specs)


def _log_ratio(value, other):
    # What is fixed at zero has no unit.
    return np.log(np.divide(value, other, out=np.ones_like(value), where=other > 0.0))


def _n_columns(scale):
    return np.shape(scale.knots)[1] if isinstance(scale, NormalScores) else len(scale.scale)


def _converted(kernels, scale, convert):
    kernels = tuple(kernels)
    if isinstance(scale, NormalScores) or np.all(scale.scale == 1.0):
        return kernels
    return tuple(_of_one(kernel, scale.scale, convert) for kernel in kernels)


def _of_one(kernel, units, convert):
    every = np.arange(len(units))
    if next(_lengths(kernel, every), None) is None:
        return kernel
    kernel = clone(kernel)
    for leaf, name, columns in _lengths(kernel, every):
        unit = units[columns] if np.size(getattr(leaf, name)) > 1 else units[columns[0]]
        value, bounds = getattr(leaf, name), getattr(leaf, f"{name}_bounds")
        setattr(leaf, name, convert(value, unit) if np.ndim(value) else float(convert(value, unit)))
        if not isinstance(bounds, str):
            setattr(leaf, f"{name}_bounds", tuple(convert(np.asarray(bounds, dtype=float), unit).ravel()))
    return kernel


def _lengths(kernel, columns):
    """Kernels without parts in a kernel, with the name of what has the units of X, and the columns that they see."""
    if isinstance(kernel, sklearn_kernels.ExpSineSquared):
        yield kernel, "periodicity", columns
    elif isinstance(kernel, _OF_DISTANCES) and kernel.hyperparameter_length_scale.fixed:
        yield kernel, "length_scale", columns
    columns = columns[kernel.columns] if isinstance(kernel, Columns) else columns
    for part in kernel.get_params(deep=False).values():
        if isinstance(part, sklearn_kernels.Kernel):
            yield from _lengths(part, np.atleast_1d(columns))
