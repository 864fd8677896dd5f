"""What the two estimators share: arguments, one fit, and the way to the posterior."""

from __future__ import annotations

import warnings

import jax
import numpy as np
from sklearn.base import BaseEstimator
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils import check_random_state
from sklearn.utils.validation import _check_sample_weight, check_is_fitted, validate_data

from . import (
    _progress,
    _rows,
    _runtime,
    _validation,
    bases,
    gaussians,
    inducing,
    kernels,
    lengthscales,
    likelihoods,
    posterior,
    training,
)
from .objectives import Parameters
from .schedules import Cosine

_BASES = ("orthogonal",)
_SOLVERS = ("ngd",)
_MEAN_SOLVERS = ("adam",)
_PARAMETERIZATIONS = ("natural",)
# Arguments whose values may have parameters of their own.
_OBJECTS = ("kernel", "likelihood", "gamma_schedule", "learning_rate")


class BaseNGDSVGP(BaseEstimator):
    """Sparse variational Gaussian process trained by natural gradients.

    The subclasses say what a target is; this class fits latent functions to it.
    """

    _task = None

    def __init__(
        self,
        kernel=None,
        *,
        likelihood="gaussian",
        n_inducing=100,
        n_mean_inducing=0,
        basis="orthogonal",
        inducing_init="greedy_variance",
        solver="ngd",
        parameterization="natural",
        gamma_schedule="log_linear",
        optimizer="adam",
        learning_rate=0.02,
        batch_size=1024,
        max_iter=1000,
        tol=1e-3,
        n_iter_no_change=50,
        mean_solver="adam",
        normalize_X=True,
        normalize_y=True,
        jitter=1e-8,
        warm_start=False,
        random_state=None,
        verbose=0,
        device="auto",
        dtype="float64",
    ):
        self.kernel = kernel
        self.likelihood = likelihood
        self.n_inducing = n_inducing
        self.n_mean_inducing = n_mean_inducing
        self.basis = basis
        self.inducing_init = inducing_init
        self.solver = solver
        self.parameterization = parameterization
        self.gamma_schedule = gamma_schedule
        self.optimizer = optimizer
        self.learning_rate = learning_rate
        self.batch_size = batch_size
        self.max_iter = max_iter
        self.tol = tol
        self.n_iter_no_change = n_iter_no_change
        self.mean_solver = mean_solver
        self.normalize_X = normalize_X
        self.normalize_y = normalize_y
        self.jitter = jitter
        self.warm_start = warm_start
        self.random_state = random_state
        self.verbose = verbose
        self.device = device
        self.dtype = dtype

    # -- arguments -----------------------------------------------------------------------

    def _settings(self):
        """Check every argument that needs no data, and return those that drive training."""
        if self.basis == "coupled":
            raise ValueError("basis='coupled' is basis='orthogonal' with n_mean_inducing=0; set these.")
        _validation.choice("basis", self.basis, _BASES)
        _validation.choice("solver", self.solver, _SOLVERS)
        _validation.choice("mean_solver", self.mean_solver, _MEAN_SOLVERS)
        _validation.choice("parameterization", self.parameterization, _PARAMETERIZATIONS)
        _validation.choice("device", self.device, _runtime.DEVICES)
        _validation.dtype("dtype", self.dtype, _runtime.DTYPES)
        _validation.integer("verbose", int(self.verbose) if isinstance(self.verbose, bool) else self.verbose, 0)
        _validation.integer("n_inducing", self.n_inducing, 1)
        _validation.integer("n_mean_inducing", self.n_mean_inducing, 0)
        _validation.number("jitter", self.jitter)
        for name in ("normalize_X", "normalize_y", "warm_start"):
            _validation.boolean(name, getattr(self, name))
        max_iter = _validation.integer("max_iter", self.max_iter, 1)
        rate = self.learning_rate
        if isinstance(rate, (int, float, np.number)) and not isinstance(rate, bool):
            rate = Cosine(_validation.number("learning_rate", rate), 0.0, n_steps=max_iter)
        return training.Settings(
            gamma_schedule=_validation.schedule("gamma_schedule", self.gamma_schedule, max_iter, 1.0),
            rate_schedule=_validation.schedule("learning_rate", rate, max_iter, 10.0),
            optimizer=_validation.choice("optimizer", self.optimizer, (*training.OPTIMIZERS, None)),
            batch_size=_validation.integer("batch_size", self.batch_size, 1),
            max_iter=max_iter,
            tol=_validation.number("tol", self.tol, strict=False),
            n_iter_no_change=_validation.integer("n_iter_no_change", self.n_iter_no_change, 1),
        )

    def set_params(self, **params):
        """Set parameters, nested ones by ``<argument>__<parameter>``.

        Parameters
        ----------
        **params : dict
            Values by name.

        Returns
        -------
        self : estimator
        """
        for key in params:
            name, nested, _ = key.partition("__")
            value = params.get(name, getattr(self, name, None))
            if nested and name in _OBJECTS and not hasattr(value, "set_params"):
                raise ValueError(
                    f"{key} cannot be set: {name}={value!r} has no parameters of its own. Pass an object, "
                    "such as kernel=RBF(), likelihood=StudentT(), gamma_schedule=LogLinear()."
                )
        return super().set_params(**params)

    def _likelihood(self, default):
        """Return the likelihood object that the argument stands for."""
        if isinstance(self.likelihood, str):
            options = ("auto", *likelihoods.names(self._task))
            name = _validation.choice("likelihood", self.likelihood, options)
            return likelihoods.by_name(default if name == "auto" else name)
        if not isinstance(self.likelihood, likelihoods.Likelihood) or self.likelihood.task != self._task:
            raise ValueError(
                f"likelihood={self.likelihood!r} must be a {self._task} likelihood: an object of "
                f"skgp_natgrad.likelihoods, or one of {', '.join(map(repr, likelihoods.names(self._task)))}."
            )
        return self.likelihood

    # -- fitting -------------------------------------------------------------------------

    def _fit(self, X, y, sample_weight, likelihood, n_classes=0, scale_y=False):
        """Fit latent functions to the target columns ``y`` (N, T); sets the fitted attributes.

        Nothing is set before everything has succeeded, so that a fit that fails
        or is interrupted leaves an estimator that says it is not fitted.
        """
        settings = self._settings()
        previous = self._previous()
        random_state = check_random_state(self.random_state)
        rows = self._weighted_rows(X, y, sample_weight, settings.batch_size)
        x_scale, y_scale, rows = self._standardise(rows, scale_y, previous)
        n_latent = likelihood.n_latent(y.shape[1], n_classes)
        with _runtime.computation(self.device):
            kernel, state, problem, sizes = self._start(rows, likelihood, n_latent, x_scale, random_state, previous)
            with _progress.shown(type(self).__name__, self.verbose, settings.max_iter, problem.weight) as on_chunk:
                result = training.run(state, problem, rows, settings, random_state, on_chunk)
            fitted, jitter = posterior.condition(result.state.parameters, result.state.q, problem.masks, problem.jitter)
            fitted, state, jitter = jax.tree.map(np.asarray, (fitted, result.state, jitter))
        self._check_finite(fitted, result.elbo)
        self._store(
            kernel, likelihood, fitted, state, (problem.masks, sizes), (x_scale, y_scale), result, float(jitter)
        )
        self._warn_not_converged(settings, result.verdict)
        return self

    def _previous(self):
        """The state that a warm start goes on from, or None."""
        return self._warm_state if self.warm_start and self.__sklearn_is_fitted__() else None

    def _forget(self):
        """Unfit the estimator, before anything can fail; a warm start keeps the last fit."""
        if self._previous() is None:
            vars(self).pop("_posterior", None)
            vars(self).pop("_warm_state", None)

    def _weighted_rows(self, X, y, sample_weight, batch_size):
        """The rows that carry weight; the distinct ones where the full batch is used."""
        weight = _check_sample_weight(sample_weight, X, dtype=np.float64, ensure_non_negative=True)
        used = weight > 0
        if not used.any():
            raise ValueError("sample_weight is zero for every row; at least one row must have a positive weight.")
        rows = training.Rows(X[used], y[used].T, weight[used])
        return _rows.distinct(rows) if len(rows.weight) <= batch_size else rows

    def _standardise(self, rows, scale_y, previous):
        """Return the scales of X and y, and the rows in these units."""
        if previous is not None:
            x_scale, y_scale = self._x_scale, self._y_scale
            if len(y_scale.scale) != len(rows.y):
                raise ValueError(f"warm_start=True, but y has {len(rows.y)} columns and had {len(y_scale.scale)}.")
        else:
            x_scale = _rows.fit_scale("X", rows.X, rows.weight, self.normalize_X)
            y_scale = _rows.fit_scale("y", rows.y.T, rows.weight, scale_y)
        return x_scale, y_scale, rows._replace(X=x_scale.forward(rows.X), y=y_scale.forward(rows.y.T).T)

    def _start(self, rows, likelihood, n_latent, x_scale, random_state, previous):
        """The scikit-learn kernel, the initial state, the problem, and the numbers of points."""
        kernel = self._default_kernel(rows) if self.kernel is None else self.kernel
        specs = kernels.from_sklearn(kernel, rows.X.shape[1]), likelihood.spec(len(rows.y))
        with np.errstate(divide="ignore"):
            start, lower, upper = (jax.tree.map(np.log, pair) for pair in zip(*specs, strict=True))
        if previous is None:
            points, masks, sizes = self._place_points(rows.X, kernel, x_scale, random_state)
            q = gaussians.standard(n_latent, len(points.Z))
            parameters = Parameters(*start, points, np.zeros((n_latent, len(points.Z_mean))))
        else:
            q, parameters, masks, sizes = previous
            _check_same_structure(start, parameters[:2], n_latent, len(q.mean))
        problem = training.Problem(
            log_bounds=(lower, upper),
            masks=masks,
            scale=len(rows.weight) / min(len(rows.weight), self.batch_size),
            weight=float(rows.weight.sum()),
            jitter=float(self.jitter),
        )
        return kernel, training.initial_state(q, parameters, self.optimizer), problem, sizes

    def _default_kernel(self, rows):
        spread = _rows.fit_scale("X", rows.X, rows.weight, active=True).scale
        targets = rows.y.T
        if self._task == "classification":
            targets = np.equal(targets, np.unique(targets)).astype(float)
        return lengthscales.default_kernel(rows.X, targets, spread)

    def _place_points(self, X, kernel, x_scale, random_state):
        """Padded points in standardised units, their masks, and how many there are."""
        sizes = self.n_inducing, self.n_mean_inducing
        if isinstance(self.inducing_init, str):
            method = _validation.choice("inducing_init", self.inducing_init, tuple(inducing.METHODS))
            placed = inducing.place(method, X, kernel, *sizes, random_state)
        else:
            given = x_scale.forward(self._given_points(X.shape[1]))
            placed = inducing.complete(given, X, kernel, *sizes, random_state)
            sizes = tuple(map(len, placed))
        return (*_pad_points(placed, sizes), tuple(map(len, placed)))

    def _given_points(self, n_features):
        """The user's array of points, checked."""
        try:
            given = np.asarray(self.inducing_init, dtype=float)
        except (TypeError, ValueError):
            given = np.empty(0)
        if given.ndim != 2 or given.shape[1] != n_features or len(given) == 0 or not np.all(np.isfinite(given)):
            raise ValueError(
                f"inducing_init={self.inducing_init!r} must be one of {', '.join(map(repr, inducing.METHODS))}, "
                f"or a finite array of points of shape (n_points, {n_features}) in the units of X."
            )
        return given

    def _check_finite(self, fitted, elbo):
        if not (np.isfinite(elbo) and all(np.all(np.isfinite(array)) for array in fitted)):
            raise FloatingPointError(
                f"Training gave values that are not finite (ELBO {elbo}). Look for extreme values in X, y and "
                f"sample_weight; keep normalize_X and normalize_y on; raise jitter={self.jitter!r} or lower "
                f"learning_rate={self.learning_rate!r}."
            )

    def _store(self, kernel, likelihood, fitted, state, points, scales, result, jitter):
        parameters, (masks, sizes) = state.parameters, points
        twin, leaves = jax.tree.map(np.exp, (parameters.log_kernel, parameters.log_likelihood))
        self.kernel_ = kernels.to_sklearn(kernel, twin)
        self.likelihood_ = likelihood.fitted([getattr(leaves, name) for name in likelihood.parameters])
        self._x_scale, self._y_scale = scales
        self.inducing_points_ = self._x_scale.backward(parameters.points.Z[: sizes[0]])
        self.mean_inducing_points_ = self._x_scale.backward(parameters.points.Z_mean[: sizes[1]])
        self.elbo_curve_ = result.report.elbo
        self.elbo_ = result.elbo
        self.n_iter_ = len(result.report.elbo)
        self.n_rejected_steps_ = int(result.report.rejected.sum())
        self.jitter_ = jitter
        self._posterior = fitted
        self._warm_state = (state.q, parameters, masks, sizes)

    def _warn_not_converged(self, settings, verdict):
        """One ConvergenceWarning that says what was seen and what to change."""
        window = f"n_iter_no_change={settings.n_iter_no_change}"
        rate = f"learning_rate={self.learning_rate!r}"
        change = f"by more than tol={settings.tol:g} for each row over {window} iterations"
        messages = {
            "too few": f"max_iter={settings.max_iter} is too few iterations to tell whether the ELBO has converged: "
            f"that takes two averages over {window} iterations. Raise max_iter or lower n_iter_no_change.",
            "rising": f"The ELBO was still rising at max_iter={settings.max_iter} ({change}). Raise max_iter or "
            f"{rate}, or accept it with a larger tol.",
            "falling": f"The ELBO was falling at the end ({change}): the steps are too large. Lower "
            f"gamma_schedule={self.gamma_schedule!r} or {rate}.",
        }
        if verdict is not None:
            warnings.warn(messages[verdict], ConvergenceWarning, stacklevel=4)

    # -- prediction ----------------------------------------------------------------------

    def __sklearn_is_fitted__(self):
        return hasattr(self, "_posterior")

    def _check_rows(self, X):
        """Validate X for prediction, and return it in standardised units."""
        check_is_fitted(self)
        X = validate_data(self, X, dtype=np.float64, reset=False)
        with np.errstate(over="ignore"):
            X = self._x_scale.forward(X)
        if not np.all(np.isfinite(X)):
            raise ValueError("X holds values so far from the training data that they overflow when standardised.")
        return X

    def _model(self):
        """Kernel, likelihood and posterior, in the form that `posterior` evaluates."""
        kernel = kernels.from_sklearn(self.kernel_, self.n_features_in_).value
        return kernel, self.likelihood_.spec(len(self._y_scale.scale))[0], self._posterior

    def _evaluate(self, function, X, y=None):
        """Evaluate a function of `posterior` at standardised rows."""
        with _runtime.computation(self.device, required=False):
            values = posterior.in_chunks(function, *self._model(), X, y)
        if any(np.any(np.isnan(value)) for value in jax.tree.leaves(values)):
            raise FloatingPointError(
                f"The kernel {self.kernel_} is not defined at some rows of X: the prediction is NaN."
            )
        return values

    def _covariance(self, X):
        """Latent covariance (K, N, N) at standardised rows."""
        kernel, _, fitted = self._model()
        with _runtime.computation(self.device, required=False):
            return posterior.covariance(kernel, fitted, X)

    def _sample_targets(self, X, n_samples, random_state):
        """Joint draws of the targets at standardised rows: (T, N, n_samples)."""
        f = self._sample_latent(X, n_samples, random_state)
        with _runtime.computation(self.device, required=False):
            y = self._model()[1].sample(f.reshape(len(f), -1), random_state)
        return np.reshape(y, (-1, *f.shape[1:]))

    def _sample_latent(self, X, n_samples, random_state):
        """Joint draws of the latent functions at standardised rows: (K, N, n_samples)."""
        mean = self._evaluate(posterior.latent_mean, X)
        values, vectors = np.linalg.eigh(self._covariance(X))
        root = vectors * np.sqrt(np.maximum(values, 0.0))[:, None, :]
        noise = random_state.standard_normal((*mean.shape, n_samples))
        return mean[:, :, None] + root @ noise


def _pad_points(placed, requested):
    """Pad both point sets with masked points to sizes that similar tables share."""
    padded, masks = [], []
    for points, most in zip(placed, requested, strict=True):
        size = max(len(points), min(most, training.bucket(len(points)))) if len(points) else 0
        padded.append(np.pad(points, ((0, size - len(points)), (0, 0))))
        masks.append((np.arange(size) < len(points)).astype(float))
    return bases.Points(*padded), bases.Masks(*masks)


def _check_same_structure(start, previous, n_latent, n_previous):
    """Refuse a warm start from another model."""

    def shapes(tree):
        return [np.shape(leaf) for leaf in jax.tree.leaves(tree)]

    same = jax.tree.structure(start) == jax.tree.structure(tuple(previous)) and shapes(start) == shapes(previous)
    if not same or n_latent != n_previous:
        raise ValueError(
            "warm_start=True, but the kernel, the likelihood or the number of targets or classes differs from "
            "the previous fit's; set warm_start=False to start anew."
        )
