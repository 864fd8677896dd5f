"""A program of two processes that fit together, each with its own rows, and print what they found: see test_hosts.

Run by ``python -m tests.several_processes TASK RANK PORT FOLDER``, once for each rank. Rank 0 has more rows than
rank 1, and rank 1 a class of its own.
"""

import hashlib
import json
import os
import signal
import sys
import warnings
from pathlib import Path

import jax
import numpy as np
from sklearn.gaussian_process.kernels import RBF, Matern

from skgp_natgrad import NGDSVGPClassifier, NGDSVGPRegressor, svgp
from skgp_natgrad.training.distinct_rows import distinct

from .conftest import few_points_and_neighbours, rough

N_PROCESSES = 2
RNG = np.random.default_rng(0)
X = RNG.normal(size=(301, 2))
Y = np.sin(2.0 * X[:, 0]) + 0.5 * X[:, 1] ** 2 + 0.1 * RNG.normal(size=301)
WEIGHT = np.linspace(0.5, 1.5, 301)
SHARES = slice(0, 160), slice(160, 301)
LABELS = np.where(np.arange(301) < 160, np.where(Y > 0.5, "a", "b"), np.where(Y > 0.5, "a", "c"))
KERNEL = 1.0 * RBF(np.ones(2))
ALGORITHMS = {
    "full batch": ({}, {}),
    "exact mean": ({"mean_solver": "exact"}, {"n_mean_inducing": 9}),
    "closed form": ({"solver": "evidence", "optimizer": None}, {}),
}
OPTIONS = {"n_inducing": 10, "random_state": 0, "tol": 0.0, "n_devices": "all"}


def table_of(rows, weight=WEIGHT):
    return svgp.Table(X[rows], Y[None, rows], weight[rows])


def engine(rows, n_devices):
    """Bounds and predictions of each algorithm on the full batch."""
    found = {}
    for name, (algorithm, points) in ALGORITHMS.items():
        settings = svgp.Settings(algorithm=svgp.Algorithm(**algorithm), batch_size=1000, max_iter=45)
        found[name] = trained(in_order(table_of(rows)), settings, n_devices, **points)
    return found


def minibatches(rows, n_devices):
    """Half of each batch is drawn from the rows of each process."""
    return trained(table_of(rows), svgp.Settings(batch_size=66, max_iter=45), n_devices)


def in_order(table):
    """The rows in the order in which the estimators have them, and in which processes gather them."""
    return distinct(table, of_labels=False)[0]


def trained(table, settings, n_devices, **points):
    plan = svgp.Plan((KERNEL,), n_inducing=10, n_devices=n_devices, settings=settings, **points)
    result = svgp.train(*svgp.init(plan, in_order(table), random_state=0), table, plan, random_state=0)
    model, _ = svgp.condition(result.state, result.constants, plan)
    mean, var = svgp.predict(model, X[:20], "latent_moments", n_devices=n_devices)
    return {"elbo": result.trained.report.elbo.tolist(), "mean": mean[0].tolist(), "var": var[0].tolist()}


def regressor(**options):
    return NGDSVGPRegressor(
        KERNEL, **{**OPTIONS, "batch_size": 1000, "max_iter": 45, "inducing_init": X[:10], **options}
    )


def estimators(rows, n_devices):
    """Fits from the same points: the scales are those of all rows, and so are the classes."""
    model = regressor(n_devices=n_devices).fit(X[rows], Y[rows], sample_weight=WEIGHT[rows])
    options = {**OPTIONS, "batch_size": 1000, "max_iter": 20, "inducing_init": X[:10], "n_devices": n_devices}
    classifier = NGDSVGPClassifier(KERNEL, **options).fit(X[rows], LABELS[rows])
    return {
        "regressor": model.predict(X[:20]).tolist(),
        "elbo": model.elbo_,
        "classes": classifier.classes_.tolist(),
        "classifier": classifier.predict_proba(X[:20]).tolist(),
    }


def defaults(rows, n_devices):
    """Everything is chosen from the rows: the kernel, the scaling, and the number of points."""
    model = NGDSVGPRegressor(random_state=0, n_devices=n_devices).fit(X[rows], Y[rows])
    mean, found = model.predict(X), {"score": model.score(X, Y), "plan": model.plan_}
    return {"digest": digest(mean, model.elbo_), "mean": mean[:20].tolist(), **found}


def neighbours(rows, n_devices):
    """Whether rows are predicted from their neighbours is left open; these are rows of both processes."""
    few_points_and_neighbours(20)
    x, y = rough(np.random.default_rng(0), 301, 0.1)
    options = {"random_state": 0, "n_devices": n_devices}
    model = NGDSVGPRegressor(1.0 * Matern([1.0, 1.0], nu=1.5), **options).fit(x[rows], y[rows])
    mean, deviation = model.predict(x[:20], return_std=True)
    return {"plan": model.plan_, "mean": mean.tolist(), "deviation": deviation.tolist()}


def digest(*arrays):
    return hashlib.sha256(b"".join(np.ascontiguousarray(each).tobytes() for each in arrays)).hexdigest()


def with_checkpoint(rows, path, callback=None):
    settings = {"batch_size": 66, "max_iter": 60, "checkpoint": path, "checkpoint_every": 0.0, "callback": callback}
    model = regressor(**settings).fit(X[rows], Y[rows])
    return {"elbo": model.elbo_curve_.tolist(), "mean": model.predict(X[:20]).tolist()}


def refused(rows, rank):
    """One process has a row that is refused."""
    spoiled = X[rows].copy()
    spoiled[3] = np.nan if rank == 1 else spoiled[3]
    try:
        regressor().fit(spoiled, Y[rows])
    except (ValueError, RuntimeError) as error:
        return f"{type(error).__name__}: {error}"


def of_arguments(rows, rank):
    """What each process says where arguments are wrong in both, and where they differ."""
    found = []
    for given in ({"max_iter": 0}, {"tol": 0.5 * rank}):
        try:
            regressor(**given).fit(X[rows], Y[rows])
        except ValueError as error:
            found.append(str(error))
    return found


def stopped(rows, rank):
    """The iterations after which training ends, if one process wants it to, and only this one has a callback."""
    callback = (lambda n_iter, model: n_iter == 20) if rank == 1 else None
    return regressor(max_iter=60, callback=callback).fit(X[rows], Y[rows]).n_iter_


def killed(rows, rank, path):
    """The second process is killed in the middle of a fit; what the first one says."""

    def kill(n_iter, model):
        if n_iter == 40 and rank == 1:
            os.kill(os.getpid(), signal.SIGKILL)

    try:
        with_checkpoint(rows, path if rank == 0 else None, kill)
    except RuntimeError as error:
        return str(error)


def main(task, rank, port, folder):
    warnings.simplefilter("ignore")
    rank, rows, path = int(rank), SHARES[int(rank)], str(Path(folder) / "fit.npz")
    jax.distributed.initialize(f"127.0.0.1:{port}", N_PROCESSES, rank, heartbeat_timeout_seconds=30)
    if task == "killed":
        print(json.dumps(killed(rows, rank, path)), flush=True)
        # Without waiting for the other process, as JAX does at the end.
        os._exit(3)
    found = {
        "engine": engine(rows, "all"),
        "minibatches": minibatches(rows, "all"),
        "estimators": estimators(rows, "all"),
        "defaults": defaults(rows, "all"),
        "refused": refused(rows, rank),
        "arguments": of_arguments(rows, rank),
        "stopped": stopped(rows, rank),
        # The other process need not see the folder.
        "resumed": with_checkpoint(rows, path if rank == 0 else str(Path(folder) / "elsewhere" / "fit.npz")),
        "from the start": with_checkpoint(rows, None),
        "neighbours": neighbours(rows, "all"),
        "alone": trained(table_of(rows), svgp.Settings(batch_size=1000, max_iter=2 + rank), None)["elbo"],
    }
    print(json.dumps(found), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
