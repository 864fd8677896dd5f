"""Likelihoods as objects: parameters, bounds, errors, samples. Their integrals are in test_equivalence."""

import jax
import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy import integrate, stats
from sklearn.base import clone

from skgp_natgrad import NGDSVGPClassifier, NGDSVGPRegressor, likelihoods
from skgp_natgrad.likelihoods import Bernoulli, Gaussian, RobustMax, Softmax, StudentT

from .conftest import all_likelihoods

REGRESSION = [likelihood for likelihood in all_likelihoods() if likelihood.task == "regression"]
CLASSIFICATION = [likelihood for likelihood in all_likelihoods() if likelihood.task == "classification"]


def test_names():
    assert likelihoods.names("regression") == ["gaussian", "student_t"]
    assert likelihoods.names("classification") == ["bernoulli", "robust_max", "softmax"]


@pytest.mark.parametrize("likelihood", all_likelihoods(), ids=repr)
def test_is_a_scikit_learn_object_and_a_pytree(likelihood):
    copy = clone(likelihood)
    assert copy.get_params() == likelihood.get_params()
    value, lower, upper = likelihood.spec(2)
    assert jax.tree.structure(value) == jax.tree.structure(lower) == jax.tree.structure(upper)
    assert len(jax.tree.leaves(value)) == len(likelihood.parameters)
    fitted = likelihood.fitted(jax.tree.leaves(likelihood.spec(1)[0]))
    assert fitted.get_params() == likelihood.get_params()


@pytest.mark.parametrize("likelihood", REGRESSION, ids=repr)
@pytest.mark.usefixtures("x64")
def test_density_integrates_to_one(likelihood):
    model = likelihood.spec(1)[0]
    mass, _ = integrate.quad(
        lambda y: np.exp(model.log_prob(np.full((1, 1), 0.3), np.full((1, 1), y))[0, 0]), -np.inf, np.inf
    )
    assert_allclose(mass, 1.0, rtol=1e-6)


@pytest.mark.parametrize("likelihood", CLASSIFICATION, ids=repr)
@pytest.mark.usefixtures("x64")
def test_class_probabilities_sum_to_one(likelihood, rng):
    n_classes = 2 if likelihood.name == "bernoulli" else 4
    model, n_latent = likelihood.spec(1)[0], likelihood.n_latent(1, n_classes)
    mean, var = 3 * rng.normal(size=(n_latent, 9)), rng.uniform(1e-8, 5.0, size=(n_latent, 9))
    proba = np.asarray(model.class_probabilities(mean, var))
    assert proba.shape == (n_classes, 9)
    assert_allclose(proba.sum(0), 1.0, rtol=1e-13)
    assert_allclose(np.exp(model.log_class_probabilities(mean, var)), proba, rtol=1e-10)
    total = sum(
        np.exp(model.log_prob(mean, np.full(9 if n_latent > 1 else (1, 9), float(c)))) for c in range(n_classes)
    )
    assert_allclose(total, 1.0)
    assert_allclose(np.asarray(model.conditional_probabilities(mean)).sum(0), 1.0)


@pytest.mark.usefixtures("x64")
def test_predictive_moments(rng):
    mean, var = rng.normal(size=(2, 5)), rng.uniform(0.1, 1.0, size=(2, 5))
    for likelihood, noise in ((Gaussian([0.3, 0.5]), [[0.3], [0.5]]), (StudentT(df=5.0, scale=0.6), 0.6)):
        model = likelihood.spec(2)[0]
        noise = np.asarray(noise) if likelihood.name == "gaussian" else stats.t.var(5.0, scale=0.6)
        got_mean, got_var = model.predictive_moments(mean, var)
        assert_allclose(got_mean, mean)
        assert_allclose(got_var, var + noise)
        # The quadrature that every other likelihood inherits.
        generic = super(likelihoods._base.LocationLikelihood, model).predictive_moments(mean, var)
        assert_allclose(generic[0], mean, rtol=1e-10)
        assert_allclose(generic[1], var + noise, rtol=1e-10)
    assert np.all(np.isinf(StudentT(df=2.0).spec(2)[0].predictive_moments(mean, var)[1]))


def test_samples_follow_the_density():
    random_state = np.random.RandomState(0)
    for likelihood, cdf in (
        (Gaussian(0.4), lambda y: stats.norm.cdf(y, 1.0, np.sqrt(0.4))),
        (StudentT(df=4.0, scale=0.7), lambda y: stats.t.cdf(y, 4.0, 1.0, 0.7)),
    ):
        draws = likelihood.spec(1)[0].sample(np.ones((1, 5000)), random_state)
        assert stats.kstest(np.asarray(draws)[0], cdf).pvalue > 0.01


@pytest.mark.parametrize(
    ("likelihood", "message"),
    [
        (Gaussian(variance=-1.0), "variance must be positive"),
        (Gaussian(variance=np.nan), "variance must be positive"),
        (Gaussian(variance=[1.0, 2.0, 3.0]), "one for each of the 1 columns"),
        (Gaussian(variance_bounds=(1.0, 0.1)), "variance_bounds"),
        (StudentT(df=0.0), "df must be positive"),
        (StudentT(scale_bounds="loose"), "scale_bounds"),
        (Gaussian("a"), "must be a number"),
        (Gaussian(1e-8), "outside of variance_bounds"),
    ],
)
def test_bad_parameters_are_named(likelihood, message):
    with pytest.raises(ValueError, match=message):
        NGDSVGPRegressor(likelihood=likelihood).fit(np.eye(3), np.arange(3.0))


@pytest.mark.parametrize(
    ("likelihood", "message"),
    [
        (Bernoulli(link="cauchit"), "probit, logit"),
        (Softmax(n_points=48), "power of two"),
        (RobustMax(epsilon=1.5), "below 1"),
        (Gaussian(), "classification likelihood"),
        ("student_t", "not available"),
        ("sofmax", "Did you mean 'softmax'"),
    ],
)
def test_bad_classification_likelihoods_are_named(likelihood, message):
    with pytest.raises(ValueError, match=message):
        NGDSVGPClassifier(likelihood=likelihood).fit(np.eye(4), [0, 1, 0, 1])


def test_bernoulli_refuses_three_classes():
    with pytest.raises(ValueError, match="two classes, y has 3"):
        NGDSVGPClassifier(likelihood="bernoulli").fit(np.eye(3), [0, 1, 2])


def test_a_name_belongs_to_one_class():
    class Mine(Gaussian):
        """Without a name of its own."""

    assert likelihoods.by_name("gaussian").__class__ is Gaussian
    with pytest.raises(ValueError, match="'gaussian' belongs to Gaussian"):

        class Other(Gaussian):
            name = "gaussian"


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_bounds_hold_while_training(rng):
    X = rng.normal(size=(60, 1))
    y = X[:, 0] + 0.5 * rng.normal(size=60)
    options = {"n_inducing": 8, "max_iter": 60, "random_state": 0}
    fixed = NGDSVGPRegressor(likelihood=StudentT(scale=0.1, scale_bounds="fixed"), **options).fit(X, y)
    assert fixed.likelihood_.scale == pytest.approx(0.1, rel=1e-12)
    bounded = NGDSVGPRegressor(likelihood=Gaussian(0.01, (0.005, 0.02)), learning_rate=0.1, **options).fit(X, y)
    assert bounded.likelihood_.variance == pytest.approx(0.02)
    free = NGDSVGPRegressor(
        likelihood=StudentT(df_bounds=(2.1, 100.0)), **{**options, "max_iter": 400, "learning_rate": 0.1}
    ).fit(X, y)
    assert free.likelihood_.df > 3.0


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_student_t_ignores_outliers(rng):
    X = np.linspace(-3, 3, 120)[:, None]
    f = np.sin(2 * X[:, 0])
    y = f + 0.1 * rng.normal(size=120)
    y[::10] += 8.0
    options = {"n_inducing": 20, "max_iter": 400, "random_state": 0}
    robust = NGDSVGPRegressor(likelihood="student_t", **options).fit(X, y)
    plain = NGDSVGPRegressor(likelihood="gaussian", **options).fit(X, y)
    robust_error, plain_error = (np.sqrt(np.mean((m.predict(X) - f) ** 2)) for m in (robust, plain))
    assert robust_error < 0.15
    assert plain_error > 2 * robust_error
