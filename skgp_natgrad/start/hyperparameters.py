"""Hyperparameters of kernels and likelihood together: where they start, and their bounds."""

from __future__ import annotations

import jax
import numpy as np

from .. import kernels


def specification(sklearn_kernels, likelihood, n_features, n_targets):
    """Return values and bounds of all hyperparameters, in logarithms.

    Parameters
    ----------
    sklearn_kernels : tuple of sklearn.gaussian_process.kernels.Kernel
        One for all latent functions, or one for each.
    likelihood : Likelihood
        Prepared for the targets.
    n_features, n_targets : int
        Numbers of columns of X and y.

    Returns
    -------
    start, lower, upper : tuple of (tuple of Kernel, Likelihood)
        A fixed hyperparameter has both bounds at its value.
    """
    specs = [kernels.from_sklearn(kernel, n_features) for kernel in sklearn_kernels]
    of_kernels = zip(*specs, strict=True) if specs else ((), (), ())
    of_likelihood = likelihood.spec(n_targets)
    with np.errstate(divide="ignore"):
        return tuple(jax.tree.map(np.log, pair) for pair in zip(of_kernels, of_likelihood, strict=True))
