"""
Digits: probabilities that mean what they say
=============================================

Of all predictions made with a confidence of 90 %, nine in ten should be right. This is compared on handwritten digits,
for classifiers with nothing set.
"""

# %%
# Four classifiers with nothing set
# ---------------------------------

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_digits
from sklearn.ensemble import HistGradientBoostingClassifier, RandomForestClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import log_loss
from sklearn.model_selection import train_test_split
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from skgp_natgrad import NGDSVGPClassifier
from skgp_natgrad.metrics import expected_calibration_error

X, y = load_digits(return_X_y=True)
X_train, X_test, y_train, y_test = train_test_split(X, y, test_size=0.5, random_state=0, stratify=y)
classifiers = {
    "NGDSVGPClassifier": NGDSVGPClassifier(random_state=0),
    "LogisticRegression": make_pipeline(StandardScaler(), LogisticRegression(max_iter=1000)),
    "RandomForest": RandomForestClassifier(random_state=0),
    "HistGradientBoosting": HistGradientBoostingClassifier(random_state=0),
}
probabilities = {name: each.fit(X_train, y_train).predict_proba(X_test) for name, each in classifiers.items()}
print(f"{'':22s} wrong labels   log loss   calibration error")
for name, proba in probabilities.items():
    wrong = np.mean(proba.argmax(1) != y_test)
    error = expected_calibration_error(y_test, proba)
    print(f"{name:22s} {100 * wrong:10.1f} % {log_loss(y_test, proba):10.3f} {error:19.3f}")

# %%
# Confidence and accuracy
# -----------------------
#
# Left, the share of right labels among predictions of similar confidence. Right, the digits about which the Gaussian
# process is least certain.

figure = plt.figure(figsize=(11, 4.4), layout="constrained")
left, right = figure.subfigures(1, 2, width_ratios=[1, 1])
ax = left.subplots()
ax.plot([0.2, 1], [0.2, 1], color="0.6", linewidth=1)
for (name, proba), marker in zip(probabilities.items(), "os^D", strict=True):
    confidence, is_right = proba.max(1), proba.argmax(1) == y_test
    order = np.argsort(confidence)[:300]
    groups = np.array_split(order, 5)
    ax.plot(
        [confidence[group].mean() for group in groups],
        [is_right[group].mean() for group in groups],
        marker=marker,
        label=name,
    )
ax.set(title="The 300 least certain predictions, in fifths", xlabel="mean confidence", ylabel="share of right labels")
ax.legend()
proba = probabilities["NGDSVGPClassifier"]
right.suptitle("Least certain: two most probable digits, and the label")
for ax, row in zip(right.subplots(2, 4).flat, np.argsort(proba.max(1))[:8], strict=True):
    first, second = np.argsort(-proba[row])[:2]
    ax.imshow(X_test[row].reshape(8, 8), cmap="gray_r")
    ax.set_title(
        f"{first}: {proba[row, first]:.2f}, {second}: {proba[row, second]:.2f}\nlabel {y_test[row]}", fontsize=8
    )
    ax.axis("off")
plt.show()
