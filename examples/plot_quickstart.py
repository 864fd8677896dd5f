"""
Quickstart
==========

Both estimators on real data that ships with scikit-learn, the measurements of
569 tumours, beside a linear baseline, and a picture with predictive intervals.

A line is hard to beat where the signal is weak and nearly linear, as in
scikit-learn's diabetes data; :doc:`/when_not` says what other models are for.

The figures of interest are the held-out R2 or accuracy, and the negative log
predictive density (NLPD, in nats a row; lower is better), which also asks
whether the predicted uncertainty is right.
"""

# %%
# Regression: one measurement from the others
# -------------------------------------------
#
# How smooth are the cells' outlines, given 29 other measurements of them? Two fifths of the rows are held out. X and y
# are scaled inside the estimator.

import matplotlib.pyplot as plt
import numpy as np
from scipy.stats import norm
from sklearn.calibration import calibration_curve
from sklearn.datasets import load_breast_cancer
from sklearn.linear_model import BayesianRidge, LogisticRegression
from sklearn.metrics import log_loss
from sklearn.model_selection import train_test_split
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from skgp_natgrad import NGDSVGPClassifier, NGDSVGPRegressor

tumours = load_breast_cancer()
smoothness = list(tumours.feature_names).index("mean smoothness")
X, y = np.delete(tumours.data, smoothness, axis=1), tumours.data[:, smoothness]
X_train, X_test, y_train, y_test = train_test_split(X, y, test_size=0.4, random_state=0)

regressor = NGDSVGPRegressor(random_state=0).fit(X_train, y_train)
mean = regressor.predict(X_test)
nlpd = -regressor.predict_log_density(X_test, y_test).mean()

baseline = BayesianRidge().fit(X_train, y_train)
base_mean, base_std = baseline.predict(X_test, return_std=True)
base_nlpd = -norm.logpdf(y_test, base_mean, base_std).mean()

print(f"mean smoothness ({len(y_test)} held-out rows)")
print(f"  NGDSVGPRegressor    R2 {regressor.score(X_test, y_test):.3f}   NLPD {nlpd:.3f}")
print(f"  BayesianRidge       R2 {baseline.score(X_test, y_test):.3f}   NLPD {base_nlpd:.3f}")
lower, upper = regressor.predict_interval(X_test, coverage=0.95)
inside = (lower <= y_test) & (y_test <= upper)
print(f"  95 % intervals hold {100 * inside.mean():.0f} % of the held-out targets")

# %%
# Classification: malignant or benign
# -----------------------------------

X_train, X_held, labels_train, labels_test = train_test_split(
    tumours.data, tumours.target, test_size=0.4, random_state=0
)

classifier = NGDSVGPClassifier(random_state=0).fit(X_train, labels_train)
proba = classifier.predict_proba(X_held)

logistic = make_pipeline(StandardScaler(), LogisticRegression()).fit(X_train, labels_train)

print(f"diagnosis ({len(labels_test)} held-out rows)")
print(
    f"  NGDSVGPClassifier   accuracy {classifier.score(X_held, labels_test):.3f}   "
    f"NLPD {log_loss(labels_test, proba):.3f}"
)
print(
    f"  LogisticRegression  accuracy {logistic.score(X_held, labels_test):.3f}   "
    f"NLPD {log_loss(labels_test, logistic.predict_proba(X_held)):.3f}"
)

# %%
# The picture
# -----------
#
# Left, 95 % predictive intervals of the held-out targets, in the order of the
# predicted mean. Right, how often a predicted probability comes true.

figure, (left, right) = plt.subplots(1, 2, figsize=(11, 4.2), width_ratios=[3, 2], layout="constrained")
order = np.argsort(mean)
rank = np.arange(len(order))
left.fill_between(rank, lower[order], upper[order], color="tab:blue", alpha=0.2, label="95 % interval")
left.plot(rank, mean[order], color="tab:blue", label="predicted mean")
left.plot(rank, y_test[order], ".", color="black", markersize=4, label="observed")
left.set(title="Smoothness, held out", xlabel="row, by predicted mean", ylabel="mean smoothness")
left.legend(loc="upper left")
frequency, predicted = calibration_curve(labels_test, proba[:, 1], n_bins=5, strategy="quantile")
right.plot([0, 1], [0, 1], color="grey", linewidth=1)
right.plot(predicted, frequency, "o-", color="tab:orange")
right.set(title="Diagnosis, held out", xlabel="predicted probability", ylabel="observed frequency")
figure.savefig("quickstart.png", dpi=120)
print("saved quickstart.png")
