"""
A large table where trees and features lose
===========================================

Twenty thousand rows of a smooth function in which all columns interact: the reach of an elephant's trunk, measured with
noise. Trees need a step for each change in each direction, and random features have one width for all columns, of which
some matter more than others. For such tables a Gaussian process is the better model; :doc:`/when_not` has the other
kinds.
"""

# %%
# The trunk
# ---------
#
# Nine links, each 0.7 times as long as the one before, and between them eight joints, each of which turns by up to 90
# degrees to both sides. The distance from one end to the other is measured with a standard deviation of 0.05.

import matplotlib.pyplot as plt
import numpy as np
from sklearn.ensemble import HistGradientBoostingRegressor
from sklearn.gaussian_process.kernels import RBF
from sklearn.kernel_approximation import Nystroem
from sklearn.linear_model import BayesianRidge, Ridge
from sklearn.model_selection import GridSearchCV, train_test_split
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from skgp_natgrad import NGDSVGPRegressor

NOISE = 0.05
LINKS = 0.7 ** np.arange(9)
N_JOINTS = len(LINKS) - 1


def reach(angles):
    """Distance between the ends, for angles of shape (n_samples, N_JOINTS)."""
    direction = np.cumsum(np.pad(angles, ((0, 0), (1, 0))), axis=1)
    return np.hypot(np.cos(direction) @ LINKS, np.sin(direction) @ LINKS)


rng = np.random.default_rng(0)
X = rng.uniform(-np.pi / 2, np.pi / 2, size=(25_000, N_JOINTS))
y = reach(X) + NOISE * rng.normal(size=len(X))
X_train, X_test, y_train, y_test = train_test_split(X, y, test_size=5000, random_state=0)

# %%
# Four models
# -----------
#
# One kernel with a lengthscale for each joint, and 500 inducing points. The trees' number and the width of Nystroem's
# kernel are chosen on held-out rows. Trees and ridge predict no distribution: theirs is normal, with the deviation of
# their errors on rows held out from the training data.


def with_held_out_deviation(model):
    """Deviation of a model's errors on a fifth of the training rows; the model is then fitted to all of these."""
    split = int(0.8 * len(X_train))
    model.fit(X_train[:split], y_train[:split])
    std = np.sqrt(np.mean((y_train[split:] - model.predict(X_train[split:])) ** 2))
    return model.fit(X_train, y_train), std


features = make_pipeline(StandardScaler(), Nystroem(n_components=500, random_state=0), Ridge(alpha=1e-2))
widths = {"nystroem__gamma": [0.02, 0.06, 0.2]}
search = GridSearchCV(features, widths, cv=2).fit(X_train[:3000], y_train[:3000])
gp = NGDSVGPRegressor(1.0 * RBF(np.ones(N_JOINTS)), solver="evidence", n_inducing=500, random_state=0)
line = BayesianRidge().fit(X_train, y_train)
predictions = {"NGDSVGPRegressor": gp.fit(X_train, y_train).predict(X_test, return_std=True)}
models = {
    "HistGradientBoosting": HistGradientBoostingRegressor(max_iter=1000, early_stopping=True, random_state=0),
    "Nystroem + Ridge": search.best_estimator_,
}
for name, model in models.items():
    model, std = with_held_out_deviation(model)
    predictions[name] = model.predict(X_test), std
predictions["BayesianRidge"] = line.predict(X_test, return_std=True)
print(f"{models['HistGradientBoosting'].n_iter_} rounds of boosting, {search.best_params_}")

print(f"{'':22s} RMSE (noise {NOISE})  log density a row  95 % intervals: hold, mean width")
scores = {}
for name, (mean, std) in predictions.items():
    error = y_test - mean
    rmse = np.sqrt(np.mean(error**2))
    density = np.mean(-0.5 * (error / std) ** 2 - np.log(std) - 0.5 * np.log(2 * np.pi))
    inside, width = np.mean(np.abs(error) < 1.96 * std), 2 * 1.96 * np.mean(std)
    scores[name] = rmse, density
    print(f"{name:22s} {rmse:17.3f}  {density:17.2f}  {100 * inside:22.1f} %, {width:.2f}")

# %%
# What the models have learned
# ----------------------------
#
# Left, the first joint turns and the others stay; the band is the 95 % interval of a measurement. Right, the scores of
# held-out rows, in the same colours.

path = np.tile(rng.uniform(-1, 1, size=N_JOINTS), (200, 1))
path[:, 0] = np.linspace(-np.pi / 2, np.pi / 2, 200)
figure, (left, right) = plt.subplots(1, 2, figsize=(8, 4.4), width_ratios=[3, 2], layout="constrained")
degrees = np.degrees(path[:, 0])
mean = gp.predict(path)
left.fill_between(degrees, *gp.predict_interval(path, coverage=0.95), color="#0072B2", alpha=0.2, linewidth=0)
lines = {
    "NGDSVGPRegressor": (mean, "#0072B2", "-"),
    "HistGradientBoosting": (models["HistGradientBoosting"].predict(path), "#D55E00", "-"),
    "Nystroem + Ridge": (models["Nystroem + Ridge"].predict(path), "#009E73", "-"),
    "BayesianRidge": (line.predict(path), "#CC79A7", "-"),
}
for name, (values, colour, style) in lines.items():
    left.plot(degrees, values, style, color=colour, label=name)
left.plot(degrees, reach(path), color="black", linestyle="--", label="truth")
left.set(title="The first joint turns", xlabel="angle (degrees)", ylabel="reach")
for name, (rmse, density) in scores.items():
    right.plot(rmse, density, "o", markersize=10, color=lines[name][1])
right.axvline(NOISE, color="black", linestyle="--")
right.set(title="Held-out rows", xlabel="RMSE (dashed: noise)", ylabel="log density a row", xlim=(0, None))
handles, labels = left.get_legend_handles_labels()
figure.legend(handles, labels, loc="outside lower center", ncols=3, frameon=False)
plt.show()
