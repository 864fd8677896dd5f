"""What a user meets on the first day: units, points that stay, whole batches, texts of warnings and errors."""

import pickle
import warnings

import jax.numpy as jnp
import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy import sparse
from sklearn.exceptions import ConvergenceWarning
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import RBF, ConstantKernel
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from skgp_natgrad import NGDSVGPClassifier, NGDSVGPRegressor, likelihoods
from skgp_natgrad._backend import notices
from skgp_natgrad.likelihoods import (
    ClassLikelihood,
    Gaussian,
    LocationLikelihood,
    LogNormal,
    RegressionLikelihood,
    StudentT,
)
from skgp_natgrad.training.monitor import StoppingRule

RNG = np.random.default_rng(4)
X = RNG.uniform(0.0, 100.0, size=(60, 1))
Y = 1000.0 + 60.0 * np.sin(X[:, 0] / 10.0) + 5.0 * RNG.normal(size=60)
NEW = np.linspace(0.0, 100.0, 9)[:, None]
SMALL = {"n_inducing": 8, "max_iter": 30, "tol": 1.0, "random_state": 0}

pytestmark = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")


# -- units -------------------------------------------------------------------------------------


@pytest.mark.slow
def test_hyperparameters_in_the_units_of_the_table():
    kernel = ConstantKernel(60.0**2, "fixed") * RBF(10.0, "fixed")
    options = {"normalize_X": False, "normalize_y": "center", "random_state": 0}
    reg = NGDSVGPRegressor(kernel, likelihood=Gaussian(25.0, "fixed"), **options).fit(X, Y)
    exact = GaussianProcessRegressor(kernel, alpha=25.0, optimizer=None).fit(X, Y - Y.mean())
    mean, std = exact.predict(NEW, return_std=True)
    found = reg.predict_latent(NEW, return_std=True)
    assert_allclose(found[0], mean + Y.mean(), rtol=1e-6)
    assert_allclose(found[1], std, rtol=1e-4)
    assert reg.summary().noise == pytest.approx(5.0)
    classifier = NGDSVGPClassifier(1.0 * RBF(), normalize_y="center", **SMALL).fit(X, Y > 1000.0)
    assert classifier.score(X, Y > 1000.0) > 0.5


@pytest.mark.slow
def test_a_noise_that_is_larger_than_y_is_warned_of():
    with pytest.warns(UserWarning, match=r"on the scale of the standardised y: its deviation is .* in the units of y"):
        NGDSVGPRegressor(1.0 * RBF(), likelihood=Gaussian(25.0, "fixed"), **SMALL).fit(X, Y)
    with warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)
        warnings.simplefilter("ignore", ConvergenceWarning)
        NGDSVGPRegressor(1.0 * RBF(), likelihood=Gaussian(0.5, "fixed"), **SMALL).fit(X, Y)
        NGDSVGPRegressor(1.0 * RBF(), likelihood=Gaussian(25.0), **SMALL).fit(X, Y)


@pytest.mark.slow
def test_a_fixed_scale_of_student_t_is_warned_of_too():
    with pytest.warns(UserWarning, match=r"StudentT\(.*is on the scale of the standardised y: its deviation is"):
        NGDSVGPRegressor(1.0 * RBF(), likelihood=StudentT(scale=5.0, scale_bounds="fixed"), **SMALL).fit(X, Y)


def test_defaults_of_the_noise_follow_the_units_of_y():
    unit = np.array([50.0, 2.0])
    found = likelihoods.in_units(Gaussian(), unit)
    assert_allclose(found.variance, 0.1 * unit**2)
    assert_allclose(found.variance_bounds, (4e-8, 1e3 * 2500.0))
    assert_allclose(likelihoods.in_units(StudentT(), unit).scale, 0.3 * unit)
    assert likelihoods.in_units(StudentT(), unit).df == 3.0
    # What was given is in the units of y already, and the bounds contain it.
    assert likelihoods.in_units(Gaussian(25.0, "fixed"), unit).get_params() == {
        "variance": 25.0,
        "variance_bounds": "fixed",
        "inflation": 1.0,
        "df": np.inf,
    }
    assert likelihoods.in_units(Gaussian(0.1, "fixed"), unit).variance == 0.1
    assert likelihoods.in_units(Gaussian(25.0, (1.0, 30.0)), unit).variance_bounds == (1.0, 30.0)
    assert likelihoods.in_units(Gaussian(1e-11), unit).variance_bounds[0] == 1e-11
    assert likelihoods.in_units(Gaussian(), unit, with_values=False).variance == 0.1


@pytest.mark.slow
@pytest.mark.parametrize("kernel", [None, ConstantKernel(1.0) * RBF(0.5)], ids=["default", "given"])
def test_the_noise_of_a_centred_y_is_that_of_the_standardised_one(kernel):
    """In units in which the default bounds would end far below it."""
    y = 1e4 * Y
    scaled = NGDSVGPRegressor(kernel, random_state=0).fit(X, y)
    if kernel is not None:
        kernel = ConstantKernel(y.var(), (1e-5 * y.var(), 1e5 * y.var())) * RBF(0.5)
    centred = NGDSVGPRegressor(kernel, normalize_y="center", random_state=0).fit(X, y)
    assert centred.summary().noise == pytest.approx(scaled.summary().noise, rel=1e-2)
    assert_allclose(centred.predict(NEW), scaled.predict(NEW), rtol=1e-3)


@pytest.mark.slow
def test_a_centred_noise_goes_on_in_a_warm_start():
    options = SMALL | {"normalize_y": "center", "warm_start": True, "max_iter": 200, "learning_rate": 0.05}
    reg = NGDSVGPRegressor(ConstantKernel(3600.0) * RBF(0.5), **options).fit(X, Y)
    before = reg.likelihood_.variance
    assert before != 0.1 * Y.var()
    assert reg.set_params(max_iter=1, learning_rate=1e-9).fit(X, Y).likelihood_.variance == pytest.approx(before)


# -- points and batches ------------------------------------------------------------------------


@pytest.mark.parametrize("solver", ["ngd", "lbfgs"])
def test_points_stay_while_the_kernel_trains(solver):
    points = np.linspace(0.0, 100.0, 8)[:, None]
    options = SMALL | {"inducing_init": points, "solver": solver}
    stays = NGDSVGPRegressor(1.0 * RBF(), train_inducing_points=False, **options).fit(X, Y)
    assert_allclose(stays.inducing_points_, points, atol=1e-12)
    assert not np.array_equal(stays.kernel_.theta, (1.0 * RBF()).theta)
    assert not np.array_equal(NGDSVGPRegressor(1.0 * RBF(), **options).fit(X, Y).inducing_points_, points)


@pytest.mark.slow
def test_no_batch_size_is_the_whole_table():
    rows = np.random.default_rng(0).uniform(size=(1100, 1))
    y = np.sin(9.0 * rows[:, 0])
    whole = NGDSVGPRegressor(1.0 * RBF(), batch_size=None, **SMALL | {"max_iter": 20}).fit(rows, y)
    order = np.random.default_rng(1).permutation(1100)
    again = NGDSVGPRegressor(1.0 * RBF(), batch_size=None, **SMALL | {"max_iter": 20}).fit(rows[order], y[order])
    assert_array_equal(whole.predict(NEW / 100.0), again.predict(NEW / 100.0))
    assert "all rows at once" in whole.plan_


# -- errors ------------------------------------------------------------------------------------


@pytest.mark.parametrize("estimator", [NGDSVGPRegressor, NGDSVGPClassifier])
def test_a_mistyped_argument_names_the_public_class(estimator):
    with pytest.raises(TypeError, match=rf"{estimator.__name__}\.__init__\(\) .* 'n_inducin'\. .* 'n_inducing'\?"):
        estimator(n_inducin=5)
    methods = {name for name in dir(estimator) if name.startswith(("fit", "partial", "predict", "sample", "score"))}
    assert {"partial_fit", "predict", "predict_latent", "sample_y", "score"} <= methods
    for name in methods:
        with pytest.raises(TypeError, match=rf"{name}\(\) .* 'Xs'"):
            getattr(estimator(), name)(X, Xs=1)


def test_other_errors_of_the_constructor_name_the_class_of_the_user():
    class Own(NGDSVGPRegressor):
        """A user's class."""

    with pytest.raises(TypeError, match=r"Own\.__init__\(\) .* 'step_size'\.$"):
        Own(step_size=0.1)
    message = (
        r"NGDSVGPClassifier\.__init__\(\) too many positional arguments\. Only kernel may be given without its name\.$"
    )
    with pytest.raises(TypeError, match=message):
        NGDSVGPClassifier(1.0 * RBF(), 10)


@pytest.mark.parametrize("estimator", [NGDSVGPRegressor, NGDSVGPClassifier])
def test_the_constructor_says_where_other_estimators_arguments_are(estimator):
    with pytest.raises(TypeError, match=r"'alpha'\. Known variances of the noise are given to fit of a regressor"):
        estimator(alpha=0.1)
    with pytest.raises(TypeError, match=r"'lengthscale'\. It is the kernel's"):
        estimator(lengthscale=0.1)


def test_methods_are_pickled_by_their_names():
    for method in (NGDSVGPRegressor.predict, NGDSVGPClassifier.predict_latent):
        assert pickle.loads(pickle.dumps(method)) is method


@pytest.mark.slow
@pytest.mark.parametrize("estimator", [NGDSVGPRegressor, NGDSVGPClassifier])
def test_a_sparse_table_is_made_dense_unless_it_is_large(estimator):
    y = np.median(Y) < Y if estimator is NGDSVGPClassifier else Y
    fitted = estimator(1.0 * RBF(), **SMALL).fit(sparse.csr_array(X), y)
    dense = estimator(1.0 * RBF(), **SMALL).fit(X, y)
    assert_array_equal(fitted.predict(sparse.coo_array(X)), dense.predict(X))
    large = sparse.csr_array((3 * 2**18, 200))
    with pytest.raises(TypeError, match=rf"X is sparse, but {estimator.__name__} .* 1\.17 GiB, and only up to 1 GiB"):
        estimator().fit(large, np.zeros(len(large.indptr) - 1))
    fitted.n_features_in_ = 200
    with pytest.raises(TypeError, match="fewer rows at a time"):
        fitted.predict(large)


@pytest.mark.slow
def test_a_mean_function_takes_a_sparse_table_too():
    reg = NGDSVGPRegressor(1.0 * RBF(), mean_function="linear", **SMALL).fit(X, Y)
    assert_array_equal(reg.predict(sparse.csr_array(X)), reg.predict(X))


MEANT = [
    (NGDSVGPRegressor, "likelihood", "normal", "gaussian"),
    (NGDSVGPClassifier, "likelihood", "logistic", "bernoulli"),
    (NGDSVGPRegressor, "solver", "LBFGS", "lbfgs"),
    (NGDSVGPRegressor, "optimizer", "sgd", "adam"),
    (NGDSVGPRegressor, "device", "cuda", "gpu"),
    (NGDSVGPRegressor, "inducing_init", "kmeans", "k-means"),
    (NGDSVGPRegressor, "output_kernel", "ICM", "coregionalization"),
]


@pytest.mark.parametrize(("estimator", "name", "given", "meant"), MEANT, ids=[case[2] for case in MEANT])
def test_what_may_have_been_meant_is_among_the_names(estimator, name, given, meant):
    with pytest.raises(ValueError, match=rf"{name}={given!r} must be .*{meant!r}"):
        estimator(1.0 * RBF(), **{name: given}).fit(X, Y > 1000.0 if estimator is NGDSVGPClassifier else Y)


def test_names_of_the_other_task_come_with_those_of_this_one():
    with pytest.raises(ValueError, match=r"'binomial' is for regression, .* or one of 'auto', .*'bernoulli'"):
        NGDSVGPClassifier(likelihood="binomial").fit(X, Y > 1000.0)
    with pytest.raises(ValueError, match=r"normalize_y='standard' must be a bool among {.*} or a str among {'center'}"):
        NGDSVGPRegressor(normalize_y="standard").fit(X, Y)


def test_labels_are_for_the_classifier_and_a_missing_target_is_not_to_be_filled_in():
    with pytest.raises(ValueError, match=r"y\[0\]='a' is not a number; NGDSVGPClassifier takes labels") as caught:
        NGDSVGPRegressor().fit(X, list("ab" * 30))
    with pytest.raises(ValueError, match=r"y\[3\]=nan is not finite; leave the row out, or set missing_targets") as nan:
        NGDSVGPRegressor().fit(X, np.where(np.arange(60) == 3, np.nan, Y))
    with pytest.raises(ValueError, match=r"y\[3\]=nan is not finite; leave the row out\.") as label:
        NGDSVGPClassifier().fit(X, np.where(np.arange(60) == 3, np.nan, 1.0))
    assert not any("Imputer" in str(each.value) or "OneHot" in str(each.value) for each in (caught, nan, label))


class Nothing(RegressionLikelihood):
    """A likelihood without methods."""


class NoMoments(Nothing):
    """A likelihood that can be trained, but does not predict."""

    def log_prob(self, f, y):
        return -((y - f) ** 2)


class NoNoise(LocationLikelihood):
    """A likelihood without the variance of its noise."""

    def log_prob(self, f, y):
        return -jnp.abs(y - f)


class NoClasses(ClassLikelihood):
    """A likelihood of labels without methods."""


class OfOnesOwn(likelihoods.Ordinal):
    """A likelihood that is only ready once it has seen the data."""


def test_a_likelihood_that_needs_the_data_first_is_not_refused():
    assert likelihoods.undefined_method(OfOnesOwn("learned"), "regression") is None
    assert likelihoods.undefined_method(Gaussian([0.1, 0.2]), "regression") is None


def test_bounds_of_the_noise_may_be_an_array():
    likelihood = [Gaussian(variance_bounds=bounds) for bounds in ((1e-6, 1e3), np.array([1e-6, 1e3]))]
    models = [NGDSVGPRegressor(1.0 * RBF(), likelihood=each, random_state=0).fit(X, Y) for each in likelihood]
    assert_array_equal(*(model.predict(NEW, return_std=True) for model in models))


@pytest.mark.parametrize(
    ("likelihood", "method"),
    [
        (Nothing(), "log_prob"),
        (NoMoments(), "conditional_moments"),
        (NoNoise(), "noise_variance"),
        (NoClasses(), "n_latent"),
    ],
    ids=lambda case: getattr(type(case), "__name__", case),
)
def test_a_likelihood_with_a_missing_method_is_refused_before_training(likelihood, method):
    estimator = NGDSVGPClassifier if isinstance(likelihood, ClassLikelihood) else NGDSVGPRegressor
    with pytest.raises(ValueError, match=f"likelihood {type(likelihood).__name__} does not define the method {method}"):
        estimator(1.0 * RBF(), likelihood=likelihood, **SMALL).fit(X, Y > 1000.0)


# -- warnings ----------------------------------------------------------------------------------


def told(**options):
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        NGDSVGPRegressor(1.0 * RBF(), n_inducing=8, random_state=0, **options).fit(X, Y)
    return " ".join(str(each.message) for each in caught if issubclass(each.category, ConvergenceWarning))


def test_a_rise_is_told_with_its_size():
    found = told(max_iter=60, n_iter_no_change=10, tol=1e-9)
    assert "nats a row over the last 10 iterations (tol=1e-09)" in found
    assert "Raise max_iter or learning_rate (0.05 now), or raise tol to accept this result." in found


@pytest.mark.parametrize(("in_pipeline", "name"), [(False, "jitter"), (True, "ngdsvgpregressor__jitter")])
def test_a_search_is_warned_of_once(in_pipeline, name, monkeypatch):
    reg = NGDSVGPRegressor(1.0 * RBF(), n_inducing=8, max_iter=6)
    search = GridSearchCV(make_pipeline(StandardScaler(), reg) if in_pipeline else reg, {name: [1e-8, 1e-7]}, cv=2)
    monkeypatch.setattr(notices, "_shown", {})
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("default")
        search.fit(X, Y)
    assert sum("too few iterations" in str(each.message) for each in caught) == 1


@pytest.mark.slow
def test_a_nested_search_is_warned_of_once(monkeypatch):
    inner = GridSearchCV(NGDSVGPRegressor(1.0 * RBF(), n_inducing=8, max_iter=6), {"jitter": [1e-8, 1e-7]}, cv=2)
    outer = GridSearchCV(inner, {"estimator__tol": [1.0, 2.0]}, cv=2)
    monkeypatch.setattr(notices, "_shown", {})
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("default")
        outer.fit(X, Y)
    assert sum("too few iterations" in str(each.message) for each in caught) == 1


def test_too_few_iterations_are_counted():
    found = told(max_iter=110, tol=1e-9)
    assert "two windows of n_iter_no_change=50 iterations are compared, but there are 110 (88 of them" in found
    assert "Raise max_iter to 125" in found
    assert "too few" not in told(max_iter=125, tol=1e-9)
    assert "there are 30 (" in told(max_iter=30)


def test_max_iter_alone_may_be_left_out():
    assert "lower n_iter_no_change, or leave max_iter out: then fit solves for q in one step." in told(max_iter=30)
    # Here something else asks for steps.
    assert "leave max_iter out" not in told(max_iter=30, solver="ngd")
    assert "leave max_iter out" not in told(max_iter=30, tol=1e-9)


def test_a_forecast_of_a_geometric_rise_is_exact():
    """After a window of ten, the rise is half as large: from .08 it is below .001 after seven."""
    rises = 0.08 * 0.5 ** np.arange(3.0)
    curve = 50.0 * np.repeat(np.concatenate([[0.0], np.cumsum(rises[::1])]), 10)
    trend = StoppingRule(10, 1e-3, weight=50.0, noisy=False).trend(curve)
    assert trend.n_counted == 40
    assert trend.rise == pytest.approx(0.02)
    assert trend.before == pytest.approx(0.04)
    # 0.02 / 2^5 is below 0.001.
    assert trend.n_more(10, 1e-3) == 50
    assert StoppingRule(10, 1e-3, 50.0, False).trend(-curve).n_more(10, 1e-3) is None
    assert StoppingRule(10, 1e-3, 50.0, False).trend(curve[:25]).n_more(10, 1e-3) is None


# -- likelihoods and searches ------------------------------------------------------------------


@pytest.mark.slow
def test_a_log_normal_target_has_the_predictions_of_its_logarithm():
    """Against a Gaussian process of log y with the same hyperparameters."""
    rows, y = X / 30.0, np.exp(np.sin(X[:, 0] / 10.0) + 0.3 * RNG.normal(size=60))
    kernel = ConstantKernel(1.0, "fixed") * RBF(0.5, "fixed")
    options = {"solver": "ngd", "n_inducing": None, "gamma_schedule": 1.0, "optimizer": None, "max_iter": 3}
    reg = NGDSVGPRegressor(kernel, likelihood=LogNormal(0.09, "fixed"), normalize_X=False, **options).fit(rows, y)
    exact = GaussianProcessRegressor(kernel, alpha=0.09, optimizer=None).fit(rows, np.log(y) - np.log(y).mean())
    mean, std = exact.predict(NEW / 30.0, return_std=True)
    mean, variance = mean + np.log(y).mean(), std**2 + 0.09
    assert_allclose(reg.predict_latent(NEW / 30.0), mean, rtol=1e-5, atol=1e-5)
    found = reg.predict(NEW / 30.0, return_std=True)
    assert_allclose(found[0], np.exp(mean + 0.5 * variance), rtol=1e-4)
    assert_allclose(found[1], found[0] * np.sqrt(np.expm1(variance)), rtol=1e-4)
    assert_allclose(reg.predict_quantiles(NEW / 30.0, 0.5), np.exp(mean), rtol=1e-4)


def test_new_arguments_are_searched():
    grid = {"train_inducing_points": [True, False], "batch_size": [None, 64], "normalize_y": [True, "center"]}
    search = GridSearchCV(NGDSVGPRegressor(1.0 * RBF(), **SMALL | {"max_iter": 2}), grid, cv=2).fit(X, Y)
    of_whole, of_parts = search.cv_results_["mean_test_score"].reshape(2, 4)
    # Folds of 30 rows are one batch; the other two arguments reach the fit.
    assert_allclose(of_whole, of_parts, rtol=1e-9)
    assert len(np.unique(of_whole.round(11))) == 4
