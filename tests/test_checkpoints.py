"""A fit that was interrupted goes on from its file, to the same bits."""

import copy
import os

import numpy as np
import pytest
from numpy.testing import assert_array_equal
from sklearn.gaussian_process.kernels import RBF
from sklearn.model_selection import cross_val_score

from skgp_natgrad import Constant, LineSearch, NGDSVGPClassifier, NGDSVGPRegressor
from skgp_natgrad.mean_solve import exact_mean
from skgp_natgrad.step import chunk
from skgp_natgrad.training import checkpoint

pytestmark = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")

RNG = np.random.default_rng(3)
X = RNG.normal(size=(300, 2))
Y = np.sin(2 * X[:, 0]) + 0.1 * RNG.normal(size=300)
MINIBATCH = {"batch_size": 64, "n_mean_inducing": 6}


@pytest.fixture(autouse=True)
def _at_every_chunk(monkeypatch):
    monkeypatch.setattr(checkpoint, "SECONDS_BETWEEN", 0.0)
    monkeypatch.setattr(checkpoint, "_TIMES_LAST_WRITE", 0.0)


@pytest.fixture
def path(tmp_path):
    return tmp_path / "fit.npz"


def regressor(**kwargs):
    return NGDSVGPRegressor(RBF(0.8), **{"n_inducing": 8, "max_iter": 70, "tol": 0.0, "random_state": 0, **kwargs})


def raise_at(iteration, error=KeyboardInterrupt):
    def callback(n_iter, model):
        if n_iter >= iteration:
            raise error

    return callback


def interrupt(model, y=Y, iteration=40, error=KeyboardInterrupt):
    """Fit a copy that a callback interrupts."""
    with pytest.raises(error):
        copy.deepcopy(model).set_params(callback=raise_at(iteration, error)).fit(X, y)


def assert_same(model, other):
    assert model.n_iter_ == other.n_iter_
    assert model.elbo_ == other.elbo_
    for name in ("elbo_curve_", "step_sizes_", "inducing_points_", "mean_inducing_points_"):
        assert_array_equal(getattr(model, name), getattr(other, name))
    predict = "predict_proba" if hasattr(model, "predict_proba") else "predict"
    assert_array_equal(getattr(model, predict)(X), getattr(other, predict)(X))


@pytest.mark.parametrize(
    "options",
    [
        MINIBATCH,
        {"optimizer": "amsgrad", "n_mean_inducing": 4, "learning_rate": Constant(0.5)},
        {**MINIBATCH, "solver": "adam", "parameterization": "mean_var_sqrt"},
        {**MINIBATCH, "mean_solver": "exact"},
        {"gamma_schedule": LineSearch(precision=0.3)},
    ],
    ids=["minibatch", "full", "adam", "exact", "line_search"],
)
def test_a_regressor_goes_on_to_the_same_bits(options, path):
    model = regressor(**options, checkpoint=path)
    interrupt(model)
    size = path.stat().st_size
    seen = []
    model.set_params(callback=lambda n_iter, fitted: seen.append(n_iter)).fit(X, Y)
    assert size > 0
    assert seen[0] == 40  # the chunk whose callback raised is repeated, none before it
    assert not list(path.parent.iterdir())
    assert_same(model, regressor(**options).fit(X, Y))


@pytest.mark.parametrize("batch_size", [64, 1024])
def test_a_classifier_goes_on_from_a_path_in_a_string(batch_size, path):
    labels = np.where(Y > 0.4, "high", np.where(Y > -0.4, "middle", "low"))
    options = {"n_inducing": 8, "max_iter": 60, "batch_size": batch_size, "class_weight": {"low": 2.0, "high": 1.0}}
    model = NGDSVGPClassifier(**options, checkpoint=str(path), random_state=1)
    interrupt(model, labels)
    assert path.exists()
    assert_same(model.fit(X, labels), NGDSVGPClassifier(**options, random_state=1).fit(X, labels))


@pytest.mark.parametrize("as_instance", [False, True])
def test_without_a_seed_the_random_numbers_are_those_of_the_file(as_instance, path):
    def seeded(seed):
        if as_instance:
            return regressor(**MINIBATCH, checkpoint=path, random_state=np.random.RandomState(seed))
        np.random.seed(seed)  # noqa: NPY002
        return regressor(**MINIBATCH, checkpoint=path, random_state=None)

    whole = seeded(5).fit(X, Y)
    interrupt(seeded(5))
    resumed = seeded(99)
    before = np.random.get_state(legacy=False)["state"]["key"]  # noqa: NPY002
    assert_same(resumed.fit(X, Y), whole)
    assert_array_equal(np.random.get_state(legacy=False)["state"]["key"], before)  # noqa: NPY002


def test_interrupted_again_and_again(path):
    model = regressor(**MINIBATCH, checkpoint=path, max_iter=110)
    for iteration in (20, 60, 60, 100):  # at 20 there is no file yet
        interrupt(model, iteration=iteration, error=RuntimeError if iteration == 60 else KeyboardInterrupt)
    assert_same(model.fit(X, Y), regressor(**MINIBATCH, max_iter=110).fit(X, Y))


def test_interrupted_in_the_middle_of_a_chunk_and_after_training(path, monkeypatch):
    model = regressor(**MINIBATCH, mean_solver="exact", checkpoint=path)
    chunks, run_chunk = [], chunk.run_chunk

    def third_fails(*args):
        chunks.append(args)
        if len(chunks) == 3:
            raise KeyboardInterrupt
        return run_chunk(*args)

    def no_memory(*args):
        raise MemoryError

    solve = exact_mean.solve
    monkeypatch.setattr(chunk, "run_chunk", third_fails)
    with pytest.raises(KeyboardInterrupt):
        model.fit(X, Y)
    monkeypatch.setattr(chunk, "run_chunk", run_chunk)
    monkeypatch.setattr(exact_mean, "solve", no_memory)
    with pytest.raises(MemoryError):
        model.fit(X, Y)
    monkeypatch.setattr(exact_mean, "solve", solve)
    # Training is complete: only a step of size zero, which looks at the last state, and the solve are left.
    monkeypatch.setattr(chunk, "run_chunk", lambda *args: sizes.append(args[3:5]) or run_chunk(*args))
    sizes = []
    model.fit(X, Y)
    assert len(sizes) == 1
    assert not np.any(sizes)
    monkeypatch.setattr(chunk, "run_chunk", run_chunk)
    assert_same(model, regressor(**MINIBATCH, mean_solver="exact").fit(X, Y))


def test_what_a_callback_answered_is_remembered(path, monkeypatch):
    """Ended by the callback, and killed before the file was deleted."""
    model = regressor(**MINIBATCH, checkpoint=path, callback=lambda n_iter, fitted: n_iter >= 40)
    with monkeypatch.context() as patch:
        patch.setattr(checkpoint.Checkpoint, "remove", lambda self: raise_at(0)(0, None))
        with pytest.raises(KeyboardInterrupt):
            model.fit(X, Y)
    assert model.set_params(callback=None).fit(X, Y).n_iter_ == 40


def test_a_warm_start_goes_on(path):
    first = regressor(**MINIBATCH, warm_start=True).fit(X, Y)
    whole = copy.deepcopy(first).fit(X, Y)
    model = first.set_params(checkpoint=path)
    interrupt(model)
    other = regressor(**MINIBATCH, warm_start=True, max_iter=20).fit(X, Y).set_params(checkpoint=path, max_iter=70)
    with pytest.raises(ValueError, match="differs in the previous fit, which the warm start continues"):
        other.fit(X, Y)
    assert_same(model.fit(X, Y), whole)


def test_one_path_serves_fits_one_after_the_other(path):
    scores = [cross_val_score(regressor(checkpoint=place), X, Y, cv=2, error_score="raise") for place in (path, None)]
    assert_array_equal(*scores)


# -- refusals -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "table", "message"),
    [
        ({"learning_rate": 0.01}, {}, r"differs in learning_rate \(0.02 in the file, 0.01 now\)\."),
        ({"kernel": RBF(0.9)}, {}, "differs in kernel"),
        ({"gamma_schedule": Constant(0.05)}, {}, "differs in gamma_schedule"),
        ({"random_state": 1}, {}, r"random_state \(0 in the file, 1 now\)"),
        ({}, {"X": X + 1e-12}, "differs in X"),
        ({}, {"y": Y + (np.arange(300) == 7)}, "differs in y"),
        ({}, {"sample_weight": np.full(300, 2.0)}, "differs in sample_weight"),
    ],
)
def test_another_fit_is_refused_and_the_file_left_alone(options, table, message, path):
    model = regressor(checkpoint=path)
    interrupt(model)
    content = path.read_bytes()
    with pytest.raises(ValueError, match=message) as caught:
        model.set_params(**options).fit(**{"X": X, "y": Y, **table})
    assert repr(str(path)) in str(caught.value)
    assert "delete the file" in str(caught.value)
    assert path.read_bytes() == content


def test_another_version_of_the_package_is_refused(path, monkeypatch):
    with monkeypatch.context() as patch:
        patch.setattr(checkpoint, "__version__", "0.0.1")
        interrupt(regressor(checkpoint=path))
    with pytest.raises(ValueError, match=r"skgp_natgrad \('0.0.1' in the file"):
        regressor(checkpoint=path).fit(X, Y)


def test_what_leaves_the_result_alone_may_change(path):
    interrupt(regressor(checkpoint=path))
    model = regressor(checkpoint=path, callback=lambda n_iter, fitted: None, learning_rate=np.float64(0.02), verbose=2)
    order = RNG.permutation(300)  # of a full batch
    assert_same(model.fit(X[order], Y[order]), regressor().fit(X, Y))


@pytest.mark.parametrize("damage", ["empty", "truncated", "garbage", "another archive", "pickled"])
def test_a_damaged_file_is_refused(damage, path):
    interrupt(regressor(checkpoint=path))
    content = path.read_bytes()
    if damage == "another archive":
        np.savez(path, x=np.ones(3))
    elif damage == "pickled":
        np.savez(path, header=np.array([{}], dtype=object))
    else:
        path.write_bytes({"empty": b"", "truncated": content[:-100], "garbage": RNG.bytes(5000)}[damage])
    with pytest.raises(ValueError, match=r"fit\.npz.*not a checkpoint of skgp_natgrad.*damaged.*Delete the file"):
        regressor(checkpoint=path).fit(X, Y)
    assert path.exists()


def test_no_wrong_byte_goes_unnoticed(path):
    interrupt(regressor(checkpoint=path))
    content, (header, arrays) = path.read_bytes(), checkpoint._read(path)
    n_refused = 0
    for position in RNG.integers(len(content), size=300):
        wrong = bytearray(content)
        wrong[position] ^= 1 << RNG.integers(8)
        path.write_bytes(wrong)
        try:
            read = checkpoint._read(path)
        except ValueError:
            n_refused += 1
            continue
        # A date of the archive, say, or the name or the number of its leaves: `saved` refuses another structure.
        assert read[0] == header
        for name in set(arrays) & set(read[1]):
            assert_array_equal(read[1][name], arrays[name])
    assert n_refused > 200


def test_another_function_as_a_schedule_is_another_fit(path):
    interrupt(regressor(checkpoint=path, gamma_schedule=lambda i: 0.1))
    with pytest.raises(ValueError, match="differs in gamma_schedule"):
        regressor(checkpoint=path, gamma_schedule=lambda i: 0.2).fit(X, Y)
    same = regressor(checkpoint=path, gamma_schedule=lambda i: 0.1).fit(X, Y)
    assert_same(same, regressor(gamma_schedule=lambda i: 0.1).fit(X, Y))


def test_another_structure_is_refused(path):
    interrupt(regressor(checkpoint=path))
    header, arrays = checkpoint._read(path)
    arrays["['more']"] = np.ones(2)
    checkpoint._replace(path, header, arrays)
    with pytest.raises(ValueError, match="another version of JAX"):
        regressor(checkpoint=path).fit(X, Y)


@pytest.mark.parametrize(
    ("checkpoint", "options", "message"),
    [
        (3, {}, "checkpoint=3 must be the path"),
        ("", {}, "checkpoint='' must be the path"),
        (".", {}, "checkpoint='.' is a folder"),
        (os.path.join("no", "such", "place"), {}, "which is not a folder; name a file in an existing folder"),
        ("file", {"solver": "lbfgs"}, "checkpoint='file' cannot be used with solver='lbfgs'"),
    ],
)
def test_a_bad_argument_is_refused_before_work_starts(checkpoint, options, message):
    def never(n_iter, model):
        raise AssertionError("it trained")

    with pytest.raises(ValueError, match=message):
        regressor(checkpoint=checkpoint, callback=never, **options).fit(X, Y)


# -- the file -----------------------------------------------------------------------------


@pytest.mark.parametrize("where", ["written", "replaced"])
def test_a_crash_while_writing_leaves_the_old_file(where, path, monkeypatch):
    model = regressor(**MINIBATCH, checkpoint=path)
    contents = []

    def crash(*args, **kwargs):
        contents.append(path.read_bytes() if path.exists() else None)
        if len(contents) < 3:
            return original(*args, **kwargs)
        if where == "written":
            args[0].write(b"half of a file")
        raise OSError("No space left on device")

    owner, name = {"written": (np, "savez"), "replaced": (os, "replace")}[where]
    original = getattr(owner, name)
    with monkeypatch.context() as patch:
        patch.setattr(owner, name, crash)
        with pytest.raises(OSError, match="No space"):
            model.fit(X, Y)
    assert contents[0] is None
    assert contents[1] != contents[2] == path.read_bytes()
    assert (path.parent / "fit.npz.part").exists()
    assert len(checkpoint._read(path)[1]["[1].elbo"]) == 40
    assert_same(model.fit(X, Y), regressor(**MINIBATCH).fit(X, Y))
    assert not list(path.parent.iterdir())


def test_it_is_written_now_and_then_and_at_the_end(path, monkeypatch):
    now, writes = [0.0], []
    monkeypatch.setattr(checkpoint, "SECONDS_BETWEEN", 5.0)
    monkeypatch.setattr(checkpoint, "_TIMES_LAST_WRITE", 20.0)
    monkeypatch.setattr(checkpoint.time, "monotonic", lambda: now[0])

    def replace(path, header, arrays):
        writes.append(now[0])
        now[0] += 0.5  # so that the next one is ten seconds off

    monkeypatch.setattr(checkpoint, "_replace", replace)
    file = checkpoint.Checkpoint(path, {})
    for second in range(32):
        now[0] = max(now[0], float(second))
        file.keep({}, {}, last=second == 31)
    assert writes == [5.0, 16.0, 27.0, 31.0]


def test_described_values_agree_between_processes():
    described = checkpoint.described
    assert described(RBF(0.5)) == described(RBF(np.float64(0.5))) != described(RBF())
    assert described({"b": 1, "a": 2}) == described({"a": np.int64(2), "b": 1})
    assert described(X) == described(X.copy()) != described(X.T)
    assert described(np.random.RandomState(0)) == described(np.random.RandomState(1))
