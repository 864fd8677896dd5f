"""
A model for a service without JAX
=================================

A service that answers single rows wants a quick start and few packages. ``export`` writes a fitted model as two files:
its arrays, and a module that predicts from them by NumPy alone.
"""

# %%
# Fit and export
# --------------

import subprocess
import sys
import tempfile
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_diabetes
from sklearn.model_selection import train_test_split

from skgp_natgrad import NGDSVGPRegressor

X, y = load_diabetes(return_X_y=True)
X_train, X_test, y_train, y_test = train_test_split(X, y, random_state=0)
reg = NGDSVGPRegressor(n_inducing=50, random_state=0).fit(X_train, y_train)

folder = Path(tempfile.mkdtemp())
reg.export(folder / "diabetes.npz")
np.save(folder / "rows.npy", X_test)
for path in sorted(folder.iterdir()):
    print(f"{path.name}: {path.stat().st_size / 1024:.0f} KiB")

# %%
# The service
# -----------
#
# It has both files in its folder, and NumPy. It never imports this package, scikit-learn or JAX.

SERVICE = """
import sys, time
import numpy as np
from skgp_predictor import load
model = load("diabetes.npz")
rows = np.load("rows.npy")
mean, std = model.predict(rows, return_std=True)
np.save("predicted.npy", [mean, std])
print("loaded:", sorted({"jax", "sklearn", "skgp_natgrad"} & set(sys.modules)))
seconds = []
for row in rows:
    start = time.perf_counter()
    model.predict(row[None], return_std=True)
    seconds.append(time.perf_counter() - start)
print(f"a row takes {1e3 * np.median(seconds):.2f} ms")
"""
done = subprocess.run([sys.executable, "-c", SERVICE], cwd=folder, capture_output=True, text=True, check=True)
print(done.stdout)

# %%
# The same numbers
# ----------------

mean, std = np.load(folder / "predicted.npy")
ours = reg.predict(X_test, return_std=True)
print("largest difference:", max(np.abs(mean - ours[0]).max(), np.abs(std - ours[1]).max()))

order = np.argsort(mean)
figure, ax = plt.subplots(figsize=(7, 3.6), layout="constrained")
ax.errorbar(np.arange(len(mean)), mean[order], 1.64 * std[order], fmt=".", color="C0", label="service, 90 %")
ax.plot(np.arange(len(mean)), y_test[order], "x", color="0.4", label="observed")
ax.set(xlabel="test row, by its mean", ylabel="disease progression")
ax.legend(frameon=False)
plt.show()
