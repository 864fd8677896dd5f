"""Several rows at one X that have an effect in common, as of persons, sites or batches."""

import pickle
import warnings

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.base import clone
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import RBF, ConstantKernel, Matern, WhiteKernel

from skgp_natgrad import NGDSVGPRegressor, kernels, svgp
from skgp_natgrad.kernels import Nugget, nugget
from skgp_natgrad.likelihoods import Gaussian
from skgp_natgrad.neighbours.rates import rates
from skgp_natgrad.solve import closed_form
from skgp_natgrad.start import places
from skgp_natgrad.start.state import init

NOISE = 0.2


def rows_of_places(rng, n_places, n_each, n_columns=1, effect=1.0, n_targets=1):
    """X, y, the places, and a function that draws new targets at X for given effects of places."""

    def function(X):
        found = np.sin(2.0 * X[:, 0])
        return found if n_columns == 1 else found + 0.5 * X[:, 1] ** 2 - 0.5 * X[:, 2]

    def draw(X, of_places):
        return (function(X)[:, None] + of_places + NOISE * rng.normal(size=of_places.shape)).squeeze()

    at = rng.uniform(-2, 2, (n_places, n_columns))
    of_places = effect * NOISE * rng.normal(size=(n_places, n_targets))
    index = np.repeat(np.arange(n_places), n_each)
    return at[index], draw(at[index], of_places[index]), (at, of_places), draw


def new_rows(rng, n, n_columns, effect, draw, n_targets=1):
    X = rng.uniform(-2, 2, (n, n_columns))
    return X, draw(X, effect * NOISE * rng.normal(size=(n, n_targets)))


def covered(model, X, y, level=0.9):
    low, high = model.predict_interval(X, level)
    return float(np.mean((low <= y) & (y <= high)))


# -- the kernel ---------------------------------------------------------------------------------


def test_the_nugget_is_a_kernel_of_scikit_learn(rng):
    X = rng.integers(0, 2, (12, 2)) + 0.5
    want = (X[:, None] == X[None]).all(-1).astype(float)
    kernel = Nugget()
    assert_array_equal(kernel(X), want)
    assert_array_equal(kernel(X, X[:5]), want[:, :5])
    assert_array_equal(kernel.diag(X), np.ones(12))
    assert kernel(X, eval_gradient=True)[1].shape == (12, 12, 0)
    assert clone(kernel) == kernel == pickle.loads(pickle.dumps(kernel))
    assert kernel.is_stationary()
    assert repr(kernel) == "Nugget()"
    with pytest.raises(ValueError, match="leave Y out"):
        kernel(X, X, eval_gradient=True)
    gp = GaussianProcessRegressor(RBF() + 0.5 * kernel + WhiteKernel(0.1)).fit(X, rng.normal(size=12))
    assert len(gp.kernel_.theta) == 3


def test_the_jax_kernel_knows_equal_rows(rng, x64):
    X = rng.normal(size=(6, 3))[rng.integers(0, 6, 20)]
    found = kernels.from_sklearn(Nugget(), 3).value
    assert_array_equal(found(X, X[:7]), Nugget()(X, X[:7]))
    assert_array_equal(found.diag(X), np.ones(20))


def test_a_nugget_is_found_in_a_kernel():
    plain, with_one = RBF() + 2.0 * Matern(), kernels.Columns(RBF(), 0) + 2.0 * (0.5 * Nugget() + RBF())
    for kernel, has_one in ((plain, False), (with_one, True), (Nugget(), True)):
        assert nugget.in_sklearn(kernel) == has_one
        assert nugget.in_kernel(kernels.from_sklearn(kernel, 1).value) == has_one
    assert nugget.parted(plain + 0.5 * Nugget()) == (plain, 0.5 * Nugget())
    assert nugget.parted(plain) == (plain, None)


def test_a_nugget_has_no_rate():
    kernel = kernels.from_sklearn(2.0 * RBF([0.5, 2.0]) + 5.0 * Nugget(), 2).value
    # A mean over all terms: which rows are nearest does not change.
    found, alone = rates(kernel, 2), rates(kernel.k1, 2)
    assert_allclose(found / found[0], alone / alone[0])


# -- the noise within, and whether places have an effect ------------------------------------------


def table_of(X, y, weight=None):
    y = np.atleast_2d(y)
    return svgp.Table(X, y, np.ones(len(X)) if weight is None else weight)


def test_the_noise_within_is_the_pooled_scatter(rng):
    X, y, *_ = rows_of_places(rng, 30, 1 + np.arange(30) % 4, 2 + 1, n_targets=2)
    found = places.within(table_of(X, y.T))
    groups = [y[(x == X).all(1)] for x in np.unique(X, axis=0)]
    scatter = sum(((each - each.mean(0)) ** 2).sum(0) for each in groups)
    assert_allclose(found.scatter, scatter, rtol=1e-10)
    assert_allclose(found.df, len(X) - len(groups))
    assert_allclose(found.variance, NOISE**2, rtol=0.5)


def test_a_weight_of_two_is_two_rows_in_the_scatter(rng):
    X, y, *_ = rows_of_places(rng, 10, 3)
    weight = rng.integers(1, 4, len(X))
    repeated = places.within(table_of(np.repeat(X, weight, axis=0), np.repeat(y, weight)))
    for one, other in zip(places.within(table_of(X, y, 1.0 * weight)), repeated, strict=True):
        assert_allclose(one, other)


def test_copies_and_distinct_rows_have_no_scatter(rng):
    X, y = rng.normal(size=(10, 2)), rng.normal(size=10)
    assert places.within(table_of(X, y)) is None
    assert places.within(table_of(np.tile(X, (2, 1)), np.tile(y, 2))) is None
    # Where some rows are copies, only the others count.
    some = table_of(np.concatenate([X, X, X[:1]]), np.concatenate([y, y, y[:1] + 1.0]))
    assert_allclose(places.within(some).df, 2.0)


def test_the_density_of_the_scatter_is_largest_at_its_variance(rng):
    found = places.Within(np.array([3.0]), np.array([12.0]))
    value, slope = found.log_density(np.log(0.25))
    assert abs(slope) < 1e-12
    for other in np.log([0.2, 0.3]):
        assert found.log_density(other)[0] < value
        ahead, behind = (found.log_density(other + step)[0] for step in (1e-6, -1e-6))
        assert_allclose(found.log_density(other)[1], (ahead - behind) / 2e-6, rtol=1e-5)


def plan_of_search(kernel=None):
    solver = svgp.Settings(algorithm=svgp.Algorithm(solver="evidence"))
    return svgp.Plan(None if kernel is None else (kernel,), n_inducing="auto", settings=solver)


@pytest.mark.parametrize("n_columns", [1, 3])
def test_an_effect_is_seen_where_there_is_one(n_columns):
    for seed, effect in ((0, 2.0), (1, 0.0)):
        rng = np.random.default_rng(seed)
        X, y, *_ = rows_of_places(rng, 80, 3, n_columns, effect)
        found = places.effect(plan_of_search(), table_of(X, y))
        assert (found is not None) == (effect > 0.0)


def test_an_effect_is_not_looked_for_where_no_x_repeats(rng, monkeypatch):
    monkeypatch.setattr(places, "_gain", None)
    assert places.effect(plan_of_search(), table_of(rng.normal(size=(50, 2)), rng.normal(size=50))) is None


def test_nor_where_the_model_could_not_have_it(rng, monkeypatch):
    monkeypatch.setattr(places, "_gain", None)
    X, y, *_ = rows_of_places(rng, 30, 3, effect=3.0)
    table, plan = table_of(X, y), plan_of_search()
    missing = table._replace(y=np.where(np.arange(90) == 5, np.nan, table.y))
    for one, rows in (
        (plan, missing),
        (plan, table._replace(known=np.ones((1, 90)))),
        (plan._replace(likelihood=Gaussian(0.5, "fixed")), table),
        (plan._replace(n_inducing=10), table),
        (plan_of_search(RBF() + Nugget()), table),
        (plan_of_search(RBF(1.0, "fixed")), table),
    ):
        assert places.effect(one, rows) is None


# -- rows that are left out ------------------------------------------------------------------------


@pytest.mark.parametrize("n_targets", [1, 2])
def test_all_rows_of_a_place_are_left_out(rng, x64, n_targets):
    X, y, *_ = rows_of_places(rng, 12, 1 + np.arange(12) % 3, 3, n_targets=n_targets)
    y, weight, noise = np.atleast_2d(y.T), 1.0 * rng.integers(1, 3, len(X)), 0.05
    y = np.where((np.arange(len(X)) == 3) & (n_targets > 1), np.nan, y)
    kernel, table = 1.3 * RBF(1.5) + 0.4 * Nugget(), svgp.Table(X, y, weight)
    plan = svgp.Plan((kernel,), Gaussian(noise), n_inducing=None)
    state, constants = init(plan, table, np.random.RandomState(0))
    found = closed_form.solve(state.parameters, constants, table, np.random.RandomState(0), len(X)).left_out
    n_places = len(np.unique(X, axis=0))
    assert np.isfinite(found.error[0]).sum() == n_places
    for k in range(n_targets):
        for b in np.flatnonzero(np.isfinite(found.error[k])):
            of_place = (found.X[b] == X).all(1)
            seen = np.isfinite(y[k])
            rest = ~of_place & seen
            C, cross = kernel(X[rest]) + np.diag(noise / weight[rest]), kernel(found.X[b : b + 1], X[rest])[0]
            mean = np.ravel(constants.prior_mean)[k]
            predicted = mean + cross @ np.linalg.solve(C, y[k, rest] - mean)
            assert_allclose(found.latent[k, b], 1.7 - cross @ np.linalg.solve(C, cross), rtol=1e-5)
            assert np.abs(found.error[k, b] - (y[k, of_place & seen] - predicted)).min() < 1e-6


def test_without_a_nugget_others_at_the_same_x_stay(rng, x64):
    X, y, *_ = rows_of_places(rng, 12, 3)
    table, plan = table_of(X, y), svgp.Plan((RBF(),), Gaussian(0.05, "fixed"), n_inducing=None)
    state, constants = init(plan, table, np.random.RandomState(0))
    found = closed_form.solve(state.parameters, constants, table, np.random.RandomState(0), len(X)).left_out
    assert np.isfinite(found.error).sum() == len(X)


# -- fits ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("effect", [0.0, 2.0])
def test_a_given_kernel_has_an_effect_of_the_place_if_there_is_one(effect):
    rng = np.random.default_rng(1)
    X, y, (at, of_places), draw = rows_of_places(rng, 60, 3, effect=effect)
    given = 1.0 * RBF() + WhiteKernel(0.1)
    model = NGDSVGPRegressor(given, random_state=0).fit(X, y)
    latent, term = nugget.parted(model.kernel_)
    assert (term is not None) == (effect > 0.0)
    assert type(latent) is type(given)
    assert latent.k2.noise_level == model.likelihood_.variance
    assert_allclose(model._y_scale.scale**2 * model.likelihood_.variance, NOISE**2, rtol=0.3)
    if not effect:
        return
    # The maximum of the evidence of all rows has the same variances.
    exact = GaussianProcessRegressor(1.0 * RBF() + 0.1 * Nugget() + WhiteKernel(0.1), normalize_y=True).fit(X, y)
    new = np.linspace(-2, 2, 50)[:, None]
    (mean, std), (want, of_exact) = (each.predict(new, return_std=True) for each in (model, exact))
    assert_allclose(std, of_exact, rtol=0.05)
    assert_allclose(mean, want, atol=0.2 * of_exact.mean())
    # A known place has the posterior of its own effect.
    error = model.predict(at) - np.sin(2.0 * at[:, 0]) - of_places[:, 0]
    assert np.sqrt(np.mean(error**2)) < 1.1 * NOISE / np.sqrt(3.0)
    assert 0.85 < np.mean([covered(model, at, draw(at, of_places)) for _ in range(10)]) < 0.95


@pytest.fixture(scope="module")
def model_of_places():
    X, y, *_ = rows_of_places(np.random.default_rng(3), 40, 3, 3, effect=2.0)
    return (
        NGDSVGPRegressor(1.0 * RBF([1.0, 1.0, 1.0]), calibrate=False, normalize_X=False, random_state=0).fit(X, y),
        X,
        y,
    )


def dense(model, X):
    """Kernel, noise and the exact covariance of the rows in the units of the model."""
    return model.kernel_, float(np.mean(model.likelihood_.variance)), model._y_scale


def test_predictions_are_those_of_the_exact_process(model_of_places, rng):
    model, X, y = model_of_places
    kernel, noise, scale = dense(model, X)
    new = np.concatenate([X[:5], rng.uniform(-2, 2, (5, 3))])
    C, cross = kernel(X) + noise * np.eye(len(X)), kernel(new, X)
    prior = float(np.ravel(model._warm_state.prior_mean)[0])
    mean = prior + cross @ np.linalg.solve(C, scale.forward(y[:, None])[:, 0] - prior)
    variance = kernel.diag(new) - np.einsum("ij,ji->i", cross, np.linalg.solve(C, cross.T)) + noise
    found, deviation = model.predict(new, return_std=True)
    assert_allclose(found, scale.offset[0] + scale.scale[0] * mean, rtol=1e-5, atol=1e-6)
    assert_allclose(deviation, scale.scale[0] * np.sqrt(variance), rtol=1e-5)


def test_one_row_left_out_is_predicted_from_others_of_its_place(model_of_places):
    model, X, y = model_of_places
    kernel, noise, scale = dense(model, X)
    inverse = np.linalg.inv(kernel(X) + noise * np.eye(len(X)))
    prior = float(np.ravel(model._warm_state.prior_mean)[0])
    found, own = model.leave_one_out_, np.diag(inverse)
    error = inverse @ (scale.forward(y[:, None])[:, 0] - prior) / own
    assert_allclose(found.residual, scale.scale[0] * error, rtol=1e-5, atol=1e-6)
    assert_allclose(found.std, scale.scale[0] / np.sqrt(own), rtol=1e-5)


def test_a_fit_with_an_effect_of_places_goes_into_files(model_of_places):
    model, X, _ = model_of_places
    new = np.concatenate([X[:3], X[:3] + 0.1])
    copied = pickle.loads(pickle.dumps(model))
    assert_array_equal(copied.predict(new), model.predict(new))
    assert "Nugget" in str(model.summary())
    _, gradient = model.log_marginal_likelihood(model.kernel_.theta, eval_gradient=True)
    for i in range(len(gradient)):
        step = 1e-4 * np.eye(len(gradient))[i]
        ends = [model.log_marginal_likelihood(model.kernel_.theta + sign * step) for sign in (1, -1)]
        assert_allclose(gradient[i], (ends[0] - ends[1]) / 2e-4, rtol=1e-3, atol=1e-3)


def test_a_given_nugget_has_both_variances():
    X, y, *_ = rows_of_places(np.random.default_rng(5), 80, 3, effect=2.0)
    kernel = 1.0 * RBF() + 0.1 * Nugget() + WhiteKernel(0.5)
    found = NGDSVGPRegressor(kernel, normalize_y=False, random_state=0).fit(X, y).kernel_
    assert_allclose(found.k2.noise_level, NOISE**2, rtol=0.3)
    assert_allclose(found.k1.k2.k1.constant_value, (2.0 * NOISE) ** 2, rtol=0.4)


def test_several_targets_have_a_noise_of_their_own(rng):
    X, y, *_ = rows_of_places(rng, 60, 3, effect=2.0, n_targets=2)
    y[:, 1] *= 10.0
    model = NGDSVGPRegressor(1.0 * RBF(), random_state=0).fit(X, y)
    assert nugget.parted(model.kernel_)[1] is not None
    assert_allclose(model._y_scale.scale**2 * model.likelihood_.variance, [NOISE**2, 100.0 * NOISE**2], rtol=0.4)


def test_few_places_say_nothing_of_an_effect(rng):
    """Two X of ten rows each, and one: their means are all that the function has."""
    X = np.repeat([[0.0], [1.0], [2.0]], [10, 10, 1], axis=0)
    y = X[:, 0] + 0.1 * rng.normal(size=21)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = NGDSVGPRegressor(ConstantKernel() * RBF(), random_state=0).fit(X, y)
    assert not nugget.in_sklearn(model.kernel_)


def test_a_fit_with_nothing_set_covers_new_places(rng):
    X, y, _, draw = rows_of_places(rng, 60, 3, 1, 3.0)
    model = NGDSVGPRegressor(random_state=0).fit(X, y)
    assert nugget.in_sklearn(model.kernel_)
    # Without the effect a third would be covered.
    assert covered(model, *new_rows(rng, 400, 1, 3.0, draw)) > 0.7


@pytest.mark.slow
@pytest.mark.parametrize("n_columns", [1, 3])
@pytest.mark.parametrize(("n_places", "n_each"), [(60, 2), (100, 3), (60, 10)])
@pytest.mark.parametrize("effect", [0.0, 1.0, 3.0])
def test_new_places_are_covered(n_columns, n_places, n_each, effect):
    """With nothing set, on the mean of ten draws."""
    found = []
    for seed in range(10):
        rng = np.random.default_rng(seed)
        X, y, _, draw = rows_of_places(rng, n_places, n_each, n_columns, effect)
        model = NGDSVGPRegressor(random_state=seed).fit(X, y)
        found.append(covered(model, *new_rows(rng, 400, n_columns, effect, draw)))
    # With two rows at each of 60 places along three columns, and large effects, it is .849.
    least = 0.84 if (n_places, n_each, n_columns, effect) == (60, 2, 3, 3.0) else 0.85
    assert least < np.mean(found) < 0.95
