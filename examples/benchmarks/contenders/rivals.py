"""Regressions and class labels: each library with nothing set but its seed, scored on held-out rows.

`regression` and `classification` fit and score one contender. Its library is imported where it is used.
"""

from __future__ import annotations

import functools
import signal
import time
import warnings

import numpy as np

from contenders import scores
from contenders.long_tables import CONTENDERS as LONG
from contenders.long_tables import Fitted, contest, with_constant_noise


def regression(data, settings):
    """Fit, predict the held-out rows and score; the process ends after ``settings["most_seconds"]``."""
    return contest(data, settings, REGRESSORS)


def classification(data, settings):
    """The same for labels 0, 1, ..."""
    signal.alarm(settings["most_seconds"])
    warnings.simplefilter("ignore")
    y, y_test = data["y"].astype(int), data["y_test"].astype(int)
    start, processor = time.perf_counter(), time.process_time()
    model = CLASSIFIERS[settings["contender"]](data["X"], y, settings["seed"])
    seconds, processor = time.perf_counter() - start, time.process_time() - processor
    proba = model.predict_proba(data["X_test"])
    # NGBoost has no classes: it is told their number.
    classes = np.asarray(getattr(model, "classes_", np.arange(proba.shape[1])), int)
    proba = scores.placed(proba, classes, max(y.max(), y_test.max()) + 1)
    found = scores.of_classes(y_test, proba) | {"seconds": seconds, "processor_seconds": processor}
    # An "error" would be taken for a failure.
    found["error_rate"] = found.pop("error")
    return {name: float(value) for name, value in found.items()}


# -- regressions -------------------------------------------------------------------------------------


def _xgboost(seed):
    from xgboost import XGBRegressor

    return XGBRegressor(random_state=seed)


def _ngboost(X, y, seed):
    from ngboost import NGBRegressor

    model = NGBRegressor(verbose=False, random_state=seed).fit(X, y)

    def moments(X):
        found = model.pred_dist(X)
        return found.loc, found.scale

    return Fitted(moments)


def _xrfm(seed):
    from pytabkit import XRFM_D_Regressor

    return XRFM_D_Regressor(random_state=seed, device="cpu")


def _realmlp(seed):
    from pytabkit import RealMLP_TD_Regressor

    return RealMLP_TD_Regressor(random_state=seed, device="cpu")


REGRESSORS = {name: LONG[name] for name in ("ours", "trees", "catboost", "lightgbm")}
REGRESSORS |= {"ngboost": _ngboost, "xgboost": functools.partial(with_constant_noise, _xgboost)}
REGRESSORS |= {"gpboost": LONG["gpboost vecchia"], "xrfm": functools.partial(with_constant_noise, _xrfm)}
REGRESSORS |= {"realmlp": functools.partial(with_constant_noise, _realmlp)}


# -- class labels: fit X and y with a seed, and return what has predict_proba ------------------------


def _ours_classes(X, y, seed, **arguments):
    from skgp_natgrad import NGDSVGPClassifier

    return NGDSVGPClassifier(random_state=seed, **arguments).fit(X, y)


def _with_trees(X, y, seed):
    return _ours_classes(X, y, seed, mean_function="auto")


def _trees_classes(X, y, seed):
    from sklearn.ensemble import HistGradientBoostingClassifier

    return HistGradientBoostingClassifier(random_state=seed).fit(X, y)


def _catboost_classes(X, y, seed):
    from catboost import CatBoostClassifier

    return CatBoostClassifier(verbose=False, random_seed=seed).fit(X, y)


def _lightgbm_classes(X, y, seed):
    from lightgbm import LGBMClassifier

    return LGBMClassifier(random_state=seed, verbose=-1).fit(X, y)


def _ngboost_classes(X, y, seed):
    from ngboost import NGBClassifier
    from ngboost.distns import k_categorical

    return NGBClassifier(Dist=k_categorical(int(y.max()) + 1), verbose=False, random_state=seed).fit(X, y)


def _xgboost_classes(X, y, seed):
    from xgboost import XGBClassifier

    return XGBClassifier(random_state=seed).fit(X, y)


class _Processes:
    """GPBoost's process of two classes; of more, one process for each against the rest, with probabilities that add up.

    Parameters
    ----------
    fit : callable
        Returns the function that predicts the probability of 1 for given X, from labels 0 and 1.
    """

    def __init__(self, fit, y):
        self.classes_ = np.unique(y)
        of_classes = self.classes_[1:] if len(self.classes_) == 2 else self.classes_
        self._probabilities = [fit((y == label).astype(float)) for label in of_classes]

    def predict_proba(self, X):
        each = np.column_stack([of_class(X) for of_class in self._probabilities])
        each = np.column_stack([1.0 - each, each]) if each.shape[1] == 1 else each
        return each / each.sum(1, keepdims=True)


def _gpboost_classes(X, y, seed):
    """Matern 5/2 with a lengthscale for each column, by the library's Vecchia approximation."""
    from gpboost import GPModel

    centre, scale = X.mean(0), np.where(X.std(0) > 0.0, X.std(0), 1.0)

    def fit(is_one):
        model = GPModel(
            gp_coords=(X - centre) / scale,
            cov_function="matern_ard",
            cov_fct_shape=2.5,
            gp_approx="vecchia",
            likelihood="bernoulli_logit",
            seed=seed,
        )
        model.fit(y=is_one)
        return lambda X: model.predict(gp_coords_pred=(X - centre) / scale, predict_response=True)["mu"]

    return _Processes(fit, y)


def _xrfm_classes(X, y, seed):
    from pytabkit import XRFM_D_Classifier

    return XRFM_D_Classifier(random_state=seed, device="cpu").fit(X, y)


def _realmlp_classes(X, y, seed):
    from pytabkit import RealMLP_TD_Classifier

    return RealMLP_TD_Classifier(random_state=seed, device="cpu").fit(X, y)


CLASSIFIERS = {
    "ours": _ours_classes,
    "with trees": _with_trees,
    "trees": _trees_classes,
    "catboost": _catboost_classes,
    "ngboost": _ngboost_classes,
    "lightgbm": _lightgbm_classes,
    "xgboost": _xgboost_classes,
    "gpboost": _gpboost_classes,
    "xrfm": _xrfm_classes,
    "realmlp": _realmlp_classes,
}
