"""Imports point one way, and importing does nothing else."""

import ast
import graphlib
import re
import subprocess
import sys
from pathlib import Path

import pytest

import skgp_natgrad

PACKAGE = Path(skgp_natgrad.__file__).parent

# The way of a fit, from top to bottom: a file imports from its own folder and from those below.
FLOORS = [
    "__init__",
    "inspection",
    "model_selection",
    "metrics",
    "tools",
    "paper",
    "estimators",
    "estimators/predictions",
    "estimators/fitting",
    "estimators/fitted",
    "estimators/rows",
    "estimators/arguments",
    "svgp",
    "start",
    "choose",
    "solve",
    "training",
    "step",
    "prediction",
    "neighbours",
    "variational",
    "objectives",
    "priors",
    "kernels",
    "likelihoods",
    "_backend",
]


# Annexes import the house, and nothing in it imports them. `__init__`, where users come in, is the door to all of them,
# and the file with the method `export` calls what it stands for when it is called.
ANNEXES = {"inspection", "metrics", "model_selection", "paper", "tools"}
DOORS = {
    "__init__.py": ANNEXES,
    "estimators/predictions/export.py": {"tools"},
}


def floor_of(path):
    parts = path.relative_to(PACKAGE).with_suffix("").parts
    room = "/".join(parts[:2])
    return FLOORS.index(room if room in FLOORS else parts[0])


def imported_files(path):
    """The package's files that a file imports."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and node.level:
            base = path.parents[node.level - 1].joinpath(*(node.module or "").split("."))
            for alias in node.names:
                yield file_of(base / alias.name) or file_of(base)
        names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
        names += [node.module] if isinstance(node, ast.ImportFrom) and not node.level else []
        assert not any(name.startswith("skgp_natgrad") for name in names), f"{path}: imports are relative"


def imported_early(path):
    """Those that it imports before anything is called: all but what a file of methods calls in an annex."""
    through = DOORS.get(path.relative_to(PACKAGE).as_posix(), set()) if path.parent != PACKAGE else set()
    return [other for other in imported_files(path) if other.relative_to(PACKAGE).parts[0] not in through]


def file_of(module):
    found = [path for path in (module.with_suffix(".py"), module / "__init__.py") if path.exists()]
    return found[0] if found else None


def all_files():
    return sorted(PACKAGE.rglob("*.py"))


def test_every_file_has_a_floor():
    assert {path.relative_to(PACKAGE).with_suffix("").parts[0] for path in all_files()} <= set(FLOORS)


def test_nothing_in_the_house_imports_an_annex():
    for path in all_files():
        name = path.relative_to(PACKAGE)
        if name.parts[0] in ANNEXES:
            continue
        found = {other.relative_to(PACKAGE).parts[0] for other in imported_files(path)} & ANNEXES
        assert found <= DOORS.get(name.as_posix(), set()), f"{name} imports {found}"


@pytest.mark.slow
def test_imports_point_downwards():
    for path in all_files():
        for other in imported_early(path):
            assert floor_of(path) <= floor_of(other), f"{path} imports {other}"


def test_pictures_show_folders_that_exist():
    pictures = PACKAGE.parent / "doc" / "pictures"
    for name in ("rooms", "way_of_a_fit"):
        rooms = re.findall(r'class="room">([^<]+)<', (pictures / f"{name}.svg").read_text())
        found = [room for room in rooms if (PACKAGE / room).exists() or (PACKAGE / "estimators" / room).exists()]
        assert len(rooms) > 10
        assert found == rooms
        if name == "rooms":
            assert {room.removesuffix(".py") for room in rooms} == {floor.split("/")[-1] for floor in FLOORS[1:]}


@pytest.mark.slow
def test_imports_make_no_circle():
    graph = {path: set(imported_early(path)) - {path} for path in all_files()}
    # A package's own names are imported by its __init__ alone.
    tuple(graphlib.TopologicalSorter(graph).static_order())


# What the estimators know of the engine: its public face, and what their arguments are made of.
KNOWN_TO_ESTIMATORS = {
    "svgp",
    "kernels",
    "likelihoods",
    "objectives",
    "priors",
    "_backend",
    "choose/scale",
    "training",
}
ONLY_IN_TRAINING = {"schedules", "checkpoint", "checkpoint_file", "distinct_rows", "shares", "__init__"}


def test_estimators_call_the_public_engine_alone():
    for path in (PACKAGE / "estimators").rglob("*.py"):
        for other in imported_early(path):
            parts = other.relative_to(PACKAGE).with_suffix("").parts
            if parts[0] in ("estimators", "__init__"):
                continue
            assert {parts[0], "/".join(parts[:2])} & KNOWN_TO_ESTIMATORS, f"{path.name} imports {other}"
            assert parts[0] != "training" or parts[1] in ONLY_IN_TRAINING, f"{path.name} imports {other}"


def test_few_files_lie_beside_the_rooms_of_the_estimators():
    names = {path.name for path in (PACKAGE / "estimators").glob("*.py")}
    assert names == {"__init__.py", "base.py", "classifier.py", "regressor.py"}


def test_files_classes_and_functions_are_short():
    limits = {ast.ClassDef: 250, ast.FunctionDef: 60}
    of_files = {"estimators/base.py": 250}
    for path in all_files():
        text = path.read_text()
        assert text.count("\n") <= of_files.get(path.relative_to(PACKAGE).as_posix(), 400), path
        for node in ast.walk(ast.parse(text)):
            # A signature with types takes a line for each argument.
            begins = node.body[0].lineno if isinstance(node, ast.FunctionDef) else getattr(node, "lineno", 0)
            n_lines = getattr(node, "end_lineno", 0) - begins + 1
            assert n_lines <= limits.get(type(node), n_lines), f"{path}: {node.name} has {n_lines} lines"


def test_every_number_of_a_module_has_a_reason():
    """Beside each constant with a number a comment says what it is for."""
    without = []
    for path in all_files():
        lines = path.read_text().splitlines()
        for node in ast.parse(path.read_text()).body:
            if not isinstance(node, ast.Assign) or isinstance(node.value, (ast.Call, ast.Dict, ast.Subscript)):
                continue
            has_number = any(type(getattr(each, "value", None)) in (int, float) for each in ast.walk(node.value))
            start = node.lineno - 1
            while start and lines[start - 1].strip():
                start -= 1
            if has_number and not any("#" in line for line in lines[start : node.end_lineno]):
                without.append(f"{path.name}: {lines[node.lineno - 1]}")
    assert not without


def test_every_public_object_has_a_docstring():
    for path in PACKAGE.rglob("*.py"):
        tree = ast.parse(path.read_text())
        assert ast.get_docstring(tree), f"{path.name} has no docstring"
        for node in tree.body:
            if isinstance(node, (ast.FunctionDef, ast.ClassDef)) and not node.name.startswith("_"):
                assert ast.get_docstring(node), f"{path.name}: {node.name} has no docstring"


def test_import_starts_no_backend_and_changes_no_setting():
    code = """
import jax
before = dict(jax.config.values)
import skgp_natgrad
from jax._src import xla_bridge
assert not xla_bridge._backends, "a backend was started"
changed = {k for k, v in jax.config.values.items() if before[k] != v}
assert not changed, changed
import threading
assert threading.active_count() == 1
"""
    subprocess.run([sys.executable, "-c", code], check=True, cwd=PACKAGE.parent)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_fit_leaves_jax_as_it_was():
    import jax
    import numpy as np

    before = dict(jax.config.values)
    skgp_natgrad.NGDSVGPRegressor(n_inducing=3, max_iter=2, tol=1e9).fit(np.arange(9.0).reshape(-1, 1), np.arange(9.0))
    assert dict(jax.config.values) == before
    assert jax.numpy.ones(1).dtype == "float32"


def test_the_page_on_reliability_names_tests_that_exist():
    guide = (PACKAGE.parent / "doc" / "reliability.rst").read_text()
    named = set(re.findall(r"``(test_\w+)``", guide[guide.index("What you can rely on") :]))
    text = "".join(path.read_text() for path in (PACKAGE.parent / "tests").glob("test_*.py"))
    assert len(named) > 10
    assert not {name for name in named if f"def {name}(" not in text}
