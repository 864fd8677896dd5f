"""
Counts: rates, exposures and quantiles
======================================

Each row is a number of events in some hours of watching, between half an hour and two days. The number of hours is
the *exposure*: its logarithm is added to the latent function (``offset``), and the fit learns the rate per hour.
"""

# %%
# Counts whose exposure differs a hundredfold
# -------------------------------------------

import matplotlib.pyplot as plt
import numpy as np
from sklearn.linear_model import PoissonRegressor
from sklearn.metrics import mean_poisson_deviance
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import SplineTransformer

from skgp_natgrad import NGDSVGPRegressor

rng = np.random.default_rng(0)


def rate(x):
    """Events in an hour at the time x of the day."""
    return 2.0 + 1.8 * np.sin((x - 9.0) * np.pi / 12.0) + 2.0 * np.exp(-((x - 18.0) ** 2))


X = rng.uniform(0, 24, size=(600, 1))
hours = np.exp(rng.uniform(np.log(0.5), np.log(48.0), size=600))
events = rng.poisson(hours * rate(X[:, 0]))
train, test = slice(0, 400), slice(400, None)

# %%
# With and without the exposure
# -----------------------------

with_hours = NGDSVGPRegressor(likelihood="poisson", n_inducing=30, random_state=0)
with_hours.fit(X[train], events[train], offset=np.log(hours[train]))
without = NGDSVGPRegressor(likelihood="poisson", n_inducing=30, random_state=0).fit(X[train], events[train])
splines = make_pipeline(SplineTransformer(n_knots=10), PoissonRegressor(alpha=1e-3, max_iter=1000))
splines.fit(X[train], events[train] / hours[train], poissonregressor__sample_weight=hours[train])

expected = {
    "offset=log(hours)": with_hours.predict(X[test], offset=np.log(hours[test])),
    "no exposure": without.predict(X[test]),
    "PoissonRegressor on splines, rates weighted by hours": splines.predict(X[test]) * hours[test],
}
for name, each in expected.items():
    print(f"{mean_poisson_deviance(events[test], each):8.2f}  mean Poisson deviance, {name}")
lower, upper = with_hours.predict_interval(X[test], coverage=0.9, offset=np.log(hours[test]))
inside = np.mean((lower <= events[test]) & (events[test] <= upper))
print(f"{100 * inside:.0f} % of the held-out counts within their 90 % intervals (integers: at least 90 %)")

# %%
# The rate, and counts in ten hours
# ---------------------------------
#
# Quantiles of counts are integers.

grid = np.linspace(0, 24, 300)[:, None]
low, high = with_hours.predict_interval(grid, coverage=0.9, offset=np.log(10.0))
figure, (left, right) = plt.subplots(1, 2, figsize=(11, 4.2), layout="constrained")
left.scatter(
    X[train, 0], events[train] / hours[train], s=3 * np.sqrt(hours[train]), color="0.6", label="events / hours"
)
left.plot(grid, rate(grid[:, 0]), color="black", linestyle="--", label="true rate")
left.plot(grid, with_hours.predict(grid), color="tab:blue", linewidth=2, label="fitted rate")
left.set(title="Events in an hour (large points: many hours)", xlabel="hour of the day", ylim=(0, 12))
left.legend(loc="upper left")
right.fill_between(grid[:, 0], low, high, step="mid", color="tab:blue", alpha=0.25, label="90 % interval")
right.plot(grid, 10 * with_hours.predict(grid), color="tab:blue", linewidth=2, label="mean")
right.set(title="Events in ten hours", xlabel="hour of the day")
right.legend(loc="upper left")
plt.show()
