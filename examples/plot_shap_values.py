"""
SHAP values: what moved a prediction, and its uncertainty
=========================================================

`SHAP <https://shap.readthedocs.io>`_ divides a prediction among the columns. Any function of rows can be explained,
also the predicted standard deviation: large values of a column raise or lower a prediction, but values far from the
average, on either side, raise its uncertainty.
"""

# %%
# A model of the diabetes data
# ----------------------------

import matplotlib.pyplot as plt
import numpy as np
from scipy.stats import spearmanr
from sklearn.datasets import load_diabetes
from sklearn.model_selection import train_test_split

try:
    import shap
except ImportError as error:
    raise SystemExit("This example is skipped: it needs SHAP (pip install shap).") from error

from skgp_natgrad import NGDSVGPRegressor

X, y = load_diabetes(return_X_y=True, as_frame=True, scaled=False)
X_train, X_test, y_train, y_test = train_test_split(X, y, random_state=0)
model = NGDSVGPRegressor(random_state=0).fit(X_train, y_train)
print(f"held-out R2 {model.score(X_test, y_test):.2f}")


def deviation(rows):
    """The deviation of the function, without the noise."""
    return model.predict_latent(rows, return_std=True)[1]


# %%
# Shares of the columns
# ---------------------
#
# Shares are exact up to rounding: with the average over the background they add up to what is explained.

background = shap.maskers.Independent(X_train, max_samples=20)
rows = X_test.iloc[:40]
explained = {}
for name, function in {"mean": model.predict, "standard deviation": deviation}.items():
    shares = shap.PermutationExplainer(function, background, seed=0)(rows, max_evals=105, silent=True)
    gap = np.abs(shares.base_values + shares.values.sum(1) - function(rows)).max()
    order = np.argsort(-np.abs(shares.values).mean(0))
    print(f"{name}: most by {', '.join(X.columns[order[:3]])}; shares and average miss it by at most {gap:.1e}")
    column = int(order[0])
    z = ((rows - X_train.mean()) / X_train.std()).iloc[:, column]
    by_value, by_distance = (spearmanr(each, shares.values[:, column]).statistic for each in (z, abs(z)))
    print(f"  rank correlation of the share of {X.columns[column]} with its value {by_value:.2f}, ", end="")
    print(f"with its distance from the average {by_distance:.2f}")
    explained[name] = shares

# %%
# The picture
# -----------
#
# Each point is a row: its share to the right raises the prediction. The colour is the value of the column.

figure, axes = plt.subplots(2, 1, figsize=(7.5, 8.5), layout="constrained")
for (name, shares), ax in zip(explained.items(), axes, strict=True):
    shap.plots.beeswarm(shares, ax=ax, show=False, plot_size=None, color=plt.get_cmap("cividis"), max_display=8)
    ax.set(title=f"What moves the predicted {name}", xlabel="share, in units of y")
plt.show()
