"""scikit-learn's own checks, without a single expected failure."""

import pytest
from sklearn.base import clone
from sklearn.utils.estimator_checks import estimator_checks_generator, parametrize_with_checks

from skgp_natgrad import NGDSVGPClassifier, NGDSVGPRegressor
from skgp_natgrad.likelihoods import StudentT

pytestmark = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")

# Fewer iterations than the default, and as many points for almost every table, for time alone.
ESTIMATORS = [NGDSVGPRegressor(n_inducing=10, max_iter=100), NGDSVGPClassifier(n_inducing=10, max_iter=100)]


@parametrize_with_checks(ESTIMATORS)
def test_scikit_learns_checks(estimator, check):
    check(estimator)


# What another likelihood, and points for the mean alone, could make a difference to; what is validated before
# they come into play is the same.
TRAINED = {
    "check_dict_unchanged",
    "check_estimators_pickle",
    "check_fit2d_1feature",
    "check_fit2d_1sample",
    "check_fit_idempotent",
    "check_methods_sample_order_invariance",
    "check_methods_subset_invariance",
    "check_regressor_multioutput",
    "check_regressors_train",
    "check_sample_weight_equivalence_on_dense_data",
}
OTHER = NGDSVGPRegressor(likelihood=StudentT(df=4.0), n_inducing=10, n_mean_inducing=10, max_iter=60)
CHECKS = [(check.func.__name__, check) for _, check in estimator_checks_generator(OTHER)]


@pytest.mark.parametrize("check", [pytest.param(check, id=name) for name, check in CHECKS if name in TRAINED])
def test_checks_of_another_likelihood_and_basis(check):
    check(clone(OTHER))


def test_no_check_has_another_name_now():
    assert {name for name, _ in CHECKS} >= TRAINED
