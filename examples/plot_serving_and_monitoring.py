"""
Saving, serving and monitoring a model
======================================

A model is fitted and written to a file. What serves it reads the file, predicts rows one at a time, and watches
whether its distributions still hold. Errors grow also where the model says that they will: the probability integral
transform of the targets tells rows that are harder from a model that is no longer right.
"""

# %%
# Fit and save
# ------------
#
# ``pickle`` is for files of one's own. ``skops`` with ``trusted_types()`` loads a file without running code from it.
# The noise grows with the first column, and the likelihood learns how.

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


def measure(n_rows, low=0.0, high=10.0, shift=0.0):
    """Rows of two sensors, with the first between two values, and a target, which may be shifted."""
    X = np.column_stack([rng.uniform(low, high, n_rows), rng.normal(size=n_rows)])
    noise = (0.1 + 0.05 * X[:, 0]) * rng.normal(size=n_rows)
    return X, np.sin(X[:, 0]) + 0.5 * X[:, 1] + noise + shift


path = Path(tempfile.mkdtemp()) / "model.pickle"
fitted = NGDSVGPRegressor(likelihood="heteroscedastic_gaussian", n_inducing=40, random_state=0).fit(*measure(800))
path.write_bytes(pickle.dumps(fitted))
print(f"the file has {path.stat().st_size / 1e3:.0f} kB")

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
# ``predict_cdf`` is the probability integral transform: where in its predicted distribution a target lies. It is
# uniform if the distributions are right. In each window of a hundred rows, those outside the central 90 % are
# counted; a count that chance exceeds in less than one of a thousand windows raises the alarm. Beside it stands the
# mean absolute error, with the alarm at three deviations above its mean over the first ten windows.
#
# After twenty windows the inputs move to where the noise is large. After forty they are the former ones, but the
# target's sensor has slipped.

WINDOW, COVERAGE = 100, 0.9
phases = {
    "as fitted": measure(2000),
    "noisier inputs": measure(2000, low=6.0),
    "slipped sensor": measure(2000, shift=0.3),
}
X, y = (np.concatenate(parts) for parts in zip(*phases.values(), strict=True))
pit = model.predict_cdf(X, y)
outside = (np.abs(pit - 0.5) > COVERAGE / 2).reshape(-1, WINDOW).sum(1)
error = np.abs(y - model.predict(X)).reshape(-1, WINDOW).mean(1)
watched = {
    "mean absolute error": (error, error[:10].mean() + 3 * error[:10].std(ddof=1)),
    "rows outside of 90 %": (outside, binom.isf(1e-3, WINDOW, 1 - COVERAGE)),
}
for name, (values, limit) in watched.items():
    alarms = (values > limit).reshape(3, 20).sum(1)
    print(
        f"alarms by the {name}: " + ", ".join(f"{n} of 20 ({phase})" for phase, n in zip(phases, alarms, strict=True))
    )

# %%
# The picture
# -----------
#
# Below, the transform within the second phase and within the third. A slope says that targets are too high.

figure, axes = plt.subplot_mosaic(
    [["mean absolute error"] * 2, ["rows outside of 90 %"] * 2, ["noisier inputs", "slipped sensor"]],
    figsize=(8, 8.5),
    layout="constrained",
)
for name, (values, limit) in watched.items():
    ax, is_alarm = axes[name], values > limit
    window = np.arange(1, len(values) + 1)
    ax.plot(window, values, color="0.6", linewidth=1)
    ax.plot(window[~is_alarm], values[~is_alarm], "o", color="tab:blue", markersize=4, label="in order")
    ax.plot(window[is_alarm], values[is_alarm], "^", color="tab:orange", markersize=6, label="alarm")
    ax.axhline(limit, color="black", linestyle="--", linewidth=1, label="limit")
    for start, phase in zip((0, 20, 40), phases, strict=True):
        ax.axvline(start + 0.5, color="black", linewidth=0.6)
        ax.text(start + 1, 0.93, phase, transform=ax.get_xaxis_transform())
    ax.set(title=name.capitalize(), xlabel="window", xlim=(0.5, 60.5), ylim=(0, 1.3 * values.max()))
axes["mean absolute error"].legend(loc="lower right", ncols=3, fontsize=9)
for phase, rows in (("noisier inputs", slice(2000, 4000)), ("slipped sensor", slice(4000, None))):
    ResidualDisplay.from_predictions(pit[rows], ax=axes[phase]).ax_.set_title(phase.capitalize())
plt.show()
