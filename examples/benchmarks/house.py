"""What a fit with nothing set passes through, and digests of small fits: run it before and after the code is moved.

    python examples/benchmarks/house.py                      # files, frames, and a digest of each fit
    python examples/benchmarks/house.py --save before.json   # ... and keep the digests
    python examples/benchmarks/house.py --compare before.json

A digest is of the bits of what a fitted model predicts. Where it differs, the largest difference is printed, relative
to the largest value: rounding is about 1e-12, and anything above it is another model.
"""

import argparse
import hashlib
import json
import sys
import warnings
from pathlib import Path

import numpy as np
from sklearn.gaussian_process.kernels import RBF, DotProduct, Matern

import skgp_natgrad
from skgp_natgrad import NGDSVGPClassifier, NGDSVGPRegressor

PACKAGE = str(Path(skgp_natgrad.__file__).parent)
STEPS = {"solver": "ngd", "n_inducing": 15, "max_iter": 60, "batch_size": 64}


def table(n_rows=150, n_columns=3, seed=0):
    """Columns, numbers and labels."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n_rows, n_columns))
    f = np.sin(2.0 * X[:, 0]) + X[:, 1]
    return X, f + 0.2 * rng.normal(size=n_rows), np.digitize(f + 0.3 * rng.normal(size=n_rows), (-0.7, 0.7)), rng


def regressor(kernel=None, **options):
    """A regressor whose draws are fixed."""
    return NGDSVGPRegressor(kernel, random_state=0, **options)


def classifier(kernel=None, **options):
    """A classifier whose draws are fixed."""
    return NGDSVGPClassifier(kernel, random_state=0, **options)


def plain(model, X, y, **known):
    """A fit."""
    return model.fit(X, y, **known)


def streamed(model, X, y):
    """A fit in three parts."""
    for rows in np.array_split(np.arange(len(X)), 3):
        model.partial_fit(X[rows], y[rows])
    return model


def continued(model, X, y):
    """A fit that goes on from another."""
    return model.set_params(warm_start=True).fit(X, y).fit(X, y)


def cases():
    """Names, and functions that return a fitted model and rows to predict at."""
    X, y, labels, rng = table()
    weight = rng.uniform(0.5, 2.0, len(X))
    counts, T = rng.poisson(np.exp(0.5 * y)).astype(float), X + 0.1
    kernel, long = 1.0 * Matern(nu=2.5), table(6100, 4, 1)
    own = 1.0 * RBF([1.0, 1.0, 1.0]) + 0.1 * DotProduct()
    return {
        "numbers": lambda: (plain(regressor(), X, y), T),
        "numbers, given kernel": lambda: (plain(regressor(kernel), X, y), T),
        "numbers, own lengthscales": lambda: (plain(regressor(own), X, y), T),
        "numbers, weights": lambda: (plain(regressor(kernel), X, y, sample_weight=weight), T),
        "numbers, known noise": lambda: (plain(regressor(kernel), X, y, alpha=0.1 * weight), T),
        "numbers, two columns of y": lambda: (plain(regressor(kernel), X, np.column_stack([y, -X[:, 0]])), T),
        "numbers, few rows": lambda: (plain(regressor(), X[:30], y[:30]), T),
        "numbers, many rows": lambda: (plain(regressor(kernel), long[0], long[1]), long[0][:200] + 0.1),
        "numbers, points": lambda: (plain(regressor(kernel, n_inducing=20), X, y), T),
        "numbers, steps": lambda: (plain(regressor(kernel, **STEPS), X, y), T),
        "numbers, steps and mean points": lambda: (plain(regressor(kernel, n_mean_inducing=8, **STEPS), X, y), T),
        "numbers, exact mean": lambda: (
            plain(regressor(kernel, n_mean_inducing=8, mean_solver="exact", **STEPS), X, y),
            T,
        ),
        "numbers, Student-t": lambda: (plain(regressor(kernel, likelihood="student_t", **STEPS), X, y), T),
        "numbers, stream": lambda: (streamed(regressor(kernel, n_inducing=15, max_iter=60), X, y), T),
        "numbers, warm start": lambda: (continued(regressor(kernel, **STEPS), X, y), T),
        "counts": lambda: (plain(regressor(kernel, likelihood="poisson", **STEPS), X, counts), T),
        "labels": lambda: (plain(classifier(), X, labels), T),
        "two labels, given kernel": lambda: (plain(classifier(kernel), X, labels > 0), T),
        "two labels, weights": lambda: (plain(classifier(kernel), X, labels > 0, sample_weight=weight), T),
        "labels, many rows": lambda: (plain(classifier(kernel), long[0], long[2]), long[0][:200] + 0.1),
        "labels, steps": lambda: (plain(classifier(kernel, **STEPS), X, labels), T),
        "labels, ordinal": lambda: (plain(classifier(kernel, likelihood="ordinal", **STEPS), X, labels), T),
        "labels, points": lambda: (plain(classifier(kernel, n_inducing=20), X, labels), T),
    }


def predicted(model, T):
    """All that a model predicts, in one array."""
    if hasattr(model, "predict_proba"):
        return model.predict_proba(T).ravel()
    return np.concatenate([each.ravel() for each in model.predict(T, return_std=True)])


class Passed:
    """The package's files whose code runs, and the deepest stack of its functions."""

    def __enter__(self):
        self.files, self.deepest, self.stack, self._depth = set(), 0, [], 0
        sys.setprofile(self._called)
        return self

    def __exit__(self, *error):
        sys.setprofile(None)

    def _called(self, frame, event, argument):
        if event not in ("call", "return") or not self._counts(frame):
            return
        self._depth += 1 if event == "call" else -1
        if event == "call":
            self.files.add(frame.f_code.co_filename)
            if self._depth > self.deepest:
                self.deepest, self.stack = self._depth, self._names(frame)

    @staticmethod
    def _counts(frame):
        code = frame.f_code
        # A comprehension is a frame of its own in Python 3.11 alone.
        return code.co_filename.startswith(PACKAGE) and not code.co_name.endswith("comp>")

    @classmethod
    def _names(cls, frame):
        found = []
        while frame is not None:
            if cls._counts(frame):
                found.append(f"{frame.f_code.co_filename[len(PACKAGE) + 1 :]}:{frame.f_code.co_name}")
            frame = frame.f_back
        return found[::-1]


def count(fit, name):
    """Print what a fit passes."""
    with Passed() as passed:
        fit()
    print(f"{name}: {len(passed.files)} files, {passed.deepest} frames of the package at the deepest")
    return passed


def main():
    """Print what is asked for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--save", type=Path)
    parser.add_argument("--compare", type=Path)
    parser.add_argument("--only", default="", help="cases whose name contains this")
    parser.add_argument("--passed", action="store_true", help="only the files and frames of fits with nothing set")
    parser.add_argument("--stack", action="store_true", help="print the deepest stack and the files")
    arguments = parser.parse_args()
    warnings.simplefilter("ignore")
    X, y, labels, _ = table(600, 4, 2)
    for name, model, target in (("numbers", NGDSVGPRegressor(), y), ("labels", NGDSVGPClassifier(), labels)):
        passed = count(lambda model=model, target=target: model.set_params(random_state=0).fit(X, target), name)
        if arguments.stack:
            print(*(f"  {each}" for each in passed.stack), *sorted(passed.files), sep="\n")
    if arguments.passed:
        return
    before = json.loads(arguments.compare.read_text()) if arguments.compare else {}
    found = {}
    for name, fit in cases().items():
        if arguments.only not in name:
            continue
        values = predicted(*fit())
        found[name] = values.tolist()
        said = hashlib.sha256(values.tobytes()).hexdigest()[:12]
        if name in before:
            off = np.max(np.abs(values - before[name])) / np.max(np.abs(before[name]))
            said += " the same" if found[name] == before[name] else f" DIFFERS by {off:.1e}"
        print(f"{name}: {said}", flush=True)
    if arguments.save:
        arguments.save.write_text(json.dumps(found))


if __name__ == "__main__":
    main()
