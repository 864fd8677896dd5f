"""MAPIE: conformal intervals of a regressor, and conformal sets of a classifier."""

import numpy as np
from mapie.classification import SplitConformalClassifier
from mapie.regression import CrossConformalRegressor
from sklearn.datasets import load_wine
from sklearn.gaussian_process.kernels import RBF

from skgp_natgrad import NGDSVGPClassifier, NGDSVGPRegressor

rng = np.random.default_rng(0)
X = rng.uniform(0, 10, size=(900, 1))
y = np.sin(X[:, 0]) + 0.3 * rng.standard_t(3, size=900)
wine, cultivar = load_wine(return_X_y=True)
order = rng.permutation(len(cultivar))
fitted, held_out, new = order[:60], order[60:120], order[120:]

# %% The recipe
reg = NGDSVGPRegressor(1.0 * RBF(), random_state=0)
conformal = CrossConformalRegressor(reg, confidence_level=0.9, cv=3, random_state=0)
conformal.fit_conformalize(X[:300], y[:300])
mean, ends = conformal.predict_interval(X[300:])

clf = NGDSVGPClassifier(1.0 * RBF(3.0), random_state=0).fit(wine[fitted], cultivar[fitted])
conformal = SplitConformalClassifier(clf, confidence_level=0.9, prefit=True)
labels, sets = conformal.conformalize(wine[held_out], cultivar[held_out]).predict_set(wine[new])

# %% What it shows
inside = np.mean((ends[:, 0, 0] <= y[300:]) & (y[300:] <= ends[:, 1, 0]))
covered = sets[np.arange(len(new)), cultivar[new], 0].mean()
print(f"90 % intervals hold {100 * inside:.0f} % of 600 new targets")
print(f"90 % sets hold {100 * covered:.0f} % of {len(new)} new labels, with {sets.sum(1).mean():.2f} labels each")
assert 0.85 < inside < 0.95
assert covered > 0.8
