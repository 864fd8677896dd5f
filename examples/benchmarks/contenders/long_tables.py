"""Regressions of long tables: each library with what it recommends for them, scored on held-out rows.

A contender's function fits ``X`` and ``y`` and returns a `Fitted`. `contest` measures it. NumPy and SciPy are needed,
and the library of the contender, which is imported where it is used.
"""

from __future__ import annotations

import functools
import signal
import sys
import time
import warnings
from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from contenders import scores as of_predictions

# Rows of the prediction that warms up.
_WARM_UP = 500


class Fitted(NamedTuple):
    """A fitted regression.

    Attributes
    ----------
    moments : callable
        Returns mean and standard deviation of the targets of rows X, noise included.
    scores : callable, optional
        Returns the mean log density and CRPS of rows X with targets y, and the bounds of the 95 % intervals; those of
        normal distributions where None.
    """

    moments: Callable
    scores: Callable | None = None


def contest(data, settings, known=None):
    """Fit one of ``known`` (default: `CONTENDERS`), predict the held-out rows and score.

    The process ends after ``settings["most_seconds"]``.
    """
    known = CONTENDERS if known is None else known
    signal.alarm(settings["most_seconds"])
    warnings.simplefilter("ignore")
    X_test, y_test = data["X_test"], data["y_test"]
    start, processor = time.perf_counter(), time.process_time()
    fitted = known[settings["contender"]](data["X"], data["y"], settings["seed"])
    seconds, processor = time.perf_counter() - start, time.process_time() - processor
    fitted.moments(X_test[:_WARM_UP])
    start = time.perf_counter()
    mean, deviation = fitted.moments(X_test)
    rate = len(X_test) / (time.perf_counter() - start)
    if fitted.scores is None:
        density, crps, bounds = of_predictions.of_normal(y_test, mean, deviation)
    else:
        density, crps, bounds = fitted.scores(X_test, y_test)
    found = {"rmse": np.sqrt(np.mean((y_test - mean) ** 2)), "density": density, "crps": crps}
    found |= {"coverage": np.mean((bounds[0] <= y_test) & (y_test <= bounds[1])), "seconds": seconds}
    found |= {"processor_seconds": processor, "rate": rate}
    return {name: float(value) for name, value in found.items()}


# -- contenders: fit X and y with a seed -------------------------------------------------------------


def _ours(X, y, seed, **arguments):
    from skgp_natgrad import NGDSVGPRegressor
    from skgp_natgrad.metrics import crps_scorer

    model = NGDSVGPRegressor(random_state=seed, **arguments).fit(X, y)
    print(model.summary(), file=sys.stderr)

    def scores(X, y):
        return model.predict_log_density(X, y).mean(), -crps_scorer(model, X, y), model.predict_interval(X, 0.95)

    return Fitted(functools.partial(model.predict, return_std=True), scores)


def with_constant_noise(make, X, y, seed):
    """A model of the mean alone, with the mean squared error of a tenth of the rows that another such fit left out."""
    part = np.random.default_rng(seed).permutation(len(X)) < len(X) // 10
    inner = make(seed).fit(X[~part], y[~part])
    deviation = np.sqrt(np.mean((inner.predict(X[part]) - y[part]) ** 2))
    model = make(seed).fit(X, y)
    return Fitted(lambda X: (model.predict(X), np.full(len(X), deviation)))


def _trees(seed):
    from sklearn.ensemble import HistGradientBoostingRegressor

    return HistGradientBoostingRegressor(random_state=seed)


def _lightgbm(seed):
    from lightgbm import LGBMRegressor

    return LGBMRegressor(random_state=seed, verbose=-1)


def _catboost(X, y, seed):
    from catboost import CatBoostRegressor

    model = CatBoostRegressor(loss_function="RMSEWithUncertainty", verbose=False, random_seed=seed).fit(X, y)

    def moments(X):
        mean, variance = model.predict(X).T
        return mean, np.sqrt(variance)

    return Fitted(moments)


def _gpboost(X, y, seed, approximation):
    """Matern 5/2 with a lengthscale for each column; the numbers of neighbours and points are the library's own."""
    from gpboost import GPModel

    centre, scale = X.mean(0), np.where(X.std(0) > 0.0, X.std(0), 1.0)
    model = GPModel(
        gp_coords=(X - centre) / scale,
        cov_function="matern_ard",
        cov_fct_shape=2.5,
        gp_approx=approximation,
        likelihood="gaussian",
        seed=seed,
    )
    model.fit(y=y)

    def moments(X):
        found = model.predict(gp_coords_pred=(X - centre) / scale, predict_var=True, predict_response=True)
        return found["mu"], np.sqrt(found["var"])

    return Fitted(moments)


def _gpytorch(X, y, seed, kind):
    from contenders import gpytorch_long_tables

    return Fitted(gpytorch_long_tables.fitted(X, y, seed, kind))


CONTENDERS = {
    "ours": _ours,
    "ours from files": _ours,
    "ours n_neighbors=0": functools.partial(_ours, n_neighbors=0),
    "trees": functools.partial(with_constant_noise, _trees),
    "lightgbm": functools.partial(with_constant_noise, _lightgbm),
    "catboost": _catboost,
    "gpboost vecchia": functools.partial(_gpboost, approximation="vecchia"),
    "gpboost full-scale": functools.partial(_gpboost, approximation="full_scale_vecchia"),
    "gpytorch svgp": functools.partial(_gpytorch, kind="svgp"),
    "gpytorch vnngp": functools.partial(_gpytorch, kind="vnngp"),
}
