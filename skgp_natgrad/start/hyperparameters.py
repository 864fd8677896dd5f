"""Initial values and bounds of the hyperparameters of kernels and likelihood together."""

from __future__ import annotations

import jax
import numpy as np

from .. import kernels


def specification(sklearn_kernels, likelihood, n_features, n_targets):
    """Return values and bounds of all hyperparameters: logarithms for the kernels, raw values for the likelihood.

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
    of_likelihood = [each.to_raw() for each in likelihood.value_and_bounds(n_targets)]
    # A hyperparameter of a kernel may be fixed at zero.
    with np.errstate(divide="ignore"):
        of_kernels = [jax.tree.map(np.log, each) for each in of_kernels]
    return tuple(zip(of_kernels, of_likelihood, strict=True))
