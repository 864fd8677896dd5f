"""imbalanced-learn: a sampler before the classifier, and what it does to probabilities."""

import numpy as np
from imblearn.over_sampling import SMOTE
from imblearn.pipeline import make_pipeline
from sklearn.base import clone
from sklearn.gaussian_process.kernels import RBF
from sklearn.metrics import log_loss, recall_score
from sklearn.preprocessing import StandardScaler

from skgp_natgrad import NGDSVGPClassifier

rng = np.random.default_rng(0)
y = (rng.uniform(size=2200) < 0.1).astype(int)
X = rng.normal(size=(2200, 2)) + 1.5 * y[:, None]
X_train, y_train, X_test, y_test = X[:200], y[:200], X[200:], y[200:]

# %% The recipe
# A pipeline fits the estimator that it is given, and not a copy.
clf = NGDSVGPClassifier(1.0 * RBF(), random_state=0)
resampled = make_pipeline(StandardScaler(), SMOTE(random_state=0), clf).fit(X_train, y_train)
as_it_is = make_pipeline(StandardScaler(), clone(clf)).fit(X_train, y_train)

# %% What it shows
scores = {}
for name, model in (("SMOTE", resampled), ("as it is", as_it_is)):
    proba = model.predict_proba(X_test)
    scores[name] = recall_score(y_test, proba.argmax(1)), proba[:, 1].mean(), log_loss(y_test, proba)
    print(f"{name:9s} recall and mean probability of the rare class, log loss:", *np.round(scores[name], 3))
print(f"share of the rare class {y_test.mean():.3f}")
assert scores["SMOTE"][0] > scores["as it is"][0]
assert abs(scores["as it is"][1] - y_test.mean()) < 0.03 < scores["SMOTE"][1] - y_test.mean()
assert scores["SMOTE"][2] > scores["as it is"][2]
