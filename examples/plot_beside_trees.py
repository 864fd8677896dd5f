"""
A classifier as mean function
=============================

Trees and Gaussian processes err in different ways. Trees are good at thresholds of single columns, processes at smooth
boundaries between many columns. With another classifier as ``mean_function``, the class probabilities rest on both.
Held-out labels decide how much each of them counts.
"""

# %%
# Three tables
# ------------
#
# The boundaries of wine and breast cancer are smooth. The third table has labels at thresholds; one in ten of them is
# drawn at random.

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_breast_cancer, load_wine
from sklearn.ensemble import RandomForestClassifier
from sklearn.metrics import log_loss
from sklearn.model_selection import train_test_split

from skgp_natgrad import NGDSVGPClassifier

rng = np.random.default_rng(0)
X = rng.uniform(-1, 1, size=(800, 6))
y = (X[:, 0] > 0.2).astype(int) + 2 * (X[:, 1] * X[:, 2] > 0)
y = np.where(rng.random(800) < 0.1, rng.integers(4, size=800), y)
tables = {
    "wine": load_wine(return_X_y=True),
    "breast cancer": load_breast_cancer(return_X_y=True),
    "thresholds": (X, y),
}

# %%
# Each model alone, and together
# ------------------------------
#
# ``mean_weight_`` is the weight of the forest's log probabilities. If held-out labels are no more probable with it, it
# is zero, and the predictions are those of the process alone.

forest = RandomForestClassifier(200, min_samples_leaf=2, random_state=0)
losses = {}
for name, (X, y) in tables.items():
    X_train, X_test, y_train, y_test = train_test_split(X, y, test_size=0.5, random_state=0, stratify=y)
    models = {
        "process": NGDSVGPClassifier(random_state=0),
        "forest": forest,
        "both": NGDSVGPClassifier(mean_function=forest, random_state=0),
    }
    found = {each: model.fit(X_train, y_train).predict_proba(X_test) for each, model in models.items()}
    losses[name] = {each: log_loss(y_test, proba) for each, proba in found.items()}
    shown = "  ".join(f"{each} {loss:.3f}" for each, loss in losses[name].items())
    print(f"{name:14s} {shown}  weight {models['both'].mean_weight_:.2f}")

# %%
# The log loss of held-out rows
# -----------------------------
#
# It takes five more fits of the other classifier: its log probabilities at the rows of the fit are predicted out of
# fold. So a classifier that memorises its rows is seen through.

figure, axes = plt.subplots(1, len(losses), figsize=(11, 3.6), layout="constrained")
for ax, (name, of_table) in zip(axes, losses.items(), strict=True):
    ax.bar(list(of_table), list(of_table.values()), color=["C0", "0.7", "C1"])
    ax.set(title=name, ylabel="log loss" if ax is axes[0] else None)
plt.show()
