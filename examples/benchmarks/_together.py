"""What `multi_device` and `multi_process` share: one fit in a process of its own, and the comparison of two."""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
import time
import warnings

import numpy as np
from _common import say

HERE = os.path.dirname(os.path.abspath(__file__))


def data(args, load, split):
    """The rows of training and of the test, standardised, cut to ``--max-rows``."""
    X, y, task = load(args.data_dir, args.dataset)
    X, X_test, y, y_test = split(X, y, task, args)
    return {"X": X, "y": y, "X_test": X_test, "y_test": y_test}


def add_arguments(p):
    """How long to train, and with how many points."""
    p.add_argument("--dataset", default="kin40k")
    p.add_argument("--n-inducing", type=int, default=500)
    p.add_argument("--batch-size", type=int, default=1024)
    p.add_argument("--iterations", type=int, default=400, help="on minibatches")
    p.add_argument("--full-batch-rows", type=int, default=4000)
    p.add_argument("--full-batch-iterations", type=int, default=40)
    p.add_argument("--predicted-rows", type=int, default=100_000)


def fitted(path, settings, rows):
    """Fit twice on minibatches, of which the second one compiles nothing, and once on the full batch.

    ``rows`` chooses those of this process from a table of so many rows. Returns what was measured, and arrays.
    """
    from sklearn.gaussian_process.kernels import ConstantKernel, Matern

    from skgp_natgrad import NGDSVGPRegressor

    warnings.simplefilter("ignore")
    with np.load(path) as file:
        X, y, X_test = (file[name] for name in ("X", "y", "X_test"))
    points = X[np.random.RandomState(0).choice(len(X), settings["n_inducing"], replace=False)]
    model = NGDSVGPRegressor(
        ConstantKernel() * Matern(np.ones(X.shape[1]), nu=2.5),
        n_inducing=len(points),
        inducing_init=points,
        normalize_X=False,
        batch_size=settings["batch_size"],
        max_iter=settings["iterations"],
        tol=0.0,
        random_state=0,
        n_devices=settings["n_devices"],
    )
    own, seconds = rows(len(X)), []
    for _ in range(2):
        start = time.perf_counter()
        model.fit(X[own], y[own])
        seconds.append(time.perf_counter() - start)
    many = np.resize(X_test, (settings["predicted_rows"], X.shape[1]))
    model.predict(many, return_std=True)
    start = time.perf_counter()
    moments = model.predict(many, return_std=True)
    found = {
        "first": seconds[0],
        "step": 1e3 * seconds[1] / settings["iterations"],
        "predicted": len(many) / (time.perf_counter() - start),
    }
    few = settings["full_batch_rows"]
    own = rows(min(few, len(X)))
    model.set_params(batch_size=None, max_iter=settings["full_batch_iterations"]).fit(X[:few][own], y[:few][own])
    mean, std = model.predict(X_test, return_std=True)
    arrays = {"elbo": model.elbo_curve_, "mean": mean, "std": std, "of_minibatches": np.stack(moments)}
    found["peak_memory"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    return found, arrays


def report(found, arrays, output):
    """Hand over what was measured."""
    np.savez(output, found=json.dumps(found), **arrays)


def run(script, commands, outputs, environment):
    """Run processes of a script at the same time; returns what the first one handed over, or None."""
    running = [
        subprocess.Popen([sys.executable, os.path.join(HERE, script), *command], env={**os.environ, **environment})
        for command in commands
    ]
    codes = [process.wait() for process in running]
    if any(codes):
        say(f"LEFT OUT: ended with {codes}")
        return None
    with np.load(outputs[0]) as file:
        first = {name: file[name] for name in file.files if name != "found"}
        found = json.loads(str(file["found"]))
    for path in outputs[1:]:
        with np.load(path) as file:
            same = all(np.array_equal(first[name], file[name]) for name in first)
            found["same bits"] = found.get("same bits", True) and same
    return found, first


def differences(got, want):
    """The largest differences on the full batch: of the bound relative to it, and of predictions in units of y."""
    return {
        "elbo": float(np.abs(got["elbo"] / want["elbo"] - 1.0).max()),
        "prediction": float(max(np.abs(got[name] - want[name]).max() for name in ("mean", "std"))),
    }
