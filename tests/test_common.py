"""scikit-learn's own checks, without a single expected failure."""

import pytest
from sklearn.base import clone
from sklearn.gaussian_process.kernels import ConstantKernel, Matern
from sklearn.utils.estimator_checks import estimator_checks_generator, parametrize_with_checks

from skgp_natgrad import NGDSVGPClassifier, NGDSVGPRegressor
from skgp_natgrad.likelihoods import StudentT

pytestmark = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")

# Fewer iterations than the default, as many points for almost every table, and a kernel that need not be searched
# for: for time alone.
STEPS = {"kernel": ConstantKernel() * Matern(nu=2.5), "n_inducing": 10, "max_iter": 100}
ESTIMATORS = [NGDSVGPRegressor(**STEPS), NGDSVGPClassifier(**STEPS)]


@parametrize_with_checks(ESTIMATORS)
def test_scikit_learns_checks(estimator, check):
    if getattr(check, "func", check).__name__ == "check_estimators_unfitted":
        # Under a given kernel a regressor without a fit predicts from the prior, as scikit-learn's does.
        estimator = clone(estimator).set_params(kernel=None)
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
    "check_classifiers_train",
    "check_classifiers_one_label",
    "check_sample_weight_equivalence_on_dense_data",
}
OTHERS = {
    "another likelihood and basis": NGDSVGPRegressor(likelihood=StudentT(df=4.0), n_mean_inducing=10, **STEPS),
    "regressor, nothing set": NGDSVGPRegressor(),
    "classifier, nothing set": NGDSVGPClassifier(),
}
CHECKS = [
    (case, check.func.__name__, check)
    for case, estimator in OTHERS.items()
    for _, check in estimator_checks_generator(estimator)
    # Types and memory of X are the same for all once it is validated.
    if check.func.__name__ in TRAINED and "readonly_memmap" not in check.keywords
]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("case", "check"), [pytest.param(each, check, id=f"{each}-{name}") for each, name, check in CHECKS]
)
def test_checks_of_what_training_affects(case, check):
    check(clone(OTHERS[case]))


def test_no_check_has_another_name_now():
    assert {name for _, name, _ in CHECKS} == TRAINED
