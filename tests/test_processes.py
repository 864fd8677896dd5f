"""Workers of joblib's, after JAX has run in the process that starts them."""

import os
import subprocess
import sys
import warnings

import jax
import joblib
import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.gaussian_process.kernels import RBF
from sklearn.model_selection import GridSearchCV, cross_val_score

from skgp_natgrad import NGDSVGPClassifier, NGDSVGPRegressor
from skgp_natgrad._backend import device

pytestmark = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")

X = np.random.default_rng(0).normal(size=(60, 2))
Y = np.sin(X[:, 0]) + X[:, 1]
OPTIONS = {"n_inducing": 5, "max_iter": 20, "random_state": 0}


@pytest.fixture
def no_warning_about_forks():
    with warnings.catch_warnings():
        warnings.filterwarnings("error", ".*fork.*")
        warnings.simplefilter("error", RuntimeWarning)
        yield


@pytest.mark.slow
@pytest.mark.usefixtures("no_warning_about_forks")
@pytest.mark.parametrize("backend", ["loky", "threading"])
def test_two_jobs_equal_one(backend):
    model, grid = NGDSVGPRegressor(**OPTIONS), {"gamma_schedule": [0.1, 0.5]}
    one = cross_val_score(model, X, Y, cv=3)
    searched = GridSearchCV(model, grid, cv=3).fit(X, Y)
    with joblib.parallel_config(backend, n_jobs=2):
        two = cross_val_score(model, X, Y, cv=3)
        search = GridSearchCV(model, grid, cv=3, error_score="raise").fit(X, Y)
    assert_allclose(two, one, rtol=1e-10)
    assert_allclose(search.cv_results_["mean_test_score"], searched.cv_results_["mean_test_score"], rtol=1e-10)
    assert_array_equal(search.predict(X), searched.predict(X))


@pytest.mark.slow
def test_both_estimators_at_once_in_threads():
    models = [NGDSVGPRegressor(**OPTIONS), NGDSVGPClassifier(**OPTIONS)] * 2
    targets = [Y, Y > 0] * 2
    alone = [model.fit(X, y).predict(X) for model, y in zip(models, targets, strict=True)]
    with joblib.parallel_config("threading", n_jobs=4):
        work = (joblib.delayed(model.fit)(X, y) for model, y in zip(models, targets, strict=True))
        together = joblib.Parallel()(work)
    for got, want in zip(together, alone, strict=True):
        assert_allclose(got.predict(X), want, rtol=1e-10)


def threads_after_a_computation(nproc):
    """In a worker: the threads before and after JAX has started, and the variable that XLA has read."""
    if nproc is not None:
        os.environ["NPROC"] = nproc
    import jax

    before = len(os.listdir("/proc/self/task"))
    with device.computation():
        jax.numpy.ones(3).sum().block_until_ready()
    return len(os.listdir("/proc/self/task")) - before, os.environ.pop("NPROC", None)


def in_a_worker(share, nproc=None):
    """Run it in a fresh worker of joblib's, which allows it ``share`` threads."""
    joblib.externals.loky.get_reusable_executor().shutdown()
    with joblib.parallel_config("loky", n_jobs=2, inner_max_num_threads=share):
        return joblib.Parallel()([joblib.delayed(threads_after_a_computation)(nproc)])[0]


@pytest.mark.slow
@pytest.mark.skipif(not os.path.isdir("/proc/self/task"), reason="needs Linux")
def test_a_worker_has_no_more_threads_than_its_share():
    """XLA's pools grow with the share: by two threads for each, of which eight may be others that came and went."""
    (one, left), (nine, also_left), (own, kept) = in_a_worker(1), in_a_worker(9), in_a_worker(1, nproc="9")
    assert nine - one >= 8
    assert left is also_left is None
    assert own - one >= 8
    assert kept == "9"


def test_outside_of_workers_nothing_is_shared(monkeypatch):
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    assert device._share_of_cores() is None


@pytest.mark.slow
def test_a_computation_leaves_the_environment_alone():
    code = """
import os
os.environ["OMP_NUM_THREADS"] = "3"
before = dict(os.environ)
from skgp_natgrad._backend import device
assert os.environ == before
with device.computation():
    pass
assert os.environ == before
"""
    subprocess.run([sys.executable, "-c", code], check=True)


# -- BLAS ---------------------------------------------------------------------------------

BLAS_THREADS = """
import threading
import threadpoolctl
from skgp_natgrad._backend import threads as _threads

def n_threads():
    return {library["num_threads"] for library in threadpoolctl.threadpool_info() if library["user_api"] == "blas"}

if n_threads() != {2}:
    raise SystemExit("skip")
"""

OVERLAP = """
class Holder(threading.Thread):
    def __init__(self):
        super().__init__(daemon=True)
        self.inside, self.leave, self.outside = (threading.Event() for _ in range(3))
        self.start()
        self.inside.wait()
    def run(self):
        with _threads.single_threaded(10):
            self.inside.set()
            self.leave.wait()
        self.outside.set()
        threading.Event().wait()
    def go(self):
        self.leave.set()
        self.outside.wait()

first, second = Holder(), Holder()
assert n_threads() == {1}
first.go()
assert n_threads() == {1}
second.go()
assert n_threads() == {2}
with _threads.single_threaded(10):
    assert n_threads() == {1}
assert n_threads() == {2}
with _threads.single_threaded(_threads.LARGEST_OF_ONE_THREAD + 1):
    assert n_threads() == {2}
"""

FITS = """
import warnings
import numpy as np
from skgp_natgrad import NGDSVGPRegressor
from skgp_natgrad.step import chunk as steps
warnings.simplefilter("ignore")

training, own = [], []
chunk = steps._run_chunk_quick

def watched(*arguments):
    training.append(n_threads())
    return chunk(*arguments)

steps._run_chunk_quick = watched
X = np.random.default_rng(0).normal(size=(30, 2))
model = NGDSVGPRegressor(n_inducing=3, max_iter=40, tol=0.0, callback=lambda n_iter, model: own.append(n_threads()))
model.fit(X, X[:, 0])
assert len(training) == 3 and all(threads == {1} for threads in training)
assert len(own) == 2 and all(threads == {2} for threads in own)

def interrupted(*arguments):
    raise KeyboardInterrupt

steps._run_chunk_quick = interrupted
try:
    model.fit(X, X[:, 0])
except KeyboardInterrupt:
    assert n_threads() == {2}
else:
    raise AssertionError
"""


@pytest.mark.slow
@pytest.mark.parametrize("code", [OVERLAP, FITS], ids=["threads that overlap", "fits"])
def test_blas_has_one_thread_while_xla_trains_and_then_its_own(code):
    """In a fresh process, whose BLAS nobody else has set."""
    environment = os.environ | {"OPENBLAS_NUM_THREADS": "2"}
    code = BLAS_THREADS + code
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True)
    if done.stderr.strip() == "skip":
        pytest.skip("BLAS is none whose threads threadpoolctl sets, or the machine has one core")
    assert done.returncode == 0, done.stderr


STACKS = """
import jax
import numpy as np
from skgp_natgrad._backend.linalg import triangular_inverse

L = (np.tril(np.random.default_rng(0).normal(size=(2, 301, 301))) / 10 + 5 * np.eye(301)).astype("float32")
inverse = jax.jit(triangular_inverse)
for _ in range(300):
    jax.block_until_ready(inverse(L))
"""


@pytest.mark.slow
def test_stacks_of_factorisations_do_not_wait_for_each_other():
    """As stacks, the solves of this program hang JAX 0.10 on two cores within some hundred calls."""
    subprocess.run([sys.executable, "-c", STACKS], check=True, timeout=120)


# -- settings of JAX ----------------------------------------------------------------------

HOST = {
    "jax_numpy_rank_promotion": "raise",
    "jax_numpy_dtype_promotion": "strict",
    "jax_transfer_guard": "disallow",
    "jax_disable_jit": True,
    "jax_debug_nans": True,
    "jax_debug_infs": True,
    "jax_check_tracer_leaks": True,
}


@pytest.fixture
def host_settings():
    """All settings of JAX with which a program looks for mistakes of its own; programs are traced anew."""
    before = {name: getattr(jax.config, name) for name in HOST}

    def switch_on():
        for name, value in HOST.items():
            jax.config.update(name, value)
        jax.clear_caches()

    yield switch_on
    for name, value in before.items():
        jax.config.update(name, value)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_settings_of_the_host_program_change_no_bit(host_settings):
    def bits():
        model = NGDSVGPRegressor(
            RBF(), batch_size=32, n_mean_inducing=5, mean_solver="exact", dtype="float32", **OPTIONS
        )
        model.fit(X, Y)
        few, many = model.predict(X, return_std=True), model.predict(np.tile(X, (60, 1)))
        return [model.elbo_curve_, *few, many, model.sample_y(X[:4]), model.predict_log_density(X, Y)]

    expected = bits()
    host_settings()
    for got, want in zip(bits(), expected, strict=True):
        assert_array_equal(got, want)
    assert jax.config.jax_numpy_rank_promotion == "raise"


FORK = """
import multiprocessing, warnings
import numpy as np
from sklearn.gaussian_process.kernels import RBF
from skgp_natgrad import NGDSVGPRegressor
warnings.simplefilter("ignore")
X = np.linspace(-2, 2, 40)[:, None]
model = NGDSVGPRegressor(RBF(), n_inducing=5, max_iter=20, random_state=0)
def refusal(call):
    try:
        call()
    except RuntimeError as error:
        return str(error)
def child(queue):
    mean = model.predict(X[:4])
    deviation = refusal(lambda: model.predict(X[:4], return_std=True))
    queue.put((mean, refusal(lambda: model.fit(X, X[:, 0])), deviation))
model.fit(X, X[:, 0])
context = multiprocessing.get_context("fork")
queue = context.Queue()
process = context.Process(target=child, args=(queue,))
process.start()
try:
    mean, *messages = queue.get(timeout=30)
finally:
    process.kill()
assert np.array_equal(mean, model.predict(X[:4]))
for message in messages:
    assert "forked" in message and "spawn" in message, message
"""


@pytest.mark.slow
@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
def test_a_fit_in_a_forked_child_is_refused_and_does_not_hang():
    """So is a prediction that needs a compiled program; NumPy's own goes on."""
    subprocess.run([sys.executable, "-c", FORK], check=True, timeout=120)


PAIR = """
import multiprocessing, sys, warnings
import numpy as np
from sklearn.gaussian_process.kernels import RBF
from skgp_natgrad import NGDSVGPRegressor
from skgp_natgrad.training import checkpoint
warnings.simplefilter("ignore")
checkpoint._TIMES_LAST_WRITE = 0.0
X = np.linspace(-2, 2, 40)[:, None]
def child(number, ready, queue):
    model = NGDSVGPRegressor(
        RBF(), n_inducing=5, max_iter=200, tol=0.0, random_state=0, optimizer=None, gamma_schedule=0.1
    )
    try:
        for place, target in ((sys.argv[1] + "/one.npz", X[:, 0]), (sys.argv[1], X[:, 0] ** (number + 1))):
            whole = model.set_params(checkpoint=None).fit(X, target).elbo_curve_.tobytes()
            ready.wait(60)
            for _ in range(3):
                curve = model.set_params(checkpoint=place, checkpoint_every=0).fit(X, target).elbo_curve_
                assert curve.tobytes() == whole
    except BaseException as error:
        queue.put(repr(error))
    else:
        queue.put("same bits")
context = multiprocessing.get_context("fork")
queue, ready = context.Queue(), context.Barrier(2)
children = [context.Process(target=child, args=(number, ready, queue)) for number in range(2)]
for process in children:
    process.start()
try:
    found = [queue.get(timeout=100) for _ in children]
finally:
    for process in children:
        process.kill()
assert found == 2 * ["same bits"], found
"""


@pytest.mark.slow
@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
def test_two_processes_at_one_checkpoint_end_at_the_same_bits(tmp_path):
    """The same fit at one file, and two fits in one folder; each child is forked before JAX has computed."""
    subprocess.run([sys.executable, "-c", PAIR, str(tmp_path)], check=True, timeout=300)
    assert not list(tmp_path.iterdir())
