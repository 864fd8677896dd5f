"""Imports point one way, and importing does nothing else."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import skgp_natgrad

PACKAGE = Path(skgp_natgrad.__file__).parent

LEVELS = [
    {"_blas", "_cache", "_inputs", "_linalg", "_memory", "_runtime", "_version", "distances"},
    {"kernels", "likelihoods", "gaussians", "projection", "schedules", "stopping"},
    {"bases", "gains", "parameterizations", "_validation", "_persistence", "_checkpoint"},
    {"sites"},
    {"objectives", "methods", "natural_gradient", "inducing", "lengthscales", "_hyperparameters"},
    {"batches", "_warm_start"},
    {"steps", "posterior", "_rows", "_progress", "_outcome"},
    {"lbfgs", "exact_mean", "constant_model"},
    {"training"},
    {"_base"},
    {"regressor", "classifier"},
    {"__init__"},
]


def level_of(module):
    matches = [i for i, names in enumerate(LEVELS) if module in names]
    assert matches, f"{module} has no level in this test"
    return matches[0]


def imported_modules(path, level=1):
    """Names of the package's modules that a file imports relatively, with so many dots."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and node.level == level:
            yield from [node.module.split(".")[0]] if node.module else [alias.name for alias in node.names]
        if isinstance(node, ast.Import):
            assert not any(alias.name.startswith("skgp_natgrad") for alias in node.names)


def test_imports_point_downwards():
    for path in PACKAGE.glob("*.py"):
        for name in imported_modules(path):
            if (PACKAGE / f"{name}.py").exists() or (PACKAGE / name).is_dir():
                assert level_of(name) < level_of(path.stem), f"{path.name} imports {name}"


def test_numerics_never_import_estimators():
    for path in (PACKAGE / "likelihoods").glob("*.py"):
        for name in imported_modules(path, level=2):
            assert name == "_linalg", f"likelihoods/{path.name} imports {name}"


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


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_fit_leaves_jax_as_it_was():
    import jax
    import numpy as np

    before = dict(jax.config.values)
    skgp_natgrad.NGDSVGPRegressor(n_inducing=3, max_iter=2, tol=1e9).fit(np.arange(9.0).reshape(-1, 1), np.arange(9.0))
    assert dict(jax.config.values) == before
    assert jax.numpy.ones(1).dtype == "float32"
