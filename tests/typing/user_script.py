"""A program of a user's, which type checkers must accept as it stands: see test_typing.py."""

from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.gaussian_process.kernels import RBF, Matern

from skgp_natgrad import LogLinear, NGDSVGPClassifier, NGDSVGPRegressor, svgp
from skgp_natgrad.inspection import IntervalCalibrationDisplay, PredictiveDisplay, RelevanceDisplay, TrainingDisplay
from skgp_natgrad.kernels import Columns
from skgp_natgrad.likelihoods import Likelihood, Poisson, StudentT, names
from skgp_natgrad.metrics import crps_gaussian, interval_coverage, negative_log_predictive_density, nlpd_scorer
from skgp_natgrad.model_selection import NGDGridSearchCV
from skgp_natgrad.objectives import Predictive


def table() -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    X = np.linspace(0.0, 10.0, 200)[:, None]
    return X, np.sin(X[:, 0])


def regression() -> float:
    X, y = table()
    reg = NGDSVGPRegressor(
        1.0 * Columns(RBF(), 0) + Matern(nu=2.5),
        likelihood=StudentT(df=4.0, scale_bounds=(1e-3, 1.0), df_bounds="fixed"),
        solver="ngd",
        gamma_schedule=LogLinear(1e-4, 0.1, n_steps=20),
        learning_rate=lambda iteration: 0.1 / (1 + iteration),
        n_inducing=15,
        random_state=0,
    ).fit(X, y, sample_weight=np.ones(200))
    mean = reg.predict(X)
    mean, std = reg.predict(X, return_std=True)
    lower, upper = reg.predict_interval(X, coverage=0.9)
    slope, slope_of_std = reg.predict_gradient(X, return_std=True)
    median: NDArray[np.float64] = reg.predict_quantiles(X, [0.5])[:, 0]
    f_mean, f_std = reg.predict_latent(X, return_std=True)
    covered = float(interval_coverage(y, lower, upper)) + float(crps_gaussian(y, mean, std))
    importances, bound, plan = reg.feature_importances_.max(), reg.elbo_, reg.plan_.upper()
    for term in reg.summary().terms:
        print(term.factors[0].by_column["x0"], term.amplitude)
    print(mean.sum(), slope + slope_of_std, f_mean - f_std, median, importances, plan, reg.partial_fit(X, y).n_iter_)
    return negative_log_predictive_density(y, mean, std) + covered + bound + reg.score(X, y)


def classification(labels: list[str]) -> NDArray[Any]:
    X, _ = table()
    clf = NGDSVGPClassifier(class_weight={"a": 1.0, "b": 2.0}, objective="elbo", batch_size=None).fit(X, labels)
    print(clf.predict_proba(X).sum(), clf.decision_function(X), clf.sample_y(X, 3), clf.classes_.tolist())
    return clf.predict(X)


def searches() -> None:
    X, y = table()
    search = NGDGridSearchCV(NGDSVGPRegressor(), {"n_inducing": [10, 20]}, scoring=nlpd_scorer, early_stopping=True)
    print(search.fit(X, y).best_params_, nlpd_scorer(search, X, y), sorted(names("regression")))
    reg = NGDSVGPRegressor(likelihood="poisson", objective=Predictive(0.5), optimizer=None, dtype="float32")
    likelihood: Likelihood = reg.set_params(likelihood=Poisson()).fit(X, np.round(y**2)).likelihood_
    PredictiveDisplay.from_estimator(reg, X, y).ax_.set_title(str(likelihood))
    IntervalCalibrationDisplay.from_estimator(reg, X, y, coverages=[0.5, 0.9]).plot().figure_.savefig("calibration.png")
    print(TrainingDisplay.from_estimator(reg).axes_, RelevanceDisplay.from_estimator(reg, max_features=3).names)


def engine() -> float:
    X, y = table()
    rows = svgp.Table(X, y[None], np.ones(200))
    plan = svgp.complete(svgp.Plan(n_inducing=10, settings=svgp.Settings(max_iter=200)), rows, random_state=0)
    result = svgp.train(*svgp.init(plan, rows, random_state=0), rows, plan, random_state=0)
    model, jitter = svgp.condition(result.state, result.constants, plan)
    mean, _ = svgp.predict(model, X, "target_moments")
    return float(np.abs(mean - y).max()) + jitter + result.elbo + rows.n_rows
