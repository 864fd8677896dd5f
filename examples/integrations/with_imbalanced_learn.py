"""imbalanced-learn: a sampler before the classifier, and what it does to probabilities."""

import numpy as np
from imblearn.over_sampling import SMOTE
from imblearn.pipeline import make_pipeline
from sklearn.datasets import make_classification
from sklearn.gaussian_process.kernels import RBF
from sklearn.metrics import balanced_accuracy_score, log_loss
from sklearn.model_selection import cross_val_predict
from sklearn.preprocessing import StandardScaler

from skgp_natgrad import NGDSVGPClassifier

X, y = make_classification(
    400, n_features=4, n_informative=3, n_redundant=0, weights=[0.95], flip_y=0.02, random_state=0
)

# %% The recipe
clf = NGDSVGPClassifier(1.0 * RBF(), random_state=0)
resampled = make_pipeline(StandardScaler(), SMOTE(random_state=0), clf)
as_it_is = make_pipeline(StandardScaler(), clf)

# %% What it shows
scores = {}
for name, model in (("SMOTE", resampled), ("as it is", as_it_is)):
    proba = cross_val_predict(model, X, y, cv=3, method="predict_proba")
    scores[name] = balanced_accuracy_score(y, proba.argmax(1)), log_loss(y, proba), proba[:, 1].mean()
    print(f"{name:9s} balanced accuracy, log loss, mean probability of the rare class:", *np.round(scores[name], 3))
print(f"share of the rare class {y.mean():.3f}")
assert scores["SMOTE"][0] > scores["as it is"][0]
assert scores["SMOTE"][1] > scores["as it is"][1]
