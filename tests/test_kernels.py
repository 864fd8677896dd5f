"""Conversion of kernels; their values and gradients are in test_equivalence."""

import itertools
import math
import pickle
import subprocess
import sys

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.base import clone
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process import kernels as sk
from sklearn.model_selection import GridSearchCV

from skgp_natgrad import Constant, NGDSVGPClassifier, NGDSVGPRegressor, kernels
from skgp_natgrad.kernels import Columns, Laplacian, base, laplacian

pytestmark = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")


@pytest.fixture
def table(rng):
    X = rng.normal(size=(60, 2))
    return X, np.sin(X[:, 0]) + X[:, 1]


def fit(kernel, table, **options):
    return NGDSVGPRegressor(kernel, **{"n_inducing": 10, "max_iter": 40, "random_state": 0, **options}).fit(*table)


@pytest.mark.slow
@pytest.mark.usefixtures("x64")
def test_a_root_of_a_kernel_has_a_gradient_where_it_underflows(rng):
    """As of the kernel that it equals."""
    X = np.append(rng.normal(size=(5, 1)), [[100.0]], axis=0)
    root, plain = (kernels.from_sklearn(each, 1).value for each in (sk.RBF(0.3) ** 0.5, sk.RBF(0.3 * 2**0.5)))
    values = [jax.jit(lambda k: k(X, X))(each) for each in (root, plain)]
    assert values[0][0, -1] == 0.0
    assert_allclose(*values, rtol=1e-10)
    assert_array_equal(root.diag(X), 1.0)
    found, expected = (jax.jit(jax.grad(lambda k: (X * k(X, X)).sum()))(each) for each in (root, plain))
    slope = np.sum(jax.tree.leaves(found)[0])
    assert_allclose(slope, np.sum(jax.tree.leaves(expected)[0]) * 2**0.5, rtol=1e-8)


@pytest.mark.slow
@pytest.mark.parametrize(
    "kernel",
    [
        1.0 * sk.Matern(nu=2.5) + sk.RBF([1.0, 2.0]),
        sk.ConstantKernel(0.5) * sk.RationalQuadratic(alpha=2.0) + sk.DotProduct(),
        (sk.RBF() + sk.ExpSineSquared(1.0, 3.0)) ** 2,
    ],
)
def test_fitted_kernel_is_accepted_by_scikit_learn(kernel, table):
    model = fit(kernel, table)
    assert type(model.kernel_) is type(kernel)
    assert not np.allclose(model.kernel_.theta, kernel.theta)
    exact = GaussianProcessRegressor(model.kernel_, alpha=model.likelihood_.variance, optimizer=None).fit(*table)
    assert_allclose(exact.kernel_.theta, model.kernel_.theta)
    jax_kernel = kernels.from_sklearn(model.kernel_, 2).value
    # Single precision outside the package.
    assert_allclose(jax_kernel(*table[:1] * 2), model.kernel_(table[0]), atol=1e-5)


@pytest.mark.slow
def test_fixed_bounds_are_honoured(table):
    kernel = sk.ConstantKernel(2.3, "fixed") * sk.RBF(0.7) + sk.DotProduct(0.0, "fixed") * sk.Matern(
        [0.3, 4.0], "fixed", 1.5
    )
    fitted = fit(kernel, table).kernel_
    assert fitted.k1.k1.constant_value == 2.3
    assert fitted.k2.k1.sigma_0 == 0.0
    assert fitted.k2.k2.length_scale == [0.3, 4.0]
    assert fitted.k1.k2.length_scale != 0.7


@pytest.mark.slow
def test_bounds_are_kept(table):
    fitted = fit(sk.ConstantKernel(1.0, (0.9, 1.1)) * sk.RBF(0.1, (0.05, 0.15)), table, learning_rate=0.1).kernel_
    assert fitted.k2.length_scale == pytest.approx(0.15)
    assert 0.9 * (1 - 1e-12) <= fitted.k1.constant_value <= 1.1 * (1 + 1e-12)


@pytest.mark.slow
def test_optimizer_none_keeps_hyperparameters_and_points(table):
    kernel = sk.ConstantKernel(1.0) * sk.RBF(0.9)
    model = fit(kernel, table, optimizer=None, n_mean_inducing=5)
    assert_allclose(model.kernel_.theta, kernel.theta, atol=1e-15)
    assert model.likelihood_.variance == pytest.approx(0.1)
    rows = {tuple(row) for row in table[0].round(9)}
    assert {tuple(row) for row in model.inducing_points_.round(9)} <= rows
    assert model.elbo_ > model.elbo_curve_[0]


@pytest.mark.slow
def test_default_kernel_starts_from_the_data(rng):
    X = rng.normal(size=(80, 3)) * [1.0, 1e-3, 50.0]
    y = np.sin(X[:, 0]) + 0.1 * rng.normal(size=80)
    arguments = {"n_inducing": 10, "optimizer": None, "max_iter": 5, "random_state": 0}
    scaled = NGDSVGPRegressor(normalize_X=True, **arguments).fit(X, y)
    lengths = [value for name, value in scaled.kernel_.get_params().items() if name.endswith("length_scale")]
    # The first column alone has an effect.
    assert min(length[0] for length in lengths) < 0.3 * min(length[1:].min() for length in lengths)
    # The search for the largest evidence sees other rounding in other units.
    raw = NGDSVGPRegressor(normalize_X=False, **arguments).fit(X, y)
    assert_allclose(raw.predict(X), scaled.predict(X), atol=1e-2)
    extreme = NGDSVGPRegressor(normalize_X=False, **arguments).fit(1e7 * X, y)
    assert_allclose(extreme.predict(1e7 * X), scaled.predict(X), atol=1e-2)


@pytest.mark.parametrize(
    ("kernel", "error", "message"),
    [
        (sk.RBF() * sk.WhiteKernel(), ValueError, "the noise belongs to the likelihood"),
        (sk.PairwiseKernel(), ValueError, "no JAX kernel"),
        ("rbf", TypeError, "must be a kernel"),
        (sk.RBF, TypeError, "must be a kernel"),
        (sk.RBF([1.0, 2.0, 3.0]), ValueError, "3 values for X with 2 columns"),
        (sk.RationalQuadratic([1.0, 2.0]), ValueError, "one number for all columns"),
        (sk.ConstantKernel([1.0, 2.0]), ValueError, "one number for all columns"),
        (sk.Matern(nu=1.0), ValueError, "0.5, 1.5, 2.5 and inf"),
        (sk.ConstantKernel(-1.0), ValueError, "positive"),
        (sk.DotProduct(0.0), ValueError, "fixed"),
        (sk.RBF() ** -1.0, ValueError, "exponent=-1.0; exponent must be a positive number"),
        (sk.RBF() ** "two", ValueError, "exponent='two'; exponent must be a positive number"),
        (sk.Matern(nu="abc"), ValueError, "Matern with nu='abc'; nu must be one of 0.5, 1.5, 2.5 and inf"),
        (sk.Matern(nu=1j), ValueError, r"Matern with nu=1j.* must be a number, a string, or a tuple"),
        (sk.RBF("a"), ValueError, "it must be a number"),
        (sk.RBF(1.0, (2.0, 3.0)), ValueError, "within positive bounds"),
        (sk.RBF(1.0, (10.0, 0.1)), ValueError, "within positive bounds"),
    ],
)
def test_what_is_not_supported_is_refused(kernel, error, message, table):
    with pytest.raises(error, match=message):
        fit(kernel, table)


class Cosine(sk.StationaryKernelMixin, sk.NormalizedKernelMixin, sk.Kernel):
    """A user's own kernel: the product of cosines of the coordinates' distances."""

    def __init__(self, period=1.0, period_bounds=(1e-3, 1e3)):
        self.period = period
        self.period_bounds = period_bounds

    @property
    def hyperparameter_period(self):
        return sk.Hyperparameter("period", "numeric", self.period_bounds)

    def __call__(self, X, Y=None, eval_gradient=False):
        Y = X if Y is None else Y
        return np.cos((X[:, None] - Y[None]) / self.period).prod(-1)


class JaxCosine(kernels.Kernel):
    period: object

    def __call__(self, X, Z):
        import jax.numpy as jnp

        return jnp.cos((X[:, None] - Z[None]) / self.period).prod(-1)

    def diag(self, X):
        import jax.numpy as jnp

        return jnp.ones(len(X))


@pytest.mark.slow
def test_a_users_own_kernel(table):
    with pytest.raises(ValueError, match=r"register\(Cosine, YourJaxKernel\)"):
        fit(Cosine() * sk.RBF(), table)
    kernels.register(Cosine, JaxCosine)
    try:
        model = fit(Cosine(2.0) * sk.RBF(), table)
    finally:
        del base._JAX_KERNELS[Cosine]
    assert model.kernel_.k1.period != 2.0
    assert kernels.from_sklearn(Cosine(), 2).value.period == 1.0  # found by the class itself
    del Cosine._skgp_jax_kernel
    with pytest.raises(TypeError, match="jax_class"):
        kernels.register(Cosine, dict)


@pytest.mark.slow
def test_a_users_own_kernel_reaches_other_processes():
    """Defined in a script, not in a module that the worker could import."""
    code = """
import numpy as np
from sklearn.gaussian_process.kernels import RBF
from sklearn.model_selection import cross_val_score
from skgp_natgrad import NGDSVGPRegressor, kernels

class Mine(RBF):
    pass

class JaxMine(kernels.Kernel):
    length_scale: object
    def __call__(self, X, Z):
        import jax.numpy as jnp
        return jnp.exp(-0.5 * kernels.scaled_squared_distance(X, Z, self.length_scale))
    def diag(self, X):
        return X[:, 0] * 0.0 + 1.0

kernels.register(Mine, JaxMine)
X = np.linspace(0, 5, 40)[:, None]
model = NGDSVGPRegressor(1.0 * Mine(), n_inducing=8, max_iter=20, random_state=0)
scores, alone = (cross_val_score(model, X, np.sin(X[:, 0]), cv=2, n_jobs=n, error_score="raise") for n in (2, 1))
np.testing.assert_allclose(scores, alone, rtol=1e-6)
"""
    subprocess.run([sys.executable, "-W", "ignore", "-c", code], check=True)


@pytest.mark.slow
def test_a_wiggly_function_gets_a_short_lengthscale(rng):
    """From lengthscales that are far too long the fit would call this noise."""
    X = rng.uniform(0, 10, size=(400, 1))
    y = np.sin(12 * X[:, 0]) + 0.1 * rng.normal(size=400)
    model = NGDSVGPRegressor(max_iter=300, random_state=0).fit(X[:300], y[:300])
    assert model.score(X[300:], y[300:]) > 0.9
    labels = y > 0
    clf = NGDSVGPClassifier(max_iter=300, random_state=0).fit(X[:300], labels[:300])
    assert clf.score(X[300:], labels[300:]) > 0.85


# -- a kernel on some columns -------------------------------------------------------------

NAMES = ["a", "b", "c", "d"]


def additive(first, second):
    return 1.0 * Columns(sk.RBF(0.8), first) + 0.5 * Columns(sk.Matern([1.0, 2.0], nu=2.5), second)


@pytest.fixture
def wide(rng):
    X = rng.uniform(-2, 2, size=(60, 4))
    return X, np.sin(2 * X[:, 0]) + 0.5 * X[:, 3] * X[:, 1]


@pytest.fixture
def frame(wide):
    pandas = pytest.importorskip("pandas", reason="pandas is not installed: it comes with the test extra")
    return pandas.DataFrame(wide[0], columns=NAMES)


@pytest.mark.parametrize("columns", [[0, 3], [0, -1], (0, 3), np.array([0, 3]), range(0, 4, 3), ["a", "d"], ["a", 3]])
def test_columns_are_those_of_the_table(columns, wide, frame):
    X, inner = wide[0], sk.RBF([0.5, 2.0])
    kernel = Columns(inner, columns)
    table = frame if "a" in list(columns) else X
    want, want_gradient = inner(X[:, [0, 3]], eval_gradient=True)
    got, gradient = kernel(table, eval_gradient=True)
    assert_array_equal(got, want)
    assert_array_equal(gradient, want_gradient)
    assert_array_equal(kernel(table, table[:7]), inner(X[:, [0, 3]], X[:7, [0, 3]]))
    assert_array_equal(kernel.diag(table), np.ones(60))
    assert kernels.from_sklearn(kernel, 4, NAMES).value.columns == (0, 3)
    assert kernel == Columns(inner, list(columns))
    assert kernel != Columns(inner, [3, 0])


def test_a_single_column_and_one_of_text_beside_it(wide, frame):
    frame["e"] = "text"
    want = sk.DotProduct(0.3)(wide[0][:, [1]])
    for columns in (1, "b", ["b"], np.int64(1)):
        assert_array_equal(Columns(sk.DotProduct(0.3), columns)(frame), want)
    assert_allclose(Columns(sk.DotProduct(0.3), "b").diag(frame), np.diag(want), rtol=1e-14)


def test_columns_inside_columns_count_the_selected_ones(wide, frame):
    want = sk.RBF()(wide[0][:, [1]])
    assert_array_equal(Columns(Columns(sk.RBF(), 1), [2, 1])(wide[0]), want)
    named = Columns(2.0 * Columns(sk.RBF(), "b"), ["c", "b"])
    assert_array_equal(named(frame), 2.0 * want)
    assert kernels.from_sklearn(named, 4, NAMES).value.kernel.k2.columns == (1,)


COLUMNS_KERNELS = [
    Columns(sk.RBF([0.5, 2.0]), [0, 3]),
    1.0 * Columns(sk.DotProduct(0.4), 2) * Columns(sk.RBF(0.7), [0, 1]) ** 1.5,
    additive(0, [1, 3]) + Columns(sk.RBF(0.6, "fixed") + sk.RationalQuadratic(1.3, 0.4), [3, 2]),
]


@pytest.mark.parametrize("kernel", COLUMNS_KERNELS, ids=repr)
def test_columns_have_the_gradient_of_finite_differences(kernel, wide):
    X, h = wide[0][:9], 1e-6
    _, gradient = kernel(X, eval_gradient=True)
    assert gradient.shape == (9, 9, kernel.n_dims) == (9, 9, len(kernel.theta)) == (9, 9, len(kernel.bounds))
    for i, step in enumerate(h * np.eye(kernel.n_dims)):
        ahead, behind = (kernel.clone_with_theta(kernel.theta + sign * step)(X) for sign in (1, -1))
        assert_allclose(gradient[:, :, i], (ahead - behind) / (2 * h), atol=1e-8)


def test_columns_are_a_kernel_of_scikit_learn():
    kernel = Columns(sk.RBF([0.5, 2.0]), ["a", "d"])
    copied = clone(kernel)
    assert copied == kernel == pickle.loads(pickle.dumps(kernel))
    assert copied.kernel is not kernel.kernel
    assert kernel.get_params()["kernel__length_scale"] == [0.5, 2.0]
    assert set(kernel.get_params(deep=False)) == {"kernel", "columns"}
    copied.set_params(kernel__length_scale=[1.0, 1.0], columns=[0, 1])
    assert copied == Columns(sk.RBF([1.0, 1.0]), [0, 1])
    assert copied != kernel
    assert kernel != kernel.kernel
    assert [each.name for each in kernel.hyperparameters] == ["kernel__length_scale"]
    assert repr(kernel) == "Columns(RBF(length_scale=[0.5, 2]), ['a', 'd'])"
    assert kernel.is_stationary()
    assert not Columns(sk.DotProduct(), 0).is_stationary()
    assert kernel.requires_vector_input


@pytest.mark.slow
def test_fit_by_name_is_fit_by_position(wide, frame):
    """``kernel_`` has the columns as they were given, and every way to predict sees the same."""
    X, y = wide
    by_position = fit(additive(0, [1, 3]), wide)
    named = fit(additive("a", ["b", "d"]), (frame, y), warm_start=True)
    assert_array_equal(named.predict(frame), by_position.predict(X))
    assert_array_equal(named.kernel_.theta, by_position.kernel_.theta)
    assert not np.allclose(named.kernel_.theta, named.kernel.theta)
    assert [each.k2.columns for each in (named.kernel_.k1, named.kernel_.k2)] == ["a", ["b", "d"]]
    assert named.kernel.k1.k2.columns == "a"
    # Few rows are predicted by scikit-learn's side of the kernels.
    assert_allclose(named.predict(frame[:3]), named.predict(frame)[:3], atol=1e-9)
    assert_allclose(pickle.loads(pickle.dumps(named)).predict(frame[:3]), named.predict(frame[:3]), rtol=1e-14)
    # What the kernel does not look at changes nothing.
    assert_allclose(named.predict(frame.assign(c=0.0)), named.predict(frame), atol=1e-9)
    elbo = named.elbo_
    assert named.fit(frame, y).elbo_ > elbo
    other = clone(named).set_params(kernel=[additive("a", ["b", "d"])], warm_start=False).fit(frame, y)
    assert_array_equal(other.predict(frame[:3]), by_position.predict(X[:3]))


@pytest.mark.slow
def test_streams_go_on_by_name(wide, frame):
    X, y = wide
    options = {"n_inducing": 10, "max_iter": 40, "random_state": 0}
    named = NGDSVGPRegressor(additive("a", ["b", "d"]), **options)
    by_position = NGDSVGPRegressor(additive(0, [1, 3]), **options)
    for rows in (slice(0, 30), slice(30, 60)):
        named.partial_fit(frame[rows], y[rows])
        by_position.partial_fit(X[rows], y[rows])
    assert_array_equal(named.predict(frame), by_position.predict(X))


@pytest.mark.slow
def test_search_over_what_is_inside_columns(wide, frame):
    model = NGDSVGPRegressor(additive("a", ["b", "d"]), n_inducing=10, max_iter=40, random_state=0)
    grid = {"kernel__k1__k2__kernel__length_scale": [0.8, 50.0], "optimizer": [None]}
    search = GridSearchCV(model, grid, cv=2, error_score="raise").fit(frame, wide[1])
    assert search.best_params_["kernel__k1__k2__kernel__length_scale"] == 0.8
    assert search.best_estimator_.kernel_.k1.k2.kernel.length_scale == pytest.approx(0.8)


@pytest.mark.slow
def test_additive_kernel_is_scikit_learns_exact_gaussian_process(rng):
    """Trained where one column moves at a time; a sum of functions of one column is known elsewhere, too."""
    s = np.linspace(-2, 2, 25)
    X = np.concatenate([np.c_[s, 0 * s, s**2], np.c_[0 * s, s, s]])
    y = np.sin(2 * X[:, 0]) + np.cos(X[:, 1])
    kernel = Columns(sk.RBF(0.7), 0) + Columns(sk.RBF(1.2), 1)
    options = {"n_inducing": "all", "optimizer": None, "gamma_schedule": Constant(1.0), "max_iter": 2, "jitter": 1e-12}
    model = NGDSVGPRegressor(kernel, normalize_X=False, normalize_y=False, **options).fit(X, y)
    exact = GaussianProcessRegressor(kernel, alpha=model.likelihood_.variance, optimizer=None).fit(X, y)
    X_new = rng.uniform(-2, 2, size=(50, 3))
    mean, std = exact.predict(X_new, return_std=True)
    got, got_std = model.predict(X_new, return_std=True)
    # The covariance of the rows is singular: it has a factor with some jitter.
    assert_allclose(got, mean, atol=1e-6)
    assert_allclose(got_std**2, std**2 + model.likelihood_.variance, atol=1e-6)
    assert_allclose(got, np.sin(2 * X_new[:, 0]) + np.cos(X_new[:, 1]), atol=0.15)


def test_columns_in_scikit_learns_estimator(wide, frame):
    kernel = additive(0, [1, 3])
    trained = GaussianProcessRegressor(kernel, alpha=0.01, random_state=0).fit(*wide)
    assert trained.log_marginal_likelihood_value_ > trained.log_marginal_likelihood(kernel.theta)
    assert trained.score(*wide) > 0.99
    with pytest.raises(ValueError, match=r"columns='a', but X has no column names.*give positions"):
        GaussianProcessRegressor(additive("a", ["b", "d"])).fit(frame, wide[1])


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ([], r"columns=\[\], which selects nothing; give at least one"),
        ([0, 1, 0], r"columns=\[0, 1, 0\], which selects column 0 of 4 more than once; give it once"),
        ([0, -4], r"columns=\[0, -4\], which selects column 0 of 4 more than once"),
        (["a", 0], r"columns=\['a', 0\], which selects column 0 of 4 more than once"),
        ([0, 4], r"columns=\[0, 4\]: there is no column 4 in X with 4 columns; give positions from -4 to 3"),
        (-5, r"columns=-5: there is no column -5 in X"),
        ("z", r"columns='z': no columns are named 'z' in X with 4 columns, whose names are 'a', 'b', 'c', 'd'; give"),
        ([1.0], r"columns=\[1.0\]: 1.0 is neither a position nor a name; give integers or strings"),
        (None, "columns=None: None is neither"),
        (slice(2), r"slice\(None, 2, None\) is neither.*list\(range\(start, stop\)\) for a slice"),
        ([True, False, True, True], r"True is neither.*np.flatnonzero\(mask\) for a mask"),
    ],
)
def test_columns_that_are_not_there_are_refused(columns, message, wide, frame):
    kernel = 1.0 * Columns(sk.RBF(), columns)
    with pytest.raises(ValueError, match=message):
        fit(kernel, (frame, wide[1]))
    with pytest.raises(ValueError, match=message):
        kernel(frame)


def test_what_is_wrong_with_columns_is_named(wide, frame):
    for wrong in ("a", ["a", 1]):
        with pytest.raises(ValueError, match=r"but X has no column names.*give positions"):
            fit(Columns(sk.RBF(), wrong), wide)
    with pytest.raises(ValueError, match=r"3 values for the 2 columns that Columns selects by columns=\[0, 3\]; give"):
        fit(Columns(sk.RBF([1.0, 1.0, 1.0]), [0, 3]), wide)
    with pytest.raises(TypeError, match="kernel='rbf' must be a kernel of sklearn"):
        fit(Columns("rbf", 0), wide)
    with pytest.raises(ValueError, match="2 columns are named 'a'"):
        Columns(sk.RBF(), "a")(frame.set_axis(["a", "a", "b", "c"], axis=1))
    with pytest.raises(ValueError, match="give both the same columns in the same order"):
        Columns(sk.RBF(), "a")(frame, frame[["b", "a", "c", "d"]])


@pytest.mark.parametrize(
    "dtypes", itertools.product((np.float32, np.float64), repeat=2), ids=lambda each: "-".join(d.__name__ for d in each)
)
@pytest.mark.usefixtures("x64")
def test_the_derivative_of_laplacian_distances_in_rates_alone(dtypes, rng):
    """With many rows, far from the origin, and in mixed precision."""
    exact = dtypes == (np.float64, np.float64)
    X = rng.normal(size=(5000, 3)) + (1e6 if exact else 0.0)
    X, Z, weights = X.astype(dtypes[0]), X[:50].astype(dtypes[1]), rng.normal(size=(5000, 50))
    expected = np.einsum("nm,nmd->d", weights, np.abs(X[:, None].astype(float) - Z[None].astype(float)))
    total = jax.grad(lambda rate: (weights * laplacian._distance(jnp.asarray(X), jnp.asarray(Z), rate)).sum())
    found = total(jnp.ones(3))
    assert found.dtype == np.float64
    assert_allclose(found, expected, rtol=1e-10 if exact else 1e-4)


@pytest.mark.slow
@pytest.mark.parametrize(("n_columns", "offset"), [(1, 0.0), (8, 0.0), (17, 1e6)])
@pytest.mark.usefixtures("x64")
def test_laplacian_of_many_columns_and_far_from_the_origin(n_columns, offset, rng):
    """Columns are summed in blocks; X with itself has the derivatives of both arguments."""
    X, Z, C = rng.normal(size=(9, n_columns)), rng.normal(size=(5, n_columns)), rng.normal(size=(9, 9))
    kernel = Laplacian(n_columns * rng.uniform(0.5, 2.0, size=n_columns))
    twin = kernels.from_sklearn(kernel, n_columns).value
    assert_allclose(twin(offset + X, offset + Z), kernel(X, Z), rtol=1e-8 if offset else 1e-13)
    _, gradient = kernel(X, eval_gradient=True)
    of_scales = jax.grad(lambda twin: (C * twin(offset + X, offset + X)).sum())(twin).length_scale
    assert_allclose(of_scales * kernel.length_scale, np.einsum("ij,ijd->d", C, gradient), rtol=1e-7, atol=1e-9)
    direction, h = rng.normal(size=X.shape), 1e-6
    slope = (jax.grad(lambda X: (C * twin(X, X)).sum())(X) * direction).sum()
    difference = (C * (kernel(X + h * direction) - kernel(X - h * direction))).sum() / (2.0 * h)
    assert slope == pytest.approx(difference, rel=1e-6)
    assert twin(X[:0], Z).shape == (0, 5)
    single = twin(X.astype(np.float32), Z.astype(np.float32))
    assert_allclose(single, kernel(X, Z), rtol=1e-4)


def test_columns_of_the_laplacian_and_lengthscales_that_do_not_fit(rng):
    X = rng.normal(size=(6, 3))
    kernel = Columns(Laplacian([0.5, 2.0]), [2, 0])
    assert_allclose(kernels.from_sklearn(kernel, 3).value(X, X), Laplacian([0.5, 2.0])(X[:, [2, 0]]), rtol=1e-5)
    with pytest.raises(ValueError, match="length_scale has 2 values, and X has 3 columns"):
        Laplacian([0.5, 2.0])(X)
    with pytest.raises(ValueError, match="columns"):
        Laplacian(1.0)(X, X[:, :1])


@pytest.mark.parametrize("length_scale", [0.7, [0.5, 1.0, 2.0]])
def test_laplacian_is_a_product_of_matern_kernels_of_single_columns(length_scale, rng):
    X, Z = rng.normal(size=(12, 3)), rng.normal(size=(7, 3))
    kernel = Laplacian(length_scale)
    each = [sk.Matern(value, nu=0.5) for value in np.broadcast_to(length_scale, 3)]
    product = math.prod(one(X[:, [d]], Z[:, [d]]) for d, one in enumerate(each))
    assert_allclose(kernel(X, Z), product, rtol=1e-12)
    K, gradient = kernel(X, eval_gradient=True)
    assert_allclose(K, kernel(X), rtol=1e-12)
    for i, step in enumerate(1e-6 * np.eye(len(kernel.theta))):
        above, below = (kernel.clone_with_theta(kernel.theta + sign * step)(X) for sign in (1.0, -1.0))
        assert_allclose(gradient[..., i], (above - below) / 2e-6, atol=1e-8)
    assert Laplacian(length_scale, "fixed")(X, eval_gradient=True)[1].shape == (12, 12, 0)
    with pytest.raises(ValueError, match="leave Y out"):
        kernel(X, Z, eval_gradient=True)
