"""
A training loop of your own
===========================

The engine without estimators: minibatches are drawn here, the step sizes are chosen here, and
training ends where the density of held-out rows does.
"""

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_diabetes
from sklearn.gaussian_process.kernels import ConstantKernel, Matern

from skgp_natgrad import svgp
from skgp_natgrad.likelihoods import Gaussian

X, y = load_diabetes(return_X_y=True)
X, y = (X - X.mean(0)) / X.std(0), (y - y.mean()) / y.std()
rng = np.random.default_rng(0)
order = rng.permutation(len(X))
held_out, rest = order[:100], order[100:]

settings = svgp.Settings(batch_size=128)
kernel = ConstantKernel() * Matern(np.full(X.shape[1], 3.0), nu=2.5)
plan = svgp.Plan(kernels=(kernel,), likelihood=Gaussian(0.5), n_inducing=50, settings=settings)
table = svgp.Table(X[rest], y[None, rest], np.ones(len(rest)))
state, constants = svgp.init(plan, table, random_state=0)

density, best = [], None
for i in range(400):
    rows = rng.choice(len(rest), settings.batch_size, replace=False)
    batch = svgp.batch(svgp.Table(table.X[rows], table.y[:, rows], table.weight[rows]))
    state, report = svgp.step(state, constants, batch, plan, gamma=min(0.1, 0.01 * (i + 1)), rate=0.01)
    if i % 20 == 19:
        model, _ = svgp.condition(state, constants, plan)
        density.append(svgp.predict(model, X[held_out], "log_density", y[None, held_out]).mean())
        best = model if density[-1] == max(density) else best

print(f"held-out log density: {max(density):.3f}, after {20 * (1 + int(np.argmax(density)))} iterations")
plt.plot(20 * np.arange(1, len(density) + 1), density)
plt.xlabel("iteration")
plt.ylabel("log density of held-out rows")
plt.show()
