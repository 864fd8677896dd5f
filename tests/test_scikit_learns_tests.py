"""scikit-learn's own tests of its Gaussian processes, run against this package through thin adapters.

The adapters only translate arguments and names: ``alpha`` is a fixed noise, ``optimizer`` says whether L-BFGS maximises
the evidence (of labels the bound) or is a function that does, as in doc/coming_from.rst, and every row is an inducing
point. A table holds all tests that do not pass, with the reasons. scikit-learn expects its 65 tests of slopes to fail,
by the rounding of finite differences; 21 of them pass with its own regressor (version 1.9 on an x86-64), 23 here.
"""

import numpy as np
import pytest
from sklearn.gaussian_process.kernels import RBF
from sklearn.gaussian_process.tests import test_gpc, test_gpr

from skgp_natgrad import NGDSVGPClassifier, NGDSVGPRegressor
from skgp_natgrad.kernels import white
from skgp_natgrad.likelihoods import Gaussian


class _Adapter:
    """An estimator with the constructor of scikit-learn's."""

    def __init__(self, estimator, kernel, optimizer, n_restarts_optimizer, random_state, **given):
        self.kernel = 1.0 * RBF() if kernel is None else kernel
        self._maximise = optimizer if callable(optimizer) else None
        self._model = estimator(
            self.kernel,
            optimizer="adam" if optimizer and self._maximise is None else None,
            n_restarts_optimizer=n_restarts_optimizer,
            # There nothing but restarts is drawn.
            random_state=0 if random_state is None else random_state,
            n_inducing="all",
            batch_size=None,
            jitter=1e-12,
            normalize_X=False,
            **given,
        )

    def __getattr__(self, name):
        return getattr(self._model, name)

    def _fit(self, *rows, **known):
        self._model.set_params(kernel=self.kernel).fit(*rows, **known)
        if self._maximise is not None:
            start = self._model.kernel_
            theta, _ = self._maximise(self._loss, start.theta, start.bounds)
            self._model.set_params(kernel=start.clone_with_theta(theta)).fit(*rows, **known)
        return self

    def _loss(self, theta, eval_gradient=True):
        found = self._model.log_marginal_likelihood(theta, eval_gradient)
        return (-found[0], -found[1]) if eval_gradient else -found


class GaussianProcessRegressor(_Adapter):
    def __init__(
        self,
        kernel=None,
        *,
        alpha=1e-10,
        optimizer="fmin_l_bfgs_b",
        n_restarts_optimizer=0,
        normalize_y=False,
        random_state=None,
        n_targets=None,
    ):
        states_noise = kernel is not None and white._parted(kernel)[1]
        self._alpha = alpha if states_noise or np.ndim(alpha) else None
        likelihood = "gaussian" if self._alpha is not None else Gaussian(alpha, "fixed")
        # Where the noise is given, the solution in one step has the kernel of largest evidence.
        solver = "evidence" if optimizer and not (states_noise or callable(optimizer)) else "lbfgs"
        given = {"normalize_y": normalize_y, "likelihood": likelihood, "solver": solver, "tol": 1e-12}
        super().__init__(NGDSVGPRegressor, kernel, optimizer, n_restarts_optimizer, random_state, **given)

    def fit(self, X, y):
        # There a single column is squeezed.
        return self._fit(X, y[:, 0] if y.shape[1:] == (1,) else y, alpha=self._alpha)

    @property
    def _y_train_std(self):
        return self._model._y_scale.scale


class GaussianProcessClassifier(_Adapter):
    def __init__(
        self, kernel=None, *, optimizer="fmin_l_bfgs_b", n_restarts_optimizer=0, random_state=None, n_jobs=None
    ):
        given = {"parameterization": "mean_var_sqrt", "tol": 1e-7, "n_iter_no_change": 20}
        super().__init__(NGDSVGPClassifier, kernel, optimizer, n_restarts_optimizer, random_state, **given)

    def fit(self, X, y):
        # L-BFGS moves q as well, which takes long for several classes; a solution in one step moves the kernel.
        slowly = len(np.unique(y)) == 2 or self._maximise is not None
        self._model.set_params(solver="lbfgs" if slowly else "evidence")
        return self._fit(X, y)

    def latent_mean_and_variance(self, X):
        mean, std = self._model.predict_latent(X, return_std=True)
        return mean, std**2


_ROWS = "rows of X are vectors of numbers"
_CHANGES_NOTHING = "log_marginal_likelihood has no clone_kernel: it changes nothing of the fit"
_BOUNDS = "a value outside of its bounds is refused, and one warning names all that end at a bound, in other words"

_N_TARGETS = "there is no n_targets: before y is seen there is one output"

# The tests that do not pass, by the beginnings of their names, and what is promised instead.
DIFFERENT = {
    "TestRegressor": {
        "test_gpr_interpolation_structured": _ROWS,
        "test_lml_without_cloning_kernel": _CHANGES_NOTHING,
        "test_random_starts": "starts are compared after some iterations, and one is taken if it is clearly better",
        "test_y_multioutput": "draws have the noise of variance alpha, independent of other draws",
        "test_gpr_correct_error_message": "a noise of zero is refused in other words, before a factor fails",
        "test_warning_bounds": _BOUNDS,
        "test_gpr_fit_error": "refused in other words, which name the argument and the value",
        "test_sample_y_shape_with_prior[1-2]": _N_TARGETS,
        "test_sample_y_shape_with_prior[1-3]": _N_TARGETS,
        "test_sample_y_shape_with_prior[5-2]": _N_TARGETS,
        "test_sample_y_shape_with_prior[5-3]": _N_TARGETS,
        "test_predict_shape_with_prior[2]": _N_TARGETS,
        "test_predict_shape_with_prior[3]": _N_TARGETS,
        "test_n_targets_error": _N_TARGETS,
        "test_gpr_predict_input_not_modified": "a kernel class of one's own needs a JAX kernel (kernels.register)",
    },
    "TestClassifier": {
        "test_predict_consistent_structured": _ROWS,
        "test_latent_mean_and_variance_works_on_structured_kernels": _ROWS,
        "test_lml_without_cloning_kernel": _CHANGES_NOTHING,
        "test_converged_to_local_maximum[kernel2]": "L-BFGS moves q as well, and ends at a slope above 1e-4",
        "test_random_starts": "further starts are compared by regression of the labels, not by this bound",
        "test_warning_bounds": _BOUNDS,
        "test_gpc_fit_error": "no word of a CompoundKernel: it is one of many kernels that are unknown here",
        "test_gpc_latent_mean_and_variance_complain": "predict_latent has a function for each class, however many",
    },
}


@pytest.fixture(autouse=True)
def _adapted(request, monkeypatch):
    monkeypatch.setattr(test_gpr, "GaussianProcessRegressor", GaussianProcessRegressor)
    monkeypatch.setattr(test_gpc, "GaussianProcessClassifier", GaussianProcessClassifier)
    reasons = DIFFERENT.get(request.cls.__name__, {})
    found = [reason for name, reason in reasons.items() if request.node.name.startswith(name)]
    if found:
        request.applymarker(pytest.mark.xfail(reason=found[0], strict=True))


@pytest.fixture
def global_random_seed():
    return 42


def _tests_of(module, *, slopes):
    """A module's tests as those of a class, with their parameters: those of slopes, or the others."""
    names = [name for name in vars(module) if name.startswith("test_") and ("gradient" in name) == slopes]
    return {name: staticmethod(getattr(module, name)) for name in names}


TestRegressor = type("TestRegressor", (), _tests_of(test_gpr, slopes=False))
# scikit-learn expects some of these to fail, by the rounding of its finite differences.
TestSlopes = pytest.mark.slow(type("TestSlopes", (), _tests_of(test_gpr, slopes=True)))
TestClassifier = pytest.mark.slow(type("TestClassifier", (), _tests_of(test_gpc, slopes=False)))
TestSlopesOfLabels = pytest.mark.slow(type("TestSlopesOfLabels", (), _tests_of(test_gpc, slopes=True)))
