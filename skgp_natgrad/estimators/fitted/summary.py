"""What was fitted, for people: kernel and noise in the units of X and y, relevance of columns, covariances."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from sklearn.gaussian_process import kernels as sklearn_kernels
from sklearn.utils.validation import check_is_fitted

from ... import svgp
from ..._backend.types import Floats
from ...kernels import Columns, LinearTransform
from ..rows import class_labels, encoding, outputs
from . import attributes

# A printed summary names this many columns of a factor, and so many directions.
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
        In the units of each column that the kernel sees.
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

    def __repr__(self):
        # Its variance is on the model's own scale, and the noise is in the units of y.
        name = "Gaussian" if self.likelihood.startswith("Gaussian(") else self.likelihood
        noise = "" if self.noise is None else f", noise {_number(self.noise)}"
        noise += " (times a factor that varies with X)" if self.varies else ""
        lines = [f"{name}: prior mean {_number(self.prior_mean)}{noise}"]
        for term in self.terms:
            owner = "" if term.latent is None else f"latent function {term.latent}: "
            form = " * ".join(factor.kernel for factor in term.factors) or "constant"
            lines.append(f"  {owner}{form}, amplitude {_number(term.amplitude)}")
            lines += [f"    {line}" for factor in term.factors if factor.by_column for line in _lines(factor)]
        if self.output_correlation is not None:
            rows = "; ".join(" ".join(f"{each:.2f}" for each in row) for row in self.output_correlation[:_LISTED])
            lines.append(f"  correlation of outputs: {rows}")
        lines += [f"  chosen: {each}" for each in self.compared]
        return "\n".join(lines)


def _number(value):
    return ", ".join(f"{each:.4g}" for each in np.ravel(value))


def _lines(factor):
    yield f"{factor.quantity}: {_listed(factor.by_column)}"
    if factor.directions:
        yield "directions:"
    for each in factor.directions[:_LISTED_DIRECTIONS]:
        yield f"  length_scale {each.length_scale:.4g}: {_listed(each.loadings)}"
    more = len(factor.directions) - _LISTED_DIRECTIONS
    if more > 0:
        yield f"  and {more} more"


def _listed(by_column):
    listed = [f"{name} {value:.4g}" for name, value in list(by_column.items())[:_LISTED]]
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
    terms = []
    for product in _summands(kernel):
        variance, factors = 1.0, []
        for each, columns in product:
            seen = points if columns is None else points[:, columns]
            variance = variance * each.diag(seen)
            if not isinstance(_base(each), sklearn_kernels.ConstantKernel):
                columns = np.arange(len(names)) if columns is None else np.asarray(columns)
                factors.append(_factor(each, [names[i] for i in columns], units[columns]))
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


def _form(kernel):
    """The name of a kernel without its numbers, but for those that make it another kernel."""
    if isinstance(kernel, sklearn_kernels.Exponentiation):
        return f"{_form(kernel.kernel)} ** {kernel.exponent:g}"
    if isinstance(kernel, sklearn_kernels.Sum):
        return f"({_form(kernel.k1)} + {_form(kernel.k2)})"
    if isinstance(kernel, sklearn_kernels.Product):
        return f"{_form(kernel.k1)} * {_form(kernel.k2)}"
    if isinstance(kernel, Columns):
        return _form(kernel.kernel)
    if isinstance(kernel, LinearTransform):
        return f"{_form(kernel.kernel)} of linear combinations"
    return type(kernel).__name__ + (f"(nu={kernel.nu:g})" if hasattr(kernel, "nu") else "")


def _factor(kernel, names, units):
    form, kernel = _form(kernel), _base(kernel)
    if isinstance(kernel, LinearTransform):
        return _of_directions(form, kernel, names, units)
    # A periodic kernel's lengthscale has no unit.
    quantity = next((name for name in ("periodicity", "length_scale") if hasattr(kernel, name)), None)
    if quantity is None:
        return Factor(form, None, {})
    shortest = {}
    for name, value in zip(names, getattr(kernel, quantity) * units, strict=True):
        shortest[name] = min(float(value), shortest.get(name, np.inf))
    return Factor(form, quantity, shortest)


def _of_directions(form, kernel, names, units):
    """The factor of a kernel of linear combinations."""
    inner = _base(kernel.kernel)
    if not hasattr(inner, "length_scale") or hasattr(inner, "periodicity"):
        return Factor(form, None, {})
    rates = kernel.matrix / np.asarray(inner.length_scale, dtype=float)
    norms = np.sqrt((rates**2).sum(0))
    directions = []
    for k in np.argsort(-norms, kind="stable"):
        loadings = rates[:, k] / (norms[k] or 1.0)
        order = np.argsort(-np.abs(loadings), kind="stable")
        directions.append(Direction(_inverse(norms[k]), {names[i]: float(loadings[i]) for i in order}))
    by_column = {}
    for name, rate, unit in zip(names, np.sqrt((rates**2).sum(1)), units, strict=True):
        by_column[name] = min(_inverse(rate) * unit, by_column.get(name, np.inf))
    return Factor(form, "length_scale", by_column, tuple(directions))


def _inverse(rate):
    return float(1.0 / rate) if rate > 0.0 else np.inf


class Interpretation:
    """`summary` and ``feature_importances_``, of every estimator."""

    def summary(self) -> Summary:
        """The fitted kernel and noise in the units of X and y.

        Returns
        -------
        summary : Summary
            It prints as text, and has the fields

            ``terms``
                For each summand of the kernel: ``amplitude``, the prior standard deviation in the units of y (if the
                likelihood has a link, in the units of `predict_latent`); and ``factors``, whose ``by_column`` holds the
                ``length_scale`` (or periodicity) of each column in its own units. With ``normalize_X="quantile"`` a
                lengthscale is valid near the median of the column. That of a category is the shortest of its levels.
                A kernel of linear combinations of columns has ``directions``, with their lengthscales and ``loadings``.
            ``prior_mean``
                Of the latent functions, in the same units.
            ``noise``
                Standard deviation of the noise in the units of y; None where y is not a latent function plus noise.
            ``likelihood``
                With its fitted parameters, on the model's own scale.
            ``varies``
                Whether noise and latent deviation of predictions have a factor that varies with X (``calibrate``).
            ``output_correlation``
                Of correlated outputs (``output_kernel``), that of their latent functions at the same place; else None.
            ``compared``
                What rows left out have chosen, and how far it is ahead of the next best, or its shares of the variance.

        Examples
        --------
        >>> import numpy as np
        >>> from sklearn.gaussian_process.kernels import RBF
        >>> from skgp_natgrad import NGDSVGPRegressor
        >>> X = np.linspace(0, 1000, 200)[:, None]
        >>> y = 50 * np.sin(X[:, 0] / 100) + 5 * np.random.default_rng(0).normal(size=200)
        >>> reg = NGDSVGPRegressor(1.0 * RBF(), n_inducing=20, tol=0.02, random_state=0).fit(X, y)
        >>> summary = reg.summary()
        >>> bool(4 < summary.noise < 6), bool(50 < summary.terms[0].factors[0].by_column["x0"] < 300)
        (True, True)
        """
        check_is_fitted(self, "_posterior")
        points, names, of_outputs = self._points(), encoding.shown_names(self), outputs.of(self)
        n_outputs = None if of_outputs is None else len(of_outputs.scale)
        if n_outputs is not None:
            points, names = outputs.stacked(points[:, :-1], n_outputs), [*names, "output"]
        middle = np.zeros((1, points.shape[1]))
        units = (self._x_scale.backward(middle + 0.5) - self._x_scale.backward(middle - 0.5))[0]
        offset, scale = self.likelihood_.latent_units(*(of_outputs or self._y_scale)[:2])
        scale = np.broadcast_to(scale, n_outputs or len(self._posterior.alpha))
        kernels = attributes.model_of(self).kernels
        shared = len(kernels) == 1
        alike = n_outputs is None and np.all(scale == scale[0])
        terms = []
        for k, kernel in enumerate(kernels):
            of_term = (scale[0] if alike else scale) if shared else scale[k]
            terms += terms_of(kernel, names, units, points, of_term, None if shared else k, n_outputs)
        varies = getattr(self, "_dispersion", None) is not None
        prior_mean = class_labels.by_class(self, self._posterior.prior_mean[:, 0])
        prior_mean = np.broadcast_to(prior_mean * scale + offset, scale.shape)
        correlation = of_outputs and self.output_correlation_
        found = tuple(terms), _plain(prior_mean), self._noise(), repr(self.likelihood_)
        return Summary(*found, varies, correlation, self._compared)

    def _points(self):
        """The inducing points in the units of the model."""
        return self._x_scale.forward(self.inducing_points_ if self._encoded_points is None else self._encoded_points)

    def _noise(self):
        """Standard deviation of additive noise in the units of y; None without such noise."""
        likelihood = attributes.model_of(self).likelihood
        if not hasattr(likelihood, "noise_variance"):
            return None
        variance = np.asarray(likelihood.noise_variance(), dtype=float)
        return _plain(np.sqrt(np.ravel(variance)) * (outputs.of(self) or self._y_scale).scale)

    @property
    def feature_importances_(self) -> Floats:
        """Relevance of each column of X: ndarray of shape (n_features,), summing to one.

        The mean squared derivative of the latent functions' mean at the inducing points, times the variance of the
        column there: a derivative-based sensitivity (Sobol' and Kucherenko 2009), for every kernel. Unlike a short
        lengthscale it measures how much the function changes along the column, not how wiggly it is. A category has
        several columns of zeros and ones: it is then the variance of the function's linear part in all of them.
        """
        check_is_fitted(self, "_posterior")
        points, of_columns = self._points(), encoding.changing(self)
        gradients = svgp.gradients(attributes.model_of(self), points, "latent_mean", device=self.device)
        self._defined(gradients, points)
        if of_columns is None:
            relevance = np.mean(gradients**2, axis=(0, 1, 3)) * np.var(points, axis=0)
        else:
            relevance = of_columns.relevance(gradients, np.cov(points.T, bias=True))
        total = relevance.sum()
        # The last column of correlated outputs is their number. A constant function depends on no column.
        relevance = relevance[: self.n_features_in_]
        return relevance / total if total > 0.0 else np.full(len(relevance), 1.0 / len(relevance))


class BetweenOutputs:
    """``output_covariance_`` and ``output_correlation_``, of regressors."""

    @property
    def output_covariance_(self) -> Floats:
        """Prior covariance of the outputs at one place, without noise, in the units of y: (n_outputs, n_outputs).

        Of the sum of all terms of the kernel, the mean at some of the inducing points. An AttributeError without
        ``output_kernel``.
        """
        check_is_fitted(self, "_posterior")
        scale = outputs.of(self)
        if scale is None:
            raise AttributeError(
                "output_covariance_ needs correlated outputs: fit several columns of y with "
                "output_kernel='coregionalization'."
            )
        n_outputs, points = len(scale.scale), self._points()[:_POINTS, :-1]
        K = attributes.model_of(self).kernels[0](outputs.stacked(points, n_outputs))
        K = K.reshape(n_outputs, len(points), n_outputs, len(points))
        return np.einsum("pnqn->pq", K) / len(points) * np.outer(scale.scale, scale.scale)

    @property
    def output_correlation_(self) -> Floats:
        """The correlations of ``output_covariance_``: (n_outputs, n_outputs)."""
        covariance = self.output_covariance_
        deviation = np.sqrt(np.diag(covariance))
        return covariance / np.outer(deviation, deviation)


def _plain(values):
    """A single value as a float."""
    return float(values[0]) if len(values) == 1 else np.array(values)
