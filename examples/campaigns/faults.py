"""Thirty faults that a change of the numerics could bring in; the everyday tests must catch each one.

    python examples/campaigns/faults.py --results faults.jsonl

A fault is a text in a file of the package and what stands there instead. The script copies the package and its tests
into a temporary folder, puts in one fault at a time, and runs the test files that must notice it. The text must occur
exactly once: a fault whose text has gone is out of date, and counts as a failure until it is written anew for the
present code. The last case is the package as it is, which has to pass all of these files.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import NamedTuple

import _campaign

ROOT = Path(__file__).resolve().parents[2]
COPIED = ("skgp_natgrad", "tests", "examples", "pyproject.toml")
# Exit statuses of pytest.
_PASSED, _FAILED = 0, 1


class Fault(NamedTuple):
    """A fault, and who notices it.

    Attributes
    ----------
    name : str
        What is wrong.
    file : str
        In the folder of the package.
    text, instead : str
    tests : tuple of str
        Names of test files, of which one must fail.
    """

    name: str
    file: str
    text: str
    instead: str
    tests: tuple


FAULTS = (
    Fault(
        "the slope in a lengthscale lacks its factor of two",
        "kernels/stationary.py",
        "rate_bar = 2.0 / rate",
        "rate_bar = 1.0 / rate",
        ("projection",),
    ),
    Fault(
        "known variances are scaled like deviations",
        "likelihoods/gaussian.py",
        "known / scale[:, None] ** 2",
        "known / scale[:, None]",
        ("known_parts",),
    ),
    Fault(
        "the bound has every row once, whatever its weight",
        "variational/bound.py",
        "batch.weight * each, 0.0",
        "each, 0.0",
        ("equivalence",),
    ),
    Fault(
        "the jitter of the inducing points is added twice",
        "variational/points.py",
        "Kzz, jitter = map(np.asarray, _covariance_and_jitter(log_kernel, Z, mask, jitter))",
        "Kzz, jitter = map(np.array, _covariance_and_jitter(log_kernel, Z, mask, jitter))\n"
        "    Kzz[np.diag_indices(len(Kzz))] += jitter",
        ("small_noise",),
    ),
    Fault(
        "the past of a stream is projected by the transposed matrix",
        "variational/streaming.py",
        "B @ T @ B.T",
        "B.T @ T @ B",
        ("streaming",),
    ),
    Fault(
        "the step size takes away what the last step removed",
        "step/adaptive_gamma.py",
        "(now + gain.gamma * before)",
        "(now - gain.gamma * before)",
        ("gains",),
    ),
    Fault(
        "training goes on from a checkpoint one chunk late",
        "training/batches.py",
        "        if self._prepared is not None:\n            return self._prepared[0]\n",
        "",
        ("checkpoints",),
    ),
    Fault(
        "the evidence of the exact process has the determinant with the other sign",
        "solve/exact.py",
        "(self.y[k] @ alphas[k, :n]) + found.half_log_det",
        "(self.y[k] @ alphas[k, :n]) - found.half_log_det",
        ("exact_process",),
    ),
    Fault(
        "a row that is left out keeps its part in the variance",
        "solve/left_out.py",
        "residual + own / rest + noise, rest",
        "residual + own + noise, rest",
        ("closed_form",),
    ),
    Fault(
        "the noise is not divided by the weight",
        "choose/evidence.py",
        "noise_variance(x[self._noises], self._rows) / self._rows.weight",
        "noise_variance(x[self._noises], self._rows)",
        ("evidence",),
    ),
    Fault(
        "a kernel is judged by the rows that it was fitted to",
        "choose/splits.py",
        "Split(merged(table.rows(rest)), table.rows(part), part)",
        "Split(merged(table), table.rows(part), part)",
        ("small_tables",),
    ),
    Fault(
        "lengthscales go to the columns by the inverse of their order",
        "choose/view.py",
        "found[self._order] = values[: self.width]",
        "found[:] = values[self._order]",
        ("invariance",),
    ),
    Fault(
        "the kernel that predicts worst is taken",
        "choose/search.py",
        "sorted(found, key=lambda each: -each[-1].density)",
        "sorted(found, key=lambda each: each[-1].density)",
        ("small_tables",),
    ),
    Fault(
        "rows that train a kernel judge it",
        "choose/dense.py",
        "rows.outside(max(n_evidence, n_more))",
        "rows.outside(1)",
        ("by_neighbours",),
    ),
    Fault(
        "the noise of neighbours is not divided by their weights",
        "choose/by_neighbours.py",
        "(noise + rows.known_near) / rows.weight_near",
        "noise + rows.known_near",
        ("by_neighbours",),
    ),
    Fault(
        "a judge is predicted from itself and its copies",
        "choose/neighbours.py",
        "left[without_weight] = left[group == own] = np.inf",
        "left[without_weight] = np.inf",
        ("by_neighbours",),
    ),
    Fault(
        "rows of weight zero are neighbours",
        "choose/neighbours.py",
        "left[without_weight] = left[group == own] = np.inf",
        "left[group == own] = np.inf",
        ("by_neighbours",),
    ),
    Fault(
        "errors of rounding have twelve times their variance",
        "start/dispersion.py",
        "least = width**2 / 12.0",
        "least = width**2",
        ("errors",),
    ),
    Fault(
        "the least deviation of rounded targets is taken for a variance",
        "start/dispersion.py",
        "_OF_ROUNDING**2 * floors",
        "_OF_ROUNDING * floors",
        ("dispersion",),
    ),
    Fault(
        "a mixture of normals has a mean that is not zero",
        "start/errors.py",
        "        centres[varies] -= weights @ centres / weights[varies].sum()\n",
        "",
        ("errors",),
    ),
    Fault(
        "copies of a row tell what it is",
        "start/few_rows.py",
        "    means, variances = apart\n",
        "",
        ("small_tables",),
    ),
    Fault(
        "kernels of labels have equal shares, whatever they predict",
        "start/kernel_of_labels.py",
        "_sum_of(found, share, X), searches=True)",
        "_sum_of(found, np.full(len(found), 1.0 / len(found)), X), searches=True)",
        ("kernel_of_labels",),
    ),
    Fault(
        "the calibration of class probabilities is found and not applied",
        "prediction/model.py",
        "likelihood = Calibrated(likelihood, calibration)",
        "likelihood = Calibrated(likelihood, Calibration())",
        ("class_labels",),
    ),
    Fault(
        "the variance beyond the rows has the factor of the deviations",
        "prediction/dispersion.py",
        "factor(log_factor, xp) * seen + (var - seen)",
        "factor(log_factor, xp) * var",
        ("dispersion",),
    ),
    Fault(
        "neighbours come by their numbers instead of their distances",
        "neighbours/nearest.py",
        "np.lexsort((some, squares))",
        "np.lexsort((squares, some))",
        ("neighbours",),
    ),
    Fault(
        "the noise of neighbours is scaled like a deviation",
        "neighbours/process.py",
        "self.noise / unit**2, ABSENT",
        "self.noise / unit, ABSENT",
        ("neighbours_fit",),
    ),
    Fault(
        "levels of a category are shifted by one column",
        "estimators/rows/encoding.py",
        "self.encoder.transform(levels), *self._further(levels)",
        "np.roll(self.encoder.transform(levels), 1, axis=1), *self._further(levels)",
        ("levels",),
    ),
    Fault(
        "a mean function has seen the rows whose errors it leaves",
        "estimators/rows/out_of_fold.py",
        "rest, held = part != k, part == k",
        "rest, held = part >= 0, part == k",
        ("mean_function",),
    ),
    Fault(
        "covariances of y are scaled like deviations",
        "estimators/predictions/moments.py",
        "covariance *= estimator._y_scale.scale**2",
        "covariance *= estimator._y_scale.scale",
        ("known_parts",),
    ),
    Fault(
        "drawn labels have the inverse of their order",
        "estimators/predictions/class_distribution.py",
        "self.classes_[np.argsort(ranks)]",
        "self.classes_[ranks]",
        ("class_labels",),
    ),
)


class Copy:
    """The package and its tests in a folder of their own."""

    def __init__(self, folder):
        self.folder = Path(folder)
        without = shutil.ignore_patterns("__pycache__", "*.jsonl")
        for name in COPIED:
            source = ROOT / name
            if source.is_dir():
                shutil.copytree(source, self.folder / name, ignore=without)
            else:
                shutil.copy(source, self.folder)

    @contextlib.contextmanager
    def having(self, fault):
        """Context manager: the copy has the fault."""
        path = self.folder / "skgp_natgrad" / fault.file
        text = path.read_text(encoding="utf-8") if path.exists() else ""
        n_found = text.count(fault.text)
        if n_found != 1:
            raise LookupError(
                f"{fault.name}: out of date, since its text occurs {n_found} times in skgp_natgrad/{fault.file}. Write "
                f"the same fault for the present code: {fault.text!r}."
            )
        path.write_text(text.replace(fault.text, fault.instead), encoding="utf-8")
        try:
            yield
        finally:
            path.write_text(text, encoding="utf-8")

    def failed(self, tests):
        """The first test of these files that fails, or None; an error if they do not run."""
        files = [f"tests/test_{name}.py" for name in tests]
        # Whether a program was compiled before changes no test.
        variables = {**os.environ, "JAX_COMPILATION_CACHE_DIR": str(self.folder / "programs")}
        variables["PYTHONPATH"] = str(self.folder)
        command = [sys.executable, "-m", "pytest", "-x", "-q", "-n", "0", "-p", "no:cacheprovider", *files]
        found = subprocess.run(command, cwd=self.folder, env=variables, capture_output=True, text=True, check=False)
        if found.returncode not in (_PASSED, _FAILED):
            raise RuntimeError(f"pytest ended with status {found.returncode}:\n{found.stdout}{found.stderr}")
        if found.returncode == _PASSED:
            return None
        return re.search(r"^(?:FAILED|ERROR) tests/(\S+)", found.stdout, re.MULTILINE)[1]


def perform(number, copy, faults=FAULTS):
    """Put in a fault, which a test must notice; after the last one no test may fail."""
    if number == len(faults):
        failed = copy.failed(sorted({name for fault in faults for name in fault.tests}))
        assert failed is None, f"without any fault {failed} fails, which therefore catches nothing"
        return {"outcome": "passed without a fault"}
    fault = faults[number]
    with copy.having(fault):
        failed = copy.failed(fault.tests)
    assert failed is not None, f"{fault.name}: no test in {', '.join(fault.tests)} fails"
    print(f"{number}: {fault.name}: {failed}", flush=True)
    return {"outcome": "caught", "fault": fault.name, "test": failed}


def main(argv=None):
    args = _campaign.parser(__doc__, len(FAULTS) + 1).parse_args(argv)
    # There are no other cases: a seed draws nothing.
    args.n_cases = min(args.n_cases, len(FAULTS) + 1)
    with tempfile.TemporaryDirectory() as folder:
        copy = None if args.report else Copy(folder)
        return _campaign.run(args, "faults", lambda number: perform(number, copy))


if __name__ == "__main__":
    sys.exit(main())
