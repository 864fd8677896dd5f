"""A fit that was interrupted goes on from its file, to the same bits."""

import contextlib
import copy
import hashlib
import io
import os
import shutil
import zipfile
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from numpy.testing import assert_array_equal
from sklearn.gaussian_process.kernels import RBF
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.utils import check_random_state

from skgp_natgrad import Constant, LineSearch, NGDSVGPClassifier, NGDSVGPRegressor, svgp
from skgp_natgrad.solve import exact_mean
from skgp_natgrad.step import chunk
from skgp_natgrad.training import checkpoint, checkpoint_file

try:
    import resource
except ImportError:
    resource = None

pytestmark = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")

RNG = np.random.default_rng(3)
X = RNG.normal(size=(300, 2))
Y = np.sin(2 * X[:, 0]) + 0.1 * RNG.normal(size=300)
MINIBATCH = {"batch_size": 64, "n_mean_inducing": 6}


@pytest.fixture(autouse=True)
def _at_every_chunk(monkeypatch):
    monkeypatch.setattr(checkpoint, "_TIMES_LAST_WRITE", 0.0)


@pytest.fixture
def path(tmp_path):
    return tmp_path / "fit.npz"


def regressor(**kwargs):
    return NGDSVGPRegressor(
        RBF(0.8), **{"n_inducing": 8, "max_iter": 70, "tol": 0.0, "random_state": 0, "checkpoint_every": 0, **kwargs}
    )


def raise_at(iteration, error=KeyboardInterrupt):
    def callback(n_iter, model):
        if n_iter >= iteration:
            raise error

    return callback


def never(n_iter, model):
    raise AssertionError("it trained")


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


@pytest.mark.slow
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


@pytest.mark.slow
@pytest.mark.parametrize("batch_size", [64, 1024])
def test_a_classifier_goes_on_from_a_path_in_a_string(batch_size, path):
    labels = np.where(Y > 0.4, "high", np.where(Y > -0.4, "middle", "low"))
    options = {"n_inducing": 8, "max_iter": 60, "batch_size": batch_size, "class_weight": {"low": 2.0, "high": 1.0}}
    options["checkpoint_every"] = 0.0
    model = NGDSVGPClassifier(**options, checkpoint=str(path), random_state=1)
    interrupt(model, labels)
    assert path.exists()
    assert_same(model.fit(X, labels), NGDSVGPClassifier(**options, random_state=1).fit(X, labels))


@pytest.mark.slow
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


@pytest.mark.slow
def test_interrupted_again_and_again(path):
    model = regressor(**MINIBATCH, checkpoint=path, max_iter=110)
    for iteration in (20, 60, 60, 100):  # at 20 there is no file yet
        interrupt(model, iteration=iteration, error=RuntimeError if iteration == 60 else KeyboardInterrupt)
    assert_same(model.fit(X, Y), regressor(**MINIBATCH, max_iter=110).fit(X, Y))


@pytest.mark.slow
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


@pytest.mark.slow
def test_one_path_serves_fits_one_after_the_other(path):
    scores = [cross_val_score(regressor(checkpoint=place), X, Y, cv=2, error_score="raise") for place in (path, None)]
    assert_array_equal(*scores)


# -- a folder -----------------------------------------------------------------------------


def search(**options):
    grid = {"learning_rate": [0.01, 0.02, 0.05]}
    return GridSearchCV(regressor(max_iter=40, **options), grid, cv=2, error_score="raise")


@pytest.mark.slow
def test_an_interrupted_search_goes_on_in_its_folder(tmp_path):
    """Killed in its fourth fit, and in the next process already in the second."""
    folder = os.path.join(tmp_path, "new", "")
    firsts = []
    for n_files, n_before in enumerate((3, 1), 1):
        fits = Counter(ends_at=n_before)
        with pytest.raises(KeyboardInterrupt):
            search(checkpoint=folder, callback=fits).fit(X, Y)
        assert len(os.listdir(folder)) == n_files
        firsts.append(fits.n_fits)
    found, whole = search(checkpoint=folder).fit(X, Y), search().fit(X, Y)
    assert firsts == [4, 2]
    assert not os.listdir(folder)
    for key in ("split0_test_score", "split1_test_score"):
        assert_array_equal(found.cv_results_[key], whole.cv_results_[key])
    assert_same(found.best_estimator_, whole.best_estimator_)


class Counter:
    """Interrupts the fit after so many others, once it has saved some progress."""

    def __init__(self, ends_at):
        self.ends_at, self.n_fits = ends_at, 0

    def __deepcopy__(self, memo):
        # scikit-learn clones an estimator with its arguments.
        return self

    def __call__(self, n_iter, model):
        self.n_fits += n_iter == 20
        if self.n_fits > self.ends_at and n_iter == 40:
            raise KeyboardInterrupt


def test_fits_at_the_same_time_share_a_folder(tmp_path):
    """Four threads, each interrupted, then each again; no temporary file or checkpoint is left."""
    ys = [Y + i for i in range(4)]

    def one(y, callback=None):
        return regressor(**MINIBATCH, checkpoint=tmp_path, callback=callback).fit(X, y)

    with ThreadPoolExecutor(4) as pool:
        interrupted = [pool.submit(one, y, raise_at(40)) for y in ys]
        assert [type(each.exception()) for each in interrupted] == 4 * [KeyboardInterrupt]
        assert len(os.listdir(tmp_path)) == 4
        found = list(pool.map(one, ys))
    assert not os.listdir(tmp_path)
    for y, model in zip(ys, found, strict=True):
        assert_same(model, regressor(**MINIBATCH).fit(X, y))


def test_another_fit_at_a_single_file_names_both(path):
    interrupt(regressor(checkpoint=path))
    with pytest.raises(ValueError, match=r"y \('1 x 300, .* in the file, '1 x 200, .* now\).*name a folder"):
        regressor(checkpoint=path, callback=never).fit(X[:200], Y[:200])


# -- a file that cannot be written --------------------------------------------------------


@pytest.mark.skipif(resource is None, reason="no limits of resources here")
def test_a_full_disk_is_warned_of_once_and_the_fit_goes_on(path):
    """A limit of the system on the size of files, set after the first iterations."""
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)

    def no_more(n_iter, model):
        if n_iter == 40:
            resource.setrlimit(resource.RLIMIT_FSIZE, (2000, limits[1]))

    model = regressor(**MINIBATCH, max_iter=100, checkpoint=path, callback=no_more)
    try:
        with pytest.warns(UserWarning, match="checkpoint") as caught:
            model.fit(X, Y)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    messages = [str(each.message) for each in caught if "checkpoint" in str(each.message)]
    assert len(messages) == 1
    assert repr(str(path)) in messages[0]
    assert "File too large" in messages[0]
    assert not list(path.parent.iterdir())
    assert_same(model, regressor(**MINIBATCH, max_iter=100).fit(X, Y))


def test_a_folder_removed_while_training_does_not_end_the_fit(tmp_path):
    folder = tmp_path / "gone"
    folder.mkdir()

    def remove(n_iter, model):
        if n_iter == 40:
            shutil.rmtree(folder)

    model = regressor(checkpoint=folder, callback=remove)
    with pytest.warns(UserWarning, match="cannot be written; the fit continues.*\n.*gone"):
        model.fit(X, Y)
    assert_same(model, regressor().fit(X, Y))


def test_a_file_that_cannot_be_deleted_is_warned_of(path, monkeypatch):
    def refuse(self, missing_ok=False):
        raise PermissionError(13, "Read-only file system", str(self))

    monkeypatch.setattr(checkpoint.Path, "unlink", refuse)
    monkeypatch.setattr(checkpoint_file, "_temporary", not_removed)
    with pytest.warns(UserWarning, match="cannot be deleted after the fit.*\n.*Read-only"):
        model = regressor(checkpoint=path).fit(X, Y)
    assert model.n_iter_ == 70


@contextlib.contextmanager
def not_removed(folder):
    yield os.path.join(folder, "temporary")


@pytest.mark.parametrize("place", ["n" * 300, os.path.join("n" * 300, "")])
def test_a_place_that_cannot_be_written_is_refused_before_work_starts(place, tmp_path):
    with pytest.raises(OSError, match=r"^checkpoint='.*nnn.*' cannot be written or read: .*File name too long"):
        regressor(checkpoint=os.path.join(tmp_path, place), callback=never).fit(X, Y)
    assert not os.listdir(tmp_path)


def test_a_long_name_needs_no_room_for_a_temporary_one(tmp_path):
    path = tmp_path / ("n" * 252)
    interrupt(regressor(checkpoint=path))
    assert path.exists()


def test_temporary_files_of_killed_processes_are_removed(path):
    old, new = (path.parent / f".skgp_natgrad-{name}.part" for name in ("old", "new"))
    for each in (old, new):
        each.write_bytes(b"half of a file")
    os.utime(old, (0, 0))
    checkpoint.Checkpoint(path, {})
    assert not old.exists()
    assert new.exists()


# -- refusals -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "table", "message"),
    [
        ({"learning_rate": 0.01}, {}, r"differs in learning_rate \(0.05 in the file, 0.01 now\)\."),
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
    model = regressor(checkpoint=path, callback=lambda n_iter, fitted: None, learning_rate=np.float64(0.05), verbose=2)
    order = RNG.permutation(300)  # of a full batch
    assert_same(model.fit(X[order], Y[order]), regressor().fit(X, Y))


def signed(content):
    """An archive with the last line of a checkpoint: by somebody who knows the package."""
    whole = content + checkpoint_file._LAST_LINE % checkpoint_file.FORMAT
    return whole + hashlib.sha256(whole).hexdigest().encode()


@pytest.mark.parametrize("damage", ["empty", "truncated", "garbage", "another archive", "pickled"])
def test_a_damaged_file_is_refused(damage, path):
    interrupt(regressor(checkpoint=path))
    content = path.read_bytes()
    if damage == "another archive":
        np.savez(path, x=np.ones(3))
    elif damage == "pickled":
        np.savez(path, header=np.array([{}], dtype=object))
        path.write_bytes(signed(path.read_bytes()))
    else:
        path.write_bytes({"empty": b"", "truncated": content[:-100], "garbage": RNG.bytes(5000)}[damage])
    with pytest.raises(ValueError, match=r"fit\.npz.*not a checkpoint of skgp_natgrad.*damaged.*Delete the file"):
        regressor(checkpoint=path).fit(X, Y)
    assert path.exists()


def test_a_whole_file_of_another_format_is_not_called_damaged(path, monkeypatch):
    with monkeypatch.context() as patch:
        patch.setattr(checkpoint_file, "FORMAT", 7)
        checkpoint_file.write(path, checkpoint_file.Header({}, {}, {}), {"x": np.arange(3.0)})
    with pytest.raises(ValueError, match=r"written by another version .* it is not damaged"):
        checkpoint_file.read(path)
    # A number alone is no such file.
    path.write_bytes(path.read_bytes().replace(b"checkpoint 7", b"checkpoint 8"))
    with pytest.raises(ValueError, match="is damaged"):
        checkpoint_file.read(path)


def test_no_wrong_byte_goes_unnoticed(path):
    interrupt(regressor(checkpoint=path))
    content = path.read_bytes()
    for position in RNG.integers(len(content), size=300):
        wrong = bytearray(content)
        wrong[position] ^= 1 << RNG.integers(8)
        path.write_bytes(wrong)
        with pytest.raises(ValueError, match="is damaged"):
            checkpoint_file.read(path)


def test_members_of_another_file_are_refused_whatever_their_checksums(path):
    """One that says it is larger than any memory, too, and one that is no array."""
    checkpoint_file.write(path, checkpoint_file.Header({}, {}, {}), {"x": np.arange(3.0)})
    content, file = path.read_bytes(), io.BytesIO()
    np.lib.format.write_array(file, np.arange(3.0) + 1.0)
    other = file.getvalue()
    endless = other.replace(b"(3,), }" + b" " * 14, b"(3" + b"0" * 14 + b",), }")
    assert endless != other
    for member in (other, endless, b"no array"):
        path.write_bytes(replaced(content, **{"x.npy": member}))
        with pytest.raises(ValueError, match="is damaged"):
            checkpoint_file.read(path)


def replaced(content, **members):
    """An archive with other members, valid checksums, and the last line of the former one."""
    start = content.rindex(b"\nskgp_natgrad")
    with zipfile.ZipFile(io.BytesIO(content[:start])) as archive:
        before = {name: archive.read(name) for name in archive.namelist()}
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        for name, member in {**before, **members}.items():
            archive.writestr(name, member)
    return file.getvalue() + content[start:]


@pytest.mark.slow
def test_another_function_as_a_schedule_is_another_fit(path):
    interrupt(regressor(checkpoint=path, gamma_schedule=lambda i: 0.1))
    with pytest.raises(ValueError, match="differs in gamma_schedule"):
        regressor(checkpoint=path, gamma_schedule=lambda i: 0.2).fit(X, Y)
    same = regressor(checkpoint=path, gamma_schedule=lambda i: 0.1).fit(X, Y)
    assert_same(same, regressor(gamma_schedule=lambda i: 0.1).fit(X, Y))


def test_another_structure_is_refused(path):
    interrupt(regressor(checkpoint=path))
    header, arrays = checkpoint_file.read(path)
    arrays["['more']"] = np.ones(2)
    checkpoint_file.write(path, header, arrays)
    with pytest.raises(ValueError, match="another version of JAX"):
        regressor(checkpoint=path).fit(X, Y)


@pytest.mark.parametrize("header", ["[]", "{}", '{"identity": 1, "start": {}, "values": {}}', "nonsense"])
def test_a_nonsense_header_is_refused(header, path):
    np.savez(path, header=np.array(header))
    path.write_bytes(signed(path.read_bytes()))
    with pytest.raises(ValueError, match="not a checkpoint of skgp_natgrad"):
        regressor(checkpoint=path, callback=never).fit(X, Y)


@pytest.mark.parametrize(
    ("checkpoint", "options", "message"),
    [
        (3, {}, "checkpoint=3 must be the path"),
        ("", {}, "checkpoint='' must be the path"),
        (__file__ + os.sep, {}, "ends like a folder, but is a file"),
        (os.devnull, {}, "neither a file nor a folder"),
        ("file", {"checkpoint_every": -1}, r"checkpoint_every=-1 must be a float in the range \[0\.0, inf\)"),
        (os.path.join("no", "such", "place"), {}, "which is not a folder; name a file in an existing folder"),
        ("file", {"solver": "lbfgs"}, "checkpoint='file' cannot be used with solver='lbfgs'"),
    ],
)
def test_a_bad_argument_is_refused_before_work_starts(checkpoint, options, message):
    with pytest.raises(ValueError, match=message):
        regressor(checkpoint=checkpoint, callback=never, **options).fit(X, Y)


# -- the file -----------------------------------------------------------------------------


@pytest.mark.parametrize("where", ["written", "replaced"])
def test_an_interrupt_while_writing_leaves_the_old_file(where, path, monkeypatch):
    model = regressor(**MINIBATCH, checkpoint=path)
    contents = []

    def crash(*args, **kwargs):
        contents.append(path.read_bytes() if path.exists() else None)
        if len(contents) < 3:
            return original(*args, **kwargs)
        if where == "written":
            args[0].write(b"half of a file")
        raise KeyboardInterrupt

    owner, name = {"written": (np, "savez"), "replaced": (os, "replace")}[where]
    original = getattr(owner, name)
    with monkeypatch.context() as patch:
        patch.setattr(owner, name, crash)
        with pytest.raises(KeyboardInterrupt):
            model.fit(X, Y)
    assert contents[0] is None
    assert contents[1] != contents[2] == path.read_bytes()
    assert list(path.parent.iterdir()) == [path]
    assert len(checkpoint_file.read(path)[1]["[1].elbo"]) == 40
    assert_same(model.fit(X, Y), regressor(**MINIBATCH).fit(X, Y))
    assert not list(path.parent.iterdir())


def test_it_is_written_now_and_then_and_at_the_end(path, monkeypatch):
    now, writes = [0.0], []
    monkeypatch.setattr(checkpoint, "_TIMES_LAST_WRITE", 20.0)
    monkeypatch.setattr(checkpoint.time, "monotonic", lambda: now[0])

    def write(path, header, arrays):
        writes.append(now[0])
        now[0] += 0.5  # so that the next one is ten seconds off

    monkeypatch.setattr(checkpoint_file, "write", write)
    file = checkpoint.Checkpoint(path, {}, seconds_between=5.0)
    for second in range(32):
        now[0] = max(now[0], float(second))
        file.keep({}, {}, last=second == 31)
    assert writes == [5.0, 16.0, 27.0, 31.0]


def test_described_values_agree_between_processes():
    described = checkpoint_file.described
    assert described(RBF(0.5)) == described(RBF(np.float64(0.5))) != described(RBF())
    assert described({"b": 1, "a": 2}) == described({"a": np.int64(2), "b": 1})
    assert described(X) == described(X.copy()) != described(X.T)
    assert described(np.random.RandomState(0)) == described(np.random.RandomState(1))


@pytest.mark.slow
def test_a_fit_without_a_seed_goes_on_whatever_is_drawn_meanwhile(path, monkeypatch):
    """NumPy's global random state is everybody's: what others draw while a fit is prepared must not reach it."""
    some_rows = svgp.some_rows

    def drawing(*arguments):
        check_random_state(None).random_sample(7)
        return some_rows(*arguments)

    monkeypatch.setattr(svgp, "some_rows", drawing)
    made = {"solver": "ngd", "n_inducing": 8, "max_iter": 60, "tol": 0.0, "checkpoint_every": 0, "batch_size": 64}
    check_random_state(None).seed(5)
    whole = NGDSVGPRegressor(**made, checkpoint=path).fit(X, Y)
    check_random_state(None).seed(5)
    model = NGDSVGPRegressor(**made, checkpoint=path)
    interrupt(model)
    # The draws of others come at another time now.
    monkeypatch.setattr(svgp, "some_rows", some_rows)
    assert_same(model.fit(X, Y), whole)
