"""Hyperparameters of the kernels: those given in the units of X, and those that ended at a bound."""

from __future__ import annotations

import dataclasses

import jax
import numpy as np
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning
from sklearn.gaussian_process import kernels as sklearn_kernels

from ..._backend.notices import Notice
from ...choose.scale import NormalScores, fit_common_scale
from ...kernels import Columns, Coregionalization, Laplacian, LinearTransform, from_sklearn
from ...kernels.base import Kernel
from ...kernels.columns import SelectedColumns
from ...kernels.linear_transform import JaxLinearTransform
from ...priors import named

_NAMES = {"periodicity": "period", "length_scale": "fixed lengthscale", "matrix": "fixed matrix"}
_OF_DISTANCES = sklearn_kernels.RBF, sklearn_kernels.RationalQuadratic, Laplacian


def in_units_of_model(kernels, scale):
    """The kernels (columns by position), their numbers converted from the units of X to those of the scaled X.

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
    """The scale of X, with one number for the columns that share a period or a fixed length, and none for outputs.

    Raises
    ------
    ValueError
        As `checked_lengths`.
    """
    found = checked_lengths(kernels, scale)
    units = [scale.scale[columns] for leaf, name, columns in found if np.size(getattr(leaf, name)) == 1]
    scale = fit_common_scale(scale) if any(np.ptp(each) > 0.0 for each in units) else scale
    parts = (each for kernel in kernels for each in _parts(kernel, np.arange(_n_columns(scale))))
    outputs = [k for part, columns in parts if isinstance(part, Coregionalization) for k in columns]
    return with_numbers_kept(scale, outputs) if outputs else scale


def with_numbers_kept(scale, columns):
    """The scale of X that leaves some columns as they are.

    Raises
    ------
    ValueError
        If X is mapped to normal scores.
    """
    if isinstance(scale, NormalScores):
        raise ValueError(
            "kernel contains Coregionalization, which reads the number of an output; normalize_X='quantile' would "
            "change it: use normalize_X=True or False."
        )
    offset, size = scale.offset.copy(), scale.scale.copy()
    offset[columns], size[columns] = 0.0, 1.0
    return scale._replace(offset=offset, scale=size)


def checked_lengths(kernels, scale):
    """The parts of the kernels whose numbers are in the units of X: a list, as from `_lengths`.

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
    """What `in_units_of_X` adds to the logarithms of the model's hyperparameters: JAX kernels."""
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
        if name == "matrix":
            # Its entries are in one over the units of X.
            leaf.matrix = np.asarray(leaf.matrix, dtype=float) / convert(1.0, units[columns])[:, None]
            continue
        unit = units[columns] if np.size(getattr(leaf, name)) > 1 else units[columns[0]]
        value, bounds = getattr(leaf, name), getattr(leaf, f"{name}_bounds")
        setattr(leaf, name, convert(value, unit) if np.ndim(value) else float(convert(value, unit)))
        if not isinstance(bounds, str):
            setattr(leaf, f"{name}_bounds", tuple(convert(np.asarray(bounds, dtype=float), unit).ravel()))
    return kernel


def _lengths(kernel, columns):
    """Kernels without parts in a kernel, with the name of what has the units of X, and the columns that they see."""
    for each, seen in _parts(kernel, columns):
        if isinstance(each, sklearn_kernels.ExpSineSquared):
            yield each, "periodicity", seen
        elif isinstance(each, _OF_DISTANCES) and each.hyperparameter_length_scale.fixed:
            yield each, "length_scale", seen
        elif isinstance(each, LinearTransform) and each.hyperparameter_matrix.fixed:
            yield each, "matrix", seen


def _parts(kernel, columns):
    """A kernel and those in it, and the columns that they see; what is inside of a `LinearTransform` sees none."""
    yield kernel, columns
    columns = np.atleast_1d(columns[kernel.columns]) if isinstance(kernel, Columns) else columns
    for part in kernel.get_params(deep=False).values():
        if isinstance(part, sklearn_kernels.Kernel) and not isinstance(kernel, LinearTransform):
            yield from _parts(part, columns)


# Largest difference of raw values that counts as rounding: training clips a raw value to its bound exactly.
_ROUNDING = 1e-9
# The name of the variance of Gaussian noise.
_NOISE = "likelihood__variance"
# A column changes the function by next to nothing if it does so by this share of the targets' deviation.
_NEXT_TO_NOTHING = 0.03


def at_bounds(trained, log_bounds, kernel_is_given=True, noise_may_vanish=False, without_effect=None):
    """A ConvergenceWarning that names all hyperparameters left at a bound by training: a list.

    Parameters
    ----------
    trained : tuple of (tuple of Kernel, Likelihood)
        Logarithms of the kernels' hyperparameters and raw values of the likelihood's.
    log_bounds : pair of the same
        Where both are equal the hyperparameter is fixed, and does not count as being at a bound.
    kernel_is_given : bool, default=True
        Whether the user has a kernel whose bounds could be widened.
    noise_may_vanish : bool, default=False
        Whether Gaussian noise at its lower bound is a result, which ``plan_`` tells, and no failure.
    without_effect : dict, optional
        From `without_effect`: what it names is at its upper bound for a good reason.
    """
    passed = without_effect or {}
    trees = trained, *log_bounds
    found = [
        text
        for (name, transform, value), (*_, lower), (*_, upper) in zip(*map(named, trees), strict=True)
        if kernel_is_given or not name.startswith("kernel")
        for text in _at_bounds(
            name, transform, noise_may_vanish and name == _NOISE, passed.get(name, {}), value, lower, upper
        )
    ]
    if not found:
        return []
    details = (
        f"Training ended with {'; '.join(found)}. A better value may lie beyond: widen the bounds (<name>_bounds of "
        'the kernel or the likelihood), or set them to "fixed" if the value is intended.'
    )
    return [Notice("Training has reached a bound of a hyperparameter.", details, ConvergenceWarning)]


def without_noise(trained, log_bounds):
    """Positions of the targets whose Gaussian noise training left at its lower bound."""
    likelihoods = trained[1], *(each for _, each in log_bounds)
    return np.flatnonzero(_reached(*(each.variance for each in likelihoods))[-1][0])


def without_effect(trained, log_bounds, variances, X, deviation):
    """The lengthscales at their upper bound whose columns then change the function by next to nothing.

    Wider bounds would change nothing. (A function of large amplitude may be linear in such a column: that is an
    effect.)

    Parameters
    ----------
    trained, log_bounds
        As in `warn_at_bounds`.
    variances : sequence of float
        Of the prior under each kernel.
    X : ndarray of shape (N, D)
        In the units of the model.
    deviation : float
        Of the latent functions, about.

    Returns
    -------
    without_effect : dict
        By the name of the hyperparameter, a dict of the position of a component to the positions of its columns; there
        are none for a linear combination.
    """
    found, seen_by = {}, []
    for kernel, variance in zip(trained[0], variances, strict=True):
        seen_by += [(*each, np.sqrt(variance)) for each in _columns_of(kernel, np.arange(X.shape[1]), X)]
    # The hyperparameters of the likelihood come last.
    for (columns, seen, amplitude), *leaves in zip(seen_by, *map(named, (trained, *log_bounds)), strict=False):
        (name, _, value), (*_, lower), (*_, upper) = leaves
        if name.endswith("length_scale"):
            at = np.flatnonzero(_reached(value, lower, upper)[1][1])
            parts = {int(i): [i] if np.size(value) > 1 else slice(None) for i in at}
            change = {i: amplitude * seen[:, own].std(0).max() / np.exp(np.ravel(value)[i]) for i, own in parts.items()}
            idle = {i: columns[own] for i, own in parts.items() if change[i] < _NEXT_TO_NOTHING * deviation}
            found[name] = {i: each[each >= 0] for i, each in idle.items()}
    return {name: parts for name, parts in found.items() if parts}


def _columns_of(kernel, columns, X):
    """For each hyperparameter of a kernel, in the order of `priors.named`, the columns that its part sees, and these.

    The position of a linear combination of columns is -1.
    """
    for field in dataclasses.fields(kernel):
        part = getattr(kernel, field.name)
        if isinstance(part, Kernel) and isinstance(kernel, JaxLinearTransform):
            # Its logarithm, as all hyperparameters here.
            yield from _columns_of(part, np.full(kernel.matrix.shape[1], -1), X @ kernel.matrix)
        elif isinstance(part, Kernel):
            selected = list(kernel.columns) if isinstance(kernel, SelectedColumns) else slice(None)
            yield from _columns_of(part, columns[selected], X[:, selected])
        elif field.name not in kernel.static:
            yield columns, X


def _at_bounds(name, transform, may_vanish, passed, *leaves):
    """Say which components of a hyperparameter are at which bound; one that may vanish is not at its lower one."""
    (value, *bounds), reached = _reached(*leaves)
    reached[1][list(passed)] = False
    for side, bound, at_bound in tuple(zip(("lower", "upper"), bounds, reached, strict=True))[may_vanish:]:
        for one in np.unique(bound[at_bound]):
            at = np.flatnonzero(at_bound & (bound == one))
            components = f"[{', '.join(map(str, at))}]" if len(value) > 1 else ""
            bound_of = one if transform.name == "signed" else transform.from_raw(one, np)
            yield f"{name}{components} at its {side} bound {bound_of:.6g}"


def _reached(*leaves):
    """Values and bounds as vectors, and which components are at the lower and the upper one, of those that may move."""
    value, lower, upper = (np.ravel(np.asarray(leaf)) for leaf in leaves)
    moves = lower < upper
    return (value, lower, upper), (moves & (value <= lower + _ROUNDING), moves & (value >= upper - _ROUNDING))
