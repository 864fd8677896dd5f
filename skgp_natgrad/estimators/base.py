"""The base class of the two estimators: arguments, fitting, and prediction from the posterior."""

from __future__ import annotations

import copy
from time import perf_counter
from typing import Any, Self

import jax
import numpy as np
from sklearn.base import BaseEstimator
from sklearn.gaussian_process.kernels import Kernel
from sklearn.utils.validation import check_is_fitted

from .. import svgp
from .._backend import memory, processes
from .._backend.types import Floats, NDArray
from ..likelihoods import Likelihood
from .arguments import checks, constructor, inert
from .fitted import attributes, persistence
from .fitted.from_rows import Evidence
from .fitted.interpretation import Interpretation
from .fitted.outcome import judge
from .fitting import between_chunks, coregionalized, few_at_a_time
from .fitting.between_chunks import CallbackSupportMixin, Hooks, with_callbacks
from .fitting.preparation import prepare
from .predictions import selection
from .rows import cells, encoding, far_rows


class BaseNGDSVGP(CallbackSupportMixin, Interpretation, Evidence, BaseEstimator):
    """Sparse variational Gaussian process trained by natural gradients.

    The subclasses define the arguments and the targets; this class fits latent functions to them.

    Attributes
    ----------
    kernel_ : sklearn.gaussian_process kernel or list of kernels
        The kernel with the trained hyperparameters, in the units of those in ``kernel``; a list where that is one.
    likelihood_ : likelihood
        The likelihood with the trained parameters; the parameters of "gaussian"
        and "student_t" are on the scale of the standardised y.
    inducing_points_ : ndarray of shape (M, n_features)
        In the units of X; of categories the level, in an array of objects.
    mean_inducing_points_ : ndarray of shape (G, n_features)
        In the units of X; for ``basis="decoupled"`` the mean's copy of the
        inducing points comes last. With ``basis="solve"`` they carry a
        covariance too.
    elbo_ : float
        The bound, or the value of another ``objective``, at the solution, in
        nats, for y on the scale of ``likelihood_``; with priors on hyperparameters it
        includes ``log_prior_``. It is evaluated exactly on the
        full batch, and is the average of the last estimates with minibatches.
        With ``mean_solver="exact"`` it is evaluated on all rows. After a later
        call of ``partial_fit`` it is conditional on the rows of earlier calls.
    elbo_curve_ : ndarray of shape (n_iter,)
        The bound before each iteration (with "lbfgs" and "evidence" after it); with minibatches
        an unbiased estimate.
    log_prior_ : float
        The log density of the hyperparameters under ``hyperparameter_prior``, which
        ``elbo_`` includes, with "predictive" times its ``kl_weight``; zero without.
    n_iter_ : int
        Number of iterations.
    step_sizes_ : ndarray of shape (n_iter,)
        The step size of q that each iteration finally used, after a line search
        or halving. Zero where q stayed, and throughout with "lbfgs".
    n_rejected_steps_ : int
        Number of iterations in which a step was changed: the step of q was
        shortened, to keep the covariance positive definite or because it lowered
        the bound of its own batch; the optimizer's step was skipped because a
        gradient was not finite; the iteration was undone, because the bound of
        the full batch had fallen, or because the bound of some minibatch among
        the same twenty iterations was not finite; or the line search found no
        larger bound.
    n_clipped_steps_ : int
        Number of these in which the shortened step ignored the negative
        curvature of a likelihood that is not log-concave.
    jitter_ : float
        The value added to the covariance's diagonal; zero for an exact process.
    plan_ : str
        The solver, kernel, scaling and sizes that were used, in one paragraph.
    feature_importances_ : ndarray of shape (n_features,)
        Relevance of each column, summing to one: mean squared derivatives of the latent functions.
    encoding_ : Encoding or None
        How a data frame became a table of numbers: ``names`` of the columns that the kernel sees, and scikit-learn's
        ``imputer`` and ``encoder``. None for an array of numbers (without ``missing_inputs="allow"``).
    n_features_in_ : int
        Number of columns of X.
    feature_names_in_ : ndarray of shape (n_features,)
        Names of the columns of X, if they are all strings.

    References
    ----------
    .. [1] H. Salimbeni, S. Eleftheriadis, J. Hensman (2018). "Natural Gradients
       in Practice: Non-Conjugate Variational Inference in Gaussian Process
       Models." AISTATS.
    .. [2] H. Salimbeni, C.-A. Cheng, B. Boots, M. Deisenroth (2018).
       "Orthogonally Decoupled Variational Gaussian Processes." NeurIPS.
    .. [3] D. Burt, C. Rasmussen, M. van der Wilk (2020). "Convergence of Sparse
       Variational Inference in Gaussian Process Regression." JMLR.
    .. [4] M. Titsias (2025). "New Bounds for Sparse Variational Gaussian
       Processes." ICML.
    .. [5] M. Jankowiak, G. Pleiss, J. Gardner (2020). "Parametric Gaussian
       Process Regressors." ICML.
    .. [6] J. Shi, M. Titsias, A. Mnih (2020). "Sparse Orthogonal Variational
       Inference for Gaussian Processes." AISTATS.
    """

    _task = None

    # Set by `fit`; here for readers and type checkers.
    kernel_: Kernel | list[Kernel]
    likelihood_: Likelihood
    inducing_points_: Floats
    mean_inducing_points_: Floats
    elbo_: float
    elbo_curve_: Floats
    n_iter_: int
    step_sizes_: Floats
    n_rejected_steps_: int
    n_clipped_steps_: int
    jitter_: float
    plan_: str
    n_features_in_: int
    feature_names_in_: NDArray[Any]

    def set_params(self, **params: Any) -> Self:
        """Set parameters; nested ones are named ``<argument>__<parameter>``.

        Parameters
        ----------
        **params : dict
            Values by name.

        Returns
        -------
        self : estimator

        Examples
        --------
        >>> from skgp_natgrad import NGDSVGPRegressor
        >>> NGDSVGPRegressor().set_params(n_inducing=20, likelihood="poisson")
        NGDSVGPRegressor(likelihood='poisson', n_inducing=20)
        """
        constructor.check_nested(self, params)
        return super().set_params(**params)

    # -- fitting -------------------------------------------------------------------------

    @with_callbacks
    def _learn(self, X, y, sample_weight, streams=False, **known):
        """Fit a copy, and take over its attributes once everything has succeeded.

        So a call that is refused, fails or is interrupted changes nothing. Warnings about the rows come first: one that
        a filter turns into an error is such a failure. The others are given afterwards, and the fitted model is kept.
        """
        hooks, learner = Hooks(self, X, y, sample_weight=sample_weight, **known), copy.copy(self)
        with processes.telling(processes.sharing(self.n_devices)):
            rows = learner._rows_of(X, y, sample_weight, streams, **known)
            independent = getattr(self, "output_kernel", "independent") == "independent"
            rows, reported = few_at_a_time.joined(learner, *rows, streams and independent)
            outcome = (type(self)._fit if independent else coregionalized.fit)(learner, *rows, streams, hooks)
        selection.of_fit(learner, self._previous(streams), X, y, sample_weight, known)
        learner.elbo_ -= reported
        hooks.finish(learner)
        self.__dict__ = vars(learner) | hooks.while_fitting()  # At once: an interrupt comes before or after it.
        if outcome.fit.checkpoint is not None:
            outcome.fit.checkpoint.remove()
        outcome.warn()
        return self

    def _fit(self, X, types, targets, streams, hooks):
        """Fit latent functions to `Targets`, and set the fitted attributes.

        ``types`` are those of the columns of X as given. With ``streams`` earlier rows count too. Returns `Outcome`.
        """
        previous, began = self._previous(streams), perf_counter()
        fit = prepare(self, X, types, targets, previous, streams and previous is not None, streams)
        inert.tell(self, fit)
        chosen = perf_counter()
        state, constants = svgp.init(fit.plan, fit.table, fit.random_state, fit.previous, fit.posterior)
        with between_chunks.of(self, fit, constants, hooks) as callbacks:
            result = svgp.train(state, constants, fit.table, fit.plan, fit.random_state, callbacks)
        solved = perf_counter()
        outcome = judge(self, fit, result)
        left_out = attributes.store(self, fit, result)
        between_chunks.after_one_step(self, fit, hooks, began, chosen, solved)
        return outcome._replace(left_out=left_out)

    def _previous(self, streams=False):
        """The earlier fit that a warm start or a stream continues; None if there is none."""
        return self._warm_state if (self.warm_start or streams) and self.__sklearn_is_fitted__() else None

    def __sklearn_is_fitted__(self):
        return hasattr(self, "_posterior")

    def __copy__(self):
        found = type(self).__new__(type(self))
        vars(found).update(vars(self))  # Not by `__getstate__`, which leaves out what no file can hold.
        return found

    def __deepcopy__(self, memo):
        found = memo[id(self)] = type(self).__new__(type(self))
        vars(found).update(copy.deepcopy(vars(self), memo))
        return found

    def __getstate__(self):
        return persistence.stamped(super().__getstate__())

    def __setstate__(self, state):
        super().__setstate__(persistence.restored(type(self), state))

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = self.missing_inputs == "allow"  # Those of data frames are no matter of tags.
        tags.input_tags.categorical = self.categorical_features is not None
        tags.input_tags.sparse = True
        return tags

    # -- prediction ----------------------------------------------------------------------

    def _check_rows(self, X):
        """Validate X for prediction, and return it in standardised units."""
        check_is_fitted(self, "_posterior")
        X = encoding.further_rows(self, X)
        far_rows.tell(self, X)
        with np.errstate(over="ignore"):
            X = self._x_scale.forward(X)
        checks.refuse_overflow(X, cells.first_row())
        return X

    def _predict(self, quantity, X, *targets, **known):
        """Evaluate a quantity of `svgp.predict` at standardised rows."""
        model = attributes.model_of(self)
        where = {"device": self.device, "n_devices": self.n_devices}
        return self._defined(svgp.predict(model, X, quantity, *targets, **known, **where), X)

    def _defined(self, values, X):
        """Return the predicted values at standardised rows (the last axis), if none of them is NaN."""
        checks.refuse_undefined(jax.tree.leaves(values), X, self.kernel_, cells.first_row())
        return values

    def _sample_targets(self, X, n_samples, random_state, joint, **known):
        """Draws of the targets at standardised rows: (T, N, n_samples)."""
        n_bytes = svgp.memory_of_draws(len(X), len(self._posterior.alpha), n_samples, joint)
        remedy = "draw at fewer rows, or fewer samples, at a time" + ", or with joint=False" * joint
        memory.require(n_bytes, f"sample_y of n_samples={n_samples} at {len(X)} rows", remedy)
        self._predict("latent_mean", X)  # It refuses rows where the kernel is not defined, which a class would hide.
        random_state = checks.random_numbers(random_state)
        return svgp.sample_targets(attributes.model_of(self), X, n_samples, random_state, self.device, joint, **known)
