"""
Streaming: partial_fit on batches that are not kept
===================================================

Measurements arrive in batches, and their inputs move. ``partial_fit`` learns from each batch without the earlier ones:
their posterior at the inducing points stands for them. How much that loses is measured against a fit to all rows.
"""

# %%
# A stream
# --------
#
# Each of six batches of 200 rows covers its own stretch of x. Before a batch is learned, its density is predicted
# from the batches before it: low where x is new.

import time

import matplotlib.pyplot as plt
import numpy as np
from sklearn.gaussian_process.kernels import RBF

from skgp_natgrad import NGDSVGPRegressor
from skgp_natgrad.inspection import PredictiveDisplay

rng = np.random.default_rng(0)


def truth(x):
    return np.sin(1.5 * x) + 0.15 * x


batches = []
for start in 2.0 * np.arange(6):
    x = np.sort(rng.uniform(start, start + 2.6, 200))
    batches.append((x[:, None], truth(x) + 0.2 * rng.normal(size=200)))

options = {"kernel": 1.0 * RBF(), "n_inducing": 40, "normalize_X": False, "random_state": 0}
stream = NGDSVGPRegressor(**options)
figure, axes = plt.subplots(3, 1, figsize=(7.5, 8), sharex=True, sharey=True, layout="constrained")
axis_after = dict(zip((0, 2, 5), axes, strict=True))
for i, (X, y) in enumerate(batches):
    before = f"{stream.predict_log_density(X, y).mean():5.2f} before, " if i else ""
    start = time.perf_counter()
    stream.partial_fit(X, y)
    seconds = time.perf_counter() - start
    after = stream.predict_log_density(X, y).mean()
    print(f"batch {i + 1}: log density a row {before}{after:.2f} after it is learned; {seconds:4.1f} s")
    if i in axis_after:
        ax = axis_after[i]
        PredictiveDisplay.from_estimator(stream, np.array([[0.0], [12.6]]), coverages=(0.95,), ax=ax)
        for X_old, y_old in batches[:i]:
            ax.plot(X_old, y_old, ".", color="0.8", markersize=3, zorder=0)
        ax.plot(X, y, ".", color="0.25", markersize=4, zorder=0, label="this batch (earlier: light)")
        ax.set(title=f"After batch {i + 1}", xlabel="x" if i == 5 else "", ylim=(-2.8, 3.6))
        ax.legend(loc="upper right", fontsize=9, ncols=2).set_visible(i == 0)

# %%
# A fit to all rows
# -----------------

X, y = np.vstack([X for X, _ in batches]), np.concatenate([y for _, y in batches])
together = NGDSVGPRegressor(**options).fit(X, y)
for name, model in (("stream", stream), ("all rows in one fit", together)):
    error = np.sqrt(np.mean((model.predict(X) - truth(X[:, 0])) ** 2))
    print(f"{name:20s} log density a row {model.predict_log_density(X, y).mean():.3f}, error of the mean {error:.4f}")
apart = np.abs(stream.predict(X) - together.predict(X)).max()
print(f"the two means are nowhere more than {apart:.3f} apart; the noise is 0.2")
plt.show()
