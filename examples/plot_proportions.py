"""
Proportions: a band that ends at zero and one
=============================================

The share of the ground that plants cover, by the distance from a shore (simulated). A normal distribution knows no
limits, so that its intervals leave the range from zero to one, and it has the same width at the ends as in the middle.
``likelihood="beta"`` has neither fault.
"""

# %%
# Normal and beta
# ---------------

import matplotlib.pyplot as plt
import numpy as np
from scipy.special import expit

from skgp_natgrad import NGDSVGPRegressor
from skgp_natgrad.inspection import PredictiveDisplay

rng = np.random.default_rng(0)


def cover(x):
    """Mean share of covered ground, x metres from the shore."""
    return expit(-3.0 + 6.0 / (1.0 + np.exp((30.0 - x) / 6.0)) - 0.6 * np.cos(x / 5.0))


X = np.sort(rng.uniform(0, 80, size=(500, 1)), axis=0)
mean = cover(X[:, 0])
y = rng.beta(15 * mean, 15 * (1 - mean))
test = np.arange(500) % 2 == 0
models = {
    "Gaussian": NGDSVGPRegressor(n_inducing=20, random_state=0),
    "Beta": NGDSVGPRegressor(likelihood="beta", n_inducing=20, random_state=0),
}
figure, axes = plt.subplots(1, 2, figsize=(8, 4), sharey=True, layout="constrained")
print(f"{'held-out rows':13s} log density  error of the mean  in 95 % intervals  intervals beyond 0 or 1")
for (name, model), ax in zip(models.items(), axes, strict=True):
    model.fit(X[~test], y[~test])
    lower, upper = model.predict_interval(X[test], coverage=0.95)
    density = model.predict_log_density(X[test], y[test]).mean()
    error = np.sqrt(np.mean((model.predict(X[test]) - mean[test]) ** 2))
    inside, beyond = np.mean((lower <= y[test]) & (y[test] <= upper)), np.mean((lower < 0) | (upper > 1))
    print(f"{name:13s} {density:11.3f}  {error:17.4f}  {100 * inside:15.1f} %  {100 * beyond:21.1f} %")
    PredictiveDisplay.from_estimator(model, X[test], y[test], ax=ax)
    ax.plot(X[:, 0], mean, color="black", linestyle="--", linewidth=1, label="true mean")
    ax.axhspan(1, 2, color="0.85", zorder=0)
    ax.axhspan(-1, 0, color="0.85", zorder=0)
    ax.set(title=f"{name}: log density {density:.2f} a row", xlabel="distance from the shore", ylim=(-0.25, 1.25))
    ax.set_ylabel("share of covered ground" if name == "Gaussian" else "")
    handles, labels = ax.get_legend_handles_labels()
    ax.get_legend().remove()
figure.legend(handles, labels, loc="outside lower center", ncols=3, frameon=False)
plt.show()

# %%
# In the gray areas there is nothing to predict. The beta likelihood has one concentration for all rows, which was 15
# when these data were drawn; where the spread varies by itself, see ``likelihood="chained_beta"``.

print(models["Beta"].likelihood_)
