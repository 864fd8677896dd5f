"""What the scripts in examples/campaigns share: they go on from their results, and say what failed."""

import json

import numpy as np
import pytest

from .conftest import campaign

shared = campaign("_campaign")


@pytest.fixture
def results(tmp_path):
    return tmp_path / "results.jsonl"


def run(results, perform, *arguments):
    args = shared.parser("", 5).parse_args(["--results", str(results), "--seed", "3", *arguments])
    return shared.run(args, "trial", perform)


def test_a_campaign_goes_on_with_the_cases_that_its_file_lacks(results):
    """Stopped after a case, and killed while it wrote a line."""
    seen = []

    def perform(number):
        seen.append(number)
        return {"dtype": "float32", "outcome": "right", "counts": {"calls": 2}}

    assert run(results, perform, "--minutes", "0") == 0
    assert seen == [0]
    text = results.read_text()
    results.write_text(text + text.splitlines()[-1][:20])
    assert run(results, perform) == 0
    assert seen == [0, 1, 2, 3, 4]
    assert run(results, perform) == 0
    assert run(results, perform, "--seed", "4") == 0
    assert seen == [*range(5), *range(5)]


def test_a_failure_is_recorded_and_makes_the_status(results, capsys):
    def perform(number):
        if number == 2:
            raise KeyError("lost")
        return {"dtype": shared.DTYPES[number % 2], "outcome": "right", "counts": {"calls": 2}}

    assert run(results, perform) == 1
    assert run(results, perform) == 1
    assert "1 failed [2]" in capsys.readouterr().out
    records = [json.loads(line) for line in results.read_text().splitlines()]
    assert [each["outcome"] for each in records if each.get("case") == 2] == ["FAILED: KeyError"]
    with pytest.raises(KeyError):
        run(results, perform, "--only", "2")
    assert run(results, None, "--report") == 0
    found = capsys.readouterr().out
    assert [*found.splitlines()[3].split()] == ["trial", "3", "5", "2", "1", "0"]
    assert "4 right; 1 FAILED: KeyError; 8 calls" in found


def test_cases_of_other_numbers_and_seeds_are_others():
    first, *others = (shared.parser("", 1).parse_args(["--seed", str(seed)]) for seed in (0, 1))
    draws = {shared.rng_of(args, number).integers(2**60) for args in (first, *others) for number in (0, 1)}
    assert len(draws) == 4


def test_growth_is_that_after_the_first_fits():
    resident = [*np.linspace(100.0, 500.0, shared.WARM), *(500.0 + 0.5 * np.arange(300))]
    first, last, slope = shared.growth(resident)
    assert (first, last) == (500.0, 649.5)
    np.testing.assert_allclose(slope, 0.5)
