"""Several processes that fit together, each with its own rows: two of this machine with two devices each."""

import functools
import json
import os
import re
import socket
import subprocess
import sys
from pathlib import Path

import jaxlib
import numpy as np
import pytest
from numpy.testing import assert_allclose

from skgp_natgrad._backend import device, processes
from skgp_natgrad.training import loop, shares
from skgp_natgrad.training.batches import BatchStream, Table
from skgp_natgrad.training.distinct_rows import distinct

from . import several_processes as program
from .conftest import few_points_and_neighbours

pytestmark = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
ALL = slice(None)
# Of each process. Of two devices that lose a connection only one may learn of it; JAX then ends the process.
N_DEVICES = {"killed": 1, "all": 2}


def ended(task, folder):
    """The processes of a task, once they have ended: their codes and what they printed."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    flags = f"{os.environ.get('XLA_FLAGS', '')} --xla_force_host_platform_device_count={N_DEVICES[task]}"
    environment = {**os.environ, "XLA_FLAGS": flags, "JAX_PLATFORMS": "cpu"}
    running = [
        subprocess.Popen(
            [sys.executable, "-m", "tests.several_processes", task, str(rank), port, str(folder)],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=environment,
            cwd=Path(__file__).parents[1],
        )
        for rank in range(program.N_PROCESSES)
    ]
    try:
        printed = [process.communicate(timeout=600) for process in running]
    finally:
        for process in running:
            process.kill()
    return [(process.returncode, *each) for process, each in zip(running, printed, strict=True)]


@pytest.fixture(scope="module")
def killed(tmp_path_factory):
    """The folder with the checkpoint of a fit whose second process was killed, and the processes."""
    if not hasattr(getattr(jaxlib, "_jax", None), "make_gloo_tcp_collectives"):
        pytest.skip("this jaxlib has no gloo, by which processes on CPUs are connected")
    folder = tmp_path_factory.mktemp("killed")
    return folder, ended("killed", folder), (folder / "fit.npz").exists()


@pytest.fixture(scope="module")
def found(killed):
    """What each process found; one of the fits continues the one that was killed."""
    processes = ended("all", killed[0])
    for code, _, errors in processes:
        assert code == 0, errors[-3000:]
    return [json.loads(printed.splitlines()[-1]) for _, printed, _ in processes]


def assert_equal(got, want, rtol=1e-9):
    """Equal trees of numbers: bounds relative to their size, all else in its units, which are about one."""
    for name, value in want.items():
        if isinstance(value, dict):
            assert_equal(got[name], value)
        else:
            assert_allclose(got[name], value, rtol=rtol if "elbo" in name else 0.0, atol=1e-9, err_msg=name)


@pytest.mark.slow
def test_all_processes_end_with_the_same_model(found):
    first, second = found
    for name in ("engine", "minibatches", "estimators", "defaults", "resumed"):
        assert first[name] == second[name]


@pytest.mark.slow
def test_two_processes_equal_one_that_has_all_rows(found):
    """On the full batch and in closed form, at 1e-9: the rows are the same, only sums have another order."""
    assert_equal(found[0]["engine"], program.engine(ALL, None))


@pytest.mark.slow
def test_neighbours_are_rows_of_all_processes(found, monkeypatch):
    first, second = (each["neighbours"] for each in found)
    assert first == second
    few = functools.partial(few_points_and_neighbours, setattr=monkeypatch.setattr)
    monkeypatch.setattr(program, "few_points_and_neighbours", few)
    want = program.neighbours(ALL, None)
    assert "predicted from 20 neighbors" in want["plan"]
    assert first["plan"] == want["plan"]
    for name in ("mean", "deviation"):
        assert_allclose(first[name], want[name], rtol=0.0, atol=1e-6)


class Strata(BatchStream):
    """Batches whose first half is drawn from the first process's rows, and whose second half from the other's."""

    def __init__(self, rows, batch_size, n_mean, n_columns, random_state):
        super().__init__(rows, batch_size, n_mean, n_columns, random_state)
        lengths = [len(rows.weight[share]) for share in program.SHARES]
        self.parts = []
        for share, length in zip(program.SHARES, lengths, strict=True):
            part, missing = rows.rows(share), max(lengths) - length
            longer = part.rows(np.append(np.arange(length), np.full(missing, -1)))
            longer = longer._replace(weight=np.append(part.weight, np.zeros(missing)))
            seed = np.random.RandomState()
            seed.set_state(random_state.get_state())
            self.parts.append(BatchStream(longer, batch_size // 2, n_mean, n_columns, seed))

    def _drawn(self):
        first, second = (part._drawn() for part in self.parts)
        joined = {
            name: np.concatenate([getattr(first, name), getattr(second, name)], axis=-1) for name in ("y", "weight")
        }
        return first._replace(X=np.concatenate([first.X, second.X], axis=1), **joined)


@pytest.mark.slow
def test_minibatches_are_drawn_from_the_rows_of_each_process(found, monkeypatch):
    """The same batches, drawn in one process; 320 rows, 19 of them of weight zero, share the scale."""
    monkeypatch.setattr(loop, "BatchStream", Strata)
    run = loop.run

    def scaled(state, constants, *arguments):
        return run(state, constants._replace(scale=320 / 66, n_rows=320.0), *arguments)

    monkeypatch.setattr(loop, "run", scaled)
    assert_equal(found[0]["minibatches"], program.minibatches(ALL, None))


@pytest.mark.slow
def test_estimators_share_scales_and_classes(found):
    want = program.estimators(ALL, None)
    assert found[0]["estimators"].pop("classes") == want.pop("classes") == ["a", "b", "c"]
    assert_equal(found[0]["estimators"], want)


@pytest.mark.slow
def test_what_is_left_open_is_chosen_for_all(found):
    """As in one process, whose exact process has no jitter."""
    (first, second), want = (each["defaults"] for each in found), program.defaults(ALL, None)
    assert first["digest"] == second["digest"]
    assert first["score"] > 0.9
    assert "301 inducing points" in first["plan"]
    assert first["plan"] == want["plan"]
    assert_allclose(first["mean"], want["mean"], rtol=0.0, atol=1e-6)


@pytest.mark.slow
def test_an_error_of_one_process_is_told_to_the_other(found):
    first, second = (each["refused"] for each in found)
    assert second.startswith("ValueError: X[3, 0]=nan is not finite")
    assert re.match(r"Parted: Process 1 of 2 failed.*ValueError: X\[3, 0\]=nan is not finite", first)


@pytest.mark.slow
def test_a_callback_of_one_process_ends_training_in_all(found):
    assert [each["stopped"] for each in found] == [20, 20]


@pytest.mark.slow
def test_wrong_and_different_arguments_are_refused_by_both(found):
    for wrong, different in (each["arguments"] for each in found):
        assert wrong.startswith("max_iter=0 must be")
        assert different.endswith("must be the same in all processes, but differ in tol: 0.0, 0.5.")


@pytest.mark.slow
def test_a_killed_process_ends_the_fit_with_an_error(killed):
    _, ((code, printed, _), (other, _, _)), has_checkpoint = killed
    assert (code, other) == (3, -9)
    assert "Process 0 of 2 lost the connection to another process" in printed.splitlines()[-1]
    assert has_checkpoint


@pytest.mark.slow
def test_the_fit_continues_from_the_checkpoint_of_the_first_process(found, killed):
    assert_equal(found[0]["resumed"], found[0]["from the start"])
    assert not (killed[0] / "fit.npz").exists()


@pytest.mark.slow
def test_other_fits_do_not_wait_for_each_other(found):
    """Without ``n_devices="all"`` each process fits its own model, of its own number of iterations here."""
    assert [len(each["alone"]) for each in found] == [2, 3]


# -- without processes --------------------------------------------------------------------


def table_of(n_rows, rng, **others):
    return Table(rng.normal(size=(n_rows, 2)), rng.normal(size=(1, n_rows)), np.ones(n_rows), **others)


def as_two(monkeypatch, other):
    """Let this process hear from another one what ``other`` makes of its own messages."""
    monkeypatch.setattr(processes, "exchanged", lambda value: [value, other(value)])


def test_shares_are_filled_up_with_rows_of_weight_zero(rng, monkeypatch):
    table = table_of(5, rng, offset=np.ones((1, 5)))
    assert shares.evened_out(table, 1) is table
    as_two(monkeypatch, lambda message: (8, message[1]))
    longer = shares.evened_out(table, 2)
    assert [each.shape[-1] for each in longer[1:4]] == [8, 8, 8]
    np.testing.assert_array_equal(longer.X[:5], table.X)
    assert longer.weight.tolist() == [1.0] * 5 + [0.0] * 3
    np.testing.assert_array_equal(longer.X[5:], np.repeat(table.X[-1:], 3, axis=0))
    as_two(monkeypatch, lambda message: (5, (*message[1][:2], False, *message[1][3:])))
    with pytest.raises(ValueError, match="rows of all processes must have the same"):
        shares.evened_out(table, 2)


def test_some_rows_of_many_are_gathered_in_proportion(rng, monkeypatch):
    table = table_of(300, rng)
    monkeypatch.setattr(shares, "MOST", 100)
    # The other process has as many rows, in another place.
    as_two(monkeypatch, lambda value: value if isinstance(value, int) else (value[0] + 10.0, *value[1:]))
    some = shares.gathered(table, 2)
    assert len(some.weight) == len(some.X) == 100
    own = np.isin(some.X, table.X).all(1)
    assert own.sum() == 50
    assert some.X[~own].min() > 5.0
    assert some.offset is None
    assert shares.gathered(table, 1) is table


def test_few_rows_are_gathered_as_one_process_has_them(rng, monkeypatch):
    """Among them a row that both processes have."""
    whole = table_of(40, rng).rows(np.append(np.arange(40), 3))
    first, second = (whole.rows(np.arange(41)[half]) for half in (slice(0, 20), slice(20, 41)))
    as_two(monkeypatch, lambda value: 21 if isinstance(value, int) else tuple(second))
    some, (expected, _) = shares.gathered(first, 2), distinct(whole, of_labels=False)
    assert sorted(some.weight) == [1.0] * 39 + [2.0]
    for name in ("X", "y", "weight"):
        np.testing.assert_array_equal(getattr(some, name), getattr(expected, name))


def test_processes_with_different_numbers_of_devices_are_refused(monkeypatch):
    class Device:
        def __init__(self, process_index):
            self.process_index = process_index

    monkeypatch.setattr(processes, "count", lambda: 2)
    monkeypatch.setattr(device.jax, "devices", lambda platform: [Device(i) for i in (0, 0, 1)])
    with pytest.raises(ValueError, match=r"the processes have \[2, 1\] devices"):
        device._of_all_processes("cpu")
