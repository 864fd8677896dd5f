"""The scripts of examples/integrations: each runs where its package is installed, and the guide shows each."""

import importlib.util
import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
SCRIPTS = {path.stem.removeprefix("with_"): path for path in sorted(ROOT.glob("examples/integrations/with_*.py"))}
IMPORTED = {"imbalanced_learn": "imblearn"}


def test_the_guide_shows_each_script():
    shown = re.findall(r"integrations/with_(\w+)\.py", (ROOT / "doc" / "with_other_packages.rst").read_text())
    assert sorted(shown) == list(SCRIPTS)
    assert len(SCRIPTS) == 8


def test_the_extra_installs_what_each_script_needs():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    needed = {requirement.split(">=")[0] for requirement in project["optional-dependencies"]["integrations"]}
    assert needed - {"distributed"} == {name.replace("_", "-") for name in SCRIPTS}


@pytest.mark.parametrize("name", SCRIPTS)
def test_each_script_has_a_recipe_for_the_guide(name):
    recipe, shown = SCRIPTS[name].read_text().partition("# %% The recipe")[2].split("# %% What it shows")
    assert 2 < len(recipe.strip().splitlines()) < 40
    assert "assert" in shown


@pytest.mark.slow
@pytest.mark.parametrize("name", SCRIPTS)
def test_scripts_run(name, tmp_path):
    """In a process of its own, as a user runs it: a script fails if what it shows is not so."""
    package = IMPORTED.get(name, name)
    if importlib.util.find_spec(package) is None:
        pytest.skip(f"{package} is not installed: it comes with the extra integrations")
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))}
    done = subprocess.run(
        [sys.executable, str(SCRIPTS[name])], cwd=tmp_path, env=environment, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip()
