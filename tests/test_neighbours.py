"""Targets as their nearest rows predict them, against scikit-learn's exact process and against brute force."""

import jax
import numpy as np
import pytest
from scipy import optimize, special, stats
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import RBF, ConstantKernel, DotProduct, Matern

from skgp_natgrad import kernels, svgp
from skgp_natgrad._backend import device
from skgp_natgrad.kernels import Laplacian
from skgp_natgrad.likelihoods import Gaussian, Softmax
from skgp_natgrad.start import candidates, choice, neighbours, refinement, search, sizes, targets, view
from skgp_natgrad.start.evidence import Hyperparameters
from skgp_natgrad.training.batches import Table

KERNELS = {
    "matern": ConstantKernel(1.7) * Matern([0.8, 2.0, 1.1], nu=2.5),
    "laplacian": ConstantKernel(0.6) * Laplacian([1.5, 0.7, 3.0]),
    "sum": ConstantKernel(0.5) * Matern([2.0, 1.0, 0.5], nu=0.5) + ConstantKernel(1.0) * RBF([0.9, 2.0, 1.3]),
    "linear": ConstantKernel(1.2) * Matern([0.7, 1.0, 2.0], nu=2.5) + ConstantKernel(0.3) * DotProduct(0.8),
}


@pytest.fixture(autouse=True)
def in_a_fit():
    """Rows are computed in threads, which take over the scope of a fit."""
    with device.computation("cpu"):
        yield


def always(*_):
    return True


def moments(at, table, index, **options):
    return neighbours.predictions(at, table, neighbours.Judges.of(table.X, index), **options)


def predictions(at, table, index, **options):
    return moments(at, table, index, **options)[0]


def label_densities(at, table, index):
    return neighbours.label_densities(at, table, neighbours.Judges.of(table.X, index))


def table_of(rng, n_rows, n_classes=3, **weights):
    X = rng.normal(size=(n_rows, 3))
    labels = (np.abs(X[:, 0] + 0.3 * X[:, 1]) * 1.5).astype(int) % n_classes
    labels[:n_classes] = np.arange(n_classes)
    likelihood = Softmax().prepare(labels[None].astype(float), n_classes)
    weight = weights.get("weight", np.ones(n_rows))
    return targets.regressed(Table(X, labels[None].astype(float), weight), n_classes, likelihood), labels


def hyperparameters_of(kernel, noise, n_columns=3):
    logs = jax.tree.map(np.log, kernels.from_sklearn(kernel, n_columns).value)
    return Hyperparameters(logs, np.log(noise))


@pytest.mark.parametrize("name", KERNELS)
def test_of_few_rows_it_is_the_exact_process_without_the_row(name, rng):
    weight = rng.uniform(0.5, 2.0, size=40)
    table, _ = table_of(rng, 40, weight=weight)
    index = np.array([3, 17, 39])
    found = moments(hyperparameters_of(KERNELS[name], 0.1), table, index)
    for row, *moments_of_row in zip(index, *found, strict=True):
        others = np.arange(40) != row
        exact = GaussianProcessRegressor(KERNELS[name], alpha=0.1 / weight[others], optimizer=None)
        exact.fit(table.X[others], table.y[:, others].T)
        mean, deviation = exact.predict(table.X[row : row + 1], return_std=True)
        np.testing.assert_allclose(moments_of_row[0], mean[0], rtol=1e-8, atol=1e-10)
        np.testing.assert_allclose(moments_of_row[1], deviation.ravel()[0] ** 2, rtol=1e-8, atol=1e-10)


@pytest.mark.parametrize("name", KERNELS)
def test_the_rows_that_explain_most_of_it_predict_a_label(name, rng):
    table, _ = table_of(rng, 150)
    kernel, index = KERNELS[name], rng.choice(150, 60, replace=False)
    found = predictions(hyperparameters_of(kernel, 0.2), table, index, n_neighbours=12)
    explained = kernel(table.X[index], table.X) ** 2 / kernel.diag(table.X)
    explained[np.arange(60), index] = -1.0
    near = np.argsort(-explained, axis=1)[:, :12]
    for row, rows, mean in zip(index, near, found, strict=True):
        exact = GaussianProcessRegressor(kernel, alpha=0.2, optimizer=None).fit(table.X[rows], table.y[:, rows].T)
        np.testing.assert_allclose(mean, exact.predict(table.X[row : row + 1])[0], rtol=1e-8, atol=1e-10)


def test_rows_without_weight_predict_nothing(rng):
    weight = np.where(np.arange(60) % 3 == 0, 0.0, 1.0)
    table, _ = table_of(rng, 60, weight=weight)
    at, index = hyperparameters_of(KERNELS["matern"], 0.1), np.array([1, 2, 4])
    changed = table._replace(y=np.where(weight > 0.0, table.y, 1e6))
    np.testing.assert_array_equal(predictions(at, table, index), predictions(at, changed, index))


def measurements(rng, n_rows=400):
    X = rng.normal(size=(n_rows, 3))
    noise = 0.1 * rng.standard_t(5.0, size=(2, n_rows)) * [[1.0], [3.0]]
    return Table(X, np.sin(X.T[:2]) + noise, rng.uniform(0.5, 2.0, size=n_rows))


def test_densities_of_measurements_are_those_of_the_best_errors(rng):
    """Student-t with the scale and the degrees of freedom that SciPy fits to each target's errors."""
    table, at, index = measurements(rng), hyperparameters_of(KERNELS["matern"], 0.02), np.arange(0, 400, 2)
    found = neighbours.value_densities(at, table, neighbours.Judges.of(table.X, index, of_labels=False))
    means, variances = moments(at, table, index, n_neighbours=400)
    # Of one target, whatever the weight of its row.
    assert np.ptp(table.weight[index]) > 0.1
    deviations = np.sqrt(variances + 0.02)
    each = []
    for mean, y in zip(means.T, table.y[:, index], strict=True):
        df, _, scale = stats.t.fit((y - mean) / deviations, floc=0.0)
        assert 3.0 < df < 1000.0
        each.append(stats.t.logpdf(y, df, mean, scale * deviations))
    np.testing.assert_allclose(found.mean(), np.mean(each), rtol=1e-6)
    np.testing.assert_allclose(found, np.mean(each, axis=0), rtol=0.02, atol=0.01)


def solved_in_long_double(covariance, b):
    """L^-1 b by a Cholesky factorisation in NumPy's longest precision."""
    L, x = covariance.astype(np.longdouble), b.astype(np.longdouble)
    for i in range(len(L)):
        L[i, i] = np.sqrt(L[i, i] - (L[i, :i] ** 2).sum())
        L[i + 1 :, i] = (L[i + 1 :, i] - L[i + 1 :, :i] @ L[i, :i]) / L[i, i]
        x[i] = (x[i] - L[i, :i] @ x[:i]) / L[i, i]
    return x


@pytest.mark.parametrize("noise", [1e-4, 1e-8, 2e-10])
@pytest.mark.parametrize("kernel", [*KERNELS.values(), ConstantKernel(1.0) * RBF([1.0, 1.0, 1.0])])
def test_moments_of_measurements_are_exact_at_small_noise(kernel, noise, rng):
    """N k / s^2 up to 1e12."""
    X = rng.uniform(-1.0, 1.0, size=(200, 3))
    table, index = Table(X, (np.sin(3.0 * X[:, 0]) + X[:, 1] ** 2)[None], np.ones(200)), np.array([3, 120])
    judges = neighbours.Judges.of(X, index, of_labels=False)
    for row, mean, variance in zip(
        index, *neighbours.predictions(hyperparameters_of(kernel, noise), table, judges), strict=True
    ):
        others = np.arange(200) != row
        sides = np.column_stack([kernel(X[others], X[row : row + 1]), table.y[0, others]])
        across, y = solved_in_long_double(kernel(X[others]) + noise * np.eye(199), sides).T
        expected = kernel.diag(X[row : row + 1])[0] - across @ across
        np.testing.assert_allclose(float(mean[0] - across @ y) / np.sqrt(float(expected) + noise), 0.0, atol=1e-4)
        np.testing.assert_allclose(variance + noise, float(expected) + noise, rtol=1e-4)


def test_densities_of_measurements_do_not_depend_on_the_scale_of_the_prior(rng):
    """It is calibrated, as that of the model's predictions will be."""
    table, index = measurements(rng), np.arange(0, 400, 2)
    judges = neighbours.Judges.of(table.X, index, of_labels=False)
    found = [
        neighbours.densities(
            hyperparameters_of(ConstantKernel(factor) * RBF([1.0, 1.0, 3.0]), 0.01 * factor), table, judges
        )
        for factor in (1.0, 100.0)
    ]
    np.testing.assert_allclose(*found, rtol=1e-4, atol=1e-4)


def test_errors_of_zero_have_a_density(rng):
    table, hyperparameters = measurements(rng), hyperparameters_of(KERNELS["matern"], 0.02)
    judges = neighbours.Judges.of(table.X, np.arange(50), of_labels=False)
    zero = neighbours.densities(hyperparameters, table._replace(y=np.zeros((1, 400))), judges)
    assert np.all(zero > neighbours.densities(hyperparameters, table, judges))
    assert np.all(zero < 1e3)


@pytest.mark.parametrize("n_classes", [2, 3])
def test_densities_are_those_of_the_best_softmax(n_classes, rng):
    table, labels = table_of(rng, 300, n_classes)
    at, index = hyperparameters_of(KERNELS["matern"], 0.1), np.arange(0, 300, 3)
    found = label_densities(at, table, index)
    # From standardised targets back to shares.
    indicators = np.equal(labels, np.arange(1 if n_classes == 2 else 0, n_classes)[:, None])
    means = predictions(at, table, index) * indicators.std(1) + indicators.mean(1)
    means = np.column_stack([1.0 - means, means]) if n_classes == 2 else means

    def densities(factor):
        return special.log_softmax(factor * means, axis=1)[np.arange(len(index)), labels[index]]

    best = optimize.minimize(lambda x: -densities(x[0]).mean(), [5.0], method="Nelder-Mead", options={"xatol": 1e-6})
    np.testing.assert_allclose(found, densities(best.x[0]), atol=1e-3)
    assert found.mean() == pytest.approx(-best.fun, abs=1e-6)


def test_one_label_is_no_surprise(rng):
    table, _ = table_of(rng, 30)
    at = hyperparameters_of(KERNELS["matern"], 0.1)
    one = table._replace(y=np.zeros((1, 30)))
    np.testing.assert_array_equal(label_densities(at, one, np.arange(5)), 0.0)


def test_what_is_no_number_is_never_preferred(rng):
    table, _ = table_of(rng, 30)
    at = hyperparameters_of(KERNELS["matern"], 0.1)
    at = at._replace(kernel=jax.tree.map(lambda logs: logs + 800.0, at.kernel))
    assert np.all(label_densities(at, table, np.arange(5)) == -np.inf)


@pytest.mark.parametrize("name", KERNELS)
def test_rows_in_single_precision_are_solved_in_double(name, rng):
    """A kernel that is much larger than the noise, and with fewer others than neighbours."""
    table, _ = table_of(rng, 40)
    at = hyperparameters_of(ConstantKernel(1e3) * KERNELS[name], 0.05)
    X = table.X.astype(np.float32)
    X[20:25] = X[3]
    index = np.array([3, 30])
    for function in (predictions, label_densities):
        single, double = (function(at, table._replace(X=X.astype(dtype)), index) for dtype in (np.float32, float))
        np.testing.assert_allclose(single, double, rtol=1e-2, atol=1e-2)


def test_rows_of_equal_x_are_left_out_together(rng):
    table, _ = table_of(rng, 40)
    X = table.X.copy()
    X[20:25] = X[3]
    table, at = table._replace(X=X), hyperparameters_of(KERNELS["matern"], 0.1)
    changed = table.y.copy()
    changed[:, 20:25] = 5.0
    found = [predictions(at, each, np.array([3])) for each in (table, table._replace(y=changed))]
    np.testing.assert_allclose(*found, rtol=1e-12)


@pytest.mark.slow
@pytest.mark.parametrize(("n_rows", "compares"), [(6000, False), (6001, True)])
def test_neighbours_rank_the_kernels_of_large_tables(rng, monkeypatch, n_rows, compares):
    table, _ = table_of(rng, n_rows)
    table = table._replace(weight=rng.uniform(0.5, 2.0, size=n_rows))
    monkeypatch.setattr(search, "_USUAL", search._Effort((np.inf,), 1, 1))
    monkeypatch.setattr(search, "_MORE", 100)
    monkeypatch.setattr(search, "CANDIDATES", candidates.CANDIDATES)

    def densities(hyperparameters, table, judges):
        is_laplacian = "JaxLaplacian" in str(jax.tree.structure(hyperparameters.kernel))
        return (-1.0 if is_laplacian else -2.0) * table.weight[judges.index]

    monkeypatch.setattr(neighbours, "label_densities", densities)
    _, found = search.best_kernels([table], np.random.RandomState(0), 5, of_labels=True, on_all_rows=always)
    assert all((each.by_neighbours is not None) == compares for each in found)
    if compares:
        assert "Laplacian" in repr(found[0].kernel)
        weight = found[0].by_neighbours.weight
        assert found[0].by_neighbours.mean == pytest.approx(-np.average(weight, weights=weight))


@pytest.fixture
def ranks_laplacian_first(monkeypatch):
    """By neighbours: what else is compared, and with which effort, does not matter."""
    monkeypatch.setattr(search, "_USUAL", search._Effort((np.inf,), 1, 1))
    monkeypatch.setattr(search, "_MORE", 100)
    monkeypatch.setattr(search, "CANDIDATES", candidates.CANDIDATES)

    def densities(hyperparameters, table, judges):
        assert not judges.of_labels
        return np.full(len(judges.index), -1.0 if "JaxLaplacian" in str(jax.tree.structure(hyperparameters)) else -2.0)

    monkeypatch.setattr(neighbours, "value_densities", densities)


@pytest.mark.parametrize(("n_rows", "compares"), [(6000, False), (6001, True)])
@pytest.mark.usefixtures("ranks_laplacian_first")
def test_neighbours_rank_the_kernels_of_measurements(rng, n_rows, compares):
    _, found = search.best_kernels([measurements(rng, n_rows)], np.random.RandomState(0), 2, on_all_rows=always)
    assert all((each.by_neighbours is not None) == compares for each in found)
    assert ("Laplacian" in repr(found[0].kernel)) or not compares


@pytest.mark.slow
@pytest.mark.usefixtures("ranks_laplacian_first")
def test_neighbours_rank_where_the_model_will_rest_on_all_rows(rng, monkeypatch):
    """Not where noise hides what they tell, nor where they do not tell all, nor beside points that were asked for."""
    table = measurements(rng, 6001)
    monkeypatch.setattr(choice, "_density", lambda plan, *_: 0.0 if "Laplacian" not in repr(plan.kernels) else -1.0)

    def chooses_laplacian(table, worth=True, **options):
        monkeypatch.setattr(sizes, "worth_all_rows", lambda *_: worth)
        settings = svgp.Settings(algorithm=svgp.Algorithm(solver="evidence"))
        defaults = {"n_inducing": "auto", "n_mean_inducing": "auto", "settings": settings}
        plan = svgp.Plan(None, Gaussian().prepare(table.y, 0), **(defaults | options))
        return "Laplacian" in repr(choice.choose_kernel(plan, [table], np.random.RandomState(0))[1].kernels)

    assert chooses_laplacian(table)
    assert not chooses_laplacian(table, worth=False)
    assert not chooses_laplacian(table, n_inducing=500)
    assert not chooses_laplacian(table, n_mean_inducing=0)
    assert not chooses_laplacian(table, inducing_init=table.X[:50])
    assert not chooses_laplacian(table._replace(y=np.where(np.arange(6001) == 5, np.nan, table.y)))
    assert not chooses_laplacian(table._replace(known=table.y**2))


def test_equal_rows_of_huge_weights_end_in_no_density(rng):
    table, _ = table_of(rng, 30, weight=np.full(30, 1e30))
    X = table.X.copy()
    X[10:] = X[10]
    at = hyperparameters_of(KERNELS["matern"], 0.1)
    assert np.all(label_densities(at, table._replace(X=X), np.arange(5)) == -np.inf)


@pytest.mark.slow
def test_the_kernel_is_that_of_the_whole_table(rng):
    """Cells of a grid: few rows do not tell a cell from the next one, all rows do."""
    X = rng.uniform(-1.0, 1.0, size=(8000, 3))
    labels = (np.floor(3.0 * X).astype(int).sum(1)) % 3
    likelihood = Softmax().prepare(labels[None].astype(float), 3)
    table = targets.regressed(Table(X, labels[None].astype(float), np.ones(8000)), 3, likelihood)
    noises = view.NOISE_BOUNDS_OF_LABELS
    _, found = search.best_kernels(
        [table], np.random.RandomState(0), 2, noises=noises, of_labels=True, on_all_rows=always
    )
    settings = svgp.Settings(algorithm=svgp.Algorithm(solver="evidence"))
    plan = svgp.Plan(None, likelihood, 3, settings=settings)
    _, chosen = choice.choose_kernel(
        plan, [Table(X, labels[None].astype(float), np.ones(8000))], np.random.RandomState(0)
    )
    best = max((each for each in found if not each.evenly), key=lambda each: each.by_neighbours.mean)
    best = refinement.on_more_labels(best, table)
    # But for the scale.
    scales = chosen.kernels[0].diag(X)[0], best.kernel.diag(X)[0]
    np.testing.assert_allclose(chosen.kernels[0](X[:50]) / scales[0], best.kernel(X[:50]) / scales[1], rtol=1e-8)
