"""Regressions whose rows are predicted from their neighbours."""

import pickle
import re
import warnings

import joblib
import numpy as np
import pytest
from sklearn.base import clone
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import RBF, Matern

from skgp_natgrad import NGDSVGPClassifier, NGDSVGPRegressor, kernels, svgp
from skgp_natgrad._backend import memory, rows
from skgp_natgrad._backend.device import computation
from skgp_natgrad.likelihoods import Gaussian
from skgp_natgrad.neighbours import Neighbours
from skgp_natgrad.solve import closed_form
from skgp_natgrad.start import points_or_neighbours, sizes

N, NOISE = 90, 0.02
KERNEL = Matern([0.8, 1.2], length_scale_bounds="fixed", nu=1.5)
FIXED = {"likelihood": Gaussian(NOISE, "fixed"), "normalize_X": False, "normalize_y": False, "random_state": 0}


def table(rng, n=N):
    X = rng.uniform(-2, 2, size=(n, 2))
    return X, np.sin(2 * X[:, 0]) * X[:, 1] + 0.1 * rng.normal(size=n), rng.uniform(-3, 3, size=(40, 2))


def regressor(n_neighbors=N, kernel=KERNEL, **options):
    return NGDSVGPRegressor(kernel, n_neighbors=n_neighbors, **FIXED | options)


def exact(X, y, alpha, x):
    mean, std = GaussianProcessRegressor(KERNEL, alpha=alpha, optimizer=None).fit(X, y).predict(x, return_std=True)
    return mean, np.sqrt(std**2 + NOISE)


def assert_same(found, expected):
    for one, other in zip(found, expected, strict=True):
        assert np.allclose(one, other, rtol=0.0, atol=1e-6)


def at_most_60_points(monkeypatch):
    """First 20, then 60."""
    monkeypatch.setattr(sizes, "_AT_EVERY_ROW", 60)
    monkeypatch.setattr(sizes, "_MOST", 60)
    monkeypatch.setattr(points_or_neighbours, "POINTS", 20)


def test_with_all_rows_for_neighbours_predictions_are_those_of_scikit_learn(rng):
    X, y, x = table(rng)
    assert_same(regressor().fit(X, y).predict(x, return_std=True), exact(X, y, NOISE, x))


@pytest.mark.slow
def test_weights_known_noise_and_repeated_rows_are_those_of_scikit_learn(rng):
    X, y, x = table(rng)
    weight, known = rng.choice([0.5, 1.0, 3.0], size=N), rng.uniform(0.0, 0.1, size=N)
    X[70:] = X[:20]
    found = regressor().fit(X, y, weight, alpha=known).predict(x, return_std=True)
    assert_same(found, exact(X, y, (NOISE + known) / weight, x))
    # A row without weight says nothing.
    weight[5:15] = 0.0
    found = regressor().fit(X, y, weight).predict(x, return_std=True)
    seen = weight > 0.0
    assert_same(found, exact(X[seen], y[seen], NOISE / weight[seen], x))


@pytest.mark.slow
def test_targets_have_rows_and_kernels_of_their_own(rng):
    X, y, x = table(rng)
    Y = np.column_stack([y, 2.0 * y + X[:, 0]])
    Y[::3, 0] = np.nan
    model = regressor(kernel=[KERNEL, KERNEL], missing_targets="ignore").fit(X, Y)
    mean, std = model.predict(x, return_std=True)
    for k in range(2):
        seen = np.isfinite(Y[:, k])
        assert_same((mean[:, k], std[:, k]), exact(X[seen], Y[seen, k], NOISE, x))


def test_few_neighbours_are_the_nearest(rng):
    X, y, x = table(rng)
    mean = regressor(5).fit(X, y).predict(x)
    for i in range(5):
        near = np.argsort((((X - x[i]) / KERNEL.length_scale) ** 2).sum(1))[:5]
        assert np.isclose(mean[i], exact(X[near], y[near], NOISE, x[i : i + 1])[0][0], rtol=0.0, atol=1e-6)


def test_a_saved_or_copied_model_predicts_the_same_from_the_same_rows(rng):
    X, y, x = table(rng)
    model = regressor(20, calibrate=True).fit(X, y)
    expected = model.predict(x, return_std=True)
    loaded = pickle.loads(pickle.dumps(model))
    # What finds neighbours is not saved.
    assert model._neighbours._nearest
    assert not loaded._neighbours._nearest
    for one, other in zip(loaded.predict(x, return_std=True), expected, strict=True):
        assert np.array_equal(one, other)
    assert clone(model).n_neighbors == 20


def test_a_saved_model_has_hardly_more_than_the_rows(rng):
    """Of noise variances few differ, as of rows that are repeated."""
    X, y, x = table(rng, 6000)
    X[:300], X[300:400] = X[300], X[400:500]
    model = regressor(20, n_inducing=40).fit(X, y)
    assert 2 < len(np.unique(model._neighbours.noise)) < 10
    saved = pickle.dumps(model)
    assert len(saved) < 1.4 * (X.nbytes + y.nbytes)
    loaded = pickle.loads(saved)
    assert np.array_equal(loaded._neighbours.noise, model._neighbours.noise)
    assert np.array_equal(loaded.predict(x), model.predict(x))
    # Known noise of its own for each row.
    model = regressor(20, n_inducing=40).fit(X, y, alpha=rng.uniform(0.1, 1.0, size=6000))
    assert np.array_equal(pickle.loads(pickle.dumps(model))._neighbours.noise, model._neighbours.noise)


def test_rows_of_a_saved_model_may_stay_in_its_file(rng, tmp_path):
    X, y, x = table(rng)
    model = regressor(20).fit(X, y)
    joblib.dump(model, tmp_path / "model.joblib")
    loaded = joblib.load(tmp_path / "model.joblib", mmap_mode="r")
    assert isinstance(loaded._neighbours.X, np.memmap)
    for one, other in zip(*(each.predict(x, return_std=True) for each in (loaded, model)), strict=True):
        assert np.array_equal(one, other)


def test_quantiles_draws_and_covariances_belong_to_the_same_predictions(rng):
    X, y, x = table(rng)
    model = regressor(20, calibrate=True, likelihood="gaussian").fit(X, y)
    mean, std = model.predict(x, return_std=True)
    quantiles = model.predict_quantiles(x, [0.05, 0.5, 0.95])
    assert np.all(np.diff(quantiles, axis=-1) > 0.0)
    assert np.allclose(quantiles[:, 1], mean)
    of_joint, covariance = model.predict(x, return_cov=True)
    assert np.allclose(of_joint, mean)
    assert np.allclose(np.diag(covariance), std**2)
    assert np.linalg.eigvalsh(covariance).min() > 0.0
    draws = model.sample_y(x, 4000, random_state=0)
    assert np.all(np.abs(draws.mean(-1) - mean) < 5.0 * std / np.sqrt(4000))


@pytest.mark.slow
def test_with_nothing_said_rows_that_are_left_out_choose(rng, monkeypatch):
    at_most_60_points(monkeypatch)
    monkeypatch.setattr(points_or_neighbours, "_NEIGHBOURS", 15)
    X = rng.uniform(-2, 2, size=(400, 2))
    noise, options = 0.1 * rng.normal(size=400), {"calibrate": False, "random_state": 0}

    def plan_of(length_scale, y, **given):
        kernel = RBF(length_scale, "fixed")
        return NGDSVGPRegressor(kernel, likelihood=Gaussian(0.1, "fixed"), **options | given).fit(X, y).plan_

    rough = np.sin(6 * X[:, 0]) * np.cos(6 * X[:, 1]) + noise
    assert "each row predicted from 15 neighbors; 20 inducing points" in plan_of(0.2, rough)
    # Of a smooth function 15 rows tell less than all at a few points; of these there are then more.
    assert re.search("; (59|60) inducing points", plan_of(2.0, X[:, 0] + 5.0 * noise))
    # Numbers of points that are given are what predictions rest on.
    assert "neighbors" not in plan_of(0.2, rough, n_inducing=50, solver="evidence")


@pytest.mark.slow
def test_long_tables_and_their_files_have_neighbours_if_these_fit(rng, tmp_path, monkeypatch):
    at_most_60_points(monkeypatch)
    monkeypatch.setattr(points_or_neighbours, "_NEIGHBOURS", 15)
    monkeypatch.setattr(rows, "WINDOW_ROWS", 128)
    X = rng.uniform(-2, 2, size=(400, 2))
    y = np.sin(6 * X[:, 0]) * np.cos(6 * X[:, 1]) + 0.1 * rng.normal(size=400)
    np.save(tmp_path / "X.npy", X)
    of_file = np.load(tmp_path / "X.npy", mmap_mode="r")
    model = NGDSVGPRegressor(RBF(0.2, "fixed"), likelihood=Gaussian(0.01, "fixed"), random_state=0)
    held, read = (clone(model).fit(each, y) for each in (X, of_file))
    assert "each row predicted from 15 neighbors" in held.plan_ == read.plan_
    assert np.array_equal(held.predict(X), read.predict(X))
    # With little memory, or where it is not known how much there is.
    plan = svgp.Plan((RBF(),), Gaussian(0.01), n_neighbours="auto", n_bytes=np.inf)
    long = svgp.LongTable(lambda start, stop: svgp.Table(X, y[None], np.ones(400)).rows(slice(start, stop)), 400)
    with computation("cpu"):
        assert not points_or_neighbours.may(plan, long)
        assert not points_or_neighbours.may(plan._replace(n_bytes=50_000), long)
        assert points_or_neighbours.may(plan._replace(n_bytes=1e9), long)
        assert points_or_neighbours.may(plan, long.in_memory())


def test_below_the_line_there_are_none(rng):
    X, y, _ = table(rng)
    assert regressor("auto").fit(X, y)._neighbours is None


def test_few_points_come_first_and_all_points_are_random_rows(rng, monkeypatch):
    at_most_60_points(monkeypatch)
    X, y, _ = table(rng, 200)
    rows = svgp.Table(X, y[None], np.ones(200))
    given = {"n_inducing": "auto", "n_mean_inducing": "auto", "n_neighbours": "auto"}
    settings = svgp.Settings(algorithm=svgp.Algorithm(solver="evidence"))
    plan = svgp.sized(svgp.Plan(kernels=(KERNEL,), settings=settings, **given), rows)
    assert (plan.n_inducing, plan.otherwise.n_inducing, plan.otherwise.otherwise) == (20, 60, None)
    assert plan.inducing_init == plan.otherwise.inducing_init == "random"


@pytest.mark.usefixtures("x64")
def test_copies_that_are_left_out_do_not_predict_each_other(rng):
    X, y = rng.normal(size=(30, 2)), rng.normal(size=(1, 30))
    of_jax, noise = (kernels.from_sklearn(KERNEL, 2).value,), np.full((1, 60), 0.1)
    twice = Neighbours.of(np.concatenate([X, X]), np.concatenate([y, y], axis=1), noise, 10)
    found = twice.moments_without(of_jax, X, y, np.full((1, 30), np.inf))
    for i in range(30):
        others = np.arange(30) != i
        once = Neighbours.of(X[others], y[:, others], noise[:, :29] / 2.0, 10)
        for one, other in zip(found, once.moments(of_jax, X[i : i + 1]), strict=True):
            assert np.allclose(one[:, i], other[:, 0], rtol=1e-8, atol=1e-10)


@pytest.mark.slow
def test_twice_as_many_neighbours_where_they_tell_much_more(rng, monkeypatch):
    at_most_60_points(monkeypatch)
    monkeypatch.setattr(points_or_neighbours, "_NEIGHBOURS", 6)
    X = rng.uniform(-2, 2, size=(400, 2))
    y = np.sin(4 * X[:, 0]) * np.cos(4 * X[:, 1])
    options = {"calibrate": False, "random_state": 0}
    model = NGDSVGPRegressor(RBF(0.4, "fixed"), likelihood=Gaussian(1e-6, "fixed"), **options).fit(X, y)
    assert "each row predicted from 12 neighbors; 20 inducing points" in model.plan_
    noisy = NGDSVGPRegressor(RBF(0.02, "fixed"), likelihood=Gaussian(0.1, "fixed"), **options).fit(X, y)
    assert "from 12 neighbors" not in noisy.plan_


@pytest.mark.slow
def test_observations_at_the_same_place_calibrate_intervals(rng):
    """The targets of a place tell about those that come again there, and other places tell nothing."""
    places, level = rng.uniform(-2, 2, size=(80, 2)), rng.normal(size=80)
    at, new = rng.integers(80, size=900), rng.integers(80, size=2000)
    y = level[at] + 0.1 * rng.normal(size=900)
    model = NGDSVGPRegressor(RBF(1e-3, "fixed"), n_neighbors=20, random_state=0).fit(places[at], y)
    low, high = model.predict_interval(places[new], 0.95)
    again = level[new] + 0.1 * rng.normal(size=2000)
    assert np.mean((low <= again) & (again <= high)) == pytest.approx(0.95, abs=0.03)
    assert np.median(high - low) == pytest.approx(0.392, rel=0.2)


STREAM = {"max_iter": 2, "tol": 1e9, "n_inducing": 15}


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_the_next_rows_of_a_stream_become_neighbours(rng):
    X, y, x = table(rng)
    # Some rows come again, with other values and weights.
    X[60:70], weight = X[:10], rng.choice([0.5, 1.0, 3.0], size=N)
    model = regressor("auto").set_params(n_neighbors=N).fit(X[:50], y[:50], weight[:50])
    with warnings.catch_warnings():
        warnings.filterwarnings("error", message="Without effect|Rows are no longer")
        model.set_params(**STREAM)
        for rows in (slice(50, 75), slice(75, N)):
            model.partial_fit(X[rows], y[rows], weight[rows])
    assert_same(model.predict(x, return_std=True), exact(X, y, NOISE / weight, x))
    assert f"each row predicted from {N} neighbors" in model.plan_
    loaded = pickle.loads(pickle.dumps(model))
    assert np.array_equal(loaded.predict(x), model.predict(x))
    assert len(model._neighbours.X) == 80


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_a_stream_keeps_the_hyperparameters_and_follows_the_scale_of_y(rng):
    X, y, _ = table(rng)
    kernel = 1.0 * Matern([0.8, 1.2], nu=1.5)
    options = {"n_inducing": 15, "solver": "evidence", "random_state": 0}
    model = NGDSVGPRegressor(kernel, n_neighbors=30, **options).fit(X[:60], y[:60])
    before, scale, noise = model.kernel_, model._y_scale.scale, model.likelihood_.variance
    model.set_params(**STREAM, solver="auto", n_neighbors="auto", learning_rate=0.02)
    with pytest.warns(UserWarning, match=r"effect here: .*\nlearning_rate=0.02 \(a stream that predicts from"):
        model.partial_fit(X[60:], y[60:])
    model.set_params(learning_rate=0.05)
    assert model.kernel_ == before
    assert np.array_equal(model.likelihood_.variance, noise)
    # Rows far beyond the earlier y: its unit grows, and the earlier rows keep their values.
    far = np.array([[8.0, 8.0], [8.2, 8.0]])
    model.partial_fit(far, 40.0 * scale * np.ones(2))
    assert np.all(model._y_scale.scale > 2.0 * scale)
    assert model._neighbours.n_neighbours == 30
    assert np.allclose(model.predict(far), 40.0 * scale, rtol=0.1)
    error = model.predict(X) - y
    assert np.sqrt(np.mean(error**2)) < 0.3 * np.std(y)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_a_stream_whose_hyperparameters_move_goes_on_from_inducing_points_and_says_so(rng):
    X, y, x = table(rng)
    model = regressor(20).fit(X, y)
    with pytest.warns(UserWarning, match="from the inducing points.\nThere were 20: solver='adam'.*use solver='ngd'"):
        model.set_params(n_neighbors="auto", solver="adam", **STREAM).partial_fit(X, y)
    assert model._neighbours is None
    model = regressor(20).fit(X, y).set_params(n_neighbors=0, **STREAM).partial_fit(X, y)
    assert model._neighbours is None
    assert np.all(np.isfinite(model.predict(x)))
    # Rows that contradict the earlier ones.
    model = NGDSVGPRegressor(KERNEL, n_neighbors=20, n_inducing=15, solver="evidence", random_state=0).fit(X, y)
    with pytest.warns(UserWarning, match="from the inducing points.\nThere were 20: the earlier rows were forgotten"):
        model.set_params(n_neighbors="auto", solver="auto", **STREAM).partial_fit(X, y + 100.0)
    assert model._neighbours is None


def test_other_units_and_further_rows_are_those_of_one_table(rng):
    X, y, noise = rng.normal(size=(12, 2)), rng.normal(size=(2, 12)), rng.uniform(0.1, 1.0, size=(2, 12))
    X[8:], noise[0, 3] = X[:4], np.inf
    whole = Neighbours.of(X, y, noise, 4)
    unit = np.array([[2.0], [0.5]])
    parts = [Neighbours.of(X[i], y[:, i], noise[:, i], 4).in_units(unit) for i in (slice(7), slice(7, 12))]
    found = parts[0].joined(parts[1]).in_units(1.0 / unit)
    for name in ("X", "y", "noise"):
        assert np.allclose(getattr(found, name), getattr(whole, name), rtol=1e-12)


def test_predictions_in_other_units_are_the_same_in_these(rng):
    X, y, noise = rng.normal(size=(12, 2)), rng.normal(size=(2, 12)), rng.uniform(0.1, 1.0, size=(2, 12))
    here, unit = Neighbours.of(X, y, noise, 5), np.array([[2.0], [0.5]])
    own = tuple(kernels.from_sklearn(1.5 * RBF(length), 2).value for length in (0.7, 1.1))
    there = tuple(
        kernels.from_sklearn(1.5 / size**2 * RBF(length), 2).value
        for size, length in zip(unit[:, 0], (0.7, 1.1), strict=True)
    )
    with computation("cpu"):
        mean, variance = here.moments(own, X[:3] + 0.1)
        found = here.in_units(unit).moments(there, X[:3] + 0.1)
    np.testing.assert_allclose(found[0], mean / unit, rtol=1e-9)
    np.testing.assert_allclose(found[1], variance / unit**2, rtol=1e-9)


@pytest.mark.slow
def test_where_neighbours_have_no_effect_a_number_is_warned_of(rng):
    X, y, _ = table(rng)
    with pytest.warns(UserWarning, match=r"Without effect here: .*\nn_neighbors=10 \(solver='ngd'"):
        regressor(10, solver="ngd", n_inducing=5, max_iter=2).fit(X, y)
    with warnings.catch_warnings():
        warnings.filterwarnings("error", message="Without effect")
        regressor(0, solver="evidence").fit(X, y)
    assert "n_neighbors" not in NGDSVGPClassifier().get_params()


@pytest.mark.parametrize("wrong", [-1, 2.5, "all", None])
def test_numbers_that_make_no_sense_are_refused(rng, wrong):
    X, y, _ = table(rng)
    with pytest.raises(ValueError, match=r"n_neighbors="):
        regressor(wrong).fit(X, y)


@pytest.mark.slow
def test_rows_of_a_file_are_neighbours_where_a_number_is_given(rng, tmp_path, monkeypatch):
    monkeypatch.setattr(rows, "WINDOW_ROWS", 64)
    X, y, _ = table(rng, 300)
    np.save(tmp_path / "X.npy", X)
    found = regressor(10, n_inducing=50, solver="evidence").fit(np.load(tmp_path / "X.npy", mmap_mode="r"), y)
    expected = regressor(10, n_inducing=50, solver="evidence").fit(X, y)
    assert np.allclose(found.predict(X), expected.predict(X), rtol=0.0, atol=1e-8)
    monkeypatch.setattr(memory, "available", lambda: 40_000)
    with pytest.raises(MemoryError, match=r"n_neighbors=10: the table in memory needs .*; lower n_neighbors to 0"):
        regressor(10).fit(X, y)


@pytest.mark.usefixtures("x64")
@pytest.mark.parametrize("shared", [True, False])
def test_a_row_without_its_own_observation_is_predicted_by_the_others_at_its_place(rng, shared):
    X, y = rng.normal(size=(40, 2)), rng.normal(size=(2, 40))
    X[30:], noise = X[:10], rng.uniform(0.1, 1.0, size=(1 if shared else 2, 40))
    if not shared:
        # A target that is missing at one of two equal rows, and at one without equals.
        noise[0, [3, 15]] = np.inf
    of_jax = (kernels.from_sklearn(KERNEL, 2).value,)
    found = Neighbours.of(X, y, noise, 12).moments_without(of_jax, X, y, 1.0 / noise)
    for i in range(40):
        others = np.arange(40) != i
        expected = Neighbours.of(X[others], y[:, others], noise[:, others], 12).moments(of_jax, X[i : i + 1])
        for one, other in zip(found, expected, strict=True):
            assert np.allclose(one[:, i], other[:, 0], rtol=1e-8, atol=1e-10)


def test_equal_rows_are_one_of_their_mean(rng):
    X = np.repeat(rng.normal(size=(3, 2)), 2, axis=0)
    y, noise = rng.normal(size=(1, 6)), np.array([[1.0, 3.0, 0.5, np.inf, np.inf, np.inf]])
    found = Neighbours.of(X, y, noise, 5)
    order = np.argsort(found.X[:, 0])
    some = np.argsort(X[[0, 2], 0])
    assert np.array_equal(found.X[order], X[[0, 2]][some])
    assert np.allclose(found.noise[0, order], np.array([0.75, 0.5])[some])
    assert np.allclose(found.y[0, order], np.array([(3.0 * y[0, 0] + y[0, 1]) / 4.0, y[0, 2]])[some])


@pytest.mark.slow
@pytest.mark.parametrize(("least", "level", "number"), [(-np.inf, -np.inf, 200), (-np.inf, 9.0, 100), (np.inf, 9.0, 0)])
def test_neighbours_are_compared_with_few_points_and_with_half_of_them(rng, monkeypatch, least, level, number):
    monkeypatch.setattr(points_or_neighbours, "_WORTH_NEIGHBOURS", least)
    monkeypatch.setattr(points_or_neighbours, "_LOSS_OF_HALF", level)
    monkeypatch.setattr(points_or_neighbours, "POINTS", 10)
    monkeypatch.setattr(sizes, "n_inducing", lambda *_: 40)
    X, y, x = table(rng, 300)
    found = regressor("auto").fit(X, y)
    n_points = len(found.inducing_points_), len(found.mean_inducing_points_)
    if not number:
        assert "neighbors" not in found.plan_
        assert n_points == (40, 0)
        return
    # Neighbours need few points for all else.
    assert f"each row predicted from {number} neighbors; 10 inducing points for all else" in found.plan_
    assert n_points == (10, 0)
    expected = regressor(number).fit(X, y)
    assert_same(found.predict(x, return_std=True), expected.predict(x, return_std=True))


@pytest.mark.slow
def test_a_number_of_points_that_is_given_means_no_neighbours(rng, monkeypatch):
    monkeypatch.setattr(points_or_neighbours, "_WORTH_NEIGHBOURS", -np.inf)
    X, y, _ = table(rng, 300)
    found = regressor("auto", n_inducing=30, solver="evidence").fit(X, y)
    assert "neighbors" not in found.plan_
    assert len(found.inducing_points_) == 30


def test_points_for_all_else_take_the_sums_that_are_known(rng, monkeypatch):
    """Another pass over all rows would be half of the time of a fit of a million."""
    X, y, _ = table(rng, 300)
    sums_of, calls = closed_form.sums_of, []

    def counted(*arguments):
        calls.append(arguments[3].n_rows)
        return sums_of(*arguments)

    monkeypatch.setattr(closed_form, "sums_of", counted)
    found = regressor(10, n_inducing=30, solver="evidence").fit(X, y)
    assert calls.count(300) == 1
    monkeypatch.setattr(closed_form, "sums_of", sums_of)
    monkeypatch.setattr(points_or_neighbours, "on_points", _on_points_by_another_pass)
    again = regressor(10, n_inducing=30, solver="evidence").fit(X, y)
    points = found.inducing_points_
    assert np.allclose(found.predict_latent(points)[0], again.predict_latent(points)[0], rtol=0.0, atol=1e-10)
    assert found.elbo_ == pytest.approx(again.elbo_, rel=1e-12)


def _on_points_by_another_pass(optimum, parameters, constants, rows, random_state):
    found = closed_form.solve(parameters, constants, rows, random_state, searches=False)
    return optimum._replace(q=found.q, parameters=found.parameters, elbo=found.elbo)
