"""What the scripts in examples/campaigns share: they go on from their results, and say what failed."""

import json

import numpy as np
import pytest

from .conftest import EXAMPLES, campaign

shared, faults = (campaign(name) for name in ("_campaign", "faults"))


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


def test_a_fault_must_be_noticed_and_its_text_must_be_there(tmp_path, monkeypatch):
    """In a package of one line, of which one test says that it doubles."""
    source, copy = tmp_path / "source", tmp_path / "copy"
    monkeypatch.setattr(faults, "ROOT", source)
    monkeypatch.setattr(faults, "COPIED", ("skgp_natgrad", "tests"))
    for name, lines in {
        "skgp_natgrad/doubled.py": ("def doubled(x):", "    return 2 * x"),
        "tests/test_doubled.py": (
            "from skgp_natgrad.doubled import doubled",
            "def test_it():",
            "    assert doubled(3) == 6",
        ),
    }.items():
        (source / name).parent.mkdir(parents=True)
        (source / name).write_text("\n".join(lines))

    def fault(text, instead):
        return faults.Fault("a fault", "doubled.py", text, instead, ("doubled",))

    of_package = faults.Copy(copy)
    found = faults.perform(0, of_package, [fault("2 * x", "3 * x")])
    assert found == {"outcome": "caught", "fault": "a fault", "test": "test_doubled.py::test_it"}
    with pytest.raises(AssertionError, match="a fault: no test in doubled fails"):
        faults.perform(0, of_package, [fault("2 * x", "x * 2")])
    with pytest.raises(LookupError, match="out of date, since its text occurs 2 times in skgp_natgrad/doubled"):
        faults.perform(0, of_package, [fault("x", "y")])
    assert (copy / "skgp_natgrad/doubled.py").read_text() == (source / "skgp_natgrad/doubled.py").read_text()


def test_there_are_thirty_faults_with_tests():
    assert len({each.name for each in faults.FAULTS}) == len(faults.FAULTS) == 30
    tests = {name for each in faults.FAULTS for name in each.tests}
    assert all((EXAMPLES.parent / "tests" / f"test_{name}.py").exists() for name in tests)
