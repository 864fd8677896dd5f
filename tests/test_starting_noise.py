"""The noise from which gradient steps start."""

import warnings

import numpy as np
import pytest
from sklearn.exceptions import ConvergenceWarning

from skgp_natgrad import NGDSVGPRegressor
from skgp_natgrad.likelihoods import Gaussian


@pytest.mark.slow
def test_steps_start_from_the_noise_of_the_evidence_and_what_points_leave_unexplained():
    """With the default noise, a function's values take thousands of steps to be told from noise."""
    rng = np.random.default_rng(0)
    X = rng.uniform(-3.0, 3.0, size=(600, 2))
    y, options = np.sin(X[:, 0]) * np.cos(X[:, 1]), {"solver": "ngd", "max_iter": 100, "random_state": 0}
    default = np.ravel(Gaussian().variance)[0]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        without = NGDSVGPRegressor(**options).fit(X, y)
        few = NGDSVGPRegressor(**options | {"n_inducing": 5, "optimizer": None}).fit(X, y)
        noisy = NGDSVGPRegressor(**options | {"optimizer": None}).fit(X, y + 0.1 * rng.normal(size=len(y)))
    assert np.ravel(without.likelihood_.variance)[0] < 0.01 * default
    assert np.std(without.predict(X) - y) < 0.01 * np.std(y)
    # Five points leave more than the default unexplained; else the start is little more than the noise.
    assert np.ravel(few.likelihood_.variance)[0] == pytest.approx(default)
    share = 0.01 / (0.01 + y.var())
    assert share < 1.2 * np.ravel(noisy.likelihood_.variance)[0] < 2.0 * share


@pytest.mark.slow
def test_the_noise_from_which_steps_start_follows_the_units_of_each_target():
    rng = np.random.default_rng(1)
    X = rng.uniform(-3.0, 3.0, size=(300, 2))
    Y = np.column_stack([np.sin(X[:, 0]), X[:, 1] * np.cos(X[:, 0])]) + 0.1 * rng.normal(size=(300, 2))
    options = {"solver": "ngd", "max_iter": 2, "optimizer": None, "random_state": 0}

    def start(y, **own):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)
            return np.ravel(NGDSVGPRegressor(**options, **own).fit(X, y).likelihood_.variance)

    for y in (Y, Y[:, 0]):
        share = start(y)
        assert np.all((share > 0.0) & (share <= 0.1))
        for unit in (1e-3, 1e4):
            np.testing.assert_allclose(start(unit * y, normalize_y="center"), share * (unit * y).var(0), rtol=1e-6)
    # With a prior the start is the default, around which the prior is in later parts of a stream, too.
    assert start(Y[:, 0], hyperparameter_prior="weak") == pytest.approx(0.1)
    # Single precision has no digits for as little noise as the evidence finds of a function's values.
    assert start(np.sin(X[:, 0]), dtype="float32")[0] >= 1e-3
