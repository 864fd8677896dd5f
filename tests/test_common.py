"""scikit-learn's own checks, without a single expected failure."""

import pytest
from sklearn.utils.estimator_checks import parametrize_with_checks

from skgp_natgrad import NGDSVGPClassifier, NGDSVGPRegressor
from skgp_natgrad.likelihoods import StudentT

# Fewer iterations than the default, for time alone.
ESTIMATORS = [
    NGDSVGPRegressor(max_iter=100),
    NGDSVGPClassifier(max_iter=100),
    NGDSVGPRegressor(likelihood=StudentT(df=4.0), n_inducing=10, n_mean_inducing=10, max_iter=60),
]


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@parametrize_with_checks(ESTIMATORS)
def test_scikit_learns_checks(estimator, check):
    check(estimator)
