"""Tables that do not fit in memory: read by blocks, with the bits of the same table in memory."""

import os
import tracemalloc

import jax.numpy as jnp
import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy import sparse
from sklearn.base import clone
from sklearn.gaussian_process.kernels import RBF, DotProduct

from skgp_natgrad import NGDSVGPClassifier, NGDSVGPRegressor, likelihoods, svgp
from skgp_natgrad._backend import rows as rows_module
from skgp_natgrad._backend.rows import filled_up, is_file_like, rows_of
from skgp_natgrad.choose import evidence
from skgp_natgrad.choose.scale import Moments, fit_scale
from skgp_natgrad.estimators.arguments import reading
from skgp_natgrad.estimators.predictions import by_blocks
from skgp_natgrad.estimators.rows import class_labels, inputs, long_tables
from skgp_natgrad.estimators.rows.inputs import Targets
from skgp_natgrad.solve import closed_form, mean_system, system
from skgp_natgrad.start import inducing_points, state
from skgp_natgrad.start.routes.one_step import OneStep
from skgp_natgrad.training import batches, checkpoint, long_table, windows

pytestmark = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")

# Small enough that a table of N rows has several windows of several blocks, and a rest.
BLOCK, WINDOW, N = 32, 128, 700
RNG = np.random.default_rng(7)
X = RNG.normal(size=(N, 2)).astype(np.float32)
Y = np.sin(2.0 * X[:, 0]) + 0.1 * RNG.normal(size=N)
WEIGHT = np.where(np.arange(N) % 5 == 0, 0.0, RNG.uniform(0.5, 2.0, N))


@pytest.fixture(autouse=True)
def _small_windows(monkeypatch):
    monkeypatch.setattr(rows_module, "BLOCK_ROWS", BLOCK)
    monkeypatch.setattr(rows_module, "WINDOW_ROWS", WINDOW)
    monkeypatch.setattr(long_table, "SAMPLE_ROWS", 200)


def mapped(folder, name, array):
    """The array as a memory map."""
    np.save(folder / f"{name}.npy", array)
    return np.load(folder / f"{name}.npy", mmap_mode="r")


class Dataset:
    """What h5py, zarr and Dask arrays have in common; it remembers the slices that it was asked for."""

    def __init__(self, array, fails_at=None):
        self.array, self.shape, self.dtype, self.ndim = array, array.shape, array.dtype, array.ndim
        self.asked, self.fails_at = [], fails_at

    def __len__(self):
        return len(self.array)

    def __getitem__(self, rows):
        assert isinstance(rows, slice)
        self.asked.append(rows)
        if self.fails_at is not None and rows.start <= self.fails_at < rows.stop:
            raise ValueError("checksum of a chunk is wrong")
        return self.array[rows].copy()


def regressor(**kwargs):
    settings = {"n_inducing": 8, "max_iter": 60, "tol": 0.0, "random_state": 0, "batch_size": 16, "solver": "ngd"}
    return NGDSVGPRegressor(RBF(0.8), **{**settings, **kwargs})


def classifier(**kwargs):
    settings = {"n_inducing": 8, "max_iter": 40, "tol": 0.0, "random_state": 0, "batch_size": 16, "solver": "ngd"}
    return NGDSVGPClassifier(RBF(0.8), **{**settings, **kwargs})


def assert_same_fit(first, second):
    assert_array_equal(first.elbo_curve_, second.elbo_curve_)
    for one, other in zip(first._posterior, second._posterior, strict=True):
        assert_array_equal(one, other)


def long_table_of(X, y, weight=None, **targets):
    """The `LongTable` of arrays, and X's spans."""
    X, y = np.asarray(X, float), np.reshape(y, (len(X), -1)).astype(float)
    columns, X = rows_of("y", y), rows_of("X", X)
    offset = inputs.like(X, "offset", inputs.known("offset", targets.get("offset"), *columns.shape))
    of_y = columns, inputs.weights(weight, X), [np.dtype(float)] * y.shape[1], "gaussian", 0, True, {}
    return long_tables.weighted(X, [np.dtype(float)] * X.shape[1], Targets(*of_y, offset), 1)


# -- what is read, and how ---------------------------------------------------------------------


@pytest.mark.parametrize("xp", [np, jnp])
def test_rows_that_are_missing_are_copies_of_the_last_one_or_a_value(xp):
    array = xp.array([[1.0, 2.0], [3.0, 4.0]])
    assert_array_equal(filled_up(array, 3), [[1.0, 2.0], [3.0, 4.0], [3.0, 4.0]])
    assert_array_equal(filled_up(array, 3, -1, value=0.0), [[1.0, 2.0, 0.0], [3.0, 4.0, 0.0]])
    assert isinstance(filled_up(array, 3), xp.ndarray)
    assert filled_up(array, 2) is array


def test_only_files_and_their_like_are_read_by_slices(tmp_path):
    import jax
    import pandas as pd

    held = [X, X.tolist(), None, 3.0, sparse.csr_matrix(X), pd.DataFrame(X), pd.Series(Y), jax.numpy.ones(3), "text"]
    assert not any(map(is_file_like, held))
    assert is_file_like(mapped(tmp_path, "X", X))
    assert is_file_like(Dataset(X))
    # What is computed from a memory map lies in memory.
    assert not is_file_like(mapped(tmp_path, "X", X) + 1.0)


@pytest.mark.parametrize("mode", ["r", "c"])
@pytest.mark.parametrize("order", ["C", "F"])
def test_every_view_of_a_memory_map_is_read_from_its_file(tmp_path, mode, order):
    table = np.asarray(RNG.normal(size=(50, 4)), order=order)
    whole = np.memmap(tmp_path / "table", table.dtype, "w+", offset=24, shape=table.shape, order=order)
    whole[:] = table
    whole.flush()
    found = np.memmap(tmp_path / "table", table.dtype, mode, offset=24, shape=table.shape, order=order)
    views = [(), np.s_[7:], np.s_[::3], np.s_[:, 1:3], np.s_[5:40:2, ::2], np.s_[:, 1], np.s_[::-1], np.s_[:, ::-1]]
    for view in views:
        rows, expected = rows_of("X", found[view]), table[view]
        assert_array_equal(rows.whole(), expected)
        assert_array_equal(rows.read(3, 11), expected[3:11])


def test_an_epoch_is_a_permutation_shuffled_by_windows_of_random_blocks():
    table = svgp.Table(X, Y[None], np.ones(N))
    order, blocks, random_state = windows.Order(table), np.empty(0, int), np.random.RandomState(0)
    for _ in range(2):
        epoch, n_windows = [], 0
        while not n_windows or len(blocks) < len(table.starts):
            rows, blocks = order.window(blocks, random_state)
            assert len(rows) <= WINDOW
            assert len(np.unique(rows // BLOCK)) <= WINDOW // BLOCK
            assert np.any(np.diff(rows) < 0)
            epoch, n_windows = [*epoch, *rows], n_windows + 1
        assert n_windows == -(-len(table.starts) // (WINDOW // BLOCK))
        assert_array_equal(np.sort(epoch), np.arange(N))


def test_up_to_one_window_an_epoch_is_one_whole_permutation():
    table = svgp.Table(X[:WINDOW], Y[None, :WINDOW], np.ones(WINDOW))
    rows, _ = windows.Order(table).window(np.empty(0, int), np.random.RandomState(3))
    assert_array_equal(rows, np.random.RandomState(3).permutation(WINDOW))


@pytest.mark.parametrize("weight", [None, WEIGHT])
def test_a_stream_reads_what_the_table_in_memory_holds(weight):
    table, _ = long_table_of(X, Y, weight)
    streams = [batches.BatchStream(each, 16, 0, 0, np.random.RandomState(0)) for each in (table, table.in_memory())]
    if weight is None:
        for _ in range(4):
            first, second = map(next, streams)
            for one, other in zip(first, second, strict=True):
                assert (one is None) == (other is None)
                assert one is None or np.array_equal(one, other)
    stream = streams[0]
    position, expected = stream.position, next(stream)
    again = batches.BatchStream(table, 16, 0, 0, np.random.RandomState(9))
    again.go_to(position)
    assert_array_equal(next(again).X, expected.X)
    for each in (*streams, again):
        each.close()


def test_rows_without_weight_or_target_are_left_out():
    y = np.where(np.arange(N) % 7 == 3, np.nan, Y)
    table, _ = long_table_of(X, y, WEIGHT)
    used = (WEIGHT > 0.0) & ~np.isnan(y)
    whole = table.in_memory()
    assert (table.n_rows, table.total_weight) == (used.sum(), pytest.approx(WEIGHT[used].sum(), rel=1e-14))
    assert_array_equal(whole.X, X[used])
    assert_array_equal(whole.y[0], y[used])
    some = RNG.permutation(table.n_rows)[:50]
    assert_array_equal(table.rows(some).X, X[used][some])
    for size in (17, BLOCK, 100):
        parts = list(table.blocks(size))
        assert_array_equal(np.concatenate([part.X for part in parts]), X[used])
        assert {part.n_rows for part in parts[:-1]} == {size}


# -- one pass over the rows --------------------------------------------------------------------


@pytest.mark.parametrize("weighted", [False, True])
def test_streamed_scales_are_those_of_numpy_also_far_from_zero(weighted):
    n = 5000
    table = np.column_stack(
        [
            1e8 + RNG.normal(size=n),
            -1e12 + RNG.normal(size=n),
            RNG.lognormal(0.0, 4.0, n),
            1e-100 * RNG.normal(size=n),
            1e150 * RNG.normal(size=n),
            np.full(n, 3.7),
        ]
    )
    weight = RNG.uniform(0.1, 3.0, n) if weighted else np.ones(n)
    moments, start = Moments(table.min(0), table.max(0)), 0
    while start < n:
        stop = start + int(RNG.integers(1, 400))
        moments.add(table[start:stop], weight[start:stop])
        start = stop
    mean, deviation = moments.result
    exact = table.astype(np.longdouble)
    centre = np.average(exact, axis=0, weights=weight.astype(np.longdouble))
    spread = np.sqrt(np.average((exact - centre) ** 2, axis=0, weights=weight.astype(np.longdouble)))
    assert np.all(np.abs(mean - centre) <= 1e-12 * spread + np.spacing(np.abs(centre.astype(float))))
    assert_allclose(deviation[:-1], spread.astype(float)[:-1], rtol=1e-12)
    assert deviation[-1] == 0.0
    held = fit_scale("X", table, weight, active=True)
    assert np.all(np.abs(mean - held.offset) <= 1e-12 * spread + 2.0 * np.spacing(np.abs(mean)))
    assert_allclose(deviation[:-1], held.scale[:-1], rtol=1e-12)


@pytest.mark.slow
@pytest.mark.parametrize("n_targets", [1, 2])
def test_scales_of_a_fit_are_those_of_the_table_in_memory(n_targets, monkeypatch):
    table = np.column_stack([1e8 + X[:, 0].astype(float), 5.0 + np.spacing(5.0) * RNG.integers(0, 3, N)])
    y = np.column_stack([1e6 + Y, np.where(np.arange(N) % 3, Y, np.nan)])[:, :n_targets]
    fits = []
    for window in (WINDOW, 10 * N):
        monkeypatch.setattr(rows_module, "WINDOW_ROWS", window)
        fits.append(regressor(missing_targets="ignore", max_iter=20).fit(table, y, WEIGHT))
    for name in ("_x_scale", "_y_scale"):
        for one, other in zip(*(getattr(fit, name) for fit in fits), strict=True):
            assert (one is None) == (other is None)
            assert one is None or np.allclose(one, other, rtol=1e-12, atol=0.0, equal_nan=True)
    # The second column is constant up to rounding.
    assert np.isfinite(fits[0]._x_scale.spans[0]).tolist() == [False, True]


def test_labels_are_counted_by_blocks():
    labels = RNG.choice(["cat", "dog", "eel"], N)
    table = rows_of("X", X)
    found, totals = class_labels.by_label(inputs.labels(labels, table), inputs.weights(WEIGHT, table))
    values, position = np.unique(labels, return_inverse=True)
    assert_array_equal(found, values)
    assert_allclose(totals, np.bincount(position, WEIGHT), rtol=1e-14)


@pytest.mark.parametrize(("likelihood", "value"), [("poisson", 2.5), ("beta", 1.5)])
def test_impossible_targets_are_found_wherever_they_are(likelihood, value):
    y = RNG.poisson(2.0, N).astype(float) if likelihood == "poisson" else RNG.uniform(0.1, 0.9, N)
    y[N - 3] = value
    with pytest.raises(ValueError, match=f"y must hold.*{value}"):
        regressor(likelihood=likelihood).fit(X, y)


def test_sums_over_blocks_are_those_of_the_table_in_memory(x64):
    table, _ = long_table_of(X, np.column_stack([Y, np.where(Y > 1.0, np.nan, Y)]), WEIGHT)
    whole = table.in_memory()
    plan = svgp.Plan(kernels=(RBF(0.8),), n_inducing=8, likelihood=svgp.Plan().likelihood.prepare(whole.y, 0))
    init, constants = state.init(plan, whole, np.random.RandomState(0))
    prior = system.prior_of(init.parameters, constants.masks, constants.jitter)
    found, expected = (closed_form.sums_of(init.parameters, prior, constants, each) for each in (table, whole))
    for one, other in zip(found, expected, strict=True):
        assert_allclose(one, other, rtol=1e-12, atol=1e-12)


# -- fits ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["memmap", "fortran", "dataset"])
@pytest.mark.parametrize("window", [WINDOW, 10 * N])
def test_a_file_and_the_same_array_give_the_same_bits(tmp_path, monkeypatch, kind, window):
    monkeypatch.setattr(rows_module, "WINDOW_ROWS", window)
    file = {
        "memmap": lambda name, array: mapped(tmp_path, name, array),
        "fortran": lambda name, array: mapped(tmp_path, name, np.asfortranarray(array)),
        "dataset": lambda name, array: Dataset(array),
    }[kind]
    known = {"offset": 0.1 * X[:, 1].astype(float), "alpha": 0.01 + 0.01 * np.abs(Y)}
    held = regressor().fit(X, Y, WEIGHT, **known)
    in_file = {name: file(name, value) for name, value in known.items()}
    read = regressor().fit(file("X", X), file("y", Y), file("w", WEIGHT), **in_file)
    assert_same_fit(held, read)
    assert_array_equal(held.predict(X), read.predict(X))
    assert_array_equal(held._x_scale.scale, read._x_scale.scale)
    # Only X in a file, and only y.
    assert_same_fit(held, regressor().fit(file("X", X), Y, WEIGHT, **known))
    assert_same_fit(held, regressor().fit(X, file("y", Y), WEIGHT, **known))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("likelihood", "known"),
    [("binomial", {"trials": 9}), (likelihoods.Censored(-0.5, 0.5), {})],
    ids=["trials", "limits"],
)
def test_what_is_known_of_the_rows_of_long_tables(tmp_path, monkeypatch, likelihood, known):
    """Of each row, or of all of them."""
    monkeypatch.setattr(rows_module, "WINDOW_ROWS", WINDOW)
    y = np.clip(np.sin(Y), -0.5, 0.5)
    if known:
        known = {"trials": 1 + np.arange(N) % 9}
        y = np.round(known["trials"] * (y + 0.5))
    model = regressor().set_params(likelihood=likelihood, max_iter=10)
    held = clone(model).fit(X, y, **known)
    in_file = {name: mapped(tmp_path, name, value) for name, value in known.items()}
    read = clone(model).fit(mapped(tmp_path, "X", X), mapped(tmp_path, "y", y), **in_file)
    assert_same_fit(held, read)
    in_file = {name: mapped(tmp_path, name, value) for name, value in known.items()}
    assert_array_equal(held.predict(X, **known), read.predict(mapped(tmp_path, "new", X), **in_file))
    assert np.all((held.predict(X) >= -0.5) & (held.predict(X) <= 1.0))
    if known:
        with pytest.raises(ValueError, match="is more than its number of trials, 1; give y as counts of successes"):
            clone(model).fit(X, y)


@pytest.mark.slow
@pytest.mark.parametrize("window", [WINDOW, 10 * N])
def test_labels_in_a_file_give_the_same_bits(tmp_path, monkeypatch, window):
    monkeypatch.setattr(rows_module, "WINDOW_ROWS", window)
    labels = np.array(["a", "b", "c"])[(X[:, 0] > 0).astype(int) + (X[:, 1] > 1)]
    held = classifier(class_weight="balanced").fit(X, labels, WEIGHT)
    read = classifier(class_weight="balanced").fit(mapped(tmp_path, "X", X), mapped(tmp_path, "y", labels), WEIGHT)
    assert_same_fit(held, read)
    assert_array_equal(held.predict_proba(X), read.predict_proba(X))
    assert read.classes_.dtype == held.classes_.dtype
    assert held.score(X, labels) > 0.8


@pytest.mark.slow
def test_a_fit_in_one_step_streams_and_predicts_as_well_as_in_memory(tmp_path, monkeypatch):
    model = NGDSVGPRegressor(n_inducing=30, solver="evidence", random_state=0)
    read = clone(model).fit(mapped(tmp_path, "X", X), mapped(tmp_path, "y", Y))
    assert_same_fit(clone(model).fit(X, Y), read)
    monkeypatch.setattr(rows_module, "WINDOW_ROWS", 10 * N)
    held = model.fit(X, Y)
    density = [each.predict_log_density(X, Y).mean() for each in (read, held)]
    assert density[0] == pytest.approx(density[1], abs=0.1)


def test_labels_of_long_tables_are_not_solved_at_once():
    for columns, solver in ((np.zeros((WINDOW, 1)), "evidence"), (np.zeros((WINDOW + 1, 1)), "ngd")):
        targets = Targets(columns, None, [np.dtype(int)], "bernoulli", 2, False, {})
        assert reading.read(NGDSVGPClassifier(), targets).settings.algorithm.solver == solver
    numbers = targets._replace(default_likelihood="gaussian", n_classes=0)
    assert reading.read(NGDSVGPRegressor(), numbers).settings.algorithm.solver == "evidence"


@pytest.mark.slow
def test_the_exact_mean_streams(tmp_path):
    exact = {"mean_solver": "exact", "n_mean_inducing": 20}
    held, read = regressor(**exact).fit(X, Y), regressor(**exact).fit(mapped(tmp_path, "X", X), Y)
    assert_same_fit(held, read)
    assert held.score(X, Y) > 0.9


@pytest.mark.slow
def test_the_exact_mean_of_all_rows_is_that_of_the_table_in_memory(x64):
    table, _ = long_table_of(X, Y)
    whole = table.in_memory()
    plan = svgp.Plan(kernels=(RBF(0.8),), n_inducing=8, n_mean_inducing=20)
    init, constants = state.init(plan._replace(n_mean_inducing=0), whole, np.random.RandomState(0))
    parameters, constants = inducing_points.add_mean_only(
        plan, whole, init.parameters, constants, np.random.RandomState(1)
    )
    prior = system.prior_of(parameters, constants.masks, constants.jitter)
    start = mean_system.Iterate(np.zeros((1, len(prior.points))), init.q)
    found, expected = (mean_system.pass_over(parameters, prior, start, constants, each) for each in (table, whole))
    for one, other in zip(found, expected, strict=True):
        assert_allclose(one, other, rtol=1e-11, atol=1e-11)


@pytest.mark.slow
def test_a_sorted_file_is_learned_like_a_table_shuffled_as_a_whole(monkeypatch):
    rng, densities = np.random.default_rng(0), []
    table = rng.normal(size=(4000, 2))
    y = np.sin(2.0 * table[:, 0]) + 0.1 * rng.normal(size=4000)
    order = np.argsort(table[:, 0])
    monkeypatch.setattr(rows_module, "BLOCK_ROWS", 8)
    for window in (1024, 10_000):
        monkeypatch.setattr(rows_module, "WINDOW_ROWS", window)
        model = regressor(max_iter=300, inducing_init=table[:20], n_inducing=20, batch_size=64)
        model.fit(Dataset(table[order]), Dataset(y[order]))
        densities.append(model.predict_log_density(table, y).mean())
    assert densities[0] > densities[1] - 0.1


@pytest.mark.slow
def test_partial_fit_takes_rows_from_files(tmp_path):
    half, X_file, y_file = N // 2, mapped(tmp_path, "X", X), mapped(tmp_path, "y", Y)
    held, read = regressor(), regressor()
    for rows in (slice(0, half), slice(half, N)):
        held.partial_fit(X[rows], Y[rows])
        read.partial_fit(X_file[rows], y_file[rows])
    assert_same_fit(held, read)


@pytest.mark.slow
def test_a_batch_of_all_rows_is_the_whole_table(tmp_path, monkeypatch):
    read = regressor(batch_size=None, max_iter=20).fit(mapped(tmp_path, "X", X), Y)
    monkeypatch.setattr(rows_module, "WINDOW_ROWS", 10 * N)
    assert_same_fit(regressor(batch_size=None, max_iter=20).fit(X, Y), read)


@pytest.mark.slow
def test_single_precision_is_converted_as_rows_are_read(tmp_path):
    settings = {"dtype": "float32", "jitter": 1e-6}
    assert_same_fit(regressor(**settings).fit(X, Y), regressor(**settings).fit(mapped(tmp_path, "X", X), Y))


# -- memory --------------------------------------------------------------------------------------


class Made:
    """A table of any length whose rows are computed when they are asked for, and are nowhere else."""

    def __init__(self, n_rows, n_columns=None):
        self.shape = (n_rows,) if n_columns is None else (n_rows, n_columns)
        self.dtype, self.ndim, self.largest, self.n_read = np.dtype(float), len(self.shape), 0, 0

    def __len__(self):
        return self.shape[0]

    def __getitem__(self, rows):
        index = np.arange(rows.start, rows.stop)
        self.largest, self.n_read = max(self.largest, len(index)), self.n_read + len(index)
        phase = index * 0.6180339887 % 1.0
        if self.ndim == 1:
            return np.sin(6.0 * phase)
        return np.sin(np.outer(1.0 + phase, 1.0 + np.arange(self.shape[1])) * 40.0) + phase[:, None]


@pytest.mark.slow
@pytest.mark.parametrize("solver", ["ngd", "evidence"])
def test_memory_does_not_grow_with_the_rows(monkeypatch, solver):
    monkeypatch.setattr(rows_module, "BLOCK_ROWS", 256)
    monkeypatch.setattr(rows_module, "WINDOW_ROWS", 2048)
    monkeypatch.setattr(evidence, "ROWS", 100)
    monkeypatch.setattr(OneStep, "batch_size", 100)
    # The process of deviations that vary with X has five hundred points of its own.
    model = NGDSVGPRegressor(RBF(), n_inducing=8, random_state=0, solver=solver, calibrate=False)
    if solver == "ngd":
        model.set_params(max_iter=40, tol=0.0, batch_size=64)
    else:
        # Predictions from neighbours hold all rows, if there is memory for them.
        model.set_params(n_neighbors=0)
        monkeypatch.setattr(long_table, "SAMPLE_ROWS", 4000)
        monkeypatch.setattr(system, "_AT_ONCE", 2)
    peaks = []
    model.fit(Made(4000, 10), Made(4000))
    for n in (8000, 80_000):
        X, y = Made(n, 10), Made(n)
        tracemalloc.start()
        model.fit(X, y)
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
        assert max(X.largest, y.largest) <= 256
        assert X.n_read < 20 * n
    # Some blocks, a window or two, and matrices of the points: X alone has 0.64 MB and 6.4 MB.
    assert max(peaks) < 3_000_000


def test_minibatches_hold_two_windows_at_most():
    table, _ = long_table_of(X, Y)
    stream = batches.BatchStream(table, 2, 0, 0, np.random.RandomState(0))
    for _ in range(40):
        next(stream)
        stream.prepare()
        assert len(stream.reader._read) <= 3 * WINDOW // BLOCK
    stream.close()


# -- damaged files ---------------------------------------------------------------------------------


def truncate(folder, name, n_rows):
    path = folder / f"{name}.npy"
    os.truncate(path, path.stat().st_size - n_rows * X.dtype.itemsize * X.shape[1])


@pytest.mark.parametrize("mode", ["r", "c"])
def test_a_truncated_file_is_named_with_its_row(tmp_path, mode):
    mapped(tmp_path, "X", X)
    table = np.load(tmp_path / "X.npy", mmap_mode=mode)
    # More than a page, whose reading would end the process by a signal.
    truncate(tmp_path, "X", 600)
    with pytest.raises(OSError, match=rf"X: the file of '.*X\.npy' ends at row 100 of {N}"):
        regressor().fit(table, Y)


@pytest.mark.parametrize("window", [WINDOW, 10 * N])
def test_a_failing_reader_is_named_with_its_rows(monkeypatch, window):
    monkeypatch.setattr(rows_module, "WINDOW_ROWS", window)
    with pytest.raises(OSError, match=r"X: the rows from \d+ to \d+ cannot be read \(ValueError: checksum"):
        regressor().fit(Dataset(X, fails_at=333), Y)


def test_an_unreadable_file_in_a_prediction_has_no_checkpoint():
    model = regressor(max_iter=2).fit(X[:50], Y[:50])
    with pytest.raises(OSError, match=r"X: the rows from \d+ to \d+ cannot be read \(ValueError: checksum") as caught:
        model.predict(Dataset(X, fails_at=333))
    told = [str(caught.value), *getattr(caught.value, "__notes__", [])]
    assert not any("checkpoint" in text for text in told)


def test_a_fit_whose_file_is_truncated_goes_on_once_it_is_restored(tmp_path, monkeypatch):
    monkeypatch.setattr(checkpoint, "_TIMES_LAST_WRITE", 0.0)
    table, path = mapped(tmp_path, "X", X), tmp_path / "fit.npz"
    settings = {"checkpoint": path, "checkpoint_every": 0, "max_iter": 100}
    expected = regressor(max_iter=100).fit(table, Y)
    before = (tmp_path / "X.npy").read_bytes()

    def damage(n_iter, model):
        if n_iter == 40:
            truncate(tmp_path, "X", 690)

    with pytest.raises(OSError, match=f"ends at row 10 of {N}") as caught:
        regressor(callback=damage, **settings).fit(table, Y)
    assert "the same call goes on from there" in caught.value.__notes__[0]
    assert path.exists()
    (tmp_path / "X.npy").write_bytes(before)
    steps = []
    resumed = regressor(callback=lambda n_iter, model: steps.append(n_iter), **settings).fit(table, Y)
    assert steps[0] > 20
    assert_same_fit(expected, resumed)
    assert not path.exists()


@pytest.mark.slow
@pytest.mark.parametrize("likelihood", ["gaussian", "student_t"])
def test_an_interrupted_fit_goes_on_to_the_same_bits_from_a_file_or_an_array(tmp_path, monkeypatch, likelihood):
    monkeypatch.setattr(checkpoint, "_TIMES_LAST_WRITE", 0.0)
    settings = {"checkpoint": tmp_path / "fit.npz", "checkpoint_every": 0, "likelihood": likelihood}
    expected = regressor(likelihood=likelihood).fit(X, Y)

    def interrupt(n_iter, model):
        if n_iter == 40:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        regressor(callback=interrupt, **settings).fit(mapped(tmp_path, "X", X), Y)
    other = X.copy()
    other[-1, 0] += 1.0
    with pytest.raises(ValueError, match=r"differs in X \("):
        regressor(**settings).fit(other, Y)
    assert_same_fit(expected, regressor(**settings).fit(X, Y))


def test_bad_values_are_named_wherever_they_are(tmp_path):
    bad = X.copy()
    bad[611, 1] = np.nan
    with pytest.raises(ValueError, match=r"X\[611, 1\]=nan is not finite"):
        regressor().fit(mapped(tmp_path, "bad", bad), Y)
    y = Y.copy()
    y[612] = np.inf
    with pytest.raises(ValueError, match=r"y\[612\]=inf is not finite"):
        regressor().fit(X, mapped(tmp_path, "y", y))
    weight = WEIGHT.copy()
    weight[613] = -1.0
    with pytest.raises(ValueError, match=r"sample_weight\[613\]=-1 is negative"):
        regressor().fit(X, Y, mapped(tmp_path, "w", weight))
    labels = np.where(np.arange(N) == 614, np.nan, X[:, 0] > 0)
    with pytest.raises(ValueError, match=r"y\[614\]=nan"):
        classifier().fit(X, mapped(tmp_path, "labels", labels))
    with pytest.raises(ValueError, match="inconsistent"):
        regressor().fit(mapped(tmp_path, "X", X), Y[:-1])
    with pytest.raises(ValueError, match="2D array"):
        regressor().fit(mapped(tmp_path, "y", Y), Y)
    with pytest.raises(ValueError, match="zero for every row"):
        regressor().fit(X, Y, mapped(tmp_path, "w", np.zeros(N)))
    with pytest.raises(ValueError, match="requires y"):
        regressor().fit(mapped(tmp_path, "X", X), None)
    table = Dataset(X)
    table.shape = (np.nan, 2)
    with pytest.raises(ValueError, match="compute_chunk_sizes"):
        regressor().fit(table, Y)


# -- prediction ------------------------------------------------------------------------------------


@pytest.mark.parametrize("n_rows", [7, 129, 128 * 3 + 5, 600])
def test_predictions_at_rows_in_a_file_are_written_by_blocks(tmp_path, monkeypatch, n_rows):
    monkeypatch.setattr(by_blocks, "_ROWS", 128)
    model, table = regressor(max_iter=20).fit(X[:100], Y[:100]), Dataset(X[:n_rows])
    out = np.lib.format.open_memmap(tmp_path / "out.npy", "w+", float, (n_rows,))
    assert model.predict(table, out=out) is out
    assert_array_equal(out, model.predict(X[:n_rows]))
    assert max(rows.stop - rows.start for rows in table.asked) <= 128 + 8
    both = np.empty(n_rows), np.empty(n_rows)
    assert model.predict(table, return_std=True, out=both) is both
    for found, expected in zip(both, model.predict(X[:n_rows], True), strict=True):
        assert_array_equal(found, expected)
    for name, arguments in [("predict_log_density", (Y[:n_rows],)), ("predict_quantiles", ([0.1, 0.9],))]:
        method = getattr(model, name)
        assert_array_equal(method(table, *arguments), method(X[:n_rows], *arguments))
    offset = 0.1 * X[:n_rows, 1]
    assert_array_equal(model.predict(table, offset=Dataset(offset)), model.predict(X[:n_rows], offset=offset))


@pytest.mark.slow
def test_class_probabilities_at_rows_in_a_file(tmp_path, monkeypatch):
    monkeypatch.setattr(by_blocks, "_ROWS", 128)
    labels = np.where(X[:, 0] > 0, "yes", "no")
    model, table = classifier(max_iter=20).fit(X[:100], labels[:100]), mapped(tmp_path, "X", X)
    out = np.empty((N, 2), np.float32)
    assert model.predict_proba(table, out=out) is out
    assert_array_equal(out, model.predict_proba(X).astype(np.float32))
    assert_array_equal(model.predict(table), model.predict(X))
    assert_array_equal(model.decision_function(table), model.decision_function(X))


def test_out_must_hold_the_predictions(tmp_path, monkeypatch):
    monkeypatch.setattr(by_blocks, "_ROWS", 128)
    model, table = regressor(max_iter=20).fit(X[:100], Y[:100]), mapped(tmp_path, "X", X)
    for out in (np.empty(N - 1), np.empty((N, 1)), np.empty(N, int), [0.0] * N):
        with pytest.raises(ValueError, match="out must be an array"):
            model.predict(table, out=out)
        with pytest.raises(ValueError, match="out must be an array"):
            model.predict(X, out=out)
    out = np.empty(N)
    assert_array_equal(model.predict(X, out=out), model.predict(X))
    with pytest.raises(ValueError, match="offset has 3 rows"):
        model.predict(table, offset=np.zeros(3))
    bad = X.copy()
    bad[650, 0] = np.inf
    with pytest.raises(ValueError, match=r"X\[650, 0\]=inf"):
        model.predict(mapped(tmp_path, "bad", bad))


@pytest.mark.slow
def test_errors_of_a_block_name_the_rows_of_the_file(tmp_path, monkeypatch):
    monkeypatch.setattr(by_blocks, "_ROWS", 128)
    model = regressor(max_iter=20).set_params(kernel=DotProduct()).fit(X[:100], Y[:100])
    far, bad = X.astype(float), Y.copy()
    far[[300, 301]], bad[650] = 1e160, np.nan
    with pytest.raises(FloatingPointError, match=r"2 of 128 rows of X, the first of which is X\[300\]"):
        model.predict(mapped(tmp_path, "far", far), return_std=True)
    table = mapped(tmp_path, "X", X)
    with pytest.raises(ValueError, match=r"y\[650\]=nan"):
        model.predict_log_density(table, bad)
    with pytest.raises(ValueError, match=r"offset\[650\]=nan"):
        model.predict(table, offset=bad)
    with pytest.raises(ValueError, match=r"y\[650\] is masked"):
        model.predict_log_density(table, np.ma.masked_invalid(bad))


@pytest.mark.slow
def test_out_of_a_type_that_cuts_labels_is_refused():
    labels = np.where(X[:100, 0] > 0, "positive", "no")
    model = classifier(max_iter=20).fit(X[:100], labels)
    with pytest.raises(ValueError, match="out, of type <U3, does not hold all labels; give one of type <U8"):
        model.predict(X, out=np.empty(N, "U3"))
    numbers = classifier(max_iter=20).fit(X[:100], np.where(labels == "no", 7, 1000))
    with pytest.raises(ValueError, match="out, of type int8, does not hold all labels"):
        numbers.predict(X, out=np.empty(N, np.int8))
    out = np.empty(N, np.int16)
    assert_array_equal(numbers.predict(X, out=out), numbers.predict(X))


def test_masked_values_of_slices_are_refused():
    """As of a masked array in memory: what is behind a mask is no number."""
    y = np.ma.masked_array(Y[:N], mask=np.arange(N) == 3)
    with pytest.raises(ValueError, match=r"y: values among the rows from \d+ to \d+ are masked"):
        regressor(max_iter=20).fit(X, Dataset(y))


# -- files of other packages -----------------------------------------------------------------------


def datasets(name, folder):
    """X and y as arrays of another package."""
    module = pytest.importorskip(name, reason=f"{name} is not installed")
    if name == "h5py":
        file = module.File(folder / "data.h5", "w")
        return [file.create_dataset(key, data=value, chunks=True) for key, value in (("X", X), ("y", Y))]
    if name == "zarr":
        found = []
        for key, value in (("X", X), ("y", Y)):
            array = module.create_array(
                store=str(folder / f"{key}.zarr"), shape=value.shape, dtype=value.dtype, chunks=(50, *value.shape[1:])
            )
            array[:] = value
            found.append(array)
        return found
    arrays = pytest.importorskip("dask.array", reason="dask is not installed")
    return [arrays.from_array(value, chunks=50) for value in (X, Y)]


@pytest.mark.parametrize("name", ["h5py", "zarr", "dask"])
def test_arrays_of_other_packages(tmp_path, name):
    X_file, y_file = datasets(name, tmp_path)
    model = regressor(max_iter=20).fit(X_file, y_file)
    assert_same_fit(regressor(max_iter=20).fit(X, Y), model)
    assert_array_equal(model.predict(X_file), model.predict(X))


@pytest.mark.parametrize("n_rows", [100, N])
def test_a_memory_map_whose_file_was_removed_or_replaced_is_read_as_it_is_mapped(n_rows, tmp_path):
    removed, replaced = mapped(tmp_path, "removed", X[:n_rows]), mapped(tmp_path, "replaced", X[:n_rows])
    os.remove(tmp_path / "removed.npy")
    np.save(tmp_path / "other.npy", X[:n_rows] + 1.0)
    os.replace(tmp_path / "other.npy", tmp_path / "replaced.npy")
    expected = regressor(max_iter=20).fit(X[:n_rows], Y[:n_rows])
    for table in (removed, replaced):
        assert_same_fit(regressor(max_iter=20).fit(table, Y[:n_rows]), expected)


@pytest.mark.parametrize("model", [regressor(), classifier()], ids=type)
def test_a_long_table_needs_a_y(model):
    with pytest.raises(ValueError, match="requires y to be passed, but the target y is None"):
        model.fit(X, None)


def test_a_target_that_the_sample_has_not_seen_is_filled_with_its_own_values():
    y = np.stack([Y, np.where(np.arange(N) == 650, 3.5, np.nan)])

    def read(start, stop):
        return svgp.Table(X[start:stop].astype(float), y[:, start:stop], np.ones(stop - start))

    table = svgp.LongTable(read, N)
    # As if the one row with a value were not among the sample's.
    sample = table.sample
    vars(table)["sample"] = sample._replace(y=np.stack([sample.y[0], np.full(sample.n_rows, np.nan)]))
    assert np.all(table.filled_y[1] == 3.5)
