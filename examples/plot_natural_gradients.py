"""
Natural against ordinary gradients
==================================

The variational Gaussian q is a distribution. The natural gradient follows its geometry, not that of the numbers by
which it is written down: one step of size one ends at the best q where the noise is Gaussian, and a few steps where
the targets are labels. Adam needs many times as many, and plain gradient ascent more than Adam.
"""

# %%
# Only q is trained
# -----------------
#
# Kernel, noise and 50 inducing points are fixed, so that all solvers climb to the same maximum of the ELBO. Ordinary
# gradients move the mean and the Cholesky factor of the covariance (``"mean_var_sqrt"``), as is usual, with the best of
# the step sizes 0.01, 0.1 and 1 each.

import warnings

import matplotlib.pyplot as plt
import numpy as np
from sklearn.base import clone
from sklearn.datasets import load_breast_cancer, load_diabetes
from sklearn.exceptions import ConvergenceWarning
from sklearn.gaussian_process.kernels import RBF, ConstantKernel

from skgp_natgrad import Constant, NGDSVGPClassifier, NGDSVGPRegressor
from skgp_natgrad.likelihoods import Gaussian

common = {
    "kernel": ConstantKernel(1.0, "fixed") * RBF(4.0, "fixed"),
    "normalize_X": True,
    "n_inducing": 50,
    "train_inducing_points": False,
    "max_iter": 500,
    "tol": 0.0,
    "random_state": 0,
}
problems = {
    "Gaussian noise: diabetes": (NGDSVGPRegressor(likelihood=Gaussian(0.5, "fixed"), **common), load_diabetes()),
    "Labels: breast cancer": (NGDSVGPClassifier(**common), load_breast_cancer()),
}
ordinary = {"parameterization": "mean_var_sqrt"}
solvers = {
    "natural, size 1": [{"solver": "ngd", "gamma_schedule": Constant(1.0)}],
    "natural, size 0.1": [{"solver": "ngd", "gamma_schedule": Constant(0.1)}],
    "Adam": [{"solver": "adam", "learning_rate": Constant(rate), **ordinary} for rate in (0.01, 0.1, 1.0)],
    "gradient ascent": [{"solver": "gd", "learning_rate": Constant(rate), **ordinary} for rate in (0.01, 0.1, 1.0)],
}
# The curves are to have the same length: no fit stops by itself.
warnings.simplefilter("ignore", ConvergenceWarning)

# %%
# The ELBO in each iteration
# --------------------------

figure, axes = plt.subplots(1, 2, figsize=(8, 4.2), layout="constrained")
styles = dict(zip(solvers, (("#0072B2", "-"), ("#56B4E9", "-"), ("#D55E00", "--"), ("black", ":")), strict=True))
for (title, (model, data)), ax in zip(problems.items(), axes, strict=True):
    curves = {}
    for name, candidates in solvers.items():
        fits = [clone(model).set_params(**each).fit(data.data, data.target) for each in candidates]
        best = max(fits, key=lambda each: each.elbo_)
        curves[name] = best.elbo_curve_ / len(data.target)
    top = max(curve.max() for curve in curves.values())
    print(f"{title}: iterations until the ELBO is less than 0.01 nats a row below its maximum, {top:.4f}")
    for name, curve in curves.items():
        close = np.flatnonzero(curve > top - 0.01)
        print(f"  {name:18s} {close[0] if len(close) else f'more than {len(curve)}'}")
        colour, style = styles[name]
        ax.plot(np.arange(len(curve)) + 1, top - curve + 1e-6, style, color=colour, linewidth=2, label=name)
    ax.axhline(0.01, color="0.6", linewidth=0.8)
    ax.set(xscale="log", yscale="log", ylim=(1e-4, 5), title=title, xlabel="iteration (1 is the start)")
axes[0].set_ylabel("ELBO below its maximum (nats a row)")
handles, labels = axes[0].get_legend_handles_labels()
figure.legend(handles, labels, loc="outside lower center", ncols=4, frameon=False)
plt.show()
