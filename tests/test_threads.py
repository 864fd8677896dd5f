"""Parts of a computation at the same time: the caller's scope, the same bits, errors as they are."""

import threading
import time

import jax
import jax.numpy as jnp
import joblib
import numpy as np
import pytest
from numpy.testing import assert_array_equal

from skgp_natgrad import NGDSVGPRegressor
from skgp_natgrad._backend import device, threads
from skgp_natgrad.start import search
from skgp_natgrad.start.candidates import CANDIDATES


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


def test_an_outer_loop_over_threads_has_the_cores():
    inner = joblib.Parallel(n_jobs=2, backend="threading")(joblib.delayed(device.n_cores)() for _ in range(2))
    assert inner == [1, 1]
    assert device.n_cores() == joblib.cpu_count()


def test_the_default_kernel_is_the_same_with_any_number_of_cores(rng, monkeypatch):
    monkeypatch.setattr(search, "CANDIDATES", CANDIDATES)
    X = rng.normal(size=(60, 3))
    y = np.sin(X[:, 0]) + 0.1 * rng.normal(size=60)
    models = []
    for n_cores in (1, 3):
        monkeypatch.setattr(device, "n_cores", lambda n_cores=n_cores: n_cores)
        models.append(NGDSVGPRegressor(random_state=0).fit(X, y))
    assert str(models[0].kernel_) == str(models[1].kernel_)
    assert_array_equal(*(np.stack(model.predict(X, return_std=True)) for model in models))
