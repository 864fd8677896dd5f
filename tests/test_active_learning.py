"""``predict_noise=False``: the deviation of the latent function, by which the next experiment is chosen."""

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from sklearn import config_context
from sklearn.base import clone
from sklearn.exceptions import UnsetMetadataPassedError
from sklearn.frozen import FrozenEstimator
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import RBF, Matern
from sklearn.metrics import d2_pinball_score
from sklearn.model_selection import cross_val_predict, cross_val_score
from sklearn.utils import get_tags

from skgp_natgrad import NGDSVGPRegressor
from skgp_natgrad.likelihoods import Gaussian
from skgp_natgrad.metrics import nlpd_scorer
from skgp_natgrad.model_selection import PredictedQuantile

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


# -- what other programs read ------------------------------------------------------------------


def by_differences(model, x, step=1e-4):
    """Gradients (D, ...) of mean and deviation at one row."""
    shifts = step * np.eye(len(x))
    sides = [np.array(model.predict(x + side * shifts, return_std=True)) for side in (1.0, -1.0)]
    return (sides[0] - sides[1]) / (2.0 * step)


@pytest.mark.parametrize("predict_noise", [True, False])
@pytest.mark.parametrize("n_rows", [18, pytest.param(120, marks=pytest.mark.slow)])
def test_gradients_beside_mean_and_deviation_are_right(predict_noise, n_rows):
    """With few rows one factor widens the deviation; with more a process, which the latent deviation leaves out."""
    rng = np.random.default_rng(1)
    rows = rng.uniform(-2.0, 2.0, (n_rows, 2))
    y = np.sin(rows[:, 0]) + (0.05 + 0.3 * (rows[:, 1] > 0.0)) * rng.normal(size=n_rows)
    model = NGDSVGPRegressor(1.0 * RBF([1.0, 1.0]), predict_noise=predict_noise, random_state=0).fit(rows, y)
    for x in NEW[:4]:
        mean, std, *slopes = model.predict(x[None], return_std=True, return_mean_grad=True, return_std_grad=True)
        assert_array_equal((mean, std), model.predict(x[None], return_std=True))
        assert_allclose(slopes, by_differences(model, x), rtol=1e-4, atol=1e-6)
        assert slopes[0].shape == (2,)
    mean, slope = model.predict(NEW[:1], return_mean_grad=True)
    assert_array_equal(slope, model.predict_gradient(NEW[:1])[0])
    (slopes,) = model.predict(NEW[:1].tolist(), return_mean_grad=True)[1:]
    assert_array_equal(slopes, slope)


@pytest.mark.parametrize(
    ("X", "request_", "message"),
    [
        (NEW, {"return_mean_grad": True}, r"X of the shape \(20, 2\): it is the gradient at one row"),
        (NEW[:1], {"return_std_grad": True}, "needs return_std=True and return_mean_grad=True"),
        (NEW[:1], {"return_std_grad": True, "return_std": True}, "needs return_std=True and return_mean_grad=True"),
        (NEW[:1], {"return_mean_grad": True, "return_cov": True}, "goes with return_std alone"),
    ],
)
def test_requests_that_do_not_go_together(X, request_, message):
    model = NGDSVGPRegressor(RBF(), optimizer=None).fit(NEW, NEW[:, 0])
    with pytest.raises(ValueError, match=message):
        model.predict(X, **request_)


def test_the_rows_of_the_fit():
    model = NGDSVGPRegressor(RBF(), optimizer=None).fit(np.concatenate([X, X[:5]]), np.concatenate([Y, Y[:5]]))
    order, given = np.lexsort(model.X_train_.T), np.lexsort(X.T)
    assert_allclose(model.X_train_[order], X[given])
    assert_allclose(model.y_train_[order], Y[given])
    two = NGDSVGPRegressor(RBF(), optimizer=None).fit(X, TWO)
    assert two.y_train_.shape == TWO.shape
    assert not hasattr(NGDSVGPRegressor(), "X_train_")
    stream = NGDSVGPRegressor(RBF(), n_inducing=5, max_iter=2, tol=10.0).partial_fit(X[:30], Y[:30])
    stream.partial_fit(X[30:], Y[30:])
    with pytest.raises(AttributeError, match="y_train_ needs the training rows"):
        _ = stream.y_train_


def test_a_quantile_is_what_predict_returns():
    model = NGDSVGPRegressor(RBF(), optimizer=None).fit(X, Y)
    own = PredictedQuantile(NGDSVGPRegressor(RBF(), optimizer=None), 0.9).fit(X, Y, sample_weight=np.ones(60))
    frozen = PredictedQuantile(FrozenEstimator(model), 0.9).fit(X, Y)
    assert frozen.regressor_.estimator is model
    for each in (own, frozen, clone(own).fit(X, Y)):
        assert_array_equal(each.predict(NEW), model.predict_quantiles(NEW, 0.9))
    assert own.n_features_in_ == 2
    assert own.score(X, Y) == d2_pinball_score(Y, own.predict(X), alpha=0.9)
    assert own.get_params()["regressor__optimizer"] is None
    with pytest.raises(ValueError, match=r"quantile=1\.5 must be a number between 0 and 1"):
        PredictedQuantile(model, 1.5).fit(X, Y)


def test_a_quantile_passes_on_what_its_regressor_requests_and_says_what_it_takes(rng):
    X, y, weight, every = rng.normal(size=(30, 1)), rng.normal(size=30), rng.uniform(size=30), np.arange(30)
    regressor = NGDSVGPRegressor(RBF(), optimizer=None, missing_inputs="allow")
    expected = PredictedQuantile(regressor, 0.9).fit(X, y, sample_weight=weight).predict(X)
    assert get_tags(PredictedQuantile(regressor)).input_tags.allow_nan
    with config_context(enable_metadata_routing=True):
        found = PredictedQuantile(regressor.set_fit_request(sample_weight=True), 0.9)
        assert_array_equal(
            cross_val_predict(found, X, y, cv=[(every, every)], params={"sample_weight": weight}), expected
        )
        with pytest.raises(UnsetMetadataPassedError, match="sample_weight"):
            PredictedQuantile(NGDSVGPRegressor(RBF(), optimizer=None)).fit(X, y, sample_weight=weight)
        frozen = PredictedQuantile(FrozenEstimator(regressor.fit(X, y)), 0.9).fit(X, y, sample_weight=weight)
        assert_array_equal(frozen.predict(X), regressor.predict_quantiles(X, 0.9))
        plain = NGDSVGPRegressor(RBF(), optimizer=None).set_fit_request(sample_weight=False)
        scored = PredictedQuantile(plain, 0.9).set_score_request(sample_weight=True)
        (score,) = cross_val_score(scored, X, y, cv=[(every, every[:9])], params={"sample_weight": weight})
        assert score == scored.fit(X, y).score(X[:9], y[:9], sample_weight=weight[:9])
    with pytest.raises(ValueError, match="quantile='a'"):
        PredictedQuantile(regressor, "a").fit(X, y)
