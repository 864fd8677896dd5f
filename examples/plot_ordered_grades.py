"""
Ordered grades
==============

Grades have an order, of which a classifier with a latent function for each class knows nothing. The ordinal likelihood
has a single one, cut into bins, and learns the edges. scikit-learn ships no data with an ordinal target, so that the
progression of diabetes is cut into five grades here, by round numbers.
"""

# %%
# Three classifiers
# -----------------
#
# 442 patients, half of them held out. The log loss does not ask how far off a grade is. The *ranked probability score*
# does: it sums the squared errors of P(grade <= 0), ..., P(grade <= 3), so that a certain prediction wrong by k grades
# costs k.

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_diabetes
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import log_loss
from sklearn.model_selection import train_test_split
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from skgp_natgrad import NGDSVGPClassifier
from skgp_natgrad.likelihoods import Ordinal

X, progression = load_diabetes(return_X_y=True)
grade = np.digitize(progression, [75, 125, 175, 225])
X_train, X_test, train, test = train_test_split(X, grade, test_size=0.5, stratify=grade, random_state=0)
ordinal = NGDSVGPClassifier(likelihood=Ordinal(bins="learned"), n_inducing=50, random_state=0)
models = {
    "ordinal": ordinal,
    "softmax": NGDSVGPClassifier(random_state=0),
    "LogisticRegression": make_pipeline(StandardScaler(), LogisticRegression()),
}
print(f"{'':18s} log loss  ranked probability score  mean error in grades (median)")
for name, model in models.items():
    proba = model.fit(X_train, train).predict_proba(X_test)
    below = np.cumsum(proba, axis=1)[:, :-1]
    score = ((below - (test[:, None] <= np.arange(4))) ** 2).sum(1).mean()
    error = np.abs((below < 0.5).sum(1) - test).mean()
    print(f"{name:18s} {log_loss(test, proba):8.3f}  {score:24.3f}  {error:29.2f}")

# %%
# One latent function, five bins
# ------------------------------
#
# ``predict_latent`` puts the patients held out in an order. Left, the probabilities of the grades along it, from grade
# 0 (below) to grade 4 (above); right, where the observed grades lie on it, in the same colours. Neighbouring grades
# overlap a lot, which is why no classifier here is certain.

latent = ordinal.predict_latent(X_test)
order = np.argsort(latent)
proba = ordinal.predict_proba(X_test)[order]
print(ordinal.likelihood_)
figure, (left, right) = plt.subplots(1, 2, figsize=(8, 4), sharex=True, layout="constrained")
colours = plt.get_cmap("cividis")(np.linspace(0.05, 0.95, 5))
left.stackplot(latent[order], proba.T, colors=colours, labels=[f"grade {k}" for k in range(5)])
left.set(title="Probabilities of the grades", xlabel="latent function", ylabel="probability (stacked)", ylim=(0, 1))
jitter = np.random.default_rng(0).uniform(-0.3, 0.3, size=len(test))
right.scatter(latent, test + jitter, c=colours[test], s=12, edgecolor="0.3", linewidth=0.3)
for k in range(5):
    right.plot([latent[test == k].mean()] * 2, [k - 0.42, k + 0.42], color="black", linewidth=2)
right.set(title="Observed grades (lines: means)", xlabel="latent function", ylabel="grade", yticks=range(5))
plt.show()
