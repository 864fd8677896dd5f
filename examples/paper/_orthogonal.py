"""The experiments of Salimbeni, Cheng, Boots and Deisenroth (2018).

Settings are those of the paper's appendix E. `tables.py` and the scripts of figures 2
and 3 run them.
"""

from __future__ import annotations

from typing import NamedTuple

import _common as common
import _paper_numbers as paper
import numpy as np
from sklearn.gaussian_process.kernels import RBF, ConstantKernel, Matern

from skgp_natgrad import Constant, Linear, NGDSVGPClassifier, NGDSVGPRegressor
from skgp_natgrad.likelihoods import Gaussian

METHODS = ("coupled300", "couplednat300", "coupled", "couplednat", "orth", "orthnat", "hybrid", "decoupled")
# The estimators as they come, and calibrated with no more than the paper's numbers of points: not in the paper.
OURS = {"nothing set": {}, "300+700": {"n_inducing": 300, "n_mean_inducing": 700, "calibrate": True}}
LABELS = {"coupled300": "coupled†", "couplednat300": "couplednat†"}
# In the order in which a run fills the tables.
REGRESSION = ("pol", "kin40k", "protein", "bike", "elevators", "keggdirected", "keggundirected")
CLASSIFICATION = (
    *("ringnorm", "twonorm", "magic", "mushroom", "adult", "connect-4"),
    *("waveform", "thyroid", "waveform-noise", "wall-following", "page-blocks", "nursery"),
    *("statlog-landsat", "wine-quality-white", "statlog-shuttle", "pendigits", "chess-krvk", "letter"),
)
assert set(CLASSIFICATION) == set(paper.TABLE5) - {"miniboone"}
SETS = {"regression": REGRESSION, "classification": CLASSIFICATION}

# Appendix E.
FULL = {
    "max_iter": 20000,
    "max_rows": None,
    "n_coupled_small": 300,
    "n_coupled": 400,
    "n_covariance": 300,
    "n_mean": 700,
    "batch_size": 1024,
    "mean_columns": 64,
    "learning_rate": 0.001,
    "gamma": 0.005,
    "gamma_initial": 1e-5,
    "gamma_steps": 100,
    "noise": 0.1,
    "jitter": 1e-10,
    "fixed": False,
}

# The tables' iterations where nothing else is asked for: a quarter of the paper's in regression.
ITERATIONS = {"regression": 5000, "classification": 1000}
# A step costs as much as the number of classes: 3 to 5 of them, 6 to 10, 18 and 26.
ITERATIONS_OF_SET = {
    **dict.fromkeys(("waveform", "thyroid", "waveform-noise", "wall-following", "page-blocks", "nursery"), 500),
    **dict.fromkeys(("statlog-landsat", "wine-quality-white", "statlog-shuttle", "pendigits"), 300),
    **dict.fromkeys(("chess-krvk", "letter"), 200),
}


# Splits of a set in the tables; the larger regression sets, and those of classes, have one.
SPLITS_OF_SET = dict.fromkeys(("pol", "elevators", "bike"), (0, 1, 2))


def label(method):
    return LABELS.get(method, method)


def methods_of(task):
    """The methods of a task's tables; those of classification lack the small coupled bases."""
    return tuple(m for m in METHODS if task == "regression" or not m.endswith("300"))


# -- budgets and step sizes ---------------------------------------------------------------


def step_factor(iterations):
    """How many times the paper's steps a shorter training takes, in all methods alike.

    As many times as it has fewer iterations, so that it can go as far, and no more than twenty:
    the natural gradient's step is 0.1 then, Adam's 0.02.
    """
    return float(np.clip(FULL["max_iter"] / iterations, 1.0, 20.0))


def steps(iterations):
    """The step sizes of Adam and of the natural gradient for a number of iterations."""
    return {name: round(step_factor(iterations) * FULL[name], 6) for name in ("learning_rate", "gamma")}


def table_settings(task, dataset, method, iterations=None, max_rows=None):
    """The settings of a fit of the tables: appendix E but for the number of iterations and the steps it asks for.

    Only those that matter to the method: others may change without a new fit.
    """
    if method in OURS:
        # Given points are trained as long as the paper's methods where theirs is the training of all sets.
        length = iterations or (ITERATIONS[task] if task == "regression" else None)
        trained = {"max_iter": length} if length and OURS[method] else {}
        return {"max_rows": max_rows} | OURS[method] | trained
    iterations = iterations or ITERATIONS_OF_SET.get(dataset, ITERATIONS[task])
    made = FULL | steps(iterations) | {"max_iter": iterations, "max_rows": max_rows}
    return method_settings(method, task, made)


def method_settings(method, task, settings):
    """The settings that matter to a method: others may change without a new fit."""
    unused = {"n_coupled_small", "n_coupled", "n_covariance", "n_mean"}
    if method.startswith("coupled"):
        unused -= {"n_coupled_small" if method.endswith("300") else "n_coupled"}
        unused |= {"mean_columns"}
    else:
        unused -= {"n_covariance", "n_mean"}
    if "nat" not in method:
        unused |= {"gamma", "gamma_initial", "gamma_steps"}
    if task == "regression":
        unused |= {"gamma_initial", "gamma_steps"}
    else:
        unused |= {"noise"}
    return {name: value for name, value in settings.items() if name not in unused}


# -- one model ----------------------------------------------------------------------------


def kernel(n_features, task):
    """Matern 5/2 with lengthscale 0.1 sqrt(D), plus RBF with lengthscale sqrt(D)."""
    amplitude, root = (1.0 if task == "regression" else 5.0), np.sqrt(n_features)
    return ConstantKernel(amplitude) * Matern(0.1 * root, nu=2.5) + ConstantKernel(amplitude) * RBF(root)


def points(method, settings):
    """Numbers of points of covariance and mean, and of the mean alone."""
    if method.startswith("coupled"):
        return (settings["n_coupled_small"] if method.endswith("300") else settings["n_coupled"]), 0
    return settings["n_covariance"], settings["n_mean"]


def arguments(method, task, data, seed, settings, device="auto"):
    """The estimator's arguments for a method of the paper."""
    n_inducing, n_mean = points(method, settings)
    natural = "nat" in method
    chosen = {
        "kernel": kernel(data.X.shape[1], task),
        "likelihood": likelihood(task, data.n_classes, settings),
        "n_inducing": n_inducing,
        "n_mean_inducing": n_mean,
        "basis": method if method in ("hybrid", "decoupled") else "orthogonal",
        "inducing_init": "k-means",
        "solver": "ngd" if natural else "adam",
        "optimizer": None if settings["fixed"] else "adam",
        "learning_rate": Constant(settings["learning_rate"]),
        "batch_size": settings["batch_size"],
        "max_iter": settings["max_iter"],
        "mean_columns": settings.get("mean_columns", "auto"),
        "tol": 0.0,
        "normalize_X": False,
        "normalize_y": False,
        "jitter": settings["jitter"],
        "calibrate": False,  # what q says, as in the paper
        "random_state": seed,
        "device": device,
    }
    if method != "decoupled":
        chosen["parameterization"] = "natural" if natural else "mean_var_sqrt"
    if natural:
        chosen["gamma_schedule"] = natural_steps(task, settings)
    return chosen


def natural_steps(task, settings):
    """Constant for the conjugate likelihood, for the others a ramp."""
    if task == "regression":
        return Constant(settings["gamma"])
    return Linear(settings["gamma_initial"], settings["gamma"], n_steps=settings["gamma_steps"])


def likelihood(task, n_classes, settings):
    if task == "regression":
        return Gaussian(variance=settings["noise"], **({"variance_bounds": "fixed"} if settings["fixed"] else {}))
    return "bernoulli" if n_classes == 2 else "robust_max"


class Fit(NamedTuple):
    """A model, the rows of its cell and its record."""

    model: object
    data: common.Split
    record: dict


def fit_cell(one, text, args, n_scores=0, max_seconds=None):
    """Run one cell."""
    settings = one["settings"]
    table = common.load(args.data_dir, one["dataset"])
    data = common.split(table, one["seed"], settings["max_rows"])
    regression = table.task == "regression"
    estimator = NGDSVGPRegressor if regression else NGDSVGPClassifier
    score = (common.score_regression if regression else common.score_classification)(data)
    if one["method"] in OURS:
        chosen = {name: value for name, value in settings.items() if name != "max_rows"}
        made = estimator(random_state=one["seed"], device=args.device, **chosen)
        return Fit(made, data, common.fit_ours(made, data, score))
    if settings["batch_size"] is None:
        settings = settings | {"batch_size": len(data.X)}
    chosen = arguments(one["method"], table.task, data, one["seed"], settings, args.device)
    model, record = common.timed_fit(estimator, chosen, data, text, score, n_scores, max_seconds)
    return Fit(model, data, record)
