"""What was fitted, for people: the methods and attributes that ask `summary` when they are called."""

from __future__ import annotations

import numpy as np

from ..._backend.types import Floats
from . import summary
from .summary import Summary


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
                ``length_scale`` (or periodicity) of each column in its own units; those that are shortest in standard
                deviations of the columns come first. With ``normalize_X="quantile"`` a lengthscale is valid near the
                median of the column. That of a category is the shortest of its levels.
                A kernel of linear combinations of columns has ``directions``, with their lengthscales and ``loadings``;
                as text, a direction that several terms share is said once.
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
            ``of_rows``
                How many rows lack numbers, and the R2 of a fitted mean function at rows that it has not seen.
            ``compared``
                What rows left out have chosen, and how far it is ahead of the next best; or the shares of the variance
                that kernels of class labels have, in the order of ``terms``.
            ``fitted_on``
                Where all rows were fitted: "cpu" or "gpu", with "by XLA" where a CPU takes a GPU's way, and how
                many of them; printed unless it is one CPU.

        Examples
        --------
        >>> import numpy as np
        >>> from sklearn.gaussian_process.kernels import RBF
        >>> from skgp_natgrad import NGDSVGPRegressor
        >>> X = np.linspace(0, 1000, 200)[:, None]
        >>> y = 50 * np.sin(X[:, 0] / 100) + 5 * np.random.default_rng(0).normal(size=200)
        >>> reg = NGDSVGPRegressor(1.0 * RBF(), n_inducing=20, tol=0.02, random_state=0).fit(X, y)
        >>> found = reg.summary()
        >>> bool(4 < found.noise < 6), bool(50 < found.terms[0].factors[0].by_column["x0"] < 300)
        (True, True)
        """
        return summary.summarised(self)

    @property
    def feature_importances_(self) -> Floats:
        """Relevance of each column of X: ndarray of shape (n_features,), summing to one.

        The mean squared derivative of the latent functions' mean at the inducing points, times the variance of the
        column there: a derivative-based sensitivity (Sobol' and Kucherenko 2009), for every kernel. Unlike a short
        lengthscale it measures how much the function changes along the column, not how wiggly it is. A category has
        several columns of zeros and ones: it is then the variance of the function's linear part in all of them.
        """
        return summary.importances(self)


class BetweenOutputs:
    """``output_covariance_`` and ``output_correlation_``, of regressors."""

    @property
    def output_covariance_(self) -> Floats:
        """Prior covariance of the outputs at one place, without noise, in the units of y: (n_outputs, n_outputs).

        Of the sum of all terms of the kernel, the mean at some of the inducing points. An AttributeError without
        ``output_kernel``.
        """
        return summary.output_covariance(self)

    @property
    def output_correlation_(self) -> Floats:
        """The correlations of ``output_covariance_``: (n_outputs, n_outputs)."""
        covariance = self.output_covariance_
        deviation = np.sqrt(np.diag(covariance))
        return covariance / np.outer(deviation, deviation)
