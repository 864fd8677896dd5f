"""The page that says what a default fit does: its files exist, and its constants are those of the code."""

import ast
import importlib
import re
from pathlib import Path

import numpy as np
import pytest

import skgp_natgrad

PAGE = Path(__file__).parents[1] / "doc" / "how_it_works.rst"
SECTION = "The default regression in twelve steps"


def rows_of_the_page():
    """The file and the constants, by name, of each step."""
    text = PAGE.read_text(encoding="utf-8").split(SECTION)[1].split("What a step costs")[0]
    for row in text.split("   * - ")[2:]:
        (file,) = re.findall(r"``(\w+/\w+)\.py``", row)
        constants = {name: ast.literal_eval(value) for name, value in re.findall(r"``(\w+) = ([^`]+)``", row)}
        yield pytest.param(file.replace("/", "."), constants, id=row.splitlines()[0])


ROWS = list(rows_of_the_page()) if PAGE.exists() else []


@pytest.mark.skipif(not ROWS, reason="without the folder of pages, as in an installed package")
def test_there_are_twelve_steps():
    assert len(ROWS) == 12


@pytest.mark.parametrize(("file", "constants"), ROWS)
def test_the_constants_of_a_step_are_those_of_its_file(file, constants):
    module = importlib.import_module(f"{skgp_natgrad.__name__}.{file}")
    assert constants
    assert {name: getattr(module, name) for name in constants} == constants


# -- the page of all numbers ----------------------------------------------------------------------

# The files of a default fit below the estimators: of the steps, of class labels and of repeated rows.
FILES = (
    *(f"choose/{path.stem}" for path in (Path(skgp_natgrad.__file__).parent / "choose").glob("[a-z]*.py")),
    *(f"start/{name}" for name in ("choice", "dispersion", "errors", "few_labels", "few_rows", "inducing_points")),
    *(f"start/{name}" for name in ("kernel_of_labels", "places", "points_or_neighbours", "sizes", "state")),
    "start/routes/one_step",
    *(f"solve/{name}" for name in ("class_labels", "closed_form", "common_covariance", "exact", "further_points")),
    *(f"solve/{name}" for name in ("held_out_labels", "left_out", "noise_search", "row_means")),
    *(f"prediction/{name}" for name in ("calibration", "dispersion", "errors", "left_out")),
    "neighbours/nearest",
)


def lines_of_numbers():
    """The file and the constants, by name, of each line of the page of numbers."""
    for line in (PAGE.parent / "numbers.rst").read_text(encoding="utf-8").splitlines():
        if line.startswith("   ") and line.count("|") == 2 and "``" in line:
            file, constants, _ = line.split("|")
            yield file.strip(), dict(re.findall(r"``(\w+) = ([^`]+)``", constants))


def with_numbers(file):
    """The names of a file's constants whose values hold a number."""
    tree = ast.parse((Path(skgp_natgrad.__file__).parent / f"{file}.py").read_text(encoding="utf-8"))
    for node in tree.body:
        if isinstance(node, ast.Assign) and any(isinstance(each, ast.Constant) for each in ast.walk(node.value)):
            names = [each.id for target in node.targets for each in ast.walk(target) if isinstance(each, ast.Name)]
            yield from (name for name in names if name.isupper() and re.search(r"\d", ast.unparse(node.value)))


@pytest.mark.skipif(not ROWS, reason="without the folder of pages, as in an installed package")
def test_the_page_of_numbers_has_those_of_the_code_and_each_once():
    found = {}
    for file, constants in lines_of_numbers():
        module = importlib.import_module(f"{skgp_natgrad.__name__}.{file.replace('/', '.')}")
        assert constants
        for name, value in constants.items():
            assert (file, name) not in found
            found[file, name] = value
            np.testing.assert_equal(eval(value, vars(module)), getattr(module, name), err_msg=f"{file}: {name}")
    of_steps = {(row.values[0].replace(".", "/"), name) for row in ROWS for name in row.values[1]}
    assert not of_steps & set(found)
    assert {file for file, _ in [*of_steps, *found]} <= set(FILES)
    unlisted = {(file, name) for file in FILES for name in with_numbers(file)} - of_steps - set(found)
    # Mathematics, and what a library says, decide nothing.
    assert not {each for each in unlisted if each[1] not in ("LOG_2PI", "_OF_NOTHING", "_EPS", "_MATERN")}
