"""SHAP: shares of the columns in predictions, in deviations and in class probabilities."""

import numpy as np
import shap
from sklearn.datasets import load_iris
from sklearn.gaussian_process.kernels import RBF

from skgp_natgrad import NGDSVGPClassifier, NGDSVGPRegressor

X, y = load_iris(return_X_y=True, as_frame=True)
petals, width = X.iloc[:, :3], X.iloc[:, 3]
rows = X.iloc[::10]

# %% The recipe
reg = NGDSVGPRegressor(1.0 * RBF(), random_state=0).fit(petals, width)
background = shap.maskers.Independent(petals, max_samples=20)
of_the_mean = shap.Explainer(reg.predict, background)(rows.iloc[:, :3])
of_the_deviation = shap.Explainer(lambda rows: reg.predict_latent(rows, return_std=True)[1], background)(
    rows.iloc[:, :3]
)

clf = NGDSVGPClassifier(1.0 * RBF(), random_state=0).fit(X, y)
of_classes = shap.Explainer(clf.predict_proba, shap.maskers.Independent(X, max_samples=20))(rows)

# %% What it shows
deviation = reg.predict_latent(rows.iloc[:, :3], return_std=True)[1]
gaps = [
    np.abs(shares.base_values + shares.values.sum(1) - predicted).max()
    for shares, predicted in (
        (of_the_mean, reg.predict(rows.iloc[:, :3])),
        (of_the_deviation, deviation),
        (of_classes, clf.predict_proba(rows)),
    )
]
print("average and shares miss the mean, the deviation and the probabilities by", *(f"{gap:.0e}" for gap in gaps))
print(
    "mean absolute shares in the mean:",
    dict(zip(petals, np.abs(of_the_mean.values).mean(0).round(3).tolist(), strict=True)),
)
assert max(gaps) < 1e-9
assert list(of_the_mean.feature_names) == list(petals)
