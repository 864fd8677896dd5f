"""Streams whose y changes: rows that contradict the earlier ones are noticed, also a few at a time."""

import pickle
import warnings
from types import SimpleNamespace

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning
from sklearn.gaussian_process.kernels import RBF

from skgp_natgrad import NGDSVGPRegressor
from skgp_natgrad.likelihoods import Gaussian
from skgp_natgrad.start import following
from skgp_natgrad.training.batches import Table

pytestmark = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")

# -- what contradicts: the test alone, on an exact process in NumPy --------------------------------

NOISE, KERNEL = 0.01, RBF(1.0)


def f(X):
    return np.sin(1.5 * X[:, 0]) + 0.5 * X[:, 1]


def rows_of(n_rows, rng, noise=0.1, shift=0.0):
    X = rng.normal(size=(n_rows, 2)) + shift
    return X, f(X) + noise * rng.normal(size=n_rows)


@pytest.fixture
def exact(monkeypatch):
    """A model of 150 rows: its moments and covariances are those of the exact process."""
    X, y = rows_of(150, np.random.default_rng(0))
    inverse = np.linalg.inv(KERNEL(X) + NOISE * np.eye(150))

    def covariance(model, at, device):
        return (KERNEL(at) - KERNEL(at, X) @ inverse @ KERNEL(X, at))[None]

    def predict(model, at, quantity, device, offset, known):
        assert quantity == "target_moments"
        return (KERNEL(at, X) @ inverse @ y)[None], np.diag(covariance(model, at, device)[0])[None] + NOISE

    monkeypatch.setattr(following, "covariance", covariance)
    monkeypatch.setattr(following, "predict", predict)
    found = SimpleNamespace(kernels=(KERNEL,), posterior=SimpleNamespace(prior_mean=np.zeros((1, 1))))
    found.undispersed = found
    return found


def is_contradicted(model, X, y):
    return bool(following.contradicted(model, Table(X, y[None], np.ones(len(y))), 0)[0])


@pytest.mark.parametrize("n_rows", [20, 60, 700])
def test_no_row_like_the_earlier_ones_contradicts_them(exact, n_rows):
    """Nor do rows with another noise, rows elsewhere, of whatever size, or one gross error."""
    for seed in range(20 if n_rows < 100 else 3):
        rng = np.random.default_rng(seed)
        assert not is_contradicted(exact, *rows_of(n_rows, rng))
        assert not is_contradicted(exact, *rows_of(n_rows, rng, noise=0.4))
        assert not is_contradicted(exact, *rows_of(n_rows, rng, noise=0.01))
        X, y = rows_of(n_rows, rng, shift=8.0)
        assert not is_contradicted(exact, X, y)
        assert not is_contradicted(exact, X, 100.0 * y)
        X, y = rows_of(n_rows, rng)
        y[3] += 1e4
        assert not is_contradicted(exact, X, y)


@pytest.mark.parametrize("n_rows", [20, 60, 700])
@pytest.mark.parametrize(
    ("unit", "mean"), [(1e3, 0.0), (1e-3, 0.0), (-1.0, 0.0), (-1e3, 0.0), (1.0, 50.0), (1.0, -3.0)]
)
def test_rows_of_another_function_contradict(exact, n_rows, unit, mean):
    for seed in range(10 if n_rows < 100 else 2):
        X, y = rows_of(n_rows, np.random.default_rng(seed))
        assert is_contradicted(exact, X, unit * y + mean)


# -- streams --------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def first():
    """A model of 200 rows whose kernel is known."""
    kernel = RBF(1.2, "fixed")
    model = NGDSVGPRegressor(kernel, likelihood=Gaussian(0.01), n_inducing=40, max_iter=30, calibrate=False)
    return model.set_params(normalize_X=False, random_state=0).fit(*rows_of(200, np.random.default_rng(1)))


def fed(first, size, *parts):
    """The model after these rows in parts of a size, and the warnings on the way."""
    model, told = pickle.loads(pickle.dumps(first)), []
    for X, y in parts:
        for start in range(0, len(y), size):
            with warnings.catch_warnings(record=True) as caught:
                warnings.simplefilter("always")
                model.partial_fit(X[start : start + size], y[start : start + size])
            told += [str(each.message) for each in caught if not issubclass(each.category, ConvergenceWarning)]
    return model, told


def test_twenty_rows_are_one_part(first):
    """Whatever the parts in which they come; and through a file; and the bounds add up to that of the whole."""
    X, y = rows_of(20, np.random.default_rng(2))
    whole, _ = fed(first, 20, (X, y))
    for size in (1, 7, 19):
        model, bound = pickle.loads(pickle.dumps(first)), 0.0
        for start in range(0, 20, size):
            bound += model.partial_fit(X[start : start + size], y[start : start + size]).elbo_
            if start == size:
                model = pickle.loads(pickle.dumps(model))
        assert_array_equal(model.predict(X, return_std=True), whole.predict(X, return_std=True))
        assert model._few is None if "_few" in vars(model) else True
        assert bound == pytest.approx(whole.elbo_, rel=1e-9)


def test_fewer_rows_are_learned_at_once_and_no_more_than_once(first):
    X, y = rows_of(15, np.random.default_rng(2))
    whole, single = fed(first, 15, (X, y))[0], fed(first, 1, (X, y))[0]
    assert_allclose(single.predict(X), whole.predict(X), atol=5e-3)
    assert np.abs(single.predict(X) - first.predict(X)).max() > 0.01
    assert "_few" in vars(single)
    assert "_few" not in vars(clone(single))
    # A fit begins anew.
    assert "_few" not in vars(single.fit(*rows_of(30, np.random.default_rng(1))))


@pytest.mark.slow
@pytest.mark.parametrize("size", [1, 10, 19, 30])
@pytest.mark.parametrize("unit", [1e3, 1e-3, -1.0])
def test_another_unit_or_sign_is_named_and_followed(first, size, unit):
    """Also if it comes between the rows that are learned together."""
    for before in (0, 30):
        rng = np.random.default_rng(3)
        X, y = rows_of(90, rng)
        model, told = fed(first, size, rows_of(before, rng), (X, unit * y))
        assert any("contradict the earlier ones" in each for each in told)
        X = rng.normal(size=(200, 2))
        mean, std = model.predict(X, return_std=True)
        assert np.sqrt(np.mean((mean / unit - f(X)) ** 2)) < 0.45
        assert np.sqrt(np.mean(((mean - unit * f(X)) / std) ** 2)) < 2.0


@pytest.mark.slow
@pytest.mark.parametrize("size", [1, 10, 19])
def test_a_stream_that_stays_the_same_is_never_forgotten(first, size):
    for seed in range(2):
        model, told = fed(first, size, rows_of(60, np.random.default_rng(10 + seed)))
        assert not told
        assert model._warm_state.weight == 260.0
