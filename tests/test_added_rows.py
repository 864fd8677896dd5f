"""Few more rows of a stream under Gaussian noise: hyperparameters stay, and the model is the exact process of all."""

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import RBF, ConstantKernel, Matern

from skgp_natgrad import NGDSVGPRegressor
from skgp_natgrad.likelihoods import Gaussian
from skgp_natgrad.start import state

pytestmark = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")

RNG = np.random.default_rng(5)
X = RNG.uniform(-3.0, 3.0, size=(150, 2))
Y = np.sin(X).sum(1) + 0.2 * RNG.normal(size=150)
NEW = RNG.uniform(-4.0, 4.0, size=(6, 2))
OF_NEW = np.sin(NEW).sum(1) + 0.2 * RNG.normal(size=6)
AS_GIVEN = {"normalize_X": False, "normalize_y": False, "calibrate": False, "random_state": 0}


def exact(model, rows, y):
    """scikit-learn's process with the hyperparameters of the model, whose prior mean is zero."""
    noise = float(model.likelihood_.variance)
    return GaussianProcessRegressor(model.kernel_, alpha=noise, optimizer=None).fit(rows, y)


@pytest.mark.parametrize("noise", [1e-4, 1e-7, 1e-10])
def test_a_row_more_is_exact_with_little_noise(noise):
    """Up to N k / s^2 of 1e12, with a kernel whose covariance has an inverse."""
    likelihood = Gaussian(noise, "fixed")
    model = NGDSVGPRegressor(Matern(1.0, "fixed", nu=0.5), likelihood=likelihood, jitter=1e-13, **AS_GIVEN)
    model.fit(X, np.sin(X).sum(1)).partial_fit(NEW[:1], np.sin(NEW[:1]).sum(1))
    assert model._warm_state.untrained == 1.0
    rows, at = np.concatenate([X, NEW[:1]]), RNG.normal(size=(30, 2))
    expected, deviation = exact(model, rows, np.sin(rows).sum(1)).predict(at, return_std=True)
    found, found_deviation = model.predict_latent(at, return_std=True)
    assert_allclose(found, expected, rtol=1e-5, atol=1e-5)
    assert_allclose(found_deviation, deviation, rtol=1e-4)


@pytest.mark.parametrize("kernel", [ConstantKernel() * RBF([1.0, 1.0]), Matern(nu=0.5)], ids=str)
@pytest.mark.parametrize(("little", "rtol"), [(0.0, 1e-5), (state._LITTLE, 1e-3)])
def test_a_row_more_gives_the_exact_process(kernel, little, rtol, monkeypatch):
    """With a point at every row; one that the others explain but for little of its noise needs none."""
    monkeypatch.setattr(state, "_LITTLE", little)
    model = NGDSVGPRegressor(kernel, **AS_GIVEN).fit(X, Y)
    theta, at = model.kernel_.theta, RNG.normal(size=(30, 2))
    model.partial_fit(NEW[:1], OF_NEW[:1])
    assert_array_equal(model.kernel_.theta, theta)
    before, after = exact(model, X, Y), exact(model, np.concatenate([X, NEW[:1]]), np.append(Y, OF_NEW[:1]))
    expected, deviation = after.predict(at, return_std=True)
    found, found_deviation = model.predict_latent(at, return_std=True)
    assert_allclose(found, expected, rtol=rtol, atol=rtol)
    assert_allclose(found_deviation, deviation, rtol=10.0 * rtol)
    # The log density of the new row given the others.
    gain = after.log_marginal_likelihood_value_ - before.log_marginal_likelihood_value_
    assert model.elbo_ == pytest.approx(gain, abs=1e-3 + 10.0 * rtol)


def rows_of(size, rng, noise=0.2):
    rows = rng.uniform(-3.0, 3.0, size=(size, 2))
    return rows, np.sin(rows).sum(1) + noise * rng.normal(size=size)


def iterations(sizes, noise=0.2):
    """The number of iterations of each call with a part of so many rows, after a fit of 240."""
    rng = np.random.default_rng(0)
    model = NGDSVGPRegressor(RBF(), n_inducing=40, likelihood=Gaussian(0.04), max_iter=30, **AS_GIVEN)
    model.fit(*rows_of(240, rng))
    return [model.partial_fit(*rows_of(size, rng, noise)).n_iter_ for size in sizes]


def test_a_part_of_many_rows_gives_the_exact_process():
    """A tenth of the rows before it, with points at the rows that the others do not explain."""
    rng = np.random.default_rng(1)
    many = rng.uniform(-4.0, 4.0, size=(15, 2))
    y, at = np.sin(many).sum(1) + 0.2 * rng.normal(size=15), RNG.normal(size=(30, 2))
    model = NGDSVGPRegressor(ConstantKernel() * RBF([1.0, 1.0]), **AS_GIVEN).fit(X, Y).partial_fit(many, y)
    assert model.n_iter_ == 1
    found, deviation = model.predict_latent(at, return_std=True)
    expected = exact(model, np.concatenate([X, many]), np.append(Y, y)).predict(at, return_std=True)
    assert_allclose(found, expected[0], rtol=2e-3, atol=2e-3)
    assert_allclose(deviation, expected[1], rtol=1e-2)


@pytest.mark.parametrize(
    ("sizes", "expected"),
    [
        # A part of more than a tenth.
        ([24, 30], [1, 30]),
        # More than 240 since the first fit; the next ones are counted from there.
        ([24] * 12, [1] * 10 + [30, 1]),
        # Single rows never do: the noise of one would become that of the model.
        ([24] * 10 + [1, 1], [1] * 12),
    ],
    ids=str,
)
def test_small_parts_train_when_as_many_rows_have_come(sizes, expected):
    assert iterations(sizes) == expected


@pytest.mark.parametrize(("noise", "expected"), [(0.02, 30), (0.2, 1), (0.6, 30)])
def test_a_small_part_with_another_noise_trains(noise, expected):
    assert iterations([24], noise) == [expected]
    assert iterations([12], noise) == [1]


@pytest.mark.parametrize(("noise", "expected"), [(0.2, 1), (2.0, 30)])
def test_rows_that_share_what_was_not_known_say_it_once(noise, expected):
    """Those of a new place, two prior deviations from the mean, are one surprise, not each another; their noise is."""
    rng = np.random.default_rng(0)
    model = NGDSVGPRegressor(RBF(), n_inducing=40, likelihood=Gaussian(0.04), max_iter=30, **AS_GIVEN)
    model.fit(*rows_of(300, rng))
    place = 20.0 + 0.1 * rng.normal(size=(30, 2))
    assert model.partial_fit(place, 2.0 + noise * rng.normal(size=30)).n_iter_ == expected


@pytest.mark.parametrize(("is_known", "expected"), [(True, 1), pytest.param(False, 30, marks=pytest.mark.slow)])
def test_what_is_known_of_the_rows_counts_in_their_errors(is_known, expected):
    """Offsets, variances of their own, and an output that is missing in some rows."""
    rng = np.random.default_rng(0)
    model = NGDSVGPRegressor(RBF(), n_inducing=40, likelihood=Gaussian(0.04), max_iter=30, **AS_GIVEN)
    rows, y = rows_of(240, rng)
    model.set_params(missing_targets="ignore").fit(rows, np.column_stack([y, y]))
    rows, y = rows_of(24, rng)
    offset, alpha = rng.normal(size=(24, 2)), rng.uniform(0.5, 1.0, size=(24, 2))
    y = y[:, None] + offset + np.sqrt(alpha) * rng.normal(size=(24, 2))
    y[::3, 1] = np.nan
    known = {"offset": offset, "alpha": alpha} if is_known else {}
    assert model.partial_fit(rows, y, **known).n_iter_ == expected


def test_one_gross_error_does_not_train():
    rng = np.random.default_rng(0)
    model = NGDSVGPRegressor(RBF(), n_inducing=40, likelihood=Gaussian(0.04), max_iter=30, **AS_GIVEN)
    model.fit(*rows_of(240, rng))
    part, y = rows_of(24, rng)
    y[3] += 4.0
    assert model.partial_fit(part, y).n_iter_ == 1
