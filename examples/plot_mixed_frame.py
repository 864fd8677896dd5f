"""
A frame with categories and missing values
==========================================

A data frame goes into ``fit`` as it is. Categories become columns of zeros and ones inside the fit, a missing number
the mean of its column, and one more column says where it was missing. Everything that speaks of columns speaks of those
of the frame.
"""

# %%
# The frame
# ---------
#
# scikit-learn's diabetes table has the sex of a patient as a code. Here it is a category, the body mass index comes in
# words as well, and one value in seven of two columns is taken away.

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from sklearn.datasets import load_diabetes
from sklearn.ensemble import HistGradientBoostingRegressor
from sklearn.model_selection import train_test_split

from skgp_natgrad import NGDSVGPRegressor
from skgp_natgrad.inspection import RelevanceDisplay

X, y = load_diabetes(return_X_y=True, as_frame=True, scaled=False)
rng = np.random.default_rng(0)
X["sex"] = X["sex"].map({1.0: "A", 2.0: "B"}).astype("category")
X["weight"] = pd.cut(X["bmi"], [0, 25, 30, 100], labels=["normal", "high", "very high"]).astype(str)
for name in ("bmi", "s5"):
    X.loc[rng.random(len(X)) < 1 / 7, name] = np.nan
print(X.dtypes, X.isna().sum()[["bmi", "s5"]], sep="\n")

# %%
# Fit and predict
# ---------------
#
# ``encoding_`` holds scikit-learn's encoders, and the names of the columns that they make.

X_train, X_test, y_train, y_test = train_test_split(X, y, test_size=0.3, random_state=0)
reg = NGDSVGPRegressor(random_state=0).fit(X_train, y_train)
print(reg.encoding_.names)

lower, upper = reg.predict_interval(X_test, coverage=0.9)
inside = np.mean((lower <= y_test) & (y_test <= upper))
categories = X_train.assign(weight=X_train["weight"].astype("category"))
trees = HistGradientBoostingRegressor(categorical_features="from_dtype", random_state=0).fit(categories, y_train)
of_trees = trees.score(X_test.assign(weight=X_test["weight"].astype("category")), y_test)
print(f"R2 {reg.score(X_test, y_test):.2f}, of trees {of_trees:.2f}; 90 % intervals cover {inside:.2f}")

# %%
# What matters
# ------------
#
# Importances are those of the frame's columns: a category has one, whatever the number of its levels.

RelevanceDisplay.from_estimator(reg)
plt.show()

# %%
# Rows of later days
# ------------------
#
# A warning tells of a level that the fit has not seen, and of a number that is missing where none was in the fit.

later = X_test.head(2).assign(weight="unknown", bp=np.nan)
print(reg.predict(later, return_std=True))
