"""The page that says what a default fit does: its files exist, and its constants are those of the code."""

import ast
import importlib
import re
from pathlib import Path

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
