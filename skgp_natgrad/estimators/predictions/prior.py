"""Predictions of a regressor before its fit: those of the prior, where all of it is given."""

from __future__ import annotations

import copy
import functools

import numpy as np
from sklearn.gaussian_process.kernels import Kernel
from sklearn.utils.validation import validate_data

from ... import svgp
from ...choose.scale import Scale
from ..arguments import reading
from ..rows import cells, inputs
from .by_blocks import with_names


def is_given(estimator) -> bool:
    """Whether an estimator says all of its prior: one kernel of independent outputs, no mean function fitted to y."""
    mean = estimator.mean_function
    is_known = mean is None or (callable(mean) and not hasattr(mean, "fit"))
    is_independent = estimator.output_kernel == "independent"
    return isinstance(estimator.kernel, Kernel) and is_known and is_independent


def before_fit(method):
    """Decorate a method of predictions: without a fit it predicts from the prior, if that is given."""

    @with_names
    @functools.wraps(method)
    def called(self, X, *arguments, **options):
        of_prior = not self.__sklearn_is_fitted__() and is_given(self)
        return method(_fitted_to_nothing(self, X) if of_prior else self, X, *arguments, **options)

    return called


def _fitted_to_nothing(estimator, X):
    """A copy of the estimator as a fit without rows would leave it, for one output: X and y have no other scale."""
    found = copy.copy(estimator)
    with cells.locate(X=X):
        n_columns = validate_data(found, inputs.dense(found, X), dtype=np.float64, reset=True).shape[1]
    likelihood = reading.likelihood_with_noise(found, "gaussian")
    # An error tells of wrong values.
    n_latent = likelihood.value_and_bounds(1)[0].n_latent(1, 0)
    vars(found).update(
        encoding_=None,
        kernel_=estimator.kernel,
        likelihood_=likelihood,
        mean_function_=estimator.mean_function,
        _x_scale=Scale(np.zeros(n_columns), np.ones(n_columns)),
        _y_scale=Scale(np.zeros(1), np.ones(1)),
        _posterior=_prior(n_columns, n_latent),
        _single_output=True,
    )
    return found


def _prior(n_columns, n_latent):
    """The `svgp.Posterior` of no rows: its only point is masked."""
    none = np.zeros((1, 1, 1))
    means = np.zeros((n_latent, 1)), np.zeros((n_latent, 0))
    return svgp.Posterior(np.zeros((1, n_columns)), np.zeros((0, n_columns)), *means, none, None, means[0], none)
