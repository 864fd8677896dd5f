"""What was fitted, for people: kernel and noise in the units of X and y, relevance of columns, covariances."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from sklearn.gaussian_process import kernels as sklearn_kernels
from sklearn.utils.validation import check_is_fitted

from ... import svgp
from ..._backend.types import Floats
from ...kernels import Columns, LinearTransform
from ...kernels.formula import formula
from ..rows import class_labels, donors, encoding, outputs
from . import attributes

# A printed summary names this many columns of a factor, and so many directions with as many of their columns.
_LISTED, _LISTED_DIRECTIONS = 8, 4
# Inducing points at which the covariance of outputs under a kernel that is not stationary is averaged.
_POINTS = 50


class Direction(NamedTuple):
    """A linear combination of columns on which a kernel depends.

    Attributes
    ----------
    length_scale : float
        Along the direction, in standard deviations of the columns (of their scaled values).
    loadings : dict of str to float
        The weights of the scaled columns, largest first; their squares sum to one.
    """

    length_scale: float
    loadings: dict[str, float]


class Factor(NamedTuple):
    """One kernel of distances, or another one, in a product.

    Attributes
    ----------
    kernel : str
        Without its numbers.
    quantity : str or None
        What ``by_column`` holds: "length_scale" or "periodicity"; None if the kernel has neither.
    by_column : dict of str to float
        In the units of each column that the kernel sees; the shortest in standard deviations of the columns first.
    directions : tuple of Direction
        Of a `LinearTransform`, shortest lengthscale first; empty for other kernels. ``by_column`` then holds the
        lengthscales along the single columns.
    """

    kernel: str
    quantity: str | None
    by_column: dict[str, float]
    directions: tuple[Direction, ...] = ()


class Term(NamedTuple):
    """One term of a sum of kernels.

    Attributes
    ----------
    latent : int or None
        The latent function that it belongs to; None: all of them share the kernel.
    amplitude : float or ndarray of shape (n_latent,)
        Prior standard deviation of the term, in the units of `predict_latent`: the root of its mean variance at the
        inducing points.
    factors : tuple of Factor
    """

    latent: int | None
    amplitude: float | Floats
    factors: tuple[Factor, ...]


class Summary(NamedTuple):
    """What was fitted, in the units of X and y: see `NGDSVGPRegressor.summary`."""

    terms: tuple[Term, ...]
    prior_mean: float | Floats
    noise: float | Floats | None
    likelihood: str
    varies: bool = False
    output_correlation: Floats | None = None
    compared: tuple[str, ...] = ()
    fitted_on: str = "cpu"
    of_rows: tuple[str, ...] = ()

    def __repr__(self):
        return printed(self)


def printed(summary):
    """A `Summary` as text."""
    # Its variance is on the model's own scale, and the noise is in the units of y.
    name = "Gaussian" if summary.likelihood.startswith("Gaussian(") else summary.likelihood
    noise = "" if summary.noise is None else f", noise {_number(summary.noise)}"
    noise += " (times a factor that varies with X)" if summary.varies else ""
    lines, directions = [f"{name}: prior mean {_number(summary.prior_mean)}{noise}"], []
    for term in summary.terms:
        owner = "" if term.latent is None else f"latent function {term.latent}: "
        product = " * ".join(factor.kernel for factor in term.factors) or "constant"
        lines.append(f"  {owner}{product}, amplitude {_number(term.amplitude)}")
        lines += [f"    {line}" for factor in term.factors if factor.by_column for line in _lines(factor, directions)]
    lines += [f"  direction {k}: {_listed(each, _LISTED_DIRECTIONS)}" for k, each in enumerate(directions, 1)]
    if summary.output_correlation is not None:
        rows = "; ".join(" ".join(f"{each:.2f}" for each in row) for row in summary.output_correlation[:_LISTED])
        lines.append(f"  correlation of outputs: {rows}")
    lines += [f"  rows: {each}" for each in summary.of_rows]
    lines += [f"  chosen: {each}" for each in summary.compared]
    lines += [f"  fitted on: {summary.fitted_on}"] if summary.fitted_on != "cpu" else []
    return "\n".join(lines)


def _number(value):
    return ", ".join(f"{each:.4g}" for each in np.ravel(value))


def _lines(factor, directions):
    """What is said of one factor; loadings that other factors do not have are added to ``directions``."""
    yield f"{factor.quantity}: {_listed(factor.by_column)}"
    if not factor.directions:
        return
    named = {}
    for each in factor.directions[:_LISTED_DIRECTIONS]:
        known = [k for k, loadings in enumerate(directions) if _are_alike(loadings, each.loadings)]
        if not known:
            directions.append(each.loadings)
        named[str(known[0] + 1 if known else len(directions))] = each.length_scale
    more = len(factor.directions) - len(named)
    yield f"{factor.quantity} of directions: {_listed(named)}" + (f", and {more} more" if more else "")


def _are_alike(one, other):
    """Whether loadings are the same but for rounding."""
    return one.keys() == other.keys() and np.allclose([one[name] for name in other], list(other.values()), atol=1e-6)


def _listed(by_column, most=_LISTED):
    listed = [f"{name} {value:.4g}" for name, value in list(by_column.items())[:most]]
    more = len(by_column) - len(listed)
    return ", ".join(listed) + (f", and {more} more" if more else "")


def terms_of(kernel, names, units, points, scale, latent=None, n_outputs=None):
    """The `Term` of each summand of a kernel.

    Parameters
    ----------
    kernel : sklearn.gaussian_process.kernels.Kernel
        With columns by position.
    names : list of str
        Of the columns.
    units : ndarray of shape (D,)
        What one unit of the scaled X is in each column.
    points : ndarray of shape (M, D)
        Scaled rows at which amplitudes are taken.
    scale : float or ndarray of shape (n_latent,)
        What one unit of the latent functions is.
    latent : int, optional
    n_outputs : int, optional
        Of correlated outputs, for each of which ``points`` has as many rows.
    """
    terms, deviation = [], points.std(0)
    for product in _summands(kernel):
        variance, factors = 1.0, []
        for each, columns in product:
            seen = points if columns is None else points[:, columns]
            variance = variance * each.diag(seen)
            if not isinstance(_base(each), sklearn_kernels.ConstantKernel):
                columns = np.arange(len(names)) if columns is None else np.asarray(columns)
                factors.append(_factor(each, [names[i] for i in columns], units[columns], deviation[columns]))
        variance = np.mean(variance) if n_outputs is None else np.reshape(variance, (n_outputs, -1)).mean(1)
        amplitude = scale * np.sqrt(variance)
        terms.append(Term(latent, float(amplitude) if np.ndim(amplitude) == 0 else amplitude, tuple(factors)))
    return terms


def _summands(kernel, columns=None):
    """The kernel as a sum of products: lists of pairs (kernel without parts, its columns or None for all)."""
    if isinstance(kernel, Columns):
        selected = list(kernel.columns) if np.ndim(kernel.columns) else [kernel.columns]
        return _summands(kernel.kernel, np.asarray(selected) if columns is None else columns[selected])
    if isinstance(kernel, LinearTransform):
        matrix = np.asarray(kernel.matrix, dtype=float)
        products = _summands(kernel.kernel)
        return [[(_combined(each, matrix, own), columns) for each, own in product] for product in products]
    if isinstance(kernel, sklearn_kernels.Sum):
        return _summands(kernel.k1, columns) + _summands(kernel.k2, columns)
    if isinstance(kernel, sklearn_kernels.Product):
        return [a + b for a in _summands(kernel.k1, columns) for b in _summands(kernel.k2, columns)]
    if isinstance(kernel, sklearn_kernels.Exponentiation):
        # The power of a product is a product of powers; that of a sum stays whole.
        found = _summands(kernel.kernel, columns)
        if len(found) == 1:
            return [[(each**kernel.exponent, own) for each, own in found[0]]]
    return [[(kernel, columns)]]


def _combined(kernel, matrix, own):
    """A kernel of some of the combinations that a matrix makes, or of all; a constant stays as it is."""
    if isinstance(_base(kernel), sklearn_kernels.ConstantKernel):
        return kernel
    return LinearTransform(kernel, matrix if own is None else matrix[:, own])


def _base(kernel):
    """The kernel of which this is a power, or itself."""
    return _base(kernel.kernel) if isinstance(kernel, sklearn_kernels.Exponentiation) else kernel


def _factor(kernel, names, units, deviation):
    name, kernel = formula(kernel), _base(kernel)
    if isinstance(kernel, LinearTransform):
        return _of_directions(name, kernel, names, units, deviation)
    # A periodic kernel's lengthscale has no unit.
    quantity = next((each for each in ("periodicity", "length_scale") if hasattr(kernel, each)), None)
    if quantity is None:
        return Factor(name, None, {})
    values = np.broadcast_to(np.asarray(getattr(kernel, quantity), dtype=float), len(names))
    return Factor(name, quantity, _by_column(names, values, units, deviation))


def _by_column(names, scaled, units, deviation):
    """The shortest of each name in the units of X; those that are shortest in deviations of the columns come first."""
    with np.errstate(divide="ignore"):
        order = np.argsort(scaled / deviation, kind="stable")
    found = {}
    for i in order:
        found[names[i]] = min(float(scaled[i] * units[i]), found.get(names[i], np.inf))
    return found


def _of_directions(name, kernel, names, units, deviation):
    """The factor of a kernel of linear combinations."""
    inner = _base(kernel.kernel)
    if not hasattr(inner, "length_scale") or hasattr(inner, "periodicity"):
        return Factor(name, None, {})
    rates = kernel.matrix / np.asarray(inner.length_scale, dtype=float)
    norms = np.sqrt((rates**2).sum(0))
    directions = []
    for k in np.argsort(-norms, kind="stable"):
        loadings = rates[:, k] / (norms[k] or 1.0)
        order = np.argsort(-np.abs(loadings), kind="stable")
        directions.append(Direction(_inverse(norms[k]), {names[i]: float(loadings[i]) for i in order}))
    scaled = np.array([_inverse(rate) for rate in np.sqrt((rates**2).sum(1))])
    return Factor(name, "length_scale", _by_column(names, scaled, units, deviation), tuple(directions))


def _inverse(rate):
    return float(1.0 / rate) if rate > 0.0 else np.inf


def summarised(estimator):
    """The `Summary` of a fitted estimator."""
    check_is_fitted(estimator, "_posterior")
    points, names, of_outputs = _points(estimator), encoding.shown_names(estimator), outputs.of(estimator)
    n_outputs = None if of_outputs is None else len(of_outputs.scale)
    if n_outputs is not None:
        points, names = outputs.stacked(points[:, :-1], n_outputs), [*names, "output"]
    middle = np.zeros((1, points.shape[1]))
    units = (estimator._x_scale.backward(middle + 0.5) - estimator._x_scale.backward(middle - 0.5))[0]
    offset, scale = estimator.likelihood_.latent_units(*(of_outputs or estimator._y_scale)[:2])
    scale = np.broadcast_to(scale, n_outputs or len(estimator._posterior.alpha))
    kernels = attributes.model_of(estimator).kernels
    shared = len(kernels) == 1
    alike = n_outputs is None and np.all(scale == scale[0])
    terms = []
    for k, kernel in enumerate(kernels):
        of_term = (scale[0] if alike else scale) if shared else scale[k]
        terms += terms_of(kernel, names, units, points, of_term, None if shared else k, n_outputs)
    varies = getattr(estimator, "_dispersion", None) is not None
    prior_mean = class_labels.by_class(estimator, estimator._posterior.prior_mean[:, 0])
    prior_mean = np.broadcast_to(prior_mean * scale + offset, scale.shape)
    correlation = of_outputs and estimator.output_correlation_
    found = tuple(terms), _plain(prior_mean), _noise(estimator), repr(estimator.likelihood_)
    return Summary(*found, varies, correlation, estimator._compared, estimator._fitted_on, donors.said(estimator))


def importances(estimator):
    """Relevance of each column of X, summing to one."""
    check_is_fitted(estimator, "_posterior")
    points, of_columns = _points(estimator), encoding.changing(estimator)
    gradients = svgp.gradients(attributes.model_of(estimator), points, "latent_mean", device=estimator.device)
    estimator._defined(gradients, points)
    if of_columns is None:
        relevance = np.mean(gradients**2, axis=(0, 1, 3)) * np.var(points, axis=0)
    else:
        relevance = of_columns.relevance(gradients, np.cov(points.T, bias=True))
    total = relevance.sum()
    # The last column of correlated outputs is their number. A constant function depends on no column.
    relevance = relevance[: estimator.n_features_in_]
    return relevance / total if total > 0.0 else np.full(len(relevance), 1.0 / len(relevance))


def output_covariance(estimator):
    """Prior covariance of correlated outputs."""
    check_is_fitted(estimator, "_posterior")
    scale = outputs.of(estimator)
    if scale is None:
        raise AttributeError(
            "output_covariance_ needs correlated outputs: fit several columns of y with "
            "output_kernel='coregionalization'."
        )
    n_outputs, points = len(scale.scale), _points(estimator)[:_POINTS, :-1]
    K = attributes.model_of(estimator).kernels[0](outputs.stacked(points, n_outputs))
    K = K.reshape(n_outputs, len(points), n_outputs, len(points))
    return np.einsum("pnqn->pq", K) / len(points) * np.outer(scale.scale, scale.scale)


def _points(estimator):
    """The inducing points in the units of the model."""
    return estimator._x_scale.forward(
        estimator.inducing_points_ if estimator._encoded_points is None else estimator._encoded_points
    )


def _noise(estimator):
    """Standard deviation of additive noise in the units of y; None without such noise."""
    likelihood = attributes.model_of(estimator).likelihood
    if not hasattr(likelihood, "noise_variance"):
        return None
    variance = np.asarray(likelihood.noise_variance(), dtype=float)
    return _plain(np.sqrt(np.ravel(variance)) * (outputs.of(estimator) or estimator._y_scale).scale)


def _plain(values):
    """A single value as a float."""
    return float(values[0]) if len(values) == 1 else np.array(values)
