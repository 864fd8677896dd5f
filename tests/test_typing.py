"""Type checkers accept programs that use the package, and find their mistakes."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import skgp_natgrad

PROGRAMS = Path(__file__).parent / "typing"
# Of libraries without types nothing is known; what is inside this package is not the user's.
OPTIONS = ("--strict", "--ignore-missing-imports", "--follow-imports=silent", "--no-error-summary")


@pytest.mark.slow
def test_mypy_accepts_programs_of_users_and_finds_their_mistakes(tmp_path):
    pytest.importorskip("mypy", reason="mypy is not installed; CI's job for types has it")
    command = [sys.executable, "-m", "mypy", *OPTIONS, f"--cache-dir={tmp_path}"]
    run = subprocess.run(
        [*command, *map(str, sorted(PROGRAMS.glob("*.py")))],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        env=os.environ | {"MYPYPATH": str(Path(skgp_natgrad.__file__).parents[1])},
    )
    errors = re.findall(r"(\w+\.py):(\d+): error", run.stdout)
    lines = (PROGRAMS / "mistakes.py").read_text().splitlines()
    marked = {("mistakes.py", str(i)) for i, line in enumerate(lines, start=1) if line.endswith("# mistake")}
    assert set(errors) == marked, run.stdout + run.stderr
