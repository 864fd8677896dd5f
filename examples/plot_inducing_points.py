"""
A thousand rows, a few points
=============================

A sparse Gaussian process does not keep the rows. It keeps what it knows of the function at a few *inducing points*,
and training moves these to where they tell most. The bound on the evidence, the ELBO, says how much is lost: it rises
with every further point, to the log evidence of all rows.
"""

# %%
# Points that start on the left
# ------------------------------
#
# Kernel and noise are fixed, so that only the points move and the ELBOs can be compared. All points start in the left
# half of the data, and ``callback`` notes every 20 iterations where they are.

import matplotlib.pyplot as plt
import numpy as np
from sklearn.base import clone
from sklearn.gaussian_process.kernels import RBF, ConstantKernel

from skgp_natgrad import NGDSVGPRegressor
from skgp_natgrad.inspection import PredictiveDisplay
from skgp_natgrad.likelihoods import Gaussian

rng = np.random.default_rng(0)
X = np.sort(rng.uniform(0, 10, size=(1000, 1)), axis=0)
y = np.sin(1.5 * X[:, 0]) + 0.3 * rng.normal(size=1000)
grid = np.linspace(0, 10, 300)[:, None]
model = NGDSVGPRegressor(
    ConstantKernel(0.7, "fixed") * RBF(1.2, "fixed"),
    likelihood=Gaussian(0.09, "fixed"),
    normalize_X=False,
    normalize_y=False,
    random_state=0,
)
training = {"learning_rate": 0.05, "max_iter": 500, "tol": 1e-4}
models, paths = {}, {}
for n_inducing in (5, 8, 14):
    start = np.linspace(0.2, 5.0, n_inducing)
    paths[n_inducing] = [start]
    each = clone(model).set_params(
        n_inducing=n_inducing,
        inducing_init=start[:, None],
        callback=lambda n_iter, now, path=paths[n_inducing]: path.append(now.inducing_points_[:, 0]),
        **training,
    )
    models[n_inducing] = each.fit(X, y)

# %%
# What is lost
# ------------
#
# ``n_inducing="all"`` puts a point at every row: the exact Gaussian process.

exact = clone(model).set_params(solver="evidence", n_inducing="all").fit(X, y)
mean, std = exact.predict_latent(grid, return_std=True)
print("points  ELBO below log evidence (nats)  largest error of the mean, of the deviation of f")
for n_inducing, each in models.items():
    its_mean, its_std = each.predict_latent(grid, return_std=True)
    errors = [np.abs(found - true).max() for found, true in ((its_mean, mean), (its_std, std))]
    print(f"{n_inducing:6d}  {exact.elbo_ - each.elbo_:30.2f}  {errors[0]:25.3f}  {errors[1]:20.3f}")

# %%
# The band and the way of the points
# ----------------------------------
#
# Above, the prediction from each set of points (dashed: the exact mean); below, where the points were in each
# iteration. Where no point arrives, the band is as wide as if there were no data.

figure, axes = plt.subplots(
    2, 3, figsize=(8, 5.4), sharex=True, sharey="row", height_ratios=[3, 2], layout="constrained"
)
for (n_inducing, each), (above, below) in zip(models.items(), axes.T, strict=True):
    PredictiveDisplay.from_estimator(each, X, y, coverages=(0.95,), ax=above)
    above.plot(grid, mean, color="black", linestyle="--", linewidth=1)
    above.get_legend().remove()
    above.set(title=f"{n_inducing} points:\nELBO {exact.elbo_ - each.elbo_:,.1f} nats too low", xlabel="", ylabel="")
    path = np.array(paths[n_inducing])
    below.plot(path, 20 * np.arange(len(path)), color="#D55E00", linewidth=1)
    below.set(xlabel="x", ylabel="iteration" if n_inducing == 5 else "")
axes[0, 0].set_ylabel("y, mean and 95 % interval")
axes[1, 0].invert_yaxis()
plt.show()
