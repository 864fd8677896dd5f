"""scikit-learn's exact Gaussian processes, on a random part of the rows."""

from __future__ import annotations

import numpy as np
from sklearn.gaussian_process import GaussianProcessClassifier, GaussianProcessRegressor
from sklearn.gaussian_process.kernels import RBF, ConstantKernel, Matern, WhiteKernel

from contenders import Predictor


def train(data, settings, report):
    """Fit on ``settings["n_rows_trained"]`` random rows; one report, at the end."""
    rows = np.random.RandomState(settings["seed"]).permutation(len(data["X"]))[: settings["n_rows_trained"]]
    classifies = settings["task"] == "classification"
    model = (_classifier if classifies else _regressor)(settings, data["X"].shape[1])
    model.fit(data["X"][rows], data["y"][rows])

    def moments(X):
        mean, std = model.predict(X, return_std=True)
        return mean, std**2

    report(0, lambda: Predictor(model.predict, moments, getattr(model, "predict_proba", None)), final=True)


def _regressor(settings, n_features):
    """With the kernel of the orthogonal paper's appendix E, and noise."""
    root = np.sqrt(n_features) * (np.ones(n_features) if settings["ard"] else 1.0)
    kernel = ConstantKernel() * Matern(0.1 * root, nu=2.5) + ConstantKernel() * RBF(root)
    return GaussianProcessRegressor(kernel + WhiteKernel(settings["noise_variance"]), copy_X_train=False)


def _classifier(settings, n_features):
    return GaussianProcessClassifier(ConstantKernel() * RBF(np.sqrt(n_features)), copy_X_train=False)


def search(data, settings):
    """The estimator and the grid of a search."""
    kernel = ConstantKernel() * RBF()
    if settings["task"] == "classification":
        model, prefix = GaussianProcessClassifier(kernel), "kernel"
    else:
        model, prefix = GaussianProcessRegressor(kernel + WhiteKernel(0.1)), "kernel__k1"
    grid = {
        f"{prefix}__k1__constant_value": settings["amplitudes"],
        f"{prefix}__k2__length_scale": settings["length_scales"],
    }
    return model, grid
