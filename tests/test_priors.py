"""Priors on hyperparameters: their densities, and that every solver ends at the most probable hyperparameters."""

import pickle

import jax
import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy import optimize, stats
from sklearn.base import clone
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import RBF, ConstantKernel, WhiteKernel
from sklearn.model_selection import GridSearchCV

from skgp_natgrad import NGDSVGPClassifier, NGDSVGPRegressor, priors, svgp, trusted_types
from skgp_natgrad.likelihoods import Gaussian
from skgp_natgrad.priors import Gamma, LogNormal, Prior
from skgp_natgrad.step.step import bound
from skgp_natgrad.training import lbfgs

RNG = np.random.default_rng(8)
X = RNG.uniform(-2.0, 2.0, size=(40, 2))
Y = np.sin(2.0 * X[:, 0]) + 0.3 * RNG.normal(size=40)
KERNEL = ConstantKernel(1.0) * RBF([1.0, 1.0])
GIVEN = {
    "length_scale": LogNormal([0.5, 3.0], 0.4),
    "kernel__k1__constant_value": Gamma(3.0, 2.0),
    "variance": LogNormal(0.3, 0.3),
}
PLAIN = {"normalize_X": False, "normalize_y": False, "random_state": 0}
LBFGS = {"solver": "lbfgs", "n_inducing": None, "tol": 1e-12, "max_iter": 500, "jitter": 1e-12}

pytestmark = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")


def log_prior(theta):
    """Of the logarithms (constant, two lengthscales, noise), by scipy."""
    terms = [
        stats.gamma.logpdf(np.exp(theta[0]), 3.0, scale=2.0 / 3.0) + theta[0],
        stats.norm.logpdf(theta[1], np.log(0.5), 0.4),
        stats.norm.logpdf(theta[2], np.log(3.0), 0.4),
        stats.norm.logpdf(theta[3], np.log(0.3), 0.3),
    ]
    return sum(terms)


@pytest.fixture(scope="module")
def most_probable():
    """scipy's minimum of minus scikit-learn's evidence minus the log prior: the position, and the evidence there."""
    exact = GaussianProcessRegressor(KERNEL + WhiteKernel(0.1), optimizer=None, alpha=0.0).fit(X, Y)

    def loss(theta):
        return -exact.log_marginal_likelihood(theta) - log_prior(theta)

    found = optimize.minimize(loss, np.log([1.0, 1.0, 1.0, 0.1]), method="BFGS", options={"gtol": 1e-7})
    return found.x, exact.log_marginal_likelihood(found.x)


def logarithms(reg):
    return np.append(reg.kernel_.theta, np.log(reg.likelihood_.variance))


# -- densities ---------------------------------------------------------------------------------


def test_densities_are_those_of_scipy_in_the_logarithm(rng, x64):
    value = np.exp(rng.normal(size=20))
    expected = stats.norm.logpdf(np.log(value), np.log(1.7), 0.6)
    assert_allclose(LogNormal(1.7, 0.6).log_density(value), expected, rtol=1e-12)
    expected = stats.gamma.logpdf(value, 2.5, scale=1.3 / 2.5) + np.log(value)
    assert_allclose(Gamma(2.5, 1.3).log_density(value), expected, rtol=1e-11)


def started(hyperparameter_prior):
    algorithm = svgp.Algorithm(solver="lbfgs")
    table = svgp.Table(X, Y[None], np.ones(40))
    plan = svgp.Plan((KERNEL,), Gaussian(), hyperparameter_prior=hyperparameter_prior, n_inducing=8)
    return *svgp.init(plan._replace(settings=svgp.Settings(algorithm)), table, 0), svgp.batch(table), algorithm


AT_START = np.log([1.0, 1.0, 1.0, 0.1])
WEAK = 4 * stats.norm.logpdf(0.0, 0.0, 3.0)
CASES = [(GIVEN, log_prior(AT_START)), ("weak", WEAK), (LogNormal(sigma=3.0), WEAK)]


@pytest.mark.parametrize(("given", "expected"), CASES, ids=["by name", "weak", "one for all"])
def test_the_density_of_hyperparameters_and_its_slope(given, expected, x64):
    state, constants, _, _ = started(given)
    flat, rebuilt = jax.flatten_util.ravel_pytree(state.parameters)
    assert float(constants.log_prior(state.parameters)) == pytest.approx(expected, rel=1e-9)
    slope = jax.flatten_util.ravel_pytree(jax.grad(constants.log_prior)(state.parameters))[0]
    for i in range(4):
        ends = [float(constants.log_prior(rebuilt(flat.at[i].add(step)))) for step in (1e-5, -1e-5)]
        assert slope[i] == pytest.approx((ends[0] - ends[1]) / 2e-5, rel=1e-6, abs=1e-8)
    assert not np.any(slope[4:])


@pytest.mark.slow
def test_the_objective_is_the_bound_plus_the_log_prior(x64):
    state, constants, batch, algorithm = started(GIVEN)
    each = constants, constants._replace(priors=None)
    found, plain = (float(bound(state.q, state.parameters, those, batch, algorithm)) for those in each)
    assert found - plain == pytest.approx(log_prior(AT_START), rel=1e-9)
    at = None, state.parameters
    slopes = [lbfgs.value_and_gradient(at, state.q, those, batch, algorithm)[1] for those in each]
    slopes = [jax.flatten_util.ravel_pytree(one)[0] for one in slopes]
    expected = jax.flatten_util.ravel_pytree(jax.grad(constants.log_prior)(state.parameters))[0]
    assert_allclose(slopes[0] - slopes[1], expected, atol=1e-9)


# -- every solver ------------------------------------------------------------------------------


MAXIMA = [pytest.param(LBFGS, marks=pytest.mark.slow), {"solver": "evidence", "jitter": 1e-12}, {}]


@pytest.mark.slow
@pytest.mark.parametrize("options", MAXIMA, ids=["lbfgs", "evidence", "auto"])
def test_the_most_probable_hyperparameters_are_those_of_scipy(options, most_probable):
    reg = NGDSVGPRegressor(KERNEL, hyperparameter_prior=GIVEN, **PLAIN | options).fit(X, Y)
    expected, evidence = most_probable
    assert_allclose(logarithms(reg), expected, atol=1e-5 if options is LBFGS else 1e-3)
    assert reg.log_prior_ == pytest.approx(log_prior(expected), abs=1e-3)
    assert reg.elbo_ == pytest.approx(evidence + log_prior(expected), abs=1e-5)
    assert reg.elbo_curve_[-1] == pytest.approx(reg.elbo_)


STEPS = {
    "ngd": {"solver": "ngd", "gamma_schedule": 1.0, "max_iter": 1000, "learning_rate": 0.2},
    "adam": {"solver": "adam", "parameterization": "mean_var_sqrt", "max_iter": 3000, "learning_rate": 0.05},
}


@pytest.mark.slow
@pytest.mark.parametrize("options", STEPS.values(), ids=STEPS)
def test_steps_end_there_too(options, most_probable):
    of_all = {"n_inducing": None, "tol": 1e-12, "jitter": 1e-10}
    reg = NGDSVGPRegressor(KERNEL, hyperparameter_prior=GIVEN, **PLAIN | of_all | options).fit(X, Y)
    expected, evidence = most_probable
    assert_allclose(logarithms(reg), expected, atol=1e-4)
    assert reg.elbo_ == pytest.approx(evidence + log_prior(expected), abs=1e-5)


PINS = {"length_scale": LogNormal(0.7, 1e-4), "variance": LogNormal(0.2, 1e-4)}
PINNED = [
    (KERNEL, {}),
    pytest.param(None, {}, marks=pytest.mark.slow),
    pytest.param(KERNEL, {"solver": "lbfgs", "n_inducing": 8, "max_iter": 50}, marks=pytest.mark.slow),
    pytest.param(KERNEL, {"n_inducing": 8, "batch_size": 20, "max_iter": 300}, marks=pytest.mark.slow),
    pytest.param(
        None,
        {"mean_solver": "exact", "n_inducing": 8, "n_mean_inducing": 10, "max_iter": 200, "learning_rate": 0.1},
        marks=pytest.mark.slow,
    ),
]


@pytest.mark.parametrize(("kernel", "options"), PINNED, ids=str)
def test_a_tight_prior_pins(kernel, options):
    reg = NGDSVGPRegressor(kernel, hyperparameter_prior=PINS, **PLAIN | options).fit(X, Y)
    scales = [value for name, value in reg.kernel_.get_params().items() if name.endswith("length_scale")]
    assert_allclose(np.concatenate([np.ravel(each) for each in scales]), 0.7, rtol=0.02)
    assert_allclose(reg.likelihood_.variance, 0.2, rtol=0.02)


@pytest.mark.slow
def test_class_labels_are_trained_by_steps_under_a_prior():
    options = {"hyperparameter_prior": {"length_scale": LogNormal(0.7, 1e-4)}, "random_state": 0, "max_iter": 300}
    clf = NGDSVGPClassifier(1.0 * RBF(1.0), n_inducing=8, **options).fit(X, Y > 0.0)
    assert "natural" not in clf.plan_
    assert_allclose(clf.kernel_.k2.length_scale, 0.7, rtol=0.02)
    with pytest.raises(ValueError, match="for class labels solver='evidence' chooses hyperparameters by held-out"):
        clf.set_params(solver="evidence").fit(X, Y > 0.0)


@pytest.mark.slow
def test_each_of_several_kernels_has_its_own():
    both = np.column_stack([Y, np.cos(X[:, 1])])
    given = {"kernel[1]__k2__length_scale": LogNormal(0.7, 1e-4), "variance": LogNormal([0.2, 0.4], 1e-4)}
    kernels = [1.0 * RBF(1.0), 1.0 * RBF(1.0)]
    reg = NGDSVGPRegressor(kernels, solver="evidence", hyperparameter_prior=given, **PLAIN).fit(X, both)
    assert reg.kernel_[1].k2.length_scale == pytest.approx(0.7, rel=1e-2)
    assert reg.kernel_[0].k2.length_scale != pytest.approx(0.7, rel=1e-2)
    assert_allclose(reg.likelihood_.variance, [0.2, 0.4], rtol=1e-2)


def test_the_longest_name_decides_and_fixed_hyperparameters_have_none(x64):
    kernel = ConstantKernel(0.0, "fixed") * RBF(1.0) + RBF(2.0)
    plan = svgp.Plan((kernel,), Gaussian(0.3))
    values = svgp.specification(plan.kernels, plan.likelihood, 2, 1)
    of_all, one = LogNormal(), LogNormal(5.0)
    found = priors.settled({"length_scale": of_all, "k2__length_scale": one, "k1__constant_value": one}, *values)
    assert {name: float(np.ravel(prior.median)[0]) for name, prior in found.items()} == {
        "kernel__k1__k2__length_scale": 5.0,
        "kernel__k2__length_scale": 5.0,
    }
    found = priors.settled("weak", *values)
    assert {name: float(np.ravel(prior.median)[0]) for name, prior in found.items()} == pytest.approx(
        {"kernel__k1__k2__length_scale": 1.0, "kernel__k2__length_scale": 2.0, "likelihood__variance": 0.3}
    )


# -- scikit-learn's conventions ----------------------------------------------------------------

SMALL = {"n_inducing": 6, "max_iter": 4, "random_state": 0}


class OneOver(Prior):
    """A prior of a user's own: the density falls as the inverse of the value."""

    def __init__(self, power=1.0):
        self.power = power

    def log_density(self, value):
        return -self.power * jax.numpy.log(value)


def test_priors_are_cloned_and_shown():
    given = {"length_scale": LogNormal(0.5), "variance": OneOver(2.0)}
    reg = NGDSVGPRegressor(KERNEL, hyperparameter_prior=given, **SMALL)
    assert repr(clone(reg)) == repr(reg)
    assert "LogNormal(median=0.5)" in repr(reg)
    assert "OneOver(power=2.0)" in repr(reg)
    assert {"skgp_natgrad.priors.LogNormal", "skgp_natgrad.priors.Gamma"} <= set(trusted_types())


@pytest.mark.slow
def test_priors_are_searched_and_pickled():
    given = {"length_scale": LogNormal(0.5), "variance": OneOver(2.0)}
    reg = NGDSVGPRegressor(KERNEL, hyperparameter_prior=given, **SMALL)
    search = GridSearchCV(reg, {"hyperparameter_prior": [None, "weak", given]}, cv=2).fit(X, Y)
    # Each of them reaches the fit.
    assert len(np.unique(search.cv_results_["mean_test_score"].round(10))) == 3
    reg.fit(X, Y)
    loaded = pickle.loads(pickle.dumps(reg))
    assert_array_equal(loaded.predict(X), reg.predict(X))
    assert loaded.log_prior_ == reg.log_prior_ != 0.0
    assert NGDSVGPRegressor(KERNEL, **SMALL).fit(X, Y).log_prior_ == 0.0


WRONG = [
    ("strong", r"hyperparameter_prior='strong' must be a str among {'weak'}"),
    (3.0, r"hyperparameter_prior=3.0 must be None, 'weak', a prior of skgp_natgrad.priors"),
    ({"length_scale": 1.0}, r"must be None, 'weak', a prior"),
    ({"lengthscale": LogNormal()}, r"names 'lengthscale', but the hyperparameters are kernel__k1__constant_value, .*"),
    ({"length_scale": LogNormal(sigma=0.0)}, r"LogNormal\(.*sigma=0.0\): sigma must be positive and finite"),
    ({"length_scale": LogNormal([1.0, 2.0, 3.0])}, r"median must be a number, or one for each of the 2 values"),
    ({"length_scale": LogNormal("long")}, r"median must be a number"),
]


@pytest.mark.parametrize(("given", "message"), WRONG, ids=[str(case[0])[:30] for case in WRONG])
def test_wrong_priors_are_refused_by_name(given, message):
    with pytest.raises(ValueError, match=message):
        NGDSVGPRegressor(KERNEL, hyperparameter_prior=given, **SMALL).fit(X, Y)
