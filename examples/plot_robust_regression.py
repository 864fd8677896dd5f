"""
Outliers: a likelihood with heavy tails
=======================================

One row in ten is wrong by far. Under Gaussian noise the fit must explain these rows, by a larger noise and a bent
mean; under Student-t noise it may leave them out. Nothing else is changed.
"""

# %%
# The data
# --------

import matplotlib.pyplot as plt
import numpy as np

from skgp_natgrad import NGDSVGPRegressor
from skgp_natgrad.inspection import PredictiveDisplay

rng = np.random.default_rng(0)
X = np.sort(rng.uniform(0, 10, size=(300, 1)), axis=0)
truth = np.sin(X[:, 0]) + 0.3 * X[:, 0]
y = truth + 0.15 * rng.normal(size=300)
wrong = rng.uniform(size=300) < 0.1
y[wrong] += rng.uniform(2, 6, size=wrong.sum())

# %%
# Two fits
# --------
#
# ``likelihood="student_t"`` finds the degrees of freedom, too: few mean heavy tails.

models = {
    "Gaussian": NGDSVGPRegressor(n_inducing=20, random_state=0),
    "Student-t": NGDSVGPRegressor(likelihood="student_t", n_inducing=20, random_state=0),
}
figure, axes = plt.subplots(1, 2, figsize=(11, 4.2), sharey=True, layout="constrained")
for (name, model), ax in zip(models.items(), axes, strict=True):
    model.fit(X, y)
    error = np.sqrt(np.mean((model.predict(X) - truth) ** 2))
    lower, upper = model.predict_interval(X, coverage=0.8)
    inside = np.mean((lower <= y) & (y <= upper))
    print(f"{name:10s} error of the mean {error:.3f}; {100 * inside:.0f} % of all rows within the 80 % interval")
    PredictiveDisplay.from_estimator(model, X, y, coverages=(0.8,), ax=ax)
    ax.plot(X, truth, color="black", linestyle="--", linewidth=1, label="truth")
    ax.set(title=f"{name}: error of the mean {error:.2f}", xlabel="x", ylabel="y" if name == "Gaussian" else "")
    ax.legend(loc="upper left")
print(models["Student-t"].likelihood_)
plt.show()
