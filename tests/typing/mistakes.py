"""Each marked line is a mistake of a user's that a type checker must find, and no other line: see test_typing.py."""

import numpy as np

from skgp_natgrad import Cosine, NGDSVGPClassifier, NGDSVGPRegressor, svgp
from skgp_natgrad.inspection import PredictiveDisplay
from skgp_natgrad.likelihoods import Gaussian, names
from skgp_natgrad.metrics import DistributionScorer, interval_score


def mistakes() -> None:
    X, y = np.zeros((5, 1)), np.zeros(5)
    NGDSVGPRegressor(solver="newton")  # mistake
    NGDSVGPRegressor(n_inducings=10)  # mistake
    NGDSVGPRegressor(n_inducing=10.5)  # mistake
    NGDSVGPClassifier(missing_targets="ignore")  # mistake
    Cosine(n_steps="many")  # mistake
    Gaussian(variance_bounds="free")  # mistake
    reg = NGDSVGPRegressor(parameterization="mean_var_sqrt").fit(X, y)
    reg.fit(X)  # mistake
    NGDSVGPClassifier().fit(X, y, alpha=0.1)  # mistake
    reg.predict(X, return_std=True).mean()  # mistake
    reg.predict(X).mean()
    reg.predict_interval(X, coverage="0.9")  # mistake
    print(reg.summary().terms[0].size)  # mistake
    names("both")  # mistake
    DistributionScorer("loss")  # mistake
    interval_score(y, y, y, multioutput="none")  # mistake
    PredictiveDisplay.from_estimator(reg, X, y, grid=300)  # mistake
    svgp.Plan(n_points=10)  # mistake
    svgp.train(reg, X, y)  # mistake
