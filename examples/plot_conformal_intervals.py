"""
Conformal intervals with MAPIE
==============================

A model that is wrong about the noise has intervals of the wrong width. Conformal prediction corrects them by rows
that were held out: the coverage is then right on average, whatever the model. Here the noise grows with x, the
likelihood says that it does not, and `MAPIE <https://mapie.readthedocs.io>`_ corrects it: with one width for all
rows, and with widths in proportion to deviations that a second likelihood has learned.
"""

# %%
# Data, and two models
# --------------------

import matplotlib.pyplot as plt
import numpy as np
from sklearn.base import BaseEstimator, RegressorMixin

try:
    from mapie.conformity_scores import ResidualNormalisedScore
    from mapie.regression import SplitConformalRegressor
except ImportError as error:
    raise SystemExit("This example is skipped: it needs MAPIE (pip install mapie).") from error

from skgp_natgrad import NGDSVGPRegressor
from skgp_natgrad.metrics import interval_coverage, interval_score

rng = np.random.default_rng(0)
X = rng.uniform(0, 10, size=(2400, 1))
y = np.sin(X[:, 0]) + (0.05 + 0.08 * X[:, 0]) * rng.standard_t(4, size=2400)
train, held_out, test = slice(0, 400), slice(400, 800), slice(800, None)

steady = NGDSVGPRegressor(n_inducing=20, random_state=0).fit(X[train], y[train])
varying = NGDSVGPRegressor(likelihood="heteroscedastic_gaussian", n_inducing=20, random_state=0).fit(X[train], y[train])

# %%
# Three kinds of intervals
# ------------------------
#
# A ``ResidualNormalisedScore`` takes a regressor that predicts the size of residuals. A fitted model's deviation is
# one.


class Deviation(RegressorMixin, BaseEstimator):
    """The predicted standard deviation of a fitted model, as a regressor."""

    is_fitted = True  # MAPIE looks for this, or for the attributes of a fit

    def __init__(self, model):
        self.model = model

    def fit(self, X, y):
        return self

    def predict(self, X):
        return self.model.predict(X, return_std=True)[1]


def conformal(model, score):
    """Ends of the 90 % intervals of the test rows by split conformal prediction."""
    regressor = SplitConformalRegressor(model, confidence_level=0.9, conformity_score=score, prefit=True)
    _, ends = regressor.conformalize(X[held_out], y[held_out]).predict_interval(X[test])
    return ends[:, 0, 0], ends[:, 1, 0]


intervals = {
    "Gaussian likelihood alone": steady.predict_interval(X[test], coverage=0.9),
    "Conformal, one width": conformal(steady, "absolute"),
    "Conformal, in deviations": conformal(varying, ResidualNormalisedScore(Deviation(varying), prefit=True)),
}
low_noise = X[test, 0] < 5
figure, axes = plt.subplots(3, 1, figsize=(7.5, 8.5), sharex=True, sharey=True, layout="constrained")
order = np.argsort(X[test, 0])
for (name, (lower, upper)), ax in zip(intervals.items(), axes, strict=True):
    overall, left, right = (
        interval_coverage(y[test][rows], lower[rows], upper[rows]) for rows in (slice(None), low_noise, ~low_noise)
    )
    print(
        f"{name:26s} hold {100 * overall:.1f} %: {100 * left:.1f} % where x < 5, {100 * right:.1f} % elsewhere; "
        f"interval score {interval_score(y[test], lower, upper, 0.9):.2f}"
    )
    inside = (lower <= y[test]) & (y[test] <= upper)
    ax.fill_between(X[test][order, 0], lower[order], upper[order], color="tab:blue", alpha=0.2, label="90 % interval")
    ax.plot(X[test][inside, 0], y[test][inside], ".", color="0.6", markersize=2, label="inside")
    ax.plot(X[test][~inside, 0], y[test][~inside], ".", color="tab:red", markersize=4, label="outside")
    ax.set(title=f"{name}: {100 * left:.0f} % where x < 5, {100 * right:.0f} % elsewhere", ylabel="y", ylim=(-4, 4))
    ax.axvline(5, color="black", linewidth=0.6)
axes[0].legend(loc="upper left", fontsize=9, ncols=3)
axes[-1].set_xlabel("x")
plt.show()
