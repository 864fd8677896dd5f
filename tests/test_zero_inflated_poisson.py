"""Counts with more zeros than a Poisson distribution has: what a fit finds, and all that an estimator does with it."""

import copy
import pickle
import warnings

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy import special, stats
from sklearn.exceptions import ConvergenceWarning
from sklearn.gaussian_process.kernels import RBF, ConstantKernel
from sklearn.model_selection import GridSearchCV

from skgp_natgrad import NGDSVGPRegressor
from skgp_natgrad.likelihoods import Poisson, ZeroInflatedPoisson

PI = 0.3
OPTIONS = {
    "kernel": ConstantKernel() * RBF(0.5),
    "n_inducing": 20,
    "max_iter": 400,
    "learning_rate": 0.05,
    "random_state": 0,
}


def drawn(seed, n_rows=600, pi=PI):
    """Table, counts, and the logarithm of the rate."""
    rng = np.random.default_rng(seed)
    X = np.sort(rng.uniform(-3.0, 3.0, size=(n_rows, 1)), axis=0)
    f = 1.0 + np.sin(2.0 * X[:, 0])
    return X, np.where(rng.uniform(size=n_rows) < pi, 0, rng.poisson(np.exp(f))), f


X, Y, F = drawn(0)


@pytest.fixture(scope="module")
def fitted():
    """A fit, to be copied."""
    model = NGDSVGPRegressor(likelihood="zero_inflated_poisson", **OPTIONS).fit(X, Y)
    return lambda: copy.deepcopy(model)


# -- what is found ------------------------------------------------------------------------


def standard_error(f, pi):
    """Of pi, where the rates are known: one over the root of the Fisher information."""
    zero = pi + (1 - pi) * np.exp(-np.exp(f))
    information = (1 - np.exp(-np.exp(f))) ** 2 / zero + (1 - zero) / (1 - pi) ** 2
    return 1.0 / np.sqrt(information.sum())


@pytest.mark.slow
def test_the_probability_and_the_rate_are_recovered(fitted):
    model = fitted()
    assert abs(model.likelihood_.zero_probability - PI) < 3.0 * standard_error(F, PI)
    assert_allclose(np.corrcoef(model.predict(X), (1 - PI) * np.exp(F))[0, 1], 1.0, atol=0.02)
    assert model.predict(X).mean() == pytest.approx(Y.mean(), rel=0.05)
    mean, std = model.predict(X, return_std=True)
    assert_allclose(((Y - mean) / std).std(), 1.0, atol=0.1)


@pytest.mark.slow
def test_it_is_better_than_a_poisson_distribution(fitted):
    new_X, new_y, f = drawn(1)
    plain = NGDSVGPRegressor(likelihood="poisson", **OPTIONS).fit(X, Y)
    density = fitted().predict_log_density(new_X, new_y)
    truth = np.where(
        new_y == 0, np.log(PI + (1 - PI) * np.exp(-np.exp(f))), np.log1p(-PI) + stats.poisson.logpmf(new_y, np.exp(f))
    )
    assert density.mean() > plain.predict_log_density(new_X, new_y).mean() + 0.2
    assert density.mean() > truth.mean() - 0.03


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize("start", [0.005, 0.9])
def test_it_is_found_from_afar(start):
    model = NGDSVGPRegressor(likelihood=ZeroInflatedPoisson(start), **OPTIONS).fit(X, Y)
    assert abs(model.likelihood_.zero_probability - PI) < 3.0 * standard_error(F, PI)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_natural_gradients_reach_the_optimum_of_lbfgs():
    """The likelihood is not log-concave where y is zero: steps may be refused, and no more than that."""
    options = {**OPTIONS, "kernel": RBF(0.8, "fixed"), "n_inducing": 10, "tol": 1e-6}
    likelihood = ZeroInflatedPoisson(0.1)
    natural = NGDSVGPRegressor(likelihood=likelihood, **{**options, "max_iter": 1500}).fit(X, Y)
    lbfgs = NGDSVGPRegressor(likelihood=likelihood, solver="lbfgs", parameterization="mean_var_sqrt", **options).fit(
        X, Y
    )
    assert natural.elbo_ == pytest.approx(lbfgs.elbo_, abs=0.5)
    assert natural.likelihood_.zero_probability == pytest.approx(lbfgs.likelihood_.zero_probability, abs=2e-3)


@pytest.mark.slow
def test_two_columns_have_a_probability_each():
    _, other, _ = drawn(0, pi=0.7)
    model = NGDSVGPRegressor(likelihood="zero_inflated_poisson", **OPTIONS).fit(X, np.column_stack([Y, other]))
    assert_allclose(model.likelihood_.zero_probability, [PI, 0.7], atol=4.0 * standard_error(F, 0.7))


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_single_precision(fitted):
    model = NGDSVGPRegressor(likelihood="zero_inflated_poisson", **OPTIONS, dtype="float32").fit(X, Y)
    assert model.likelihood_.zero_probability == pytest.approx(fitted().likelihood_.zero_probability, abs=0.01)
    assert_allclose(model.predict(X), fitted().predict(X), rtol=0.05)


# -- bounds -------------------------------------------------------------------------------


def told(likelihood, y=Y):
    """The fit, and its warning about bounds."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        model = NGDSVGPRegressor(likelihood=likelihood, **{**OPTIONS, "max_iter": 150}).fit(X, y)
    found = [str(each.message) for each in caught if "bound" in str(each.message)]
    return model, found


@pytest.mark.slow
def test_a_fixed_probability_stays():
    model, found = told(ZeroInflatedPoisson(0.123, "fixed"))
    assert model.likelihood_.zero_probability == pytest.approx(0.123, rel=1e-12)
    assert not found


@pytest.mark.slow
def test_a_bound_is_told_by_its_value():
    model, found = told(ZeroInflatedPoisson(0.1, (1e-4, 0.125)))
    assert model.likelihood_.zero_probability == pytest.approx(0.125, rel=1e-12)
    assert "likelihood__zero_probability at its upper bound 0.125." in found[0]
    # Of three digits there would be nothing left.
    model, found = told(ZeroInflatedPoisson(0.9999, (0.9998, 0.99995)))
    assert "likelihood__zero_probability at its lower bound 0.9998." in found[0]


@pytest.mark.parametrize(
    ("likelihood", "message"),
    [
        (ZeroInflatedPoisson(0.0), "zero_probability must be strictly between 0 and 1"),
        (ZeroInflatedPoisson(1.5), "zero_probability must be strictly between 0 and 1"),
        (ZeroInflatedPoisson(zero_probability_bounds=(0.0, 0.5)), "numbers strictly between 0 and 1"),
        (ZeroInflatedPoisson(0.8, (0.1, 0.5)), "outside of zero_probability_bounds"),
        (ZeroInflatedPoisson([0.1, 0.2]), "one for each of the 1 columns"),
    ],
)
def test_bad_probabilities_are_named(likelihood, message):
    with pytest.raises(ValueError, match=message):
        NGDSVGPRegressor(likelihood=likelihood).fit(X, Y)


# -- what an estimator does with it -------------------------------------------------------


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_a_search_over_the_probability():
    model = NGDSVGPRegressor(likelihood=ZeroInflatedPoisson(zero_probability_bounds="fixed"), **OPTIONS)
    grid = {"likelihood__zero_probability": [0.01, PI, 0.9]}

    def density(model, X, y):
        return model.predict_log_density(X, y).mean()

    search = GridSearchCV(model, grid, scoring=density, cv=2).fit(X[::2], Y[::2])
    assert search.best_params_ == {"likelihood__zero_probability": PI}
    assert search.best_estimator_.likelihood_.zero_probability == pytest.approx(PI)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_a_later_fit_goes_on(fitted):
    model = fitted().set_params(warm_start=True, max_iter=40, tol=1e9)
    before = model.likelihood_.zero_probability
    assert special.expit(model._warm_state.parameters.raw_likelihood.zero_probability) == pytest.approx(before)
    model.fit(X, Y)
    assert model.likelihood_.zero_probability == pytest.approx(before, abs=0.01)
    model.set_params(likelihood=ZeroInflatedPoisson(0.6, "fixed")).fit(X, Y)
    assert model.likelihood_.zero_probability == pytest.approx(0.6)


@pytest.mark.slow
def test_a_pickle_predicts_the_same_and_goes_on(fitted):
    model = fitted()
    again = pickle.loads(pickle.dumps(model))
    np.testing.assert_array_equal(again.predict_log_density(X, Y), model.predict_log_density(X, Y))
    first, second = (each._warm_state.parameters.raw_likelihood.zero_probability for each in (model, again))
    np.testing.assert_array_equal(first, second)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_the_exact_mean():
    options = {**OPTIONS, "kernel": 1.0 * RBF(0.7), "n_inducing": 6, "n_mean_inducing": 40}
    model = NGDSVGPRegressor(likelihood="zero_inflated_poisson", mean_solver="exact", **options).fit(X, Y)
    assert abs(model.likelihood_.zero_probability - PI) < 3.0 * standard_error(F, PI)
    assert np.corrcoef(model.predict(X), np.exp(F))[0, 1] > 0.97


def test_drawn_counts_have_the_predicted_moments(fitted):
    model = fitted()
    mean, std = model.predict(X[::60], return_std=True)
    draws = model.sample_y(X[::60], 4000, random_state=0)
    assert_allclose(draws.mean(1), mean, atol=5.0 * (std / np.sqrt(4000)).max())
    assert_allclose(draws.std(1), std, rtol=0.1)


# -- extremes -----------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_far_out_all_derivatives_are_finite(dtype):
    with jax.enable_x64(dtype == "float64"):
        model = jax.tree.map(lambda leaf: leaf.astype(dtype), ZeroInflatedPoisson(0.2).value_and_bounds(1)[0].to_raw())
        f = np.array([[-1e4, -300.0, -30.0, 0.0, 30.0, 85.0, 300.0, 1e4]], dtype)

        def total(raw, f):
            return raw.from_raw().log_prob(f, jnp.zeros_like(f)).sum()

        value, (of_pi, of_f) = jax.jit(jax.value_and_grad(total, argnums=(0, 1)))(model, f)
        assert np.isfinite(value)
        assert np.all(np.isfinite(of_pi.zero_probability))
        assert np.all(np.isfinite(of_f))
        got = jax.jit(lambda raw, f: raw.from_raw().log_prob(f, jnp.zeros_like(f)))(model, f)
    # Certainly zero below, and zero with probability pi above.
    assert_allclose(got[0, :3], 0.0, atol=1e-6)
    assert_allclose(got[0, 4:], np.log(0.2), rtol=1e-6)


@pytest.mark.usefixtures("x64")
def test_without_excess_zeros_it_is_poisson(rng):
    y, f = rng.poisson(3.0, size=(1, 20)).astype(float), rng.normal(size=(1, 20))
    inflated = ZeroInflatedPoisson(1e-12, "fixed").value_and_bounds(1)[0]
    log_prob = jax.jit(lambda likelihood: likelihood.log_prob(f, y))
    assert_allclose(log_prob(inflated), log_prob(Poisson()), rtol=1e-10, atol=1e-10)


def test_the_start_takes_excess_zeros_out():
    y, weight = np.array([[0.0, 0.0, 4.0, 8.0]]), np.ones(4)
    start = ZeroInflatedPoisson(0.5).initial_latent(y, weight, 0)
    assert_allclose(start, np.log(6.0))
    each = ZeroInflatedPoisson([0.5, 0.25]).initial_latent(np.repeat(y, 2, axis=0), weight, 0)
    assert_allclose(each, np.log([6.0, 4.0]))
    assert np.log(0.1) <= ZeroInflatedPoisson().initial_latent(np.zeros((1, 4)), weight, 0) <= 0.0


@pytest.mark.slow
def test_a_column_of_zeros_can_be_fitted():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        model = NGDSVGPRegressor(likelihood="zero_inflated_poisson", n_inducing=20, max_iter=60).fit(
            X, np.zeros(len(X))
        )
    assert np.all(model.predict(X) < 0.2)
