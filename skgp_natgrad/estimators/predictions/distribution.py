"""Predictions of the whole distribution of numbers y."""

from __future__ import annotations

import numpy as np
from sklearn.utils import check_consistent_length

from ... import svgp
from ..._backend.types import ArrayLike, Floats, PerRow, Seed
from ..arguments import checks
from ..fitted import attributes
from ..rows import cells, inputs, numbers, outputs
from ..rows.mean_function import with_mean_function
from ..rows.outputs import over_outputs
from ..rows.training_table import latent_offset
from . import incomplete
from .at_rows import LARGEST, quantiles
from .by_blocks import by_blocks, with_names
from .incomplete import over_donors
from .latent import LatentDistribution
from .prior import before_fit

_ALL_NUMBERS = np.finfo(float).min, np.finfo(float).max
# Numbers that look like the probability outside of an interval; small variances are below.
_LEVELS = 0.001, 0.5


class TargetRows(LatentDistribution):
    """Rows and targets in the units of the model, and back."""

    def _check_targets(self, X, y, may_lack=False):
        """Validate y (N,) or (N, T) beside the rows ``X``; return it with two axes. With ``may_lack`` some are NaN."""
        y = inputs.targets(y, may_lack)
        check_consistent_length(X, y)
        y = y.reshape(len(X), -1)
        if y.shape[1] != len(self._y_scale.scale):
            raise ValueError(
                f"y has {y.shape[1]} columns, but the regressor was fitted with {len(self._y_scale.scale)}; "
                "give the same number."
            )
        return self.likelihood_.observed(y.T).T

    def _known(self, X, offset, **arguments):
        """What is known of the rows ``X`` in the units of the model: ``offset`` (K, N) and ``known`` (P T, N), or None.

        The first is added to the latent functions; the second is for the likelihood.
        """
        shape = len(X), len(self._y_scale.scale)
        offset = inputs.known("offset", offset, *shape)
        if offset is not None:
            offset = latent_offset(offset.T, self._y_scale, len(self._posterior.alpha))
        known = numbers.known_of_rows(self.likelihood_, arguments, *shape)
        if known is not None:
            known = self.likelihood_.known_in_units(known.T, *self._y_scale[:2])
        return {"offset": offset, "known": known}

    def _possible_targets(self, y, **arguments):
        """Return ``y``, NaN where it is masked; ValueError where what is known of its row excludes a target."""
        y = inputs.with_missing(y, self.missing_targets == "ignore")
        with cells.locate(y=y, may_lack=("y",)):
            columns = np.asarray(y, dtype=float).reshape(len(y), -1)
        given = {name: np.asarray(value) for name, value in arguments.items() if value is not None}
        check_consistent_length(y, *(value for value in given.values() if value.ndim))
        known = numbers.known_of_rows(self.likelihood_, given, *columns.shape)
        self.likelihood_.given(None if known is None else known.T).check_rows(columns.T)
        return y

    def _distribution_at(self, X, offset, known):
        """See `svgp.distribution`, at standardised rows."""
        found = svgp.distribution(attributes.model_of(self), X, self.device, self.n_devices, offset, known)
        self._defined(found[1:3], X)
        return found

    def _by_row(self, values):
        """Values (T, N, ...) with the rows first, and without the axis of the outputs if y had none."""
        return values[0] if self._single_output else np.moveaxis(values, 0, 1)

    def _in_units(self, values):
        """Standardised targets (T, N, ...) in the units of y, by row."""
        offset, scale = (np.reshape(x, (-1,) + (1,) * (values.ndim - 1)) for x in self._y_scale[:2])
        # Rounding must not move a value away from a limit that it is at.
        rounding = 4.0 * np.finfo(float).eps * (np.abs(offset) + np.abs(values * scale))
        return self._by_row(self.likelihood_.observed(values * scale + offset, rounding))

    def _shaped(self, columns):
        """Drop the last axis, that of the outputs, if y had none."""
        return columns[..., 0] if self._single_output else columns


def _ends(regressor, coverage, alpha):
    """The levels at which an interval ends; an alpha that looks like the probability outside of it is refused."""
    coverage = checks.levels("coverage", coverage, several=False)
    is_level = isinstance(alpha, (float, np.floating)) and _LEVELS[0] <= alpha <= _LEVELS[1]
    if is_level and not getattr(regressor, "_has_alpha", True):
        of_array = "; for rows whose noise has this variance give alpha an array with a value for each row"
        raise ValueError(
            f"alpha={float(alpha)!r} is the known variance of the noise of the rows, but the model was fitted without "
            f"alpha. For an interval that y leaves with this probability give coverage={1.0 - float(alpha):.4g}"
            f"{of_array if 'alpha' in regressor.likelihood_.known else ''}."
        )
    return [0.5 - 0.5 * coverage, 0.5 + 0.5 * coverage]


class TargetDistribution(TargetRows):
    """Predictions of the distribution of numbers y: of regressors."""

    @by_blocks("y", "offset", "alpha", "trials")
    @over_donors(incomplete.log_density)
    @with_mean_function
    @over_outputs(outputs.log_density)
    def predict_log_density(
        self, X: ArrayLike, y: ArrayLike, offset: PerRow = None, *, alpha: PerRow = None, trials: PerRow = None
    ) -> Floats:
        """Log density of each row's target under the prediction.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
        y : array-like of shape (n_samples,) or (n_samples, n_outputs)
        offset : float or array-like of shape (n_samples[, n_outputs]), default=None
            Added to the latent function, as in `fit`.
        alpha : float or array-like of shape (n_samples[, n_outputs]), default=None
            Known variances of the noise, as in `fit`.
        trials : int or array-like of shape (n_samples[, n_outputs]), default=None
            Numbers of trials, as in `fit`; one without it.

        Returns
        -------
        log_density : ndarray of shape (n_samples,)
            log p(y | X) in nats, in the units of y, summed over the outputs; with ``missing_targets="ignore"`` over
            those that are not NaN. For counts, levels and censored targets it is the log of a probability. Minus its
            mean is the negative log predictive density (NLPD).

        Examples
        --------
        >>> import numpy as np
        >>> from sklearn.gaussian_process.kernels import RBF
        >>> from skgp_natgrad import NGDSVGPRegressor
        >>> X = np.linspace(0, 10, 100)[:, None]
        >>> y = np.sin(X[:, 0]) + 0.1 * np.random.default_rng(0).normal(size=100)
        >>> reg = NGDSVGPRegressor(1.0 * RBF(), n_inducing=12, tol=0.05, random_state=0).fit(X, y)
        >>> bool(-reg.predict_log_density(X, y).mean() < -0.5)
        True
        """
        X = self._check_rows(X)
        y = self._check_targets(X, y, self.missing_targets == "ignore")
        known = self._known(X, offset, alpha=alpha, trials=trials)
        seen = ~np.isnan(y.T)
        with numbers.locate_impossible(self.likelihood_, y):
            self.likelihood_.check_targets(y.T if np.all(seen) else y.T[seen][None])
        with np.errstate(over="ignore"):
            # Beyond the largest number a density that falls like a power would be NaN.
            standardised = np.clip(self._y_scale.forward(y).T, *_ALL_NUMBERS)
        likelihood = attributes.model_of(self).likelihood.given(known["known"])
        likelihood.check_rows(standardised)
        # A probability has no unit.
        has_no_unit = likelihood.has_mass(standardised) | ~seen
        log_scale = np.where(has_no_unit, 0.0, np.log(self._y_scale.scale)[:, None])
        return self._predict("log_density", X, standardised, **known) - log_scale.sum(0)

    @by_blocks("y", "offset", "alpha", "trials")
    @over_donors(incomplete.probability)
    @with_mean_function
    @over_outputs(outputs.by_row)
    def predict_cdf(
        self, X: ArrayLike, y: ArrayLike, offset: PerRow = None, *, alpha: PerRow = None, trials: PerRow = None
    ) -> Floats:
        """Probability that each row's target is at most y: the probability integral transform.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
        y : array-like of shape (n_samples,) or (n_samples, n_outputs)
        offset : float or array-like of shape (n_samples[, n_outputs]), default=None
            Added to the latent function, as in `fit`.
        alpha, trials : float or array-like of shape (n_samples[, n_outputs]), default=None
            Known variances of the noise, or numbers of trials, as in `fit`.

        Returns
        -------
        probability : ndarray of shape (n_samples,) or (n_samples, n_outputs)
            P(Y <= y | X). Uniform on [0, 1] for continuous targets if the predicted distributions are right.

        Examples
        --------
        >>> import numpy as np
        >>> from sklearn.gaussian_process.kernels import RBF
        >>> from skgp_natgrad import NGDSVGPRegressor
        >>> X = np.linspace(0, 10, 100)[:, None]
        >>> y = np.sin(X[:, 0]) + 0.1 * np.random.default_rng(0).normal(size=100)
        >>> reg = NGDSVGPRegressor(1.0 * RBF(), n_inducing=12, tol=0.05, random_state=0).fit(X, y)
        >>> reg.predict_cdf(X[:2], reg.predict(X[:2])).round(6)
        array([0.5, 0.5])
        """
        X = self._check_rows(X)
        with np.errstate(over="ignore"):
            y = self._y_scale.forward(self._check_targets(X, y)).T
        y = np.clip(y, -LARGEST, LARGEST)
        likelihood, mean, var, of_rows = self._distribution_at(X, **self._known(X, offset, alpha=alpha, trials=trials))
        return self._by_row(svgp.cumulative(likelihood, mean, var, y, of_rows))

    @by_blocks("offset", "alpha", "trials")
    @over_donors(quantiles)
    @with_mean_function
    @over_outputs(outputs.affine)
    def predict_quantiles(
        self, X: ArrayLike, q: ArrayLike, offset: PerRow = None, *, alpha: PerRow = None, trials: PerRow = None
    ) -> Floats:
        """Quantiles of y under the prediction, noise included.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Inputs.
        q : float or array-like of shape (n_quantiles,)
            Probabilities of the quantiles, strictly between 0 and 1.
        offset : float or array-like of shape (n_samples[, n_outputs]), default=None
            Added to the latent function, as in `fit`.
        alpha, trials : float or array-like of shape (n_samples[, n_outputs]), default=None
            Known variances of the noise, or numbers of trials, as in `fit`.

        Returns
        -------
        quantiles : ndarray of shape (n_samples[, n_outputs][, n_quantiles])
            In the units of y; without the last axis for a single ``q``. For counts and levels it is the smallest
            integer with P(Y <= quantile) >= q.

        Raises
        ------
        FloatingPointError
            Where a predicted distribution is too wide for double precision.

        Notes
        -----
        The distribution is that of the likelihood, averaged over the latent posterior, or a Student-t or a mixture of
        normals if the standard deviation is calibrated (``calibrate``). Under normal and Student-t errors the quantiles
        have a closed form; other distribution functions are integrated and inverted, about a millisecond for each row
        and quantile (ten with ``likelihood="chained_beta"``).

        Examples
        --------
        >>> import numpy as np
        >>> from sklearn.gaussian_process.kernels import RBF
        >>> from skgp_natgrad import NGDSVGPRegressor
        >>> X = np.linspace(0, 10, 100)[:, None]
        >>> y = np.sin(X[:, 0]) + 0.1 * np.random.default_rng(0).normal(size=100)
        >>> reg = NGDSVGPRegressor(1.0 * RBF(), n_inducing=12, tol=0.05, random_state=0).fit(X, y)
        >>> reg.predict_quantiles(X, [0.1, 0.5, 0.9]).shape
        (100, 3)
        >>> bool(np.allclose(reg.predict_quantiles(X, 0.5), reg.predict(X)))
        True
        """
        levels = checks.levels("q", q)
        X = self._check_rows(X)
        known = self._known(X, offset, alpha=alpha, trials=trials)
        likelihood, mean, var, of_rows = self._distribution_at(X, **known)
        found = self._in_units(svgp.quantiles(likelihood, mean, var, np.ravel(levels), of_rows))
        return found if np.ndim(levels) else found[..., 0]

    @with_names
    def predict_interval(
        self, X: ArrayLike, coverage: float = 0.9, offset: PerRow = None, *, alpha: PerRow = None, trials: PerRow = None
    ) -> tuple[Floats, Floats]:
        """Central predictive interval of y: both tails have the same probability.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Inputs.
        coverage : float, default=0.9
            Probability that y lies in the interval, strictly between 0 and 1. For counts and levels the ends are
            integers, and the probability is at least this.
        offset : float or array-like of shape (n_samples[, n_outputs]), default=None
            Added to the latent function, as in `fit`.
        alpha : float or array-like of shape (n_samples[, n_outputs]), default=None
            Known variances of the noise, as in `fit`; not 1 - coverage (0.001 to 0.5 are refused if the fit had none).
        trials : int or array-like of shape (n_samples[, n_outputs]), default=None
            Numbers of trials, as in `fit`; one without it.

        Returns
        -------
        lower, upper : ndarray of shape (n_samples,) or (n_samples, n_outputs)
            The quantiles at (1 - coverage) / 2 and (1 + coverage) / 2, in the units of y; both ends belong to the
            interval.

        Examples
        --------
        >>> import numpy as np
        >>> from sklearn.gaussian_process.kernels import RBF
        >>> from skgp_natgrad import NGDSVGPRegressor
        >>> X = np.linspace(0, 10, 100)[:, None]
        >>> y = np.sin(X[:, 0]) + 0.1 * np.random.default_rng(0).normal(size=100)
        >>> reg = NGDSVGPRegressor(1.0 * RBF(), n_inducing=12, tol=0.05, random_state=0).fit(X, y)
        >>> lower, upper = reg.predict_interval(X, coverage=0.95)
        >>> bool(np.mean((lower <= y) & (y <= upper)) > 0.85)
        True
        """
        levels = _ends(self, coverage, alpha)
        both = self.predict_quantiles(X, levels, offset, alpha=alpha, trials=trials)
        return both[..., 0], both[..., 1]

    @before_fit
    @over_donors(incomplete.draws)
    @with_mean_function
    @over_outputs(outputs.affine)
    def sample_y(
        self,
        X: ArrayLike,
        n_samples: int = 1,
        random_state: Seed = 0,
        joint: bool = True,
        offset: PerRow = None,
        *,
        alpha: PerRow = None,
        trials: PerRow = None,
    ) -> Floats:
        """Draw targets from the prediction, noise included; before `fit` from the prior, as in `predict`.

        Parameters
        ----------
        X : array-like of shape (n_samples_X, n_features)
        n_samples : int, default=1
            Number of draws.
        random_state : int, RandomState instance or None, default=0
        joint : bool, default=True
            Whether each draw is one function at all rows plus independent noise, which needs the covariance between all
            rows. Otherwise rows are drawn independently, with memory proportional to the number of rows.
        offset : float or array-like of shape (n_samples[, n_outputs]), default=None
            Added to the latent function, as in `fit`.
        alpha : float or array-like of shape (n_samples[, n_outputs]), default=None
            Known variances of the noise, as in `fit`.
        trials : int or array-like of shape (n_samples[, n_outputs]), default=None
            Numbers of trials, as in `fit`; one without it.

        Returns
        -------
        y_samples : ndarray of shape (n_samples_X, n_samples) or (n_samples_X, n_outputs, n_samples)

        Examples
        --------
        >>> import numpy as np
        >>> from sklearn.gaussian_process.kernels import RBF
        >>> from skgp_natgrad import NGDSVGPRegressor
        >>> X = np.linspace(0, 10, 100)[:, None]
        >>> y = np.sin(X[:, 0]) + 0.1 * np.random.default_rng(0).normal(size=100)
        >>> reg = NGDSVGPRegressor(1.0 * RBF(), n_inducing=12, tol=0.05, random_state=0).fit(X, y)
        >>> reg.sample_y(X, n_samples=3).shape
        (100, 3)
        """
        n_samples = checks.of_type("n_samples", n_samples, int, least=1)
        X = self._check_rows(X)
        joint, known = checks.of_type("joint", joint, bool), self._known(X, offset, alpha=alpha, trials=trials)
        return self._in_units(self._sample_targets(X, n_samples, random_state, joint, **known))
