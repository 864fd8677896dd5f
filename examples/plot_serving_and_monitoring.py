"""
Saving, serving and monitoring a model
======================================

A model is fitted and written to a file. What serves it reads the file, predicts rows one at a time, and watches whether
its distributions still hold: when the sensors change, the share of targets within the predicted intervals tells sooner
and more clearly than the errors do.
"""

# %%
# Fit and save
# ------------
#
# ``pickle`` is for files of one's own. ``skops`` with ``trusted_types()`` loads a file without running code from it.

import pickle
import tempfile
import time
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
from scipy.stats import binom

from skgp_natgrad import NGDSVGPRegressor
from skgp_natgrad.inspection import ResidualDisplay

rng = np.random.default_rng(0)


def measure(n_rows, noise=0.2, shift=0.0):
    """Rows of four sensors, and a target whose noise and level may change."""
    X = rng.normal(size=(n_rows, 4))
    y = np.sin(2 * X[:, 0]) + 0.5 * X[:, 1] * X[:, 2] + shift + noise * rng.normal(size=n_rows)
    return X, y


path = Path(tempfile.mkdtemp()) / "model.pickle"
path.write_bytes(pickle.dumps(NGDSVGPRegressor(random_state=0).fit(*measure(600))))
print(f"the file has {path.stat().st_size / 1e6:.1f} MB")

# %%
# Serve
# -----
#
# Few rows are predicted without compiled programs; the mean and the deviation of one row are one call.

model = pickle.loads(path.read_bytes())
rows, _ = measure(201)
seconds = []
for row in rows:
    start = time.perf_counter()
    model.predict(row[None], return_std=True)
    seconds.append(time.perf_counter() - start)
print(f"one row: {1e3 * np.median(seconds[1:]):.2f} ms (median), {1e3 * np.quantile(seconds[1:], 0.95):.2f} ms (95 %)")

# %%
# Monitor
# -------
#
# ``predict_cdf`` is the probability integral transform: where in its predicted distribution a target lies. It is uniform
# if the distributions are right. In each window of a hundred rows, those outside the central 90 % are counted; a count
# that chance exceeds once in ten thousand windows raises the alarm. For comparison, the same for the absolute error, with
# the alarm at three deviations above its mean over the first ten windows.

WINDOW, COVERAGE = 100, 0.9
normal, noisy = measure(2000), measure(2000, noise=0.3)
X, y = (np.concatenate(parts) for parts in zip(normal, noisy, strict=True))
pit = model.predict_cdf(X, y)
outside = (np.abs(pit - 0.5) > COVERAGE / 2).reshape(-1, WINDOW).sum(1)
error = np.abs(y - model.predict(X)).reshape(-1, WINDOW).mean(1)
limits = {
    "outside": binom.isf(1e-4, WINDOW, 1 - COVERAGE),
    "error": error[:10].mean() + 3 * error[:10].std(ddof=1),
}
for name, values in (("outside", outside), ("error", error)):
    alarms = np.flatnonzero(values > limits[name])
    late = alarms[alarms >= 20]
    print(
        f"alarms by {name:8s} {np.sum(alarms < 20)} in 20 windows before the change, {len(late)} in 20 after it"
        + (f", the first {late[0] - 19} window(s) after" if len(late) else "")
    )
print(f"90 % intervals hold {100 - outside[:20].mean():.1f} % before, {100 - outside[20:].mean():.1f} % after")
