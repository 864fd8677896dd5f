"""Compiled programs are dropped before a process runs out of memory maps, and models do not notice."""

import threading

import jax
import numpy as np
import pytest
from sklearn.gaussian_process.kernels import RBF, Matern

from skgp_natgrad import NGDSVGPRegressor
from skgp_natgrad._backend import device, programs

pytestmark = [
    pytest.mark.skipif(programs.n_maps() == 0, reason="this system does not tell a process its memory maps"),
    pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning"),
]


@pytest.fixture
def full(monkeypatch):
    """As if every computation began with too many memory maps."""
    monkeypatch.setattr(programs, "most_maps", lambda n_others: 0)
    monkeypatch.setattr(programs, "_SECONDS", 0.0)


@pytest.fixture
def drops(monkeypatch):
    """The threads that have dropped programs, one for each time."""
    found, clear = [], jax.clear_caches
    monkeypatch.setattr(jax, "clear_caches", lambda: (found.append(threading.get_ident()), clear()))
    return found


def fitted(rng, n_features=3, kernel=None, **arguments):
    X = rng.normal(size=(60, n_features))
    model = NGDSVGPRegressor(kernel or RBF(), n_inducing=10, max_iter=20, solver="ngd", random_state=0, **arguments)
    return model.fit(X, np.sin(X[:, 0])), X


def test_maps_are_counted_and_limited(monkeypatch, tmp_path):
    with open("/proc/self/maps") as file:
        assert abs(programs.n_maps() - len(file.readlines())) < 20
    (tmp_path / "limit").write_text("1000\n")
    monkeypatch.setattr(programs, "_LIMIT", tmp_path / "limit")
    assert programs.most_maps(100) == pytest.approx(400)
    assert programs.most_maps(700) == pytest.approx(800)
    monkeypatch.setattr(programs, "_LIMIT", tmp_path / "no file")
    assert programs.most_maps(0) == np.inf
    monkeypatch.setattr(programs, "_MAPS", tmp_path / "no file")
    assert programs.n_maps() == 0


@pytest.mark.slow
def test_programs_are_dropped_and_made_again_to_the_same_bits(rng, request):
    model, X = fitted(rng)
    X = np.resize(X, (600, 3))
    before = model.predict(X, return_std=True)
    n_before = programs.n_maps()
    request.getfixturevalue("full")
    with device.computation():
        n_after = programs.n_maps()
    assert n_after < n_before - 50
    np.testing.assert_array_equal(model.predict(X, return_std=True), before)


@pytest.mark.slow
def test_maps_do_not_grow_with_the_number_of_different_fits(rng, monkeypatch, drops):
    # Without the programs of other tests.
    jax.clear_caches()
    fitted(rng, 2)
    start = programs.n_maps()
    monkeypatch.setattr(programs, "_SECONDS", 0.0)
    monkeypatch.setattr(programs, "most_maps", lambda n_others: start + 50)
    counts = []
    for n_features in range(3, 7):
        fitted(rng, n_features)
        counts.append(programs.n_maps())
    of_one = max(np.diff([start, *counts]).max(), 50)
    assert len(drops) >= 2
    assert max(counts) <= start + 50 + of_one


@pytest.mark.slow
def test_nothing_is_dropped_where_there_are_few(rng, monkeypatch, drops):
    monkeypatch.setattr(programs, "_SECONDS", 0.0)
    monkeypatch.setattr(programs, "most_maps", lambda n_others: np.inf)
    fitted(rng)
    assert not drops


def test_maps_are_counted_once_a_second_at_most(monkeypatch):
    counted = []
    monkeypatch.setattr(programs, "n_maps", lambda: counted.append(1) or 0)
    monkeypatch.setattr(programs, "_SECONDS", 1e9)
    monkeypatch.setattr(programs, "_counted", -np.inf)
    for _ in range(5):
        programs.drop_if_many()
    assert len(counted) == 1


@pytest.mark.slow
def test_maps_of_others_are_not_counted(monkeypatch, drops):
    """A process whose own maps are many does not compile anew once a second."""
    monkeypatch.setattr(programs, "_SECONDS", 0.0)
    monkeypatch.setattr(programs, "_others", None)
    monkeypatch.setattr(programs, "most_maps", lambda n_others: n_others + 100)
    for n_maps, n_drops in [(5000, 0), (5100, 0), (5101, 1), (5201, 1), (5202, 2)]:
        monkeypatch.setattr(programs, "n_maps", lambda n_maps=n_maps: n_maps)
        programs.drop_if_many()
        assert len(drops) == n_drops


@pytest.mark.slow
def test_nothing_is_dropped_within_a_computation(rng, full, drops):
    _, X = fitted(rng)
    assert drops
    seen = []

    def predicting(n_iter, model):
        before = len(drops)
        model.predict(X)
        seen.append(len(drops) - before)

    fitted(rng, callback=predicting)
    assert seen
    assert not any(seen)


@pytest.mark.slow
def test_threads_may_drop_what_others_use(rng, full, drops):
    models = [fitted(rng, kernel=kernel) for kernel in (RBF(), Matern(nu=1.5))]
    expected = [model.predict(X, return_std=True) for model, X in models]
    n_before, wrong = len(drops), []

    def predict(i):
        for _ in range(5):
            model, X = models[i]
            if not np.array_equal(model.predict(X, return_std=True), expected[i]):
                wrong.append(i)

    threads = [threading.Thread(target=predict, args=(i,)) for i in (0, 1, 0, 1)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong
    assert len(drops) - n_before > 1
    assert len(set(drops)) > 1
