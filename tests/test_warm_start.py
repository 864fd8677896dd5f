"""Arguments that change between two fits: honoured, or refused by name; and one state behind all that is fitted."""

import copy
import functools
import pickle
import time
import warnings
from inspect import signature

import jax
import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.base import clone
from sklearn.gaussian_process.kernels import RBF, ConstantKernel, DotProduct, Matern

from skgp_natgrad import NGDSVGPClassifier, NGDSVGPRegressor
from skgp_natgrad.choose import restarts
from skgp_natgrad.estimators.fitted.attributes import model_of
from skgp_natgrad.likelihoods import Bernoulli, Gaussian, Ordinal, StudentT
from skgp_natgrad.priors import LogNormal

pytestmark = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")

RNG = np.random.default_rng(3)
X = RNG.uniform(-3.0, 3.0, size=(60, 1))
Y = np.sin(2.0 * X[:, 0]) + 0.1 * RNG.normal(size=60)
TARGETS = {NGDSVGPRegressor: Y, NGDSVGPClassifier: Y > 0.0}
OPTIONS = {"n_inducing": 12, "max_iter": 100, "random_state": 0, "warm_start": True}
CALLS = ["fit", "partial_fit"]
each_call = pytest.mark.parametrize("call", CALLS)
each_estimator = pytest.mark.parametrize("estimator", TARGETS)


def made(estimator, **own):
    return estimator(**{"kernel": 1.0 * RBF(1.0), **OPTIONS, **own})


@pytest.fixture(scope="module")
def first():
    """A fit of each estimator, to be copied."""
    fits = {estimator: made(estimator).fit(X, y) for estimator, y in TARGETS.items()}
    return lambda estimator: copy.deepcopy(fits[estimator])


def again(model, call="fit"):
    return getattr(model, call)(X, TARGETS[type(model)])


def check_one_state(model):
    """What is shown, what predicts and what a later fit goes on from are the same model."""
    posterior, (kernel,) = model._posterior, model_of(model).kernels
    Z = model._x_scale.forward(model.inducing_points_)
    latent = posterior.prior_mean + posterior.alpha @ kernel(posterior.Z, Z) + posterior.a @ kernel(posterior.Z_mean, Z)
    shown = np.reshape(model.predict_latent(model.inducing_points_).T, latent.shape)
    if hasattr(model, "_y_scale"):
        latent = model._y_scale.scale[:, None] * latent + model._y_scale.offset[:, None]
    assert_allclose(shown, latent, rtol=1e-8, atol=1e-8)
    trained, likelihood = model._warm_state.parameters[:2]
    found = [np.ravel(leaf) for leaf in jax.tree.leaves(trained)]
    values = [np.ravel(getattr_nested(kernel, h.name)) for h in kernel.hyperparameters]
    assert_allclose(np.exp(np.concatenate(found)), np.concatenate(values), rtol=1e-12)
    # The solver "exact" estimates them anew, after training.
    for name in () if model.mean_solver == "exact" else model.likelihood_.parameters:
        assert_allclose(np.ravel(np.exp(getattr(likelihood, name))), np.ravel(getattr(model.likelihood_, name)))


def moved(kernel):
    """The same kernel with other values."""
    values = {
        name: 1.2 * value
        for name, value in kernel.get_params().items()
        if name.endswith(("length_scale", "constant_value"))
    }
    return clone(kernel).set_params(**values)


def getattr_nested(kernel, name):
    return kernel.get_params()[name]


# -- every argument -----------------------------------------------------------------------

BOTH = {
    "kernel": [1.0 * RBF(0.5), 1.0 * RBF(0.3, "fixed"), 1.0 * Matern(1.0), [RBF(1.0)], None],
    "n_inducing": [6, None],
    "n_mean_inducing": [4],
    "basis": ["hybrid"],
    "objective": ["predictive"],
    "hyperparameter_prior": ["weak", {"length_scale": LogNormal(0.5, 0.01)}],
    "n_restarts_optimizer": [0],
    "inducing_init": ["random", np.linspace(-3.0, 3.0, 12)[:, None]],
    "solver": ["adam", "lbfgs"],
    "parameterization": ["mean_var"],
    "gamma_schedule": [0.5],
    "optimizer": [None],
    "learning_rate": [0.01],
    "batch_size": [30],
    "max_iter": [60],
    "tol": [0.1],
    "n_iter_no_change": [20],
    "mean_solver": ["natural", "exact", "adam"],
    "mean_columns": [7],
    "normalize_X": [False],
    "categorical_features": [[0]],
    "max_categories": [5],
    "missing_inputs": ["allow"],
    "normalize_y": [False, "center"],
    "train_inducing_points": [False],
    "jitter": [1e-4],
    "warm_start": [False],
    "random_state": [1],
    "verbose": [1],
    "device": ["cpu"],
    "n_devices": ["all"],
    "dtype": ["float32"],
    "callback": [lambda n_iter, model: n_iter >= 40],
    "checkpoint": ["checkpoint"],
    "checkpoint_every": [0.0],
}
OWN = {
    NGDSVGPRegressor: {
        "likelihood": [Gaussian(0.5, "fixed"), Gaussian(0.3), "student_t"],
        "missing_targets": ["ignore"],
        "mean_function": ["linear"],
        "calibrate": [True],
        "n_neighbors": [0],
        "output_kernel": ["coregionalization"],
        "predict_noise": [False],
    },
    NGDSVGPClassifier: {
        "likelihood": [Bernoulli(link="logit"), "softmax"],
        "class_weight": [{False: 1.0, True: 3.0}, "balanced"],
        "mean_function": ["linear"],
        "calibrate": [False],
    },
}
# What cannot be seen from scores: that it did what it says.
SEEN = {
    "n_inducing": lambda model, value: len(model.inducing_points_) == 6 or value is None,
    "gamma_schedule": lambda model, value: model.step_sizes_.max() == value,
    "max_iter": lambda model, value: model.n_iter_ == value,
    "callback": lambda model, value: model.n_iter_ == 40,
    "jitter": lambda model, value: model.jitter_ > 1e-5,
    "calibrate": lambda model, value: value or model.calibration_ == (1.0, 1.0),
    "mean_function": lambda model, value: model.mean_function_ is not None,
}
# What need not change anything here: one batch of rows, no mean-only points, no missing targets, no stop before the
# last iteration; a classifier has no y to normalise, and a stream goes on anyway.
WITHOUT_EFFECT = {
    *(
        "random_state",
        "n_restarts_optimizer",
        "mean_columns",
        "mean_solver",
        "verbose",
        "device",
        "n_devices",
        "checkpoint",
        "checkpoint_every",
        "tol",
        "n_iter_no_change",
        "missing_targets",
        "n_neighbors",
        "predict_noise",
    ),
    *((NGDSVGPClassifier, "normalize_y"), (NGDSVGPClassifier, "calibrate"), (NGDSVGPRegressor, "calibrate")),
    # A line may tell the process nothing new.
    (NGDSVGPClassifier, "mean_function"),
    ("partial_fit", "warm_start"),
}
REMEDIES = (
    "warm_start=False",
    "call fit",
    "Use n_mean_inducing=0",
    "use parameterization=",
    "give a dict",
    "Use objective=",
)
# Each of them is another program to compile. What they ask for is the same code for both estimators: that it is
# honoured is seen of one.
COMPILED = {
    *(
        "basis",
        "objective",
        "solver",
        "parameterization",
        "gamma_schedule",
        "optimizer",
        "batch_size",
        "mean_solver",
        "dtype",
    ),
    *("n_inducing", "n_mean_inducing", "device", "n_devices", "hyperparameter_prior", "n_restarts_optimizer"),
}
CASES = [
    pytest.param(
        *(call, estimator, name, value),
        id=f"{estimator.__name__[7:10]}-{name}-{i}-{call}",
        marks=pytest.mark.slow if name in COMPILED else (),
    )
    for call in CALLS
    for estimator, own in OWN.items()
    for name in signature(estimator).parameters
    for i, value in enumerate({**BOTH, **own}[name])
    if estimator is NGDSVGPRegressor or name not in COMPILED
]


@pytest.fixture(scope="module")
def unchanged(first):
    """The second fit with the same arguments."""
    return functools.cache(lambda estimator, call: again(first(estimator), call))


@pytest.mark.parametrize(("call", "estimator", "name", "value"), CASES)
@pytest.mark.filterwarnings("ignore:n_inducing")
def test_every_argument_is_honoured_or_refused(call, estimator, name, value, first, unchanged, tmp_path):
    """A new argument fails here until it has a value to change to."""
    value = tmp_path / value if name == "checkpoint" else value
    model = first(estimator).set_params(**{name: value})
    try:
        again(model, call)
    except (ValueError, AttributeError) as error:
        told = f"{error} {error.__cause__}"
        assert name in told
        assert repr(value)[:12] in told or name in ("kernel", "likelihood", "objective")
        assert any(remedy in told for remedy in REMEDIES)
        return
    check_one_state(model)
    if not WITHOUT_EFFECT & {name, (estimator, name), (call, name)}:
        same = unchanged(estimator, call)
        assert not np.array_equal(model.elbo_curve_, same.elbo_curve_), f"{name} is ignored"
    fixed = [h for h in model.kernel_.hyperparameters if h.fixed] if name == "kernel" else []
    for parameter in fixed:
        assert_array_equal(model.kernel_.get_params()[parameter.name], value.get_params()[parameter.name])
    if name in SEEN:
        assert SEEN[name](model, value)
    fresh = again(clone(model).set_params(warm_start=False, checkpoint=None))
    y = TARGETS[estimator]
    assert model.score(X, y) > fresh.score(X, y) - 0.05


# -- hyperparameters ----------------------------------------------------------------------


@pytest.mark.slow
@each_estimator
@each_call
def test_what_is_fixed_and_changed_is_what_predicts(estimator, call, first):
    """Trained at one value and shown, and predicted with, at another, R2 was -1.6 and accuracy .57."""
    model = first(estimator)
    before = model.score(X, TARGETS[estimator])
    # The points move to where the shorter lengthscale needs them.
    model.set_params(kernel__k2__length_scale=0.2, kernel__k2__length_scale_bounds="fixed", max_iter=400)
    again(model, call)
    assert model.kernel_.k2.length_scale == 0.2
    check_one_state(model)
    assert model.score(X, TARGETS[estimator]) > before - 0.05


@pytest.mark.slow
@each_call
def test_a_fixed_noise_is_honoured(call, first):
    model = first(NGDSVGPRegressor).set_params(likelihood=Gaussian(0.5, "fixed"))
    assert again(model, call).likelihood_.variance == 0.5
    check_one_state(model)
    assert again(model.set_params(likelihood__variance=0.3), call).likelihood_.variance == pytest.approx(0.3)


@pytest.fixture
def held(first):
    """A fit after which nothing but what is stated moves hyperparameters."""
    return first(NGDSVGPRegressor).set_params(optimizer=None)


@pytest.mark.slow
@each_call
def test_what_is_not_changed_goes_on(call, held):
    trained = held.kernel_
    assert abs(trained.k2.length_scale - 1.0) > 0.05
    # Another object of the same values says nothing new.
    again(held.set_params(kernel=1.0 * RBF(1.0), likelihood=Gaussian()), call)
    assert_allclose(held.kernel_.theta, trained.theta, rtol=1e-12)
    # Of two values, one is another.
    again(held.set_params(kernel__k2__length_scale=2.0), call)
    assert held.kernel_.k2.length_scale == pytest.approx(2.0)
    assert held.kernel_.k1.constant_value == pytest.approx(trained.k1.constant_value)


@each_call
def test_a_value_that_is_kept_and_fixed_is_held_there(call, held):
    again(held.set_params(kernel__k2__length_scale_bounds="fixed"), call)
    assert held.kernel_.k2.length_scale == 1.0
    check_one_state(held)
    # And set free it goes on from there.
    again(held.set_params(kernel__k2__length_scale_bounds=(1e-2, 1e2), optimizer="adam"), call)
    assert held.kernel_.k2.length_scale != 1.0
    check_one_state(held)


@each_call
def test_bounds_that_exclude_the_trained_value_hold(call, held):
    """With ``optimizer=None``, where no step would clip it."""
    bounds = (0.99 * held.kernel_.k2.length_scale, 0.995 * held.kernel_.k2.length_scale)
    bounds = (bounds[0], 1.0) if held.kernel_.k2.length_scale > 1.0 else (0.999, 1.5)
    again(held.set_params(kernel__k2__length_scale_bounds=bounds), call)
    assert bounds[0] <= held.kernel_.k2.length_scale <= bounds[1]
    check_one_state(held)


def test_a_kernel_that_is_changed_in_place_has_changed():
    kernel, likelihood = 1.0 * RBF(1.0), Gaussian()
    model = again(made(NGDSVGPRegressor, kernel=kernel, likelihood=likelihood))
    kernel.k2.length_scale, kernel.k2.length_scale_bounds = 3.0, "fixed"
    likelihood.variance, likelihood.variance_bounds = 0.5, "fixed"
    again(model)
    assert model.kernel_.k2.length_scale == 3.0
    assert model.likelihood_.variance == 0.5
    check_one_state(model)


@pytest.mark.slow
def test_one_lengthscale_of_several():
    table = np.column_stack([X, RNG.normal(size=(60, 2))])
    model = made(NGDSVGPRegressor, kernel=1.0 * RBF([1.0, 1.0, 1.0])).fit(table, Y)
    trained = model.kernel_.k2.length_scale
    model.set_params(kernel=1.0 * RBF([1.0, 4.0, 1.0]), optimizer=None).fit(table, Y)
    assert_allclose(model.kernel_.k2.length_scale, [trained[0], 4.0, trained[2]], rtol=1e-12)


@pytest.mark.slow
@each_call
def test_from_the_default_kernel_to_one_of_its_form(call):
    model = again(made(NGDSVGPRegressor, kernel=None))
    given = moved(model.kernel_)
    again(model.set_params(optimizer=None, kernel=given), call)
    assert_allclose(model.kernel_.theta, given.theta)
    with pytest.raises(ValueError, match=r"kernel=None, and the previous fit had kernel=.*Matern"):
        again(model.set_params(kernel=None), call)


@pytest.mark.slow
def test_a_default_kernel_is_that_of_the_first_rows():
    model = again(made(NGDSVGPRegressor, kernel=None))
    bounds = model.kernel_.bounds
    model.fit(X[:40], Y[:40])
    assert_array_equal(model.kernel_.bounds, bounds)
    check_one_state(model)


@pytest.mark.slow
def test_a_kernel_with_a_part_fixed_at_zero_goes_on():
    kernel = ConstantKernel(1.0) * RBF(1.0) + DotProduct(0.0, "fixed")
    model = again(again(made(NGDSVGPRegressor, kernel=kernel)))
    assert model.kernel_.k2.sigma_0 == 0.0
    check_one_state(model)


@pytest.mark.slow
def test_a_value_for_each_output_may_replace_one_for_all():
    both = np.column_stack([Y, 2.0 * Y])
    model = made(NGDSVGPRegressor, likelihood=Gaussian(0.1)).fit(X, both)
    model.set_params(likelihood=Gaussian(np.array([0.5, 0.7])), optimizer=None).fit(X, both)
    assert_allclose(model.likelihood_.variance, [0.5, 0.7])
    trained = model.set_params(likelihood=Gaussian([0.5, 0.7]), optimizer="adam").fit(X, both).likelihood_.variance
    model.set_params(likelihood=Gaussian([0.5, 0.2]), optimizer=None).fit(X, both)
    assert_allclose(model.likelihood_.variance, [trained[0], 0.2])


@pytest.mark.slow
def test_options_of_a_likelihood_that_differ_are_named():
    level = np.digitize(Y, [-0.5, 0.5])
    model = made(NGDSVGPRegressor, likelihood=Ordinal()).fit(X, level)
    model.set_params(likelihood__half_width=3.0).fit(X, level)
    assert_allclose(model.likelihood_.widths, 6.0)
    with pytest.raises(ValueError, match=r"likelihood=Ordinal\(.*n_levels=5.*previous fit had likelihood=Ordinal\("):
        model.set_params(likelihood__n_levels=5).fit(X, level)
    with pytest.raises(ValueError, match=r"likelihood=StudentT\(\), and the previous fit had likelihood=Ordinal"):
        model.set_params(likelihood=StudentT()).fit(X, level)


# -- points -------------------------------------------------------------------------------


def test_points_that_are_given_are_compared_by_value():
    points = np.linspace(-3.0, 3.0, 12)[:, None]
    model = again(made(NGDSVGPRegressor, inducing_init=points))
    again(model.set_params(inducing_init=points.tolist()))
    points += 0.1
    with pytest.raises(ValueError, match=r"(?s)warm_start=True, but inducing_init=array.*set warm_start=False"):
        again(model.set_params(inducing_init=points))


@pytest.mark.slow
def test_names_of_one_meaning_are_no_change():
    model = again(made(NGDSVGPRegressor, n_inducing=None))
    again(model.set_params(n_inducing="all"))
    classes = again(made(NGDSVGPClassifier))
    # It has none to normalise.
    again(classes.set_params(normalize_y=False, likelihood="bernoulli"))


@pytest.mark.slow
def test_mean_points_of_the_exact_solver_are_placed_anew():
    model = again(made(NGDSVGPRegressor))
    assert len(again(model.set_params(mean_solver="exact", n_mean_inducing=5)).mean_inducing_points_) == 5
    assert len(again(model.set_params(n_mean_inducing=8)).mean_inducing_points_) == 8
    with pytest.raises(ValueError, match=r"mean_solver='adam', and the previous fit had mean_solver='exact'"):
        again(model.set_params(mean_solver="adam"))


# -- files --------------------------------------------------------------------------------


def test_a_saved_model_loads_whatever_its_arguments_are_now(first):
    changes = {"likelihood": ["poisson", Ordinal(), "none"], "n_inducing": ["many", -1], "kernel": ["rbf"]}
    for name, value in ((name, value) for name, values in changes.items() for value in values):
        model = pickle.loads(pickle.dumps(first(NGDSVGPRegressor).set_params(**{name: value})))
        assert_array_equal(model.predict(X), first(NGDSVGPRegressor).predict(X))
        with pytest.raises((ValueError, TypeError), match=name):
            again(model)


@pytest.mark.slow
def test_a_kernel_that_jumps_leaves_the_mean_where_it_was(rng):
    """What the previous fit knew at the inducing points is the start of the next one, whatever the kernel."""
    X = rng.uniform(-2.0, 2.0, size=(60, 1))
    y = np.sin(3.0 * X[:, 0])
    options = {"inducing_init": np.linspace(-2.0, 2.0, 12)[:, None], "n_inducing": 12, "warm_start": True}
    model = NGDSVGPRegressor(1.0 * RBF(0.5), **options, max_iter=100, random_state=0).fit(X, y)
    before = model.predict(model.inducing_points_)
    model.set_params(kernel__k2__length_scale=1.2, kernel__k2__length_scale_bounds="fixed")
    # Nothing moves.
    model.set_params(gamma_schedule=1e-12, optimizer=None, max_iter=1).fit(X, y)
    assert_allclose(model.predict(model.inducing_points_), before, atol=0.01)


# -- fits in one step ---------------------------------------------------------------------


def growing(rng, n_rows=60):
    X = rng.uniform(-2.0, 2.0, size=(n_rows, 2))
    return X, np.sin(2.0 * X[:, 0]) + X[:, 1] ** 2 + 0.1 * rng.normal(size=n_rows)


def seconds(call):
    begun = time.process_time()
    call()
    return time.process_time() - begun


@pytest.mark.parametrize("kernel", [None, 1.0 * RBF([1.0, 1.0])])
def test_a_growing_table_is_fitted_in_one_step_from_the_last_hyperparameters(kernel, rng, monkeypatch):
    X, y = growing(rng)
    model = NGDSVGPRegressor(kernel, warm_start=True, random_state=0).fit(X[:40], y[:40])
    before, starts = model.kernel_, []
    search = restarts.Starts.search
    monkeypatch.setattr(restarts.Starts, "search", lambda self: starts.append(self._start) or search(self))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model.fit(X[:45], y[:45])
    assert model.n_iter_ == 1
    assert len(model.inducing_points_) == 45
    assert "one natural gradient step" in model.plan_
    (start,) = starts
    length_scale = np.exp(jax.tree.leaves(start.kernel)[-1])
    assert_allclose(length_scale, before.k2.length_scale, rtol=1e-8)
    new = clone(model).fit(X[:45], y[:45])
    at = rng.uniform(-2.0, 2.0, size=(50, 2))
    assert_allclose(model.predict(at), new.predict(at), atol=0.3)
    assert_allclose(*(each.predict(at, return_std=True)[1].mean() for each in (model, new)), rtol=0.5)


@pytest.mark.slow
@pytest.mark.parametrize("kernel", [None, 1.0 * RBF([1.0, 1.0])])
def test_a_growing_table_takes_no_longer_than_new_fits(kernel, rng):
    X, y = growing(rng, 90)
    warm, new = NGDSVGPRegressor(kernel, warm_start=True, random_state=0), NGDSVGPRegressor(kernel, random_state=0)
    for model in (warm, new):
        # Compiles.
        model.fit(X[:40], y[:40]).fit(X, y)
    spent = np.sum([[seconds(lambda: m.fit(X[:n], y[:n])) for m in (warm, new)] for n in range(45, 90, 5)], axis=0)
    assert spent[0] < 1.15 * spent[1]
    query, truth = X + 0.05, np.sin(2.0 * X[:, 0] + 0.1) + (X[:, 1] + 0.05) ** 2
    density = [model.predict_log_density(query, truth).mean() for model in (warm, new)]
    assert density[0] > density[1] - 0.1


def test_few_rows_of_a_default_kernel_need_no_start(rng):
    X, y = growing(rng, 12)
    model = NGDSVGPRegressor(warm_start=True).fit(X[:8], y[:8]).fit(X, y)
    assert_array_equal(model.predict(X), NGDSVGPRegressor().fit(X, y).predict(X))


@pytest.mark.slow
def test_what_was_given_holds_in_one_step(rng):
    """Fixed values, a value that has changed, several outputs, another likelihood, y of another size."""
    X, y = growing(rng)
    kernel = 1.0 * RBF([0.7, 1.0], [(0.7, 0.7 + 1e-9), (1e-2, 1e2)])
    model = NGDSVGPRegressor(kernel, warm_start=True).fit(X[:50], y[:50])
    model.set_params(likelihood=Gaussian(0.02, "fixed"))
    model.fit(X, 100.0 * y + 7.0)
    assert model.likelihood_.variance == 0.02
    assert model.kernel_.k2.length_scale[0] == pytest.approx(0.7)
    assert model._y_scale.scale == pytest.approx(100.0 * np.std(y))
    model.set_params(kernel=1.0 * Matern(1.0))
    with pytest.raises(ValueError, match="kernel cannot change when a fit is continued"):
        model.fit(X, y)
    two = NGDSVGPRegressor(warm_start=True).fit(X[:50], np.stack([y, -y], 1)[:50]).fit(X, np.stack([y, -y], 1))
    assert_allclose(*two.predict(X).T * [[1.0], [-1.0]], rtol=1e-6, atol=1e-6)
    clf = NGDSVGPClassifier(warm_start=True, random_state=0).fit(X[:50], y[:50] > 1.0).fit(X, y > 1.0)
    assert clf.score(X, y > 1.0) > 0.9
    counts = rng.poisson(np.exp(y))
    poisson = NGDSVGPRegressor(likelihood="poisson", warm_start=True).fit(X[:50], counts[:50]).fit(X, counts)
    assert poisson.n_iter_ < 40
