"""The pictures of the tutorial and the user guide, in ``doc/pictures``.

    python examples/benchmarks/guide_pictures.py                # all of them
    python examples/benchmarks/guide_pictures.py sizes          # one

All rows are simulated, with fixed seeds.
"""

from __future__ import annotations

import argparse
import warnings
from pathlib import Path

import matplotlib
import numpy as np
from scipy.stats import norm
from sklearn.datasets import make_friedman1
from sklearn.ensemble import HistGradientBoostingRegressor
from sklearn.exceptions import ConvergenceWarning
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import RBF, WhiteKernel
from sklearn.model_selection import train_test_split

from skgp_natgrad import NGDSVGPRegressor
from skgp_natgrad.inspection import IntervalCalibrationDisplay, PredictiveDisplay, RelevanceDisplay, TrainingDisplay
from skgp_natgrad.metrics import interval_coverage, interval_score, nlpd_scorer

matplotlib.use("Agg")
import matplotlib.pyplot as plt

FOLDER = Path(__file__).resolve().parents[2] / "doc" / "pictures"
BLUE, ORANGE, GREY = "#0072B2", "#D55E00", "#8C8C8C"


def first_hour():
    """The fit of the tutorial: the coverage of its intervals, and the columns that matter."""
    X, y = make_friedman1(1000, n_features=10, noise=1.0, random_state=0)
    X, X_test, y, y_test = train_test_split(X, y, test_size=0.3, random_state=0)
    reg = NGDSVGPRegressor(random_state=0).fit(X, y)
    figure, (left, right) = plt.subplots(1, 2, figsize=(9.0, 3.8), layout="constrained")
    IntervalCalibrationDisplay.from_estimator(reg, X_test, y_test, ax=left)
    RelevanceDisplay.from_estimator(reg, ax=right)
    return figure


def likelihoods():
    """The same curve under four distributions of y, each with the likelihood for it."""
    rng = np.random.default_rng(0)
    X = np.sort(rng.uniform(0.0, 10.0, size=200))[:, None]
    curve = np.sin(X[:, 0])
    outliers = curve + 0.15 * rng.normal(size=200) + 3.0 * (rng.uniform(size=200) < 0.1) * rng.normal(size=200)
    varying = curve + (0.05 + 0.08 * X[:, 0]) * rng.normal(size=200)
    cases = {
        "gaussian": outliers,
        "student_t": outliers,
        "heteroscedastic_gaussian": varying,
        "poisson": rng.poisson(np.exp(1.0 + curve)).astype(float),
    }
    figure, axes = plt.subplots(2, 2, figsize=(9.0, 6.6), layout="constrained")
    for ax, (name, y) in zip(axes.flat, cases.items(), strict=True):
        options = {"n_inducing": 20, "max_iter": 400, "random_state": 0}
        reg = NGDSVGPRegressor(1.0 * RBF(0.5), likelihood=name, **options).fit(X, y)
        PredictiveDisplay.from_estimator(reg, X, y, ax=ax)
        ax.get_legend().remove()
        of = {"gaussian": "outliers", "student_t": "the same outliers", "poisson": "counts"}
        ax.set_title(f'likelihood="{name}": {of.get(name, "noise that varies")}', fontsize=10)
    for ax in axes[0]:
        ax.set_ylim(-4.5, 4.5)
    handles, names = axes[0, 0].get_legend_handles_labels()
    figure.legend(handles, names, loc="outside lower center", ncols=5, frameon=False)
    return figure


def training():
    """A course of training as it should look, and one that was cut short."""
    X, y = make_friedman1(3000, n_features=5, noise=1.0, random_state=0)
    labels = y + np.random.default_rng(0).standard_t(2.0, size=3000)
    figure, axes = plt.subplots(2, 2, figsize=(9.0, 4.6), sharex="col", height_ratios=[3, 2], layout="constrained")
    for column, (max_iter, title) in zip(axes.T, ((600, "has levelled off"), (80, "still rising")), strict=True):
        options = {"n_inducing": 60, "max_iter": max_iter, "tol": 0.0, "random_state": 0}
        reg = NGDSVGPRegressor(1.0 * RBF(np.ones(5)), likelihood="student_t", **options).fit(X, labels)
        TrainingDisplay.from_estimator(reg, ax=column)
        column[0].set_title(f"max_iter={max_iter}: {title}", fontsize=10)
        column[1].set_title("")
    return figure


def sizes():
    """What points buy: the density of held-out rows by the number of inducing points, for three functions."""
    rng = np.random.default_rng(0)
    X = rng.uniform(size=(3000, 2))
    functions = {
        "nearly a plane": X @ [2.0, 1.0] + 0.3 * np.sin(3.0 * X[:, 0]),
        "some hills": np.sin(6.0 * X[:, 0]) * np.cos(5.0 * X[:, 1]),
        "many hills": np.sin(25.0 * X[:, 0]) * np.cos(20.0 * X[:, 1]),
    }
    numbers = [5, 10, 20, 40, 80, 160, 320]
    figure, ax = plt.subplots(figsize=(7.0, 3.8), layout="constrained")
    for (name, curve), colour in zip(functions.items(), (GREY, ORANGE, BLUE), strict=True):
        y = curve + 0.1 * rng.normal(size=3000)
        parts = train_test_split(X, y / y.std(), test_size=0.3, random_state=0)
        density = [_density(n_inducing, *parts) for n_inducing in numbers]
        ax.plot(numbers, density, "o-", color=colour, label=name)
    ax.set(xscale="log", xlabel="n_inducing", ylabel="log density of held-out rows, nats")
    ax.set_xticks(numbers, map(str, numbers))
    ax.minorticks_off()
    ax.legend(frameon=False)
    for side in ("top", "right"):
        ax.spines[side].set_visible(False)
    return figure


def _density(n_inducing, X, X_test, y, y_test):
    options = {"n_inducing": n_inducing, "max_iter": 300, "tol": 0.0, "random_state": 0}
    return nlpd_scorer(NGDSVGPRegressor(1.0 * RBF([0.3, 0.3]), **options).fit(X, y), X_test, y_test)


def intervals():
    """A curve with noise that grows and a gap in X: intervals of 90 %, here, by trees and by scikit-learn's process."""
    rng = np.random.default_rng(0)
    X, T = (np.sort(rng.uniform(0.0, 10.0, size=n))[:, None] for n in (400, 4000))
    X = X[(X[:, 0] < 6.0) | (X[:, 0] > 7.5)]
    y, t = (np.sin(2.0 * x) + (0.05 + 0.06 * x) * rng.normal(size=len(x)) for x in (X[:, 0], T[:, 0]))
    ours = NGDSVGPRegressor(random_state=0).fit(X, y)
    tails = [HistGradientBoostingRegressor(loss="quantile", quantile=q, random_state=0).fit(X, y) for q in (0.05, 0.95)]
    exact = GaussianProcessRegressor(1.0 * RBF(1.0) + WhiteKernel(0.1), normalize_y=True).fit(X, y)
    found = {
        "NGDSVGPRegressor()": ours.predict_interval(T, coverage=0.9),
        "HistGradientBoosting, two quantiles": [each.predict(T) for each in tails],
        "GaussianProcessRegressor": norm.interval(0.9, *exact.predict(T, return_std=True)),
    }
    figure, axes = plt.subplots(1, 3, figsize=(11.0, 3.4), sharey=True, layout="constrained")
    for ax, (name, (lower, upper)) in zip(axes, found.items(), strict=True):
        ax.plot(X[:, 0], y, ".", color=GREY, markersize=3)
        ax.fill_between(T[:, 0], lower, upper, color=BLUE, alpha=0.3, linewidth=0)
        score = interval_score(t, lower, upper, 0.9)
        ax.set_title(f"{name}\ncovers {interval_coverage(t, lower, upper):.0%}, interval score {score:.2f}", fontsize=9)
    return figure


PICTURES = {
    "intervals": intervals,
    "first_hour": first_hour,
    "likelihoods": likelihoods,
    "training": training,
    "sizes": sizes,
}


def main(argv=None):
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("names", nargs="*", choices=[[], *PICTURES], default=[])
    p.add_argument("--folder", type=Path, default=FOLDER)
    args = p.parse_args(argv)
    args.folder.mkdir(parents=True, exist_ok=True)
    for name in args.names or PICTURES:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)
            PICTURES[name]().savefig(args.folder / f"guide_{name}.png", dpi=110)
        print(args.folder / f"guide_{name}.png", flush=True)


if __name__ == "__main__":
    main()
