"""
Points for the mean alone
=========================

Of two things that a Gaussian process predicts, the mean is often the more intricate. Inducing points carry both, and
cost M\\ :sup:`2` a row. The orthogonally decoupled basis adds *mean-only points* (``n_mean_inducing``) that carry the
mean alone, at a linear cost, so that there may be many. What they add, and what they cannot, is shown here on a
surface with more hills than there are inducing points.
"""

# %%
# Hills, and 40 inducing points
# -----------------------------
#
# The surface is drawn from the prior, by random Fourier features, and kernel and noise are the true ones and fixed: all
# models differ only in their points. Then one natural gradient step of size one, on all rows, is the best q. The rest
# of the mean is the solution of a linear system (``mean_solver="exact"``).

import matplotlib.pyplot as plt
import numpy as np
from sklearn.base import clone
from sklearn.gaussian_process.kernels import RBF, ConstantKernel

from skgp_natgrad import NGDSVGPRegressor
from skgp_natgrad.likelihoods import Gaussian

rng = np.random.default_rng(0)
LENGTH, NOISE = 0.1, 0.3
frequency, phase = rng.normal(size=(2, 2000)) / LENGTH, rng.uniform(0, 2 * np.pi, size=2000)
weight = rng.normal(size=2000) * np.sqrt(2 / 2000)


def surface(X):
    """A draw from the Gaussian process with this lengthscale."""
    return np.cos(X @ frequency + phase) @ weight


X, X_test = rng.uniform(size=(3000, 2)), rng.uniform(size=(2000, 2))
y, y_test = (surface(rows) + NOISE * rng.normal(size=len(rows)) for rows in (X, X_test))

kernel = ConstantKernel(1.0, "fixed") * RBF(LENGTH, "fixed")
base = NGDSVGPRegressor(
    kernel, likelihood=Gaussian(NOISE**2, "fixed"), normalize_X=False, normalize_y=False, random_state=0
)
one_step = {
    "solver": "ngd",
    "optimizer": None,
    "gamma_schedule": 1.0,
    "batch_size": None,
    "max_iter": 10,
    "n_iter_no_change": 2,
}


def judged(name, **settings):
    """Fit, print and return the model, its RMSE against the surface and its NLPD."""
    model = clone(base).set_params(**settings).fit(X, y)
    rmse = np.sqrt(np.mean((model.predict(X_test) - surface(X_test)) ** 2))
    nlpd = -model.predict_log_density(X_test, y_test).mean()
    print(f"{name:36s} RMSE {rmse:.3f}, NLPD {nlpd:.3f} nats a row")
    return model, rmse, nlpd


numbers = (0, 25, 50, 100, 200, 400)
found = [
    judged(
        f"40 points + {n} for the mean",
        n_inducing=40,
        n_mean_inducing=n,
        mean_solver="exact" if n else "adam",
        **one_step,
    )
    for n in numbers
]
coupled = {n: judged(f"{n} points", n_inducing=n, **one_step) for n in (80, 160)}
judged(f"all {len(X)} rows", solver="evidence", n_inducing="all")

# %%
# The surface, and the scores
# ---------------------------

figure = plt.figure(figsize=(8, 6.6), layout="constrained")
above, below = figure.subfigures(2, 1)
ticks = np.linspace(0, 1, 80)
grid = np.stack(np.meshgrid(ticks, ticks), axis=-1).reshape(-1, 2)
maps = {
    "true surface": surface(grid),
    "40 points": found[0][0].predict(grid),
    "40 points + 400 for the mean": found[-1][0].predict(grid),
}
for ax, (title, values) in zip(above.subplots(1, 3, sharey=True), maps.items(), strict=True):
    image = ax.imshow(values.reshape(80, 80), vmin=-2.5, vmax=2.5, cmap="cividis", origin="lower", extent=(0, 1, 0, 1))
    ax.set_title(title, fontsize="medium")
axes = below.subplots(1, 2)
for which, (ax, name) in enumerate(zip(axes, ("RMSE of the mean", "NLPD (nats a row)"), strict=True), start=1):
    ax.plot(
        numbers,
        [each[which] for each in found],
        "o-",
        color="#0072B2",
        linewidth=2,
        label="40 points, and for the mean ...",
    )
    ax.axhline(coupled[80][which], color="#D55E00", linestyle="--", label="80 points")
    ax.axhline(coupled[160][which], color="black", linestyle=":", label="160 points")
    ax.set(xlabel="number of mean-only points", title=name)
axes[0].legend(frameon=False, fontsize="small")
plt.show()

# %%
# Mean-only points bring the error of the mean down to that of many inducing points. The density they improve only as
# far as the mean goes: its variance still comes from 40 points, and is too large between them. Where that matters, more
# inducing points are worth their price; where the mean does, mean-only points.
