"""The engine without estimators: its calls agree with each other and with the estimators."""

import jax
import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.gaussian_process.kernels import RBF

from skgp_natgrad import Auto, Constant, NGDSVGPRegressor, svgp
from skgp_natgrad.likelihoods import Gaussian, Ordinal

RNG = np.random.default_rng(0)
X = RNG.normal(size=(60, 2))
TABLE = svgp.Table(X, (np.sin(X[:, 0]) + 0.1 * RNG.normal(size=60))[None], RNG.uniform(0.5, 2.0, size=60))
SETTINGS = svgp.Settings(gamma_schedule=Constant(0.5), rate_schedule=Constant(0.01), max_iter=20, tol=0.0)


def plan_of(**options):
    return svgp.Plan(kernels=(1.0 * RBF(),), likelihood=Gaussian(0.5), n_inducing=6, settings=SETTINGS, **options)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("basis", "n_mean", "solver"), [("orthogonal", 0, "ngd"), ("hybrid", 5, "ngd"), ("decoupled", 5, "adam")]
)
def test_steps_one_by_one_are_those_of_a_training(basis, n_mean, solver):
    """The first chunk of a full batch, in which nothing is taken back: all columns of the mean-only points count."""
    algorithm = svgp.Algorithm(basis=basis, solver=solver)
    plan = plan_of(n_mean_inducing=n_mean)._replace(settings=SETTINGS._replace(algorithm=algorithm))
    result = svgp.train(*svgp.init(plan, TABLE, random_state=0), TABLE, plan, random_state=0)
    state, constants = svgp.init(plan, TABLE, random_state=0)
    bounds = []
    for _ in range(5):
        state, report = svgp.step(state, constants, svgp.batch(TABLE), plan, gamma=0.5, rate=0.01)
        bounds.append(float(report.elbo))
    # A loop of one's own refreshes the metric of the mean-only weights at each step.
    assert_allclose(bounds, result.trained.report.elbo[:5], rtol=1e-9 if n_mean == 0 else 1e-2)
    assert_allclose(bounds[0], result.trained.report.elbo[0], rtol=1e-10)


@pytest.mark.slow
def test_a_batch_of_any_size_stands_for_the_whole_table():
    plan = plan_of(n_mean_inducing=4)
    state, constants = svgp.init(plan, TABLE, random_state=0)
    parts = [svgp.Table(TABLE.X[part], TABLE.y[:, part], np.ones(20)) for part in np.split(np.arange(60), 3)]
    whole = svgp.batch(TABLE._replace(weight=np.ones(60)))
    bounds = [
        float(svgp.step(state, constants, batch, plan, 0.1, 0.0)[1].elbo) for batch in (*map(svgp.batch, parts), whole)
    ]
    assert_allclose(np.mean(bounds[:3]), bounds[3], rtol=1e-10)


def test_a_state_of_an_exact_process_has_no_steps():
    plan = svgp.Plan(kernels=(RBF(),), n_inducing=5)
    state, constants = svgp.init(plan, TABLE, random_state=0)
    with pytest.raises(ValueError, match=r"state\.q is None: .* which has no steps\. Start from svgp\.init"):
        svgp.step(state._replace(q=None), constants, svgp.batch(TABLE), plan, gamma=0.5, rate=0.01)


def test_the_engine_is_what_the_regressor_calls():
    options = {
        "n_inducing": 6,
        "max_iter": 20,
        "tol": 0.0,
        "batch_size": 32,
        "normalize_X": False,
        "normalize_y": False,
    }
    schedules = {"gamma_schedule": Constant(0.5), "learning_rate": Constant(0.01)}
    model = NGDSVGPRegressor(1.0 * RBF(), likelihood=Gaussian(0.5), random_state=3, **options, **schedules)
    with pytest.warns(UserWarning, match="max_iter=20"):
        model.fit(TABLE.X, TABLE.y[0], sample_weight=TABLE.weight)
    plan = plan_of()._replace(settings=SETTINGS._replace(batch_size=32))
    rng = np.random.RandomState(3)
    result = svgp.train(*svgp.init(plan, TABLE, rng), TABLE, plan, rng)
    predictor, jitter = svgp.condition(result.state, result.constants, plan)
    assert jitter == model.jitter_
    assert_array_equal(result.trained.report.elbo, model.elbo_curve_)
    mean, var = svgp.predict(predictor, X, "target_moments")
    assert_array_equal(mean[0], model.predict(X))
    f = svgp.sample_latent(predictor, X[:3], 4000, random_state=0)
    assert_allclose(np.cov(f[0]), svgp.covariance(predictor, X[:3])[0], atol=0.1)
    assert svgp.sample_targets(predictor, X[:3], 7, random_state=0).shape == (1, 3, 7)
    latent_mean, latent_var = svgp.predict(predictor, X, "latent_moments")
    assert_allclose(latent_var + predictor.likelihood.variance, var, rtol=1e-12)
    assert_array_equal(latent_mean, mean)


def test_a_plan_without_kernels_is_completed():
    plan = plan_of()._replace(kernels=None)
    with pytest.raises(ValueError, match=r"kernels=None.*svgp\.complete"):
        svgp.init(plan, TABLE)
    (kernel,) = svgp.complete(plan, TABLE, random_state=0).kernels
    assert kernel.hyperparameters
    levels = TABLE._replace(y=np.digitize(TABLE.y, [-0.5, 0.5]).astype(float))
    complete = svgp.complete(plan._replace(likelihood=Ordinal()), levels, random_state=0)
    state, _ = svgp.init(complete, levels, random_state=0)
    assert state.q.mean.shape == (1, 6)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"gamma_schedule": Auto()}, r"Algorithm\(adaptive=False\) does not fit gamma_schedule=Auto"),
        ({"algorithm": svgp.Algorithm(adaptive=True)}, r"Algorithm\(adaptive=True\) does not fit"),
        ({"algorithm": svgp.Algorithm(basis="solve", mean_solver="exact")}, "mean_solver='exact'"),
    ],
)
def test_a_plan_whose_parts_do_not_fit_is_refused(changes, message):
    with pytest.raises(ValueError, match=message):
        svgp.init(plan_of()._replace(settings=SETTINGS._replace(**changes)), TABLE)


def test_what_cannot_be_is_named():
    with pytest.raises(ValueError, match=r"y \(60,\).*\(T, N\)"):
        svgp.init(plan_of(), TABLE._replace(y=TABLE.y[0]))
    plan = plan_of()
    model, _ = svgp.condition(*svgp.init(plan, TABLE, random_state=0), plan)
    with pytest.raises(ValueError, match="quantity='mean' must be one of 'latent_mean'"):
        svgp.predict(model, X, "mean")


@pytest.mark.slow
def test_single_precision_is_that_of_the_rows_in_a_step_too():
    plan = plan_of()._replace(settings=SETTINGS._replace(dtype="float32"))
    state, constants = svgp.init(plan, TABLE, random_state=0)
    single = float(svgp.step(state, constants, svgp.batch(TABLE), plan, 0.1, 0.0)[1].elbo)
    double = float(svgp.step(state, constants, svgp.batch(TABLE), plan_of(), 0.1, 0.0)[1].elbo)
    assert 0.0 < abs(single - double) < 1e-3 * abs(double)
    assert all(leaf.dtype == "float64" for leaf in jax.tree.leaves(state.parameters))


@pytest.mark.parametrize("kernels", [None, (1.0 * RBF(1.0),)])
def test_rows_of_weight_zero_say_nothing_of_the_kernel(rng, kernels):
    X = rng.uniform(-2.0, 2.0, size=(80, 1))
    y, weight = np.sin(5.0 * X.T) + 0.05 * rng.normal(size=(1, 80)), np.where(np.arange(80) < 10, 0.0, 1.0)
    settings = svgp.Settings(algorithm=svgp.Algorithm(solver="evidence"))
    plan = svgp.Plan(kernels=kernels, n_inducing=20, settings=settings)
    table = svgp.Table(X, y, weight)
    found, expected = (svgp.complete(plan, each, random_state=0) for each in (table, table.rows(np.arange(10, 80))))
    assert_allclose(found.kernels[0].theta, expected.kernels[0].theta, rtol=1e-6)
    assert found.likelihood.variance == pytest.approx(expected.likelihood.variance, rel=1e-6)
    assert found.likelihood.variance < 0.02


@pytest.mark.parametrize("parameterization", ["natural_log", "mean_var_log"])
def test_steps_of_a_logarithm_end_where_the_next_can_start(rng, parameterization):
    """From the prior the curvature times a step may be a logarithm of hundreds, and still raise the bound."""
    X = rng.uniform(-2.0, 2.0, size=(200, 1))
    table = svgp.Table(X, np.sin(2.0 * X.T), np.ones(200))
    algorithm = svgp.Algorithm(parameterization=parameterization, optimizer=None)
    plan = svgp.Plan((1.0 * RBF(0.7),), Gaussian(0.01, "fixed"), n_inducing=20, settings=SETTINGS)
    plan = plan._replace(settings=SETTINGS._replace(algorithm=algorithm))
    state, constants = svgp.init(plan, table, random_state=0)
    bounds = []
    for _ in range(6):
        state, report = svgp.step(state, constants, svgp.batch(table), plan, gamma=0.3, rate=0.0)
        bounds.append(float(report.elbo))
        eigenvalues = np.linalg.eigvalsh(np.asarray(state.q.precision)[0])
        assert eigenvalues[0] > 0.0
        assert eigenvalues[-1] < 1e16 * eigenvalues[0]
    assert np.all(np.diff(bounds) > 0.0)
