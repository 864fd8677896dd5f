"""What was fitted, for people: hyperparameters in the user's units, and the relevance of columns."""

from __future__ import annotations

import numpy as np
from sklearn.utils.validation import check_is_fitted

from ... import svgp
from ..._backend.types import Floats
from ..rows import class_labels
from . import attributes
from .summary import Summary, terms_of


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
                lengthscale is valid near the median of the column.
            ``prior_mean``
                Of the latent functions, in the same units.
            ``noise``
                Standard deviation of the noise in the units of y; None where y is not a latent function plus noise.
            ``likelihood``
                With its fitted parameters, on the model's own scale.
            ``varies``
                Whether predictions multiply the noise and the latent standard deviation by a factor that varies with X
                (``calibrate``).

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
        check_is_fitted(self)
        names = list(getattr(self, "feature_names_in_", [f"x{i}" for i in range(self.n_features_in_)]))
        middle = np.zeros((1, self.n_features_in_))
        units = (self._x_scale.backward(middle + 0.5) - self._x_scale.backward(middle - 0.5))[0]
        points = self._x_scale.forward(self.inducing_points_)
        offset, scale = self.likelihood_.latent_units(self._y_scale.offset, self._y_scale.scale)
        scale = np.broadcast_to(scale, len(self._posterior.alpha))
        kernels = attributes.model_of(self).kernels
        shared = len(kernels) == 1
        alike = np.all(scale == scale[0])
        terms = []
        for k, kernel in enumerate(kernels):
            of_term = (scale[0] if alike else scale) if shared else scale[k]
            terms += terms_of(kernel, names, units, points, of_term, None if shared else k)
        varies = getattr(self, "_dispersion", None) is not None
        prior_mean = class_labels.by_class(self, self._posterior.prior_mean[:, 0])
        prior_mean = np.broadcast_to(prior_mean * scale + offset, scale.shape)
        return Summary(tuple(terms), _plain(prior_mean), self._noise(), repr(self.likelihood_), varies)

    def _noise(self):
        """Standard deviation of additive noise in the units of y; None without such noise."""
        likelihood = attributes.model_of(self).likelihood
        if not hasattr(likelihood, "noise_variance"):
            return None
        variance = np.asarray(likelihood.noise_variance(), dtype=float)
        return _plain(np.sqrt(np.ravel(variance)) * self._y_scale.scale)

    @property
    def feature_importances_(self) -> Floats:
        """Relevance of each column of X: ndarray of shape (n_features,), summing to one.

        The mean squared derivative of the latent functions' mean at the inducing points, times the variance of the
        column there: a derivative-based sensitivity (Sobol' and Kucherenko 2009), for every kernel. Unlike a short
        lengthscale it measures how much the function changes along the column, not how wiggly it is.
        """
        check_is_fitted(self)
        points = self._x_scale.forward(self.inducing_points_)
        gradients = svgp.gradients(attributes.model_of(self), points, "latent_mean", device=self.device)
        self._defined(gradients, points)
        relevance = np.mean(gradients**2, axis=(0, 1, 3)) * np.var(points, axis=0)
        total = relevance.sum()
        # A constant function depends on no column.
        return relevance / total if total > 0.0 else np.full(len(relevance), 1.0 / len(relevance))


def _plain(values):
    """A single value as a float."""
    return float(values[0]) if len(values) == 1 else np.array(values)
