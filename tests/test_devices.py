"""Several devices: the fit of one, with the rows divided. Four simulated CPUs are one program, started once."""

import json
import os
import subprocess
import sys
from pathlib import Path

import jax
import numpy as np
import pytest

from skgp_natgrad import NGDSVGPRegressor
from skgp_natgrad._backend import device, placement

from .several_devices import CASES, KERNEL, N_DEVICES, X, Y


@pytest.fixture(scope="module")
def found():
    """What tests/several_devices.py prints."""
    flags = f"{os.environ.get('XLA_FLAGS', '')} --xla_force_host_platform_device_count={N_DEVICES}"
    command = [sys.executable, "-m", "tests.several_devices"]
    environment = {**os.environ, "XLA_FLAGS": flags, "JAX_PLATFORMS": "cpu"}
    ended = subprocess.run(
        command, capture_output=True, text=True, env=environment, cwd=Path(__file__).parents[1], check=False
    )
    assert ended.returncode == 0, ended.stderr[-3000:]
    return json.loads(ended.stdout.splitlines()[-1])


@pytest.mark.slow
@pytest.mark.parametrize("case", CASES)
def test_four_devices_equal_one(case, found):
    """Bounds of all iterations relative to their size, and predictions in units of y; the order of sums differs.

    Also with a noise of 1e-7 (N k / s^2 is 3e9). The exact mean and L-BFGS search, which lets rounding grow.
    """
    tolerance = 1e-9
    assert all(each < tolerance for each in found["equal"]["differences"][case].values()), found["equal"]


# Programs that one CPU does not need, and single operations on what they return: see `in_place.pays`.
IN_PLACE = {"_add_block", "multiply", "squeeze"}


@pytest.mark.slow
def test_four_devices_compile_the_same_programs(found):
    one, four = found["equal"]["compiled"]
    assert one["_chunk"] == four["_chunk"]
    # Some results are in NumPy where they were on one device, so that fewer operations are compiled on their own; and
    # on one CPU solutions are made in place.
    more = {name: count for name, count in four.items() if count > one.get(name, 0)}
    assert more.keys() <= IN_PLACE, (one, four)


@pytest.mark.slow
@pytest.mark.parametrize("program", ["steps", "gram"])
def test_only_sums_are_sent_between_devices(program, found):
    counts = dict(found["collectives"][program])
    # Sums of a step come at three times: moments need q, the gradient the moments, the report the step.
    assert 1 <= counts.pop("all-reduce") <= 3
    assert not any(counts.values()), counts


@pytest.mark.slow
def test_rows_are_divided_and_nothing_else(found):
    shards = found["collectives"]["shards"]
    # 66 rows are filled up to 68 with weight zero; each of the 20 batches of a call is divided.
    assert shards == {"X": [20, 17, 2], "y": [20, 1, 17], "weight": [20, 17], "columns": [20, 9]}
    assert found["collectives"]["state is replicated"]
    assert found["collectives"]["padding"] == 0.0


@pytest.mark.slow
def test_estimators_on_several_devices(found):
    of = found["estimators"]
    assert of["one device"]
    for name in ("regressor", "classifier", "fewer devices than were asked for", "few rows"):
        assert of[name] < 1e-9, (name, of[name])


@pytest.mark.slow
@pytest.mark.parametrize("name", ["exact", "neighbours"])
def test_a_fit_in_one_step_is_the_same_on_several_devices(name, found):
    of = found["at once"][name]
    assert len(set(of["plans"])) == 1, of["plans"]
    assert ("neighbors" in of["plans"][0]) == (name == "neighbours")
    assert of["difference"] < 1e-6


@pytest.mark.slow
def test_an_interrupted_fit_continues_on_several_devices(found):
    assert found["estimators"]["resumed"]


@pytest.mark.slow
def test_more_devices_than_there_are_is_an_error(found):
    assert "n_devices=50, but JAX has 4 of this kind here" in found["estimators"]["error"]
    n_devices = len(jax.local_devices()) + 1
    with pytest.raises(ValueError, match=rf"n_devices={n_devices}, but JAX has .* Lower it, or use n_devices=\"all\""):
        NGDSVGPRegressor(KERNEL, n_inducing=5, n_devices=n_devices).fit(X[:30], Y[:30])


def test_one_device_is_left_to_jax():
    tree = {"x": np.zeros(3), "y": 1.0}
    for n_devices in (None, 1):
        with device.computation("auto", n_devices) as where:
            assert where is placement.current()
            assert where.n_devices == 1
            assert where.replicated(tree) is tree
            assert where.rows(tree, {"x": -1, "y": None}) is tree
            assert (where.rounded_up(7), where.block_size(7, 5)) == (7, 5)
    assert placement.current() is placement.ONE_DEVICE
