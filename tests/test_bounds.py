"""Hyperparameters that training leaves at a bound are named, in one warning."""

import warnings

import jax
import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning
from sklearn.gaussian_process.kernels import (
    RBF,
    ConstantKernel,
    DotProduct,
    ExpSineSquared,
    Matern,
    RationalQuadratic,
)
from sklearn.model_selection import cross_val_score

from skgp_natgrad import NGDSVGPClassifier, NGDSVGPRegressor, kernels, likelihoods, svgp
from skgp_natgrad._backend import notices
from skgp_natgrad.estimators.fitted import hyperparameters
from skgp_natgrad.kernels import Columns
from skgp_natgrad.likelihoods import Gaussian

RNG = np.random.default_rng(5)
X = RNG.uniform(-3.0, 3.0, size=(80, 2))
Y = np.sin(X[:, 0]) + 0.1 * RNG.normal(size=80)
# The best q at once, so that the direction is that of the evidence; steps of 0.02, that reach bounds this near.
OPTIONS = {"n_inducing": 30, "max_iter": 60, "gamma_schedule": 1.0, "learning_rate": 0.02, "random_state": 0}


def told(estimator, y=Y, **own):
    """The text of the warning about bounds, or None; it points to this file."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        estimator(**{**OPTIONS, **own}).fit(X, y)
    found = [each for each in caught if "bound" in str(each.message)]
    assert len(found) <= 1
    for each in found:
        assert each.category is ConvergenceWarning
        assert each.filename == __file__
    return str(found[0].message) if found else None


@pytest.mark.slow
def test_the_name_and_the_bound_are_told():
    kernel = ConstantKernel(1.0, "fixed") * RBF(0.5, (1e-5, 0.55))
    message = told(NGDSVGPRegressor, kernel=kernel, likelihood=Gaussian(0.5, (0.49, 0.51)))
    assert message.splitlines()[1].startswith("Training ended with kernel__k2__length_scale at its upper bound 0.55; ")
    assert "likelihood__variance at its " in message
    assert "widen the bounds" in message


@pytest.mark.slow
def test_components_are_told():
    kernel = RBF([0.5, 1.0], [(0.45, 0.55), (0.95, 1.05)])
    message = told(NGDSVGPRegressor, kernel=kernel)
    assert "kernel__length_scale[0] at its upper bound 0.55; kernel__length_scale[1] at its upper bound 1.05" in message
    message = told(NGDSVGPRegressor, kernel=RBF([0.5, 0.5], (0.45, 0.55)))
    assert message.splitlines()[1].startswith("Training ended with kernel__length_scale[0, 1] at its upper bound 0.55")
    both = np.column_stack([Y, Y])
    message = told(NGDSVGPRegressor, both, kernel=RBF(1.0, "fixed"), likelihood=Gaussian(0.5, (0.49, 0.51)))
    assert message.splitlines()[1].startswith("Training ended with likelihood__variance[0, 1] at its ")


@pytest.mark.slow
def test_bounds_that_nobody_set_are_not_told(monkeypatch):
    ends = []
    monkeypatch.setattr(hyperparameters, "at_bounds", lambda *arguments: ends.append(arguments) or [])
    kernel = ConstantKernel(1.0, "fixed") * RBF(0.5, (1e-5, 0.55))
    NGDSVGPRegressor(kernel=kernel, likelihood=Gaussian(0.5, (0.49, 0.51)), **OPTIONS).fit(X, Y)
    monkeypatch.undo()
    ((trained, log_bounds, *given),) = ends
    assert given == [True, False, {}]
    for given in (True, False):
        (notice,) = hyperparameters.at_bounds(trained, log_bounds, given)
        assert "likelihood__variance at its " in notice.details
        assert ("kernel__" in notice.details) == given


@pytest.mark.slow
def test_kernels_of_a_list_are_told_by_their_place():
    kernel = [RBF(1.0, "fixed"), Matern(0.5, (0.45, 0.55)) ** 2]
    message = told(NGDSVGPRegressor, np.column_stack([X[:, 1], Y]), kernel=kernel)
    assert message.splitlines()[1].startswith(
        "Training ended with kernel[1]__kernel__length_scale at its upper bound 0.55"
    )


@pytest.mark.slow
def test_a_classifier_by_lbfgs_tells_as_well():
    options = {"solver": "lbfgs", "parameterization": "mean_var_sqrt", "max_iter": 50}
    kernel = ConstantKernel(1.0, (0.5, 1.01)) * RBF(2.0, "fixed")
    assert "kernel__k1__constant_value at its upper bound 1.01" in told(
        NGDSVGPClassifier, X[:, 0] > 0, kernel=kernel, **options
    )


@pytest.mark.slow
@pytest.mark.parametrize(
    "own",
    [
        {},
        {"kernel": RBF(0.6, "fixed"), "likelihood": Gaussian(0.1, "fixed")},
        {"kernel": RBF(0.6, "fixed") + DotProduct(0.0, "fixed"), "likelihood": Gaussian(0.1, "fixed")},
        {"kernel": RBF(0.6, (0.6, 0.6)), "likelihood": Gaussian(0.1, (0.1, 0.1))},
        # Nothing was trained: where it stays is where it was put.
        {"kernel": RBF(0.6, (0.6, 1.0)), "optimizer": None},
    ],
    ids=["far from the bounds", "fixed", "fixed at zero", "equal bounds", "no optimizer"],
)
def test_nothing_is_told_of_what_is_not_at_a_bound(own):
    assert told(NGDSVGPRegressor, **own) is None


@pytest.mark.slow
def test_without_noise_the_default_likelihood_ends_at_its_lower_bound_and_tells_it_in_the_plan():
    """A table of a function's values: its noise is nothing, and that is no failure of the training."""
    y = np.sin(X[:, 0])
    with warnings.catch_warnings():
        warnings.simplefilter("error", ConvergenceWarning)
        model = NGDSVGPRegressor(random_state=0).fit(X, y)
    assert np.ravel(model.likelihood_.variance)[0] == pytest.approx(1e-8)
    assert "hardly any noise: its variance is at the lower bound" in model.plan_
    assert np.abs(model.predict(X) - y).max() < 1e-3
    assert "hardly any noise" not in NGDSVGPRegressor(random_state=0).fit(X, Y).plan_
    # Who gives a likelihood is told of its bounds.
    with pytest.warns(ConvergenceWarning, match="likelihood__variance at its lower bound 1e-08"):
        model = NGDSVGPRegressor(likelihood=Gaussian(), random_state=0).fit(X, y)
    assert "hardly any noise" not in model.plan_
    with warnings.catch_warnings():
        warnings.simplefilter("error", ConvergenceWarning)
        both = NGDSVGPRegressor(random_state=0).fit(X, np.column_stack([Y, y]))
    assert ("hardly any noise" in both.plan_) == (np.ravel(both.likelihood_.variance).min() < 1.1e-8)


@pytest.fixture(scope="module")
def with_an_irrelevant_column():
    rng = np.random.default_rng(0)
    table = pd.DataFrame(rng.uniform(-2.0, 2.0, size=(150, 2)), columns=["time", "nothing"])
    return table, np.sin(2.0 * table["time"].to_numpy()) + 0.1 * rng.normal(size=150)


def warned(call, action="always"):
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter(action)
        call()
    return [str(each.message) for each in caught if "bound" in str(each.message)]


@pytest.mark.slow
def test_a_column_without_effect_is_named_once_in_a_cross_validation(with_an_irrelevant_column, monkeypatch):
    monkeypatch.setattr(notices, "_shown", {})
    table, y = with_an_irrelevant_column
    kernel = ConstantKernel(1.0) * RBF([1.0, 1.0], (1e-2, 1e3)) + ConstantKernel(0.1, "fixed")
    model = NGDSVGPRegressor(kernel, n_inducing=40, solver="evidence", random_state=0)
    (message,) = warned(lambda: cross_val_score(model, table, y, cv=4), "default")
    first, details = message.splitlines()
    assert first == "Columns of X are irrelevant."
    assert details.startswith("Column nothing of X is irrelevant: training ended with kernel__k1__k2__length_scale at ")
    assert "widen" not in message
    # Whoever fits a model alone is told each time.
    assert warned(lambda: model.fit(table, y)) == warned(lambda: model.fit(table, y)) == [message]


def test_what_a_column_without_effect_is():
    """Not one whose lengthscale is at a bound near its values, nor one under an amplitude that makes up for it."""

    def found(variance, longest):
        kernel = ConstantKernel(variance) * Columns(RBF([longest, 1.0], [(0.1, longest), (0.1, 9.0)]), [2, 0])
        values = [kernels.from_sklearn(kernel, 3)[i] for i in range(3)]
        value, *bounds = [((jax.tree.map(np.log, each),), Gaussian().value_and_bounds(1)[0]) for each in values]
        found = hyperparameters.without_effect(value, bounds, [variance], RNG.normal(size=(50, 3)), 1.0)
        return {name: {i: each.tolist() for i, each in parts.items()} for name, parts in found.items()}

    assert found(1.0, 1e3) == {"kernel__k2__kernel__length_scale": {0: [2]}}
    assert found(1.0, 5.0) == {} == found(1e4, 1e3)


KERNELS = [
    ConstantKernel(0.3, (0.1, 0.7)),
    RBF([0.3, 0.3], (0.1, 0.7)),
    Matern(0.3, (0.1, 0.7), nu=0.5),
    RationalQuadratic(0.3, 0.3, (0.1, 0.7), (0.1, 0.7)),
    ExpSineSquared(0.3, 0.3, (0.1, 0.7), (0.1, 0.7)),
    DotProduct(0.3, (0.1, 0.7)),
    kernels.Laplacian([0.3, 0.3], (0.1, 0.7)),
    Columns(kernels.Coregionalization([0.3, 0.3], [0.3, 0.3], 1, (0.1, 0.7), (0.1, 0.7)), 1),
    Columns(RBF(0.3, (0.1, 0.7)), 1) + ConstantKernel(0.3, (0.1, 0.7)) * RBF(0.3, (0.1, 0.7)) ** 2,
    kernels.LinearTransform(RBF(0.3, (0.1, 0.7)), np.eye(2)),
]
# Numbers whose logarithm rounds up or down, and those that are the bounds by default.
ENDS = [(1e-8, 1e3), (1e-6, 1e3), (1e-5, 1e5), (1e-3, 3.14), (0.1, 0.7), (np.pi, 1e4), (1e-300, 1e300)]


def moved(values):
    """Values as they are after a logarithm and an exponential, and a little farther to both sides."""
    back = np.exp(np.log(np.asarray(values, float)))
    return [back, back * (1.0 - 1e-12), back * (1.0 + 1e-12)]


@pytest.mark.parametrize("ends", ENDS, ids=str)
@pytest.mark.parametrize("kernel", KERNELS, ids=lambda kernel: type(kernel).__name__)
def test_hyperparameters_of_kernels_at_their_bounds_are_kept_within_them(kernel, ends):
    kernel = clone(kernel)
    names = [name for name in kernel.get_params() if name.endswith("_bounds") and "matrix" not in name]
    middle = np.sqrt(ends[0] * ends[1])
    kernel.set_params(**dict.fromkeys(names, ends))
    values = {name.removesuffix("_bounds"): kernel.get_params()[name.removesuffix("_bounds")] for name in names}
    kernel.set_params(**{name: middle * np.ones(np.shape(value)) for name, value in values.items()})
    spec = kernels.from_sklearn(kernel, 2)
    for end in (spec.lower, spec.upper):
        for k in range(3):
            found = kernels.to_sklearn(kernel, jax.tree.map(lambda leaf, k=k: moved(leaf)[k], end))
            for name in names:
                value = np.asarray(found.get_params()[name.removesuffix("_bounds")])
                assert np.all((value >= ends[0]) & (value <= ends[1]))
            # What takes a kernel with bounds takes this one.
            kernels.from_sklearn(found, 2)


def likelihoods_with_bounds():
    """Each likelihood that has a parameter with bounds, by the name of its class."""
    found = [getattr(likelihoods, name) for name in likelihoods.__all__]
    return [each for each in found if isinstance(each, type) and getattr(each, "parameters", ())]


@pytest.mark.parametrize("cls", likelihoods_with_bounds(), ids=lambda cls: cls.__name__)
def test_parameters_of_likelihoods_at_their_bounds_are_kept_within_them(cls):
    likelihood = cls(n_levels=3) if cls is likelihoods.Ordinal else cls()
    for name in set(likelihood.parameters) - set(likelihood.fixed):
        lower, upper = getattr(likelihood, f"{name}_bounds")
        transform = likelihood.transform(name)
        for end in (lower, upper):
            raw = transform.to_raw(np.asarray(float(end)))
            back = np.asarray(transform.from_raw(raw, np), float)
            for value in (back, back * (1.0 - 1e-12), back * (1.0 + 1e-12)):
                leaves = [value if each == name else getattr(likelihood, each) for each in likelihood.parameters]
                if any(each is None for each in leaves):
                    leaves = [0.5 * (value + end) if each is None else each for each in leaves]
                found = likelihood.fitted(leaves)
                assert lower <= getattr(found, name) <= upper
                found.value_and_bounds(1)


@pytest.mark.slow
@pytest.mark.parametrize("noise", [0.0, 1e-9, 1e-6, 1e-5])
def test_correlated_outputs_without_noise_keep_it_at_its_bound(noise):
    rng = np.random.default_rng(0)
    rows = rng.uniform(0.0, 4.0, size=(30, 1))
    f = np.sin(2.0 * rows[:, 0])
    y = np.column_stack([f, np.cos(rows[:, 0]), 0.5 * f - np.cos(rows[:, 0])]) + noise * rng.normal(size=(30, 3))
    model = NGDSVGPRegressor(1.0 * RBF(), output_kernel="coregionalization", random_state=0).fit(rows, y)
    assert np.abs(model.predict(rows) - y).max() < 0.01


def test_the_common_noise_of_correlated_outputs_survives_its_logarithm():
    """Of noises at the bound, the logarithms have a mean whose exponential is smaller."""
    assert np.exp(np.mean(np.log([1e-8, 1e-8, 1e-8]))) < 1e-8
    X = np.linspace(0.0, 4.0, 12)[:, None]
    table = svgp.Table(X, np.stack([np.sin(X[:, 0]), np.cos(X[:, 0]), np.sin(X[:, 0] + 1.0)]), np.ones(12))
    plan = svgp.Plan(kernels=(1.0 * RBF(),), likelihood=Gaussian(1e-8))
    found = svgp.correlated(plan, table, kernels.Coregionalization(), 0)
    assert found.noise >= 1e-8
    Gaussian(found.noise).value_and_bounds(1)
