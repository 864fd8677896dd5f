"""``predict_noise=False``: the deviation of the latent function, by which the next experiment is chosen."""

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.base import clone
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import RBF, Matern

from skgp_natgrad import NGDSVGPRegressor
from skgp_natgrad.likelihoods import Gaussian
from skgp_natgrad.metrics import nlpd_scorer

RNG = np.random.default_rng(0)
X, NEW = RNG.uniform(-2.0, 2.0, (60, 2)), RNG.uniform(-2.0, 2.0, (20, 2))
Y = np.sin(X[:, 0]) + 0.3 * RNG.normal(size=60)
TWO = np.column_stack([Y, 3.0 * np.cos(X[:, 1]) + RNG.normal(size=60)])


def test_it_is_the_deviation_of_scikit_learns_process():
    exact = GaussianProcessRegressor(RBF(), alpha=0.09, optimizer=None).fit(X, Y)
    options = {"optimizer": None, "normalize_X": False, "normalize_y": False, "calibrate": False}
    found = NGDSVGPRegressor(RBF(), likelihood=Gaussian(0.09), predict_noise=False, **options).fit(X, Y)
    for request in ("return_std", "return_cov"):
        for one, other in zip(
            found.predict(NEW, **{request: True}), exact.predict(NEW, **{request: True}), strict=True
        ):
            assert_allclose(one, other, atol=1e-5)


@pytest.mark.parametrize("y", [Y, TWO], ids=["one", "two"])
def test_nothing_else_changes(y):
    model = NGDSVGPRegressor(1.0 * RBF()).fit(X, y)
    latent = clone(model).set_params(predict_noise=False).fit(X, y)
    mean, std = latent.predict(NEW, return_std=True)
    assert_array_equal(mean, model.predict(NEW))
    assert_array_equal(std, model.predict_latent(NEW, return_std=True)[1])
    assert np.all(std < model.predict(NEW, return_std=True)[1])
    assert_allclose(np.einsum("ii...->i...", latent.predict(NEW, return_cov=True)[1]), std**2)
    assert_array_equal(latent.predict_quantiles(NEW, [0.1, 0.9]), model.predict_quantiles(NEW, [0.1, 0.9]))
    assert nlpd_scorer(latent, X, y) == nlpd_scorer(model, X, y)
    assert latent.get_params()["predict_noise"] is False


@pytest.mark.slow
def test_the_next_row_is_in_the_gap_and_not_in_the_noise():
    rng = np.random.default_rng(1)
    x = np.concatenate([rng.uniform(0.0, 2.0, 30), rng.uniform(3.0, 10.0, 100)])
    y = np.sin(x) + np.where(x < 5.0, 0.05, 0.6) * rng.normal(size=130)
    # At the ends of the table little is known as well.
    grid = np.linspace(0.5, 9.5, 181)[:, None]
    model = NGDSVGPRegressor(1.0 * Matern(nu=2.5), predict_noise=False, random_state=0).fit(x[:, None], y)
    following = grid[np.argmax(model.predict(grid, return_std=True)[1]), 0]
    assert 2.0 < following < 3.0


def test_it_is_validated():
    with pytest.raises(ValueError, match="predict_noise='no' must be"):
        NGDSVGPRegressor(RBF(), predict_noise="no").fit(X, Y)
    with pytest.raises(ValueError, match=r"predict_noise=False, but under likelihood Poisson\(\) y is not one"):
        NGDSVGPRegressor(RBF(), likelihood="poisson", predict_noise=False).fit(X, np.round(np.abs(Y)))
