"""
scikit-learn's examples: regression
===================================

Two of scikit-learn's examples of GaussianProcessRegressor, with data of our own: targets of known noise, and
the level of the noise. With ``n_inducing="all"`` and ``solver="lbfgs"`` both libraries maximise the same evidence, and
agree to several digits; ``tol`` and ``jitter`` are as small as scikit-learn's.
"""

# %%
# Targets of known noise
# ----------------------
#
# ``alpha`` of GaussianProcessRegressor is ``alpha`` of ``fit`` here: variances of the measurements. What remains of
# the noise is fixed to next to nothing. scikit-learn's prediction is that of the function, ``predict_latent``.

import warnings

import matplotlib.pyplot as plt
import numpy as np
from sklearn.exceptions import ConvergenceWarning
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import RBF, WhiteKernel

from skgp_natgrad import NGDSVGPRegressor
from skgp_natgrad.likelihoods import Gaussian

BLUE, ORANGE = "#0072B2", "#D55E00"
same = {
    "n_inducing": "all",
    "solver": "lbfgs",
    "tol": 1e-9,
    "jitter": 1e-12,
    "normalize_X": False,
    "normalize_y": False,
    "random_state": 0,
}


def largest_difference(name, ours, theirs):
    """Print how far pairs of mean and standard deviation lie apart at most."""
    mean, std = (np.abs(a - b).max() for a, b in zip(ours, theirs, strict=True))
    print(f"{name:22s} largest difference of the mean {mean:.1e}, of the standard deviation {std:.1e}")


rng = np.random.default_rng(1)
X = rng.uniform(0, 10, size=(8, 1))
grid = np.linspace(0, 10, 300)[:, None]
f = X[:, 0] * np.sin(X[:, 0])
errors = {"with hardly any noise": np.full(8, 1e-2), "with known noise": rng.uniform(0.5, 2.0, size=8)}
kernel = 1.0 * RBF(1.0)
figure, axes = plt.subplots(1, 2, figsize=(8, 3.8), sharey=True, layout="constrained")
for (name, error), ax in zip(errors.items(), axes, strict=True):
    y = f + error * rng.normal(size=8)
    theirs = GaussianProcessRegressor(kernel, alpha=error**2, n_restarts_optimizer=5, random_state=0).fit(X, y)
    ours = NGDSVGPRegressor(kernel, likelihood=Gaussian(1e-8, "fixed"), **same).fit(X, y, alpha=error**2)
    mean, std = ours.predict_latent(grid, return_std=True)
    largest_difference(name, (mean, std), theirs.predict(grid, return_std=True))
    print(f"{'':22s} ours {ours.kernel_}, theirs {theirs.kernel_}")
    ax.fill_between(grid[:, 0], mean - 1.96 * std, mean + 1.96 * std, color=BLUE, alpha=0.2, label="95 % interval")
    ax.plot(grid, mean, color=BLUE, linewidth=2.5, label="this package")
    ax.plot(grid, theirs.predict(grid), color=ORANGE, linestyle="--", label="scikit-learn")
    ax.plot(grid, grid * np.sin(grid), color="0.4", linestyle=":", label="truth")
    ax.errorbar(X[:, 0], y, 1.96 * error, fmt="o", color="black", markersize=4, label="observed")
    ax.set(title=f"Targets {name}", xlabel="x")
handles, labels = ax.get_legend_handles_labels()
figure.legend(handles, labels, loc="outside lower center", ncols=5, frameon=False)
plt.show()

# %%
# The level of the noise
# ----------------------
#
# Few rows can often be explained in two ways: by a function that waves and little noise, or by a flat one and much
# noise. Each is a maximum of the evidence, and the start decides which is found. scikit-learn has the noise in a
# WhiteKernel; here it is the likelihood's variance. Its ``log_marginal_likelihood_value_`` is the ``elbo_`` here.

rng = np.random.default_rng(2)
X = rng.uniform(0, 6, size=(20, 1))
y = np.sin(2 * X[:, 0]) + 0.4 * rng.normal(size=20)
grid = np.linspace(0, 6, 300)[:, None]
starts = {"long start": (10.0, 1.0), "short start": (0.5, 0.1)}
figure, (left, right) = plt.subplots(1, 2, figsize=(8, 4), layout="constrained")
for (name, (length, noise)), colour in zip(starts.items(), (ORANGE, BLUE), strict=True):
    kernel = 1.0 * RBF(length, (1e-2, 1e3))
    with warnings.catch_warnings():
        # Of the flat function's lengthscale, which ends at its bound, both libraries warn.
        warnings.simplefilter("ignore", ConvergenceWarning)
        theirs = GaussianProcessRegressor(kernel + WhiteKernel(noise, (1e-4, 10.0))).fit(X, y)
        ours = NGDSVGPRegressor(kernel, likelihood=Gaussian(noise, (1e-4, 10.0)), **same).fit(X, y)
    mean, std = ours.predict(grid, return_std=True)
    largest_difference(name, (mean, std), theirs.predict(grid, return_std=True))
    print(f"{'':22s} log evidence: ours {ours.elbo_:.4f}, theirs {theirs.log_marginal_likelihood_value_:.4f}")
    left.plot(grid, mean, color=colour, linewidth=2, label=name)
    left.fill_between(grid[:, 0], mean - 1.96 * std, mean + 1.96 * std, color=colour, alpha=0.15, linewidth=0)
    found = ours.kernel_.k2.length_scale, ours.likelihood_.variance
    right.plot(*found, "*", color=colour, markersize=16, markeredgecolor="black", zorder=3)
    right.plot(length, noise, "o", color=colour, markeredgecolor="black", zorder=3)
left.plot(grid, np.sin(2 * grid), color="0.4", linestyle=":", label="truth")
left.plot(X[:, 0], y, "o", color="black", markersize=4)
left.set(title="Both predictions, 95 %", xlabel="x", ylim=(-2.7, 3.6))
left.legend(loc="upper center", ncols=3, frameon=False, fontsize="small")
lengths, noises = np.geomspace(0.1, 1500, 60), np.geomspace(0.03, 5, 40)
best = theirs.kernel_.theta
surface = [[theirs.log_marginal_likelihood([best[0], np.log(a), np.log(b)]) for a in lengths] for b in noises]
levels = theirs.log_marginal_likelihood_value_ - np.geomspace(0.1, 40, 14)[::-1]
right.contour(lengths, noises, surface, levels=levels, cmap="viridis", linewidths=1)
right.set(title="Log evidence: starts (o), ends (*)", xscale="log", yscale="log")
right.set(xlabel="lengthscale", ylabel="variance of the noise")
plt.show()
