"""Parts of a computation at the same time: the caller's scope, the same bits, errors as they are."""

import contextlib
import threading
import time

import jax
import jax.numpy as jnp
import joblib
import numpy as np
import pytest
import threadpoolctl
from numpy.testing import assert_array_equal

from skgp_natgrad import NGDSVGPClassifier, NGDSVGPRegressor
from skgp_natgrad._backend import device, threads
from skgp_natgrad.choose.candidates import OF_LABELS
from skgp_natgrad.start import kernel_of_labels


def test_threads_compute_in_the_scope_of_the_caller():
    meeting = threading.Barrier(2, timeout=60)

    def seen(item):
        # Two threads are in here at the same time, or the barrier breaks.
        meeting.wait()
        return threading.get_ident(), jnp.asarray(item).dtype, jax.config.jax_numpy_rank_promotion

    cores = device.n_cores
    with device.computation(), pytest.MonkeyPatch.context() as patch:
        patch.setattr(device, "n_cores", lambda: 2)
        found = threads.for_each(seen, [1.0, 2.0])
    assert device.n_cores is cores
    assert len({ident for ident, *_ in found}) == 2
    assert all(rest == [jnp.dtype("float64"), "allow"] for _, *rest in found)


@pytest.mark.parametrize("n_cores", [1, 2])
def test_order_and_errors_are_those_of_a_loop(n_cores, monkeypatch):
    monkeypatch.setattr(device, "n_cores", lambda: n_cores)
    with device.computation():
        assert threads.for_each(lambda i: i * i, range(7)) == [i * i for i in range(7)]
        assert threads.for_each(str, []) == []
        with pytest.raises(ZeroDivisionError):
            threads.for_each(lambda i: 1 // i, [1, 0, 2])


def test_an_error_waits_for_the_others(monkeypatch):
    monkeypatch.setattr(device, "n_cores", lambda: 2)
    begun, ended = threading.Event(), []

    def work(item):
        if item == 0:
            assert begun.wait(60)
            raise ZeroDivisionError
        begun.set()
        time.sleep(0.2)
        ended.append(item)

    with device.computation(), pytest.raises(ZeroDivisionError):
        threads.for_each(work, [0, 1])
    assert ended == [1]


def n_threads():
    """Of SciPy's own BLAS libraries, and of the others."""
    return [sorted(each["num_threads"] for each in threads._libraries(own).info()) for own in (True, False)]


def set_threads(libraries, numbers):
    # In a thread that ends: while one that has set a number lives, no other can.
    for each, n in zip(libraries, numbers, strict=True):
        thread = threading.Thread(target=each.set_num_threads, args=(n,))
        thread.start()
        thread.join()


@pytest.fixture
def three_threads():
    """All BLAS libraries have three threads."""
    libraries = [each for own in (True, False) for each in threads._libraries(own).lib_controllers]
    before = [each.num_threads for each in libraries]
    if not before:
        pytest.skip("threadpoolctl knows no BLAS here")
    set_threads(libraries, [3] * len(libraries))
    yield
    set_threads(libraries, before)


@pytest.mark.usefixtures("three_threads")
def test_blas_has_its_threads_again_whoever_leaves_first():
    """SciPy's BLAS and NumPy's are held apart, by any number of callers in any order."""
    before = n_threads()
    one = [[1] * len(each) for each in before]
    with contextlib.ExitStack() as scipy, contextlib.ExitStack() as every, contextlib.ExitStack() as again:
        scipy.enter_context(threads.scipy_single_threaded())
        assert n_threads() == [one[0], before[1]]
        every.enter_context(threads.single_threaded(0))
        assert n_threads() == one
        scipy.close()
        assert n_threads() == one
        again.enter_context(threads.scipy_single_threaded())
        every.close()
        assert n_threads() == [one[0], before[1]]
    assert n_threads() == before
    with threads.single_threaded(threads.LARGEST_OF_ONE_THREAD + 1):
        assert n_threads() == before


@pytest.mark.usefixtures("three_threads")
@pytest.mark.parametrize("where", [threading.Thread, threads], ids=["as the keeper starts", "in the keeper"])
def test_an_interrupted_hold_leaves_nothing_behind(where, monkeypatch):
    name = "start" if where is threading.Thread else "_set"
    original, before = getattr(where, name), n_threads()

    def interrupted(*arguments):
        original(*arguments)
        raise KeyboardInterrupt

    monkeypatch.setattr(where, name, interrupted)
    with pytest.raises(KeyboardInterrupt), threads.single_threaded(0):
        pass
    monkeypatch.undo()
    with threads.single_threaded(0):
        assert {n for each in n_threads() for n in each} == {1}
    assert n_threads() == before


def test_wheels_have_a_blas_of_scipys_own():
    if not any("scipy.libs" in each["filepath"] for each in threadpoolctl.threadpool_info()):
        pytest.skip("SciPy is no wheel, or shares its BLAS")
    own, others = (threads._libraries(of_scipy).info() for of_scipy in (True, False))
    assert len(own) == 1
    assert all("scipy.libs" not in each["filepath"] for each in others)


def test_an_outer_loop_over_threads_has_the_cores():
    inner = joblib.Parallel(n_jobs=2, backend="threading")(joblib.delayed(device.n_cores)() for _ in range(2))
    assert inner == [1, 1]
    assert device.n_cores() == joblib.cpu_count()


@pytest.mark.parametrize("of_labels", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_the_default_kernel_is_the_same_with_any_number_of_cores(of_labels, rng, monkeypatch):
    # Of small tables there is one finalist.
    n = 500 if of_labels else 60
    monkeypatch.setattr(kernel_of_labels, "OF_LABELS", OF_LABELS[:2])
    X = rng.normal(size=(n, 3))
    y = np.sin(X[:, 0]) + 0.1 * rng.normal(size=n)
    compared, tried = [], kernel_of_labels.at_best_scale
    monkeypatch.setattr(
        kernel_of_labels, "at_best_scale", lambda *each: compared.append(threading.get_ident()) or tried(*each)
    )
    models = []
    for n_cores in (1, 3):
        monkeypatch.setattr(device, "n_cores", lambda n_cores=n_cores: n_cores)
        estimator = NGDSVGPClassifier(random_state=0) if of_labels else NGDSVGPRegressor(random_state=0)
        models.append(estimator.fit(X, y > 0.0 if of_labels else y))
    assert str(models[0].kernel_) == str(models[1].kernel_)
    if of_labels:
        # The kernels are in threads of their own.
        assert len(set(compared)) > 2
        assert_array_equal(*(model.predict_proba(X) for model in models))
    else:
        assert_array_equal(*(np.stack(model.predict(X, return_std=True)) for model in models))
