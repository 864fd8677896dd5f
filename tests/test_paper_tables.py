"""The tables of examples/paper: what was run is not run again, and every figure of a report is that of its lines."""

import csv
import functools
import json

import numpy as np
import pytest

from .conftest import EXAMPLES, example

PAPER = EXAMPLES / "paper"
script = functools.partial(example, "paper")
common, orthogonal, tables, report = map(script, ("_common", "_orthogonal", "tables", "_tables"))
paper, figures, natural = map(script, ("_paper_numbers", "figures", "_natural"))


def rows_of(text, title):
    """The rows of a csv-table directive, by their first cell."""
    lines = text.splitlines()
    start = next(i for i, line in enumerate(lines) if line.startswith(".. csv-table::") and title in line) + 5
    end = lines.index("", start)
    return {row[0]: row[1:] for row in csv.reader((line.strip() for line in lines[start:end]), skipinitialspace=True)}


def options(*more, results):
    return tables.parse(["--results", str(results), *more])


def record_of(one, **scores):
    """A line as a run writes it."""
    where = {"version": "0.1", "commit": "abc", "jax": "0.8", "date": "2026-01-02T03:04:05"}
    where |= {"processor": "EPYC", "cpus": 2, "jax_device": "cpu: cpu"}
    return one | {"seconds": 36.0, "cpu_seconds": 18.0} | where | scores


# -- what is run --------------------------------------------------------------------------


def test_what_is_in_the_file_is_not_run_again(tmp_path, monkeypatch):
    """Not after the end, not for one more method or split, and not after a line that was cut off."""
    seen = []

    def run(one, text, args):
        seen.append((one["dataset"], one["method"], one["seed"]))
        return {"rmse": 0.5, "mae": 0.4, "log_density": -0.7, "seconds": 1.0, "cpu_seconds": 1.0}

    monkeypatch.setattr(tables, "run_one", run)
    file = tmp_path / "results.jsonl"
    arguments = ["--results", str(file), "--table", "3", "4", "--sets", "pol", "bike", "--splits", "0"]
    assert tables.main([*arguments, "--methods", "orth", "coupled"]) == 0
    # All methods of one set before the next, in the paper's order.
    first = [(dataset, method, 0) for dataset in ("pol", "bike") for method in ("coupled", "orth")]
    assert seen == first
    file.write_text(file.read_text() + file.read_text().splitlines()[-1][:30])
    assert tables.main([*arguments, "--methods", "orth", "coupled", "nothing set", "--splits", "0"]) == 0
    assert seen[4:] == [("pol", "nothing set", 0), ("bike", "nothing set", 0)]
    assert tables.main([*arguments, "--methods", "orth", "--splits", "0", "3"]) == 0
    assert seen[6:] == [("pol", "orth", 3), ("bike", "orth", 3)]
    # Another budget is another fit, but for what has none.
    assert tables.main([*arguments, "--methods", "orth", "nothing set", "--iterations", "20000"]) == 0
    assert seen[8:] == [("pol", "orth", 0), ("bike", "orth", 0)]
    lines = [json.loads(line) for line in file.read_text().splitlines() if line.endswith("}")]
    assert len(lines) == len(seen) == 10
    for key in ("version", "commit", "date", "processor", "cpus", "seconds", "log_density", "rmse"):
        assert all(key in line for line in lines)


def test_each_set_has_its_splits(tmp_path):
    """Those that were asked for, or its own."""
    for more, expected in (((), {"pol": [0, 1, 2], "kin40k": [0]}), (("--splits", "3"), {"pol": [3], "kin40k": [3]})):
        wanted = list(tables.cells("regression", options(*more, results=tmp_path / "none")))
        for dataset, seeds in expected.items():
            assert [one["seed"] for one in wanted if (one["dataset"], one["method"]) == (dataset, "orth")] == seeds


def test_a_fit_that_fails_is_counted_and_leaves_no_line(tmp_path, monkeypatch):
    def run(one, text, args):
        if one["method"] == "coupled":
            raise RuntimeError("no memory")
        return {"accuracy": 0.5, "log_density": -0.7, "seconds": 1.0, "cpu_seconds": 1.0}

    monkeypatch.setattr(tables, "run_one", run)
    file = tmp_path / "results.jsonl"
    arguments = ["--results", str(file), "--table", "5", "--sets", "magic", "--methods", "coupled", "orth"]
    assert tables.main(arguments) == 1
    assert [json.loads(line)["method"] for line in file.read_text().splitlines()] == ["orth"]


def test_a_shorter_training_takes_larger_steps_in_all_methods_alike():
    """The paper's settings at the paper's iterations; never more than twenty times its steps."""
    for task, dataset in (("regression", "pol"), ("classification", "magic")):
        for method in orthogonal.methods_of(task):
            whole = orthogonal.table_settings(task, dataset, method, 20000)
            assert whole == orthogonal.method_settings(method, task, orthogonal.FULL)
            for iterations, factor in ((5000, 4.0), (1000, 20.0), (10, 20.0)):
                short = orthogonal.table_settings(task, dataset, method, iterations)
                changed = {name for name in whole if whole[name] != short[name]}
                assert changed == {"max_iter", "learning_rate"} | ({"gamma"} if "nat" in method else set())
                assert short["learning_rate"] == pytest.approx(factor * 0.001)
                assert short.get("gamma", factor * 0.005) == pytest.approx(factor * 0.005)


def test_given_points_are_trained_as_long_as_the_paper_s_methods():
    """In regression, where one length is that of all sets; nothing set has no iterations."""
    for task, dataset, length in (
        ("regression", "pol", orthogonal.ITERATIONS["regression"]),
        ("classification", "magic", None),
    ):
        assert orthogonal.table_settings(task, dataset, "300+700").get("max_iter") == length
        assert orthogonal.table_settings(task, dataset, "300+700", 7)["max_iter"] == 7
        assert orthogonal.table_settings(task, dataset, "nothing set", 7) == {"max_rows": None}


def test_the_papers_methods_are_not_calibrated():
    """Their tables have the densities of q; the estimators' own calibration changes those of labels."""
    data = common.Split(np.zeros((5, 2)), np.zeros(5), np.zeros((1, 2)), np.zeros(1), 2)
    for task, dataset in (("regression", "pol"), ("classification", "magic")):
        for method in orthogonal.methods_of(task):
            settings = orthogonal.table_settings(task, dataset, method)
            assert orthogonal.arguments(method, task, data, 0, settings)["calibrate"] is False
    settings = natural.BASE | {"max_iter": 5, "likelihood": "bernoulli"} | natural.method_settings("adam", True, 0.01)
    assert natural.arguments(settings, data, 0)["calibrate"] is False


# -- the fits -----------------------------------------------------------------------------


@pytest.fixture
def small(tmp_path, monkeypatch):
    """Sixty rows of two tables, and few points."""
    rng = np.random.default_rng(3)
    X = rng.normal(size=(60, 2))
    for task, name, y in (
        ("regression", "pol", np.sin(X[:, 0]) + 0.1 * rng.normal(size=60)),
        ("classification", "waveform", np.digitize(X[:, 0], (-0.5, 0.5))),
    ):
        (tmp_path / task).mkdir()
        np.savez(tmp_path / task / f"{name}.npz", X=X, y=y)
    sizes = {"n_coupled_small": 12, "n_coupled": 12, "n_covariance": 8, "n_mean": 12, "batch_size": 32}
    monkeypatch.setattr(orthogonal, "FULL", orthogonal.FULL | sizes | {"mean_columns": 4})
    monkeypatch.setitem(orthogonal.OURS, "300+700", {"n_inducing": 8, "n_mean_inducing": 12})
    return tmp_path


@pytest.mark.slow
def test_every_method_of_the_regression_tables_trains(small, capsys):
    """All eight and ours, through the script; then the report finds nothing missing."""
    file = small / "results.jsonl"
    arguments = ["--data-dir", str(small), "--results", str(file), "--table", "3", "1", "--sets", "pol"]
    arguments += ["--splits", "0"]
    assert tables.main([*arguments, "--iterations", "2"]) == 0
    lines = [json.loads(line) for line in file.read_text().splitlines()]
    assert [line["method"] for line in lines] == [*orthogonal.METHODS, *orthogonal.OURS]
    for line in lines:
        assert (line["n"], line["n_test"], line["d"], line.get("iterations", 2)) == (54, 6, 2, 2)
        assert 0.0 < line["mae"] <= line["rmse"] < 2.0
        assert -5.0 < line["log_density"] < 1.0
        assert "curve" not in line
    text = capsys.readouterr().out
    assert report.NOT_RUN not in text
    printed = rows_of(text, "Table 3")["pol"]
    assert printed == [f"{line['log_density']:.3f}" for line in lines]


@pytest.mark.slow
def test_every_method_of_the_classification_tables_has_its_fit(small):
    """One is trained; the arguments of the others differ as those of regression do."""
    file = small / "results.jsonl"
    arguments = ["--data-dir", str(small), "--results", str(file), "--table", "6", "--sets", "waveform"]
    assert tables.main([*arguments, "--iterations", "2", "--methods", "orthnat"]) == 0
    (line,) = map(json.loads, file.read_text().splitlines())
    assert 0.0 <= line["accuracy"] <= 1.0
    assert line["log_density"] < 0.0
    data = common.split(common.load(small, "waveform"), 0)
    for method in orthogonal.methods_of("classification"):
        settings = orthogonal.table_settings("classification", "waveform", method, 2)
        chosen = orthogonal.arguments(method, "classification", data, 0, settings)
        assert chosen["likelihood"] == "robust_max"
        if "nat" in method:
            assert float(chosen["gamma_schedule"](0)) == 1e-5
            assert float(chosen["gamma_schedule"](100)) == pytest.approx(0.1)
        assert (chosen["n_mean_inducing"] > 0) == (not method.startswith("coupled"))


# -- the report ---------------------------------------------------------------------------


def test_the_report_of_some_lines_gives_their_table(tmp_path):
    """Two splits are averaged, missing cells say so, ranks are those of whole rows, the command fills the rest."""
    file = tmp_path / "results.jsonl"
    args = options("--table", "3", "4", "--splits", "0", "1", results=file)
    wanted = list(tables.cells("regression", args))
    assert len(wanted) == 7 * 10 * 2
    results = common.Results(file)
    for one in wanted:
        order = [*orthogonal.METHODS, *orthogonal.OURS].index(one["method"])
        # On pol the methods' order is the reverse of the list, whatever the paper has.
        if one["dataset"] == "pol":
            scores = {"log_density": 0.1 * order + one["seed"], "rmse": 1.0 - 0.1 * order}
        elif one["dataset"] == "bike" and one["method"] == "orth":
            scores = {"log_density": 0.25, "rmse": 0.125}
        else:
            continue
        results.add(record_of(one, **scores))
    folder = tmp_path / "doc"
    assert tables.main(["--results", str(file), "--splits", "0", "1", "--report", str(folder)]) == 0
    text = (folder / "table3.inc").read_text()
    rows = rows_of(text, "Table 3")
    assert rows["pol"] == [f"{0.1 * i + 0.5:.3f}" for i in range(10)]
    assert rows["bike"] == ["not run"] * 4 + ["0.250"] + ["not run"] * 5
    assert rows["kin40k"] == ["not run"] * 10
    assert rows["average rank, 1 set"] == [f"{8 - i:.2f}" for i in range(8)] + [""] * 2
    paper_ranks = np.argsort(np.argsort([-paper.TABLE3["pol"][m] for m in orthogonal.METHODS])) + 1.0
    assert rows["*paper, same sets*"] == [f"{rank:.2f}" for rank in paper_ranks] + [""] * 2
    # Spearman's correlation of two orders without ties, from the differences of their ranks.
    differences = np.arange(8, 0, -1) - paper_ranks
    assert f"data set: {1.0 - 6.0 * (differences**2).sum() / (8 * 63):.2f}." in text
    assert rows_of(text, "On how many")["hybrid ahead of decoupled"][:2] == ["0 of 1", "1 of 1"]
    assert rows_of((folder / "table4.inc").read_text(), "Table 4")["pol"][0] == "1.0000"
    summary = rows_of((folder / "table1.inc").read_text(), "Table 1")
    assert summary["mean, 1 set, here"][:2] == ["1.000", "0.900"]
    assert "22 fits, splits 0, 1, 0.22 hours of training (0.11 of processor time)" in text
    assert "118 fits of 140 not run" in text
    (command,) = [line for line in text.splitlines() if "python examples" in line]
    assert "kin40k" in command
    assert "pol" not in command.split()
    assert command.endswith("--splits 0 1")
    for number in (2, 5, 6):
        assert "python examples/paper/tables.py" in (folder / f"table{number}.inc").read_text()


def test_the_picture_of_the_ranks_has_those_of_the_tables(tmp_path):
    """Of tables with a complete data set, and of these alone."""
    pytest.importorskip("matplotlib")
    file, picture = tmp_path / "results.jsonl", tmp_path / "pictures" / "ranks.png"
    arguments = ["--results", str(file), "--report", str(tmp_path), "--picture", str(picture)]
    wanted = list(tables.cells("classification", options("--table", "5", results=file)))
    results = common.Results(file)
    for one in wanted:
        if one["dataset"] == "magic" and one["method"] != "hybrid":
            order = orthogonal.METHODS.index(one["method"]) if one["method"] in orthogonal.METHODS else 0
            results.add(record_of(one, accuracy=0.01 * order, log_density=-0.1))
    assert tables.main(arguments) == 0
    assert not picture.exists()
    (hybrid,) = (one for one in wanted if (one["dataset"], one["method"]) == ("magic", "hybrid"))
    results.add(record_of(hybrid, accuracy=0.5, log_density=-0.2))
    found = [record for record in map(results.get, wanted) if record is not None]
    assert report.rank_panel(2, wanted, found) == {}
    ((title, (methods, here, theirs)),) = report.rank_panel(5, wanted, found).items()
    assert title == "classification, 1 set\ntest accuracy in per cent"
    assert dict(zip(methods, here, strict=True)) == {
        **{"hybrid": 1.0, "decoupled": 2.0, "orthnat": 3.0},
        **{"orth": 4.0, "couplednat": 5.0, "coupled": 6.0},
    }
    assert dict(zip(methods, theirs, strict=True))["couplednat"] == 1.0
    assert tables.main(arguments) == 0
    assert picture.read_bytes().startswith(b"\x89PNG")


def test_every_figure_says_what_it_takes(capsys):
    for name in figures.FIGURES:
        with pytest.raises(SystemExit) as ended:
            figures.main([name, "--help"])
        assert ended.value.code == 0
        assert "Figure" in capsys.readouterr().out
    assert figures.main(["natural9"]) == figures.main([]) == 2
    assert "natural7" in capsys.readouterr().out


def test_the_command_of_a_report_asks_for_what_is_missing(tmp_path):
    """Its cells are those that were missing, and perhaps some that are there."""
    file = tmp_path / "results.jsonl"
    for more in ([], ["--iterations", "70", "--methods", "orth", "nothing set"], ["--sets", "magic", "pol"]):
        for task, number in (("regression", 4), ("classification", 5)):
            wanted = list(tables.cells(task, options(*more, "--table", str(number), results=file)))
            missing = wanted[1::3]
            text = report.command(number, missing).split("tables.py ")[1].replace('"nothing set"', "nothing_set")
            again = options(*(part.replace("_", " ") for part in text.split()), results=file)
            assert all(one in list(tables.cells(task, again)) for one in missing)
