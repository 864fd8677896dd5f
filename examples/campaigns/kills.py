"""Fits that are killed at random moments go on from their checkpoint, to the same bits.

    python examples/campaigns/kills.py --results campaigns.jsonl

Each case is one of nine kinds of fit, or of searches with a folder as ``checkpoint``. It runs in a child
process, which is sent SIGKILL at a random moment between the first iteration and the end (a child that
ends before does not count), one to three times; then a last child completes. What it ends with is
compared, bit by bit, with a fit that nothing interrupted. Checkpoints are written at every chunk of
iterations, so that many kills fall into a write. Children are forked before JAX has started.
"""

from __future__ import annotations

import functools
import multiprocessing
import sys
import tempfile
import time
import warnings
from pathlib import Path

import _campaign
import numpy as np
from sklearn.datasets import make_friedman1
from sklearn.gaussian_process.kernels import RBF
from sklearn.model_selection import GridSearchCV

from skgp_natgrad import NGDSVGPClassifier, NGDSVGPRegressor, enable_compilation_cache
from skgp_natgrad.training import checkpoint

COMMON = {"kernel": 1.0 * RBF(2.0), "n_inducing": 20, "batch_size": 256, "tol": 0.0, "max_iter": 1200}
COMMON |= {"random_state": 0, "checkpoint_every": 0.0}
GRID = {"learning_rate": [0.01, 0.02, 0.05]}
# The estimator, its arguments, and whether it is searched for.
KINDS = {
    "minibatches": (NGDSVGPRegressor, {"n_mean_inducing": 20}, False),
    "search": (NGDSVGPRegressor, {"max_iter": 300}, True),
    "all rows in float32": (NGDSVGPRegressor, {"batch_size": 4096, "dtype": "float32"}, False),
    "classes": (NGDSVGPClassifier, {}, False),
    "search in float32": (NGDSVGPRegressor, {"max_iter": 300, "dtype": "float32"}, True),
    "adam": (NGDSVGPRegressor, {"solver": "adam", "n_mean_inducing": 20, "basis": "decoupled"}, False),
    "exact mean": (NGDSVGPRegressor, {"mean_solver": "exact", "n_mean_inducing": 100}, False),
    "counts in float32": (NGDSVGPRegressor, {"likelihood": "negative_binomial", "dtype": "float32"}, False),
    "search of classes": (NGDSVGPClassifier, {"max_iter": 300}, True),
}
# Seconds after which a child that says nothing is taken for one that hangs.
_LONGEST = 300.0
context = multiprocessing.get_context("fork")


def target(kind):
    """The table of a kind."""
    X, y = make_friedman1(1500, noise=1.0, random_state=0)
    if KINDS[kind][0] is NGDSVGPClassifier:
        return X, y > np.median(y)
    return X, np.round(np.maximum(y, 0.0)) if "counts" in kind else y


class Announcement:
    """Says when it sees the first iteration of the first fit."""

    def __init__(self, said):
        self.said, self.made = said, False

    def __deepcopy__(self, memo):
        # scikit-learn clones an estimator with its arguments.
        return self

    def __call__(self, n_iter, model):
        if not self.made:
            self.said.send(n_iter)
        self.made = True


def fit(kind, place, cache, result, said):
    """What a child does: fit, say when the first iterations are done, and save what it ends with."""
    warnings.simplefilter("ignore")
    checkpoint._TIMES_LAST_WRITE = 0.0
    enable_compilation_cache(cache)
    (cls, options, searches), (X, y) = KINDS[kind], target(kind)
    # A folder's name ends in a separator, and it is made by the fit.
    place = f"{place}/folder/" if searches else f"{place}/fit.npz"
    model = cls(**{**COMMON, **options}, checkpoint=place, callback=Announcement(said))
    scores = np.zeros(0)
    if searches:
        search = GridSearchCV(model, GRID, cv=2, error_score="raise").fit(X, y)
        model, scores = search.best_estimator_, search.cv_results_["mean_test_score"]
    else:
        model.fit(X, y)
    predicted = model.predict_proba(X) if cls is NGDSVGPClassifier else np.array(model.predict(X, return_std=True))
    np.savez(result, predicted=predicted, scores=scores, curve=model.elbo_curve_, elbo=model.elbo_)


def start(kind, folder, cache, result):
    """Start a child; return it and the first iteration that it reached, or None if it ended before."""
    said, says = context.Pipe(duplex=False)
    child = context.Process(target=fit, args=(kind, folder, cache, result, says))
    child.start()
    says.close()
    try:
        if not said.poll(_LONGEST):
            child.kill()
            raise TimeoutError(f"{kind}: a child hangs")
        return child, said.recv()
    except EOFError:
        return child, None


@functools.cache
def reference(kind, cache):
    """What a fit ends with that nothing interrupts, and the seconds that it took from its first iterations."""
    with tempfile.TemporaryDirectory() as folder:
        result = Path(folder) / "whole.npz"
        # Twice: the first one compiles.
        for _ in range(2):
            child, _ = start(kind, folder, cache, result)
            began = time.monotonic()
            child.join()
        return dict(np.load(result)), time.monotonic() - began


def perform(number, args, cache):
    """Kill children at random moments, then let one complete."""
    rng, kind = _campaign.rng_of(args, number), list(KINDS)[number % len(KINDS)]
    whole, seconds = reference(kind, cache)
    n_kills, seen = rng.integers(1, 4), {"kills": 0, "files left": 0, "half-written files left": 0}
    with tempfile.TemporaryDirectory() as place:
        folder, result = Path(place), Path(place) / "result.npz"
        while seen["kills"] < n_kills:
            child, _ = start(kind, folder, cache, result)
            time.sleep(rng.uniform(0.0, seconds))
            seen["kills"] += child.is_alive()
            child.kill()
            child.join()
            seen["files left"] += bool([path for path in folder.rglob("*.npz") if path != result])
            seen["half-written files left"] += any(folder.rglob(".skgp_natgrad-*.part"))
        child, _ = start(kind, folder, cache, result)
        child.join()
        assert child.exitcode == 0, f"{kind}: the child that was to complete ended with status {child.exitcode}"
        left = [path.name for path in folder.rglob("*.npz") if path != result]
        assert not left, f"{kind}: {left} is left"
        found = np.load(result)
        wrong = [name for name in whole if not np.array_equal(found[name], whole[name])]
        assert not wrong, f"{kind}: {', '.join(wrong)} differ"
    dtype = KINDS[kind][1].get("dtype", "float64")
    return {"dtype": dtype, "kind": kind, "outcome": "same bits", "counts": seen}


def main(argv=None):
    args = _campaign.parser(__doc__, 110).parse_args(argv)
    with tempfile.TemporaryDirectory() as cache:
        return _campaign.run(args, "kills", lambda number: perform(number, args, cache))


if __name__ == "__main__":
    sys.exit(main())
