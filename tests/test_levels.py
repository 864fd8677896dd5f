"""Categories: levels that the fit has not seen, many levels, and how the search keeps the levels of one together."""

import warnings

import jax
import numpy as np
import pandas as pd
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy import stats
from scipy.optimize import minimize
from sklearn.gaussian_process.kernels import RBF, Matern
from sklearn.linear_model import RidgeCV
from sklearn.metrics import log_loss
from sklearn.preprocessing import OneHotEncoder

from skgp_natgrad import NGDSVGPClassifier, NGDSVGPRegressor, kernels, likelihoods, svgp
from skgp_natgrad._backend import notices
from skgp_natgrad._backend.flat import flat
from skgp_natgrad.choose import scale as scaling
from skgp_natgrad.choose import view as views
from skgp_natgrad.choose.candidates import laplacian, matern52, matern52_and_linear, rough_and_smooth
from skgp_natgrad.choose.effects import with_few_levels
from skgp_natgrad.estimators.rows import encoding
from skgp_natgrad.kernels.tied import Tied
from skgp_natgrad.neighbours.rates import rates

KNOWN, NEW = ["a", "b", "c", "d"], ["p", "q", "r", "s", "t"]


def encoded(levels, known=KNOWN, most=None):
    """The encoding of one category, and rows with these levels as numbers."""
    column = np.array([*known * 3, known[0]], dtype=object)[:, None]
    of_known = encoding.Encoding.fitted(np.zeros((len(column), 1)), column, [0], ["letter"], most)
    return of_known, of_known.forward(np.zeros((len(levels), 1)), np.array(levels, dtype=object)[:, None])


def distances(rows):
    return np.linalg.norm(rows[:, None] - rows, axis=2)


# -- the encoding -------------------------------------------------------------------------------


def test_a_new_level_is_as_far_from_known_ones_as_these_are_from_each_other():
    _, rows = encoded([*KNOWN, *NEW, None])
    found = distances(rows)
    assert_allclose(found[:4][~np.eye(4, 10, dtype=bool)], np.sqrt(2.0))
    # New levels are new to one another.
    apart = found[4:, 4:][~np.eye(6, dtype=bool)]
    assert apart.min() > 0.1
    assert apart.mean() > 1.0


def test_the_place_of_a_level_depends_on_its_name_alone():
    _, rows = encoded(NEW)
    _, others = encoded(NEW[::-1], known=["x", "y"])
    assert_array_equal(rows[:, -3:], others[::-1, -3:])
    assert_array_equal(encoded(["q"])[1][0], rows[1])


def test_new_levels_are_shown_as_such():
    of_known, rows = encoded(["b", "p", None])
    assert of_known.backward(rows)[:, 0].tolist() == ["b", encoding.ANOTHER, encoding.ANOTHER]
    assert of_known.names == [f"letter={each}" for each in KNOWN] + [f"letter=another level ({i})" for i in (1, 2, 3)]


def frame_of(levels, rng=None):
    x = np.linspace(-1.0, 1.0, len(levels)) if rng is None else rng.uniform(-2.0, 2.0, len(levels))
    return pd.DataFrame({"x": x, "letter": levels})


@pytest.fixture(scope="module")
def given():
    X = frame_of(KNOWN * 5)
    return NGDSVGPRegressor(1.0 * RBF([1.0, 1.0]), optimizer=None).fit(X, np.sin(X.x))


def told_by(model, levels):
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        model.predict(frame_of(levels))
    return [str(each.message) for each in told]


def test_numbers_are_no_columns_of_levels(given):
    assert encoding.columns_of_levels(given) == list(range(1, 1 + len(KNOWN) + encoding.FURTHER))
    assert (
        encoding.columns_of_levels(
            NGDSVGPRegressor(1.0 * RBF(), optimizer=None).fit(frame_of(KNOWN * 2)[["x"]], np.arange(8.0))
        )
        == []
    )


def test_new_levels_are_named(given):
    (first,) = told_by(given, ["a", "p"])
    assert "'letter' holds p, which is no level of the fit" in first
    (second,) = told_by(given, ["a", "p", "q", "r"])
    assert "'letter' holds p, q, r, which are no levels of the fit" in second
    (third,) = told_by(given, ["A", "B", "C", "D"])
    assert "holds A, B, C, D" in third
    assert not told_by(given, ["a", "b", "c"])


def test_new_levels_are_named_once_at_a_line_of_a_program(given, monkeypatch):
    monkeypatch.setattr(notices, "_shown", {})
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("default")
        for levels in (["a", "p"], ["a", "q"]):
            given.predict(frame_of(levels))
    assert len(told) == 1


def test_many_levels_are_merged_with_a_warning_that_names_the_number():
    X = frame_of([f"g{i}" for i in range(520)] + ["g0"] * 3)
    model = NGDSVGPRegressor(1.0 * RBF(), optimizer=None, n_inducing=5)
    encode = encoding.of_fit
    with pytest.warns(UserWarning, match="'letter' has 520 levels, of which the 21 with the fewest rows"):
        encode(model, X, X["letter"], None, False, False)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        encode(model.set_params(max_categories=4), X, X["letter"], None, False, False)
        encode(model.set_params(max_categories=500), X.head(500), X["letter"], None, False, False)


# -- scales -------------------------------------------------------------------------------------


def test_the_levels_of_a_category_keep_equal_distances(rng):
    levels = rng.choice(3, 200, p=[0.9, 0.09, 0.01])
    X = np.column_stack([rng.exponential(size=200), np.eye(3)[levels], np.zeros(200)])
    weight, block = np.ones(200), (1, 2, 3, 4)
    of_columns = scaling.fit_scale("X", X, weight, True)
    found = scaling.in_blocks(of_columns, scaling.deviations(X, weight), (block,))
    assert found.scale[0] == of_columns.scale[0]
    assert_allclose(np.ptp(found.scale[1:]), 0.0)
    assert_allclose(found.forward(X)[:, 1:].var(0).sum(), 1.0)
    scores = scaling.fit_normal_scores(X, weight)
    mapped = scaling.affine_in_blocks(scores, found, (block,))
    more = np.r_[X, [[1.0, 0.0, 0.0, 0.0, 0.7]]]
    assert_allclose(mapped.forward(more)[:, 1:], found.forward(more)[:, 1:], atol=1e-12)
    assert_allclose(mapped.backward(mapped.forward(more)), more, atol=1e-12)
    assert_allclose(mapped.slope(more)[:, 1:], found.slope(more)[:, 1:])
    assert_array_equal(mapped.forward(X)[:, 0], scaling.fit_normal_scores(X, weight).forward(X)[:, 0])


# -- the search ---------------------------------------------------------------------------------


def table_of(rng, n=60, n_levels=4, n_numbers=2):
    """A table of numbers in front of a block of levels, with a further column of zeros."""
    levels = rng.integers(n_levels, size=n)
    X = np.column_stack([rng.normal(size=(n, n_numbers)), np.eye(n_levels)[levels], np.zeros(n)])
    return svgp.Table(X, rng.normal(size=(1, n)), np.ones(n)), (tuple(range(n_numbers, X.shape[1])),)


@pytest.mark.parametrize("make", [matern52, rough_and_smooth, matern52_and_linear, laplacian])
def test_a_category_has_one_lengthscale_and_a_random_effect(make, rng):
    table, blocks = table_of(rng)
    view = views.View(table, blocks=blocks)
    start, _, prior = view.start(make, view.longest, np.log(0.1), 1.0)
    # Free are two lengthscales of numbers and one of the category, in each term.
    sizes = {np.size(each) for each in jax.tree.leaves(start.kernel) if np.ndim(each)}
    assert sizes == {len(view.longest) - 4}
    x = np.concatenate([np.ravel(each) for each in jax.tree.leaves(start)])
    assert np.isfinite(prior(x)[0])
    moved = jax.tree.map(lambda each: each + rng.normal(size=np.shape(each)), start.kernel)
    kernel = view.to_sklearn(make, moved)
    for name, value in kernel.get_params().items():
        if name.endswith("length_scale") and np.size(value) > 1:
            assert np.ptp(value[2:]) == 0.0
            assert len(np.unique(value)) == 3
    assert kernel.k2.k2.columns == list(blocks[0])
    # The kernel of scikit-learn is that of the search.
    of_search = jax.tree.map(np.exp, moved)(view.table.X, view.table.X)
    assert_allclose(kernel(table.X), of_search, rtol=1e-3, atol=1e-3)
    # Levels are next to independent in the effect, new ones as well.
    new = np.r_[np.zeros(6), 1.0]
    effect, same = kernel.k2.k2(np.vstack([new, table.X[:9]])), table.X[:9, 2:].argmax(1)
    assert np.all(effect[0, 1:] < 1e-2)
    assert_allclose(effect[1:, 1:], same[:, None] == same, atol=5e-3)


@pytest.mark.parametrize("n_levels", [3, 4, 8, 20, 100])
def test_the_variance_of_an_effect_allows_for_few_levels(n_levels):
    # The density of the effects of G levels with a common mean, by the logarithm of their variance.
    def log_density(x):
        value = -0.5 * (np.exp(-x[0]) + (n_levels - 1) * x[0])
        return value, np.r_[0.5 * (np.exp(-x[0]) - (n_levels - 1)), 0.0, 0.0]

    both = with_few_levels(log_density, [n_levels])
    x = minimize(lambda x: tuple(-each for each in both(x)), np.zeros(3), jac=True, tol=1e-10).x
    # The mean square of the effects is 1 / (G - 1): normal quantiles with this variance are those of Student's t.
    of_normal = np.sqrt(np.exp(x[0]) * (n_levels - 1)) * stats.norm.ppf(0.95)
    assert_allclose(of_normal, stats.t.ppf(0.95, n_levels - 1), rtol=0.03)


def test_the_prior_of_each_effect_has_the_number_of_its_levels(rng):
    table, blocks = table_of(rng)
    X = np.column_stack([table.X, np.eye(6)[rng.integers(6, size=60)], np.zeros((60, 3))])
    blocks = (*blocks, tuple(range(7, 16)))
    view = views.View(table._replace(X=X), blocks=blocks)
    start, _, prior = view.start(rough_and_smooth, view.longest, np.log(0.1), 1.0)
    centre, n = flat(view._centre_and_bounds(rough_and_smooth)[0]), len(flat(start))
    expected = np.zeros(n)
    # The category with more levels is first; two numbers each, and the noise.
    expected[[-5, -3]] = 5.0 / 6.0, 3.0 / 4.0
    assert_allclose(centre[[-5, -3]], np.log(0.1), rtol=1e-6)
    assert_allclose(prior(centre)[1], expected, atol=1e-12)
    step = 1e-4 * np.eye(n)
    slopes = [(prior(centre + each)[0] - prior(centre - each)[0]) / 2e-4 for each in step]
    assert_allclose(slopes, expected, atol=1e-6)


def test_a_search_sees_the_category_as_one_column(rng):
    table, blocks = table_of(rng, n_levels=60)
    view = views.View(table, blocks=blocks)
    assert (view.n_features, view.n_numbers, view.width) == (3, 2, 63)
    numbers = views.View(table._replace(X=table.X[:, :2]))
    assert_allclose(sorted(view.longest[view.of_numbers] / np.sqrt(3)), sorted(numbers.longest[:2] / np.sqrt(2)))
    assert len(view.of_numbers) == 2


def test_a_table_without_categories_has_no_effects(rng):
    table, _ = table_of(rng)
    view = views.View(table)
    start = view.start(matern52, view.longest, 0.0, np.inf)[0]
    assert not isinstance(start.kernel, Tied)
    assert_array_equal(view.length_scale(start.kernel), np.exp(start.kernel.k2.length_scale))
    # A column that only says where a number is missing has a lengthscale of its own, and no effect.
    indicator = views.View(table, blocks=((2,),)).start(matern52, view.longest, 0.0, np.inf)[0]
    assert jax.tree.structure(indicator) == jax.tree.structure(start)


def test_tied_columns_have_the_sum_of_the_slopes(rng):
    owner, X = (0, 1, 1, 2, 1), rng.normal(size=(6, 5))
    of_columns = kernels.from_sklearn(1.5 * Matern([1.0, 2.0, 2.0, 3.0, 2.0], nu=2.5), 5).value
    tied = Tied.of(of_columns, owner)
    assert_array_equal(tied(X, X), of_columns(X, X))
    assert_array_equal(tied.diag(X), of_columns.diag(X))
    assert_allclose(rates(tied, 5), rates(of_columns, 5))
    slopes = [jax.grad(lambda kernel: kernel(X, X[:3]).sum())(each) for each in (tied, of_columns)]
    expected = np.bincount(owner, slopes[1].k2.length_scale)
    assert_allclose(slopes[0].kernel.k2.length_scale, expected, rtol=1e-5)


def test_left_out_rows_of_known_levels_do_not_scale_the_kernel(rng):
    table, blocks = table_of(rng)
    kernel, noise = 3.0 * Matern(np.ones(7), nu=2.5), likelihoods.Gaussian(variance=0.5)
    algorithm = svgp.Algorithm(solver="evidence")
    plan = svgp.Plan(kernels=(kernel,), likelihood=noise, n_inducing=None, settings=svgp.Settings(algorithm=algorithm))
    found = []
    for each in (plan, plan._replace(blocks=blocks)):
        result = svgp.train(*svgp.init(each, table, random_state=0), table, each, random_state=0)
        found.append(float(np.exp(result.state.parameters.log_kernels[0].k1.constant_value)))
    assert found[0] < 2.0
    assert_allclose(found[1], 3.0)


# -- with nothing set ---------------------------------------------------------------------------


def groups(seed, n_groups, n_rows, sd, n_new=30, noise=0.3):
    """A wave and an effect of the group: rows of the fit, further rows of these groups, and rows of other groups."""
    rng = np.random.default_rng(seed)
    effects = sd * rng.normal(size=n_groups + n_new)

    def rows(group):
        x = rng.uniform(-2.0, 2.0, len(group))
        y = np.sin(2.0 * x) + effects[group] + noise * rng.normal(size=len(group))
        return pd.DataFrame({"x": x, "group": [f"g{each}" for each in group]}), y

    of_known = np.arange(n_groups)
    return rows(np.repeat(of_known, n_rows)), rows(np.repeat(of_known, 5)), rows(n_groups + np.repeat(range(n_new), 3))


def covered(model, X, y):
    lower, upper = model.predict_interval(X, 0.9)
    return np.mean((lower <= y) & (y <= upper))


def ridge_error(known, X, y):
    (X_fit, y_fit), encoder = known, OneHotEncoder(sparse_output=False)
    encoder.fit(X_fit[["group"]])

    def columns(X):
        return np.column_stack([encoder.transform(X[["group"]]), np.sin(2.0 * X.x), X.x, X.x**2])

    model = RidgeCV(np.logspace(-4, 2, 13)).fit(columns(X_fit), y_fit)
    return np.sqrt(np.mean((model.predict(columns(X)) - y) ** 2))


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize(("n_groups", "n_rows", "sd"), [(30, 10, 2.0), (90, 8, 1.0)])
def test_new_groups_are_covered_and_known_ones_are_not_merged(n_groups, n_rows, sd):
    of_new, errors = [], []
    for seed in range(2):
        fit, known, new = groups(seed, n_groups, n_rows, sd)
        model = NGDSVGPRegressor(random_state=0).fit(*fit)
        of_new.append(covered(model, *new))
        errors.append(np.sqrt(np.mean((model.predict(known[0]) - known[1]) ** 2)) / ridge_error(fit, *known))
    assert 0.78 < np.mean(of_new) < 1.0
    assert np.mean(errors) < 1.1


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::UserWarning")
def test_labels_of_new_groups_are_hardly_worse_than_the_constant():
    losses = []
    for seed in range(2):
        rng, effects = np.random.default_rng(seed), 2.0 * np.random.default_rng(seed).normal(size=60)

        def rows(group, rng=rng, effects=effects):
            X = pd.DataFrame({"x": rng.uniform(-2.0, 2.0, len(group)), "group": [f"g{each}" for each in group]})
            return X, rng.random(len(group)) < 1.0 / (1.0 + np.exp(-effects[group]))

        (X, y), (X_new, y_new) = (rows(np.repeat(each, 10)) for each in (np.arange(30), np.arange(30, 60)))
        found = NGDSVGPClassifier(random_state=0).fit(X, y).predict_proba(X_new)
        losses.append(log_loss(y_new, found) - log_loss(y_new, np.tile([1.0 - y.mean(), y.mean()], (len(y_new), 1))))
    assert np.mean(losses) < 0.02


def test_a_stream_names_new_levels_and_not_their_columns(rng):
    def rows(levels, n):
        frame = pd.DataFrame({"x": rng.uniform(-3.0, 3.0, size=n), "k": rng.choice(list(levels), size=n)})
        return frame, np.sin(frame["x"]) + frame["k"].map({"a": 0.0, "b": 2.0, "c": -2.0, "d": 4.0, "e": -5.0})

    model = NGDSVGPRegressor(n_inducing=20, max_iter=5, random_state=0)
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        model.partial_fit(*rows("abc", 100)).partial_fit(*rows("d", 30)).partial_fit(*rows("e", 30))
    said = [str(each.message) for each in said]
    assert sum("no level of the fit" in each for each in said) == 2
    assert not any("another level" in each for each in said)


@pytest.mark.parametrize("later", ["abc", "abcde"])
def test_a_kernel_of_other_levels_is_refused_and_its_estimator_takes_them(later):
    def rows(levels, n_rows=40):
        x = np.linspace(-2.0, 2.0, n_rows)
        return pd.DataFrame({"x": x, "letter": (list(levels) * n_rows)[:n_rows]}), np.sin(x)

    model = NGDSVGPRegressor(RBF([1.0, 2.0]), random_state=0).fit(*rows("abcd"))
    kept = {"kernel": model.kernel_, "likelihood": model.likelihood_, "optimizer": None}
    other = NGDSVGPRegressor(**kept, random_state=0)
    assert_array_equal(other.fit(*rows("abcd")).kernel_.theta, model.kernel_.theta)
    message = r"8 values for X with 2 columns.* fit to rows with other levels, .*warm_start=True\)\.fit"
    with pytest.raises(ValueError, match=message):
        other.fit(*rows(later))
    with pytest.raises(ValueError, match=r"there is no column 12 in X with 2 columns.* with other levels"):
        NGDSVGPRegressor(kernels.Columns(RBF(), [1, 12]), optimizer=None).fit(*rows(later))
    X, y = rows(later, 50)
    again = model.set_params(**kept, warm_start=True).fit(X, y)
    assert_array_equal(again.kernel_.theta, other.kernel.theta)
    assert_allclose(again.predict(X), y, rtol=0, atol=0.1)
