"""What the two estimators share: arguments, one fit, and the way to the posterior."""

from __future__ import annotations

import copy
import functools
import operator
import warnings
from inspect import signature
from typing import NamedTuple

import jax
import numpy as np
from sklearn.base import BaseEstimator, clone
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted, validate_data

from .. import kernels, likelihoods
from .._backend import blas, device, memory
from ..kernels.columns import by_position
from ..mean_solve import exact_mean
from ..prediction import posterior
from ..start import default_kernel, inducing_points
from ..step import algorithm, step
from ..training import batches, checkpoint, constant_model, loop
from ..training.schedules import Auto, Cosine, LineSearch
from ..variational import bases, gaussian, streaming
from ..variational.objectives import Parameters, Problem
from ..variational.parameterizations import PARAMETERIZATIONS
from . import _checks, _hyperparameters, _inputs, _outcome, _persistence, _progress, _table, _warm_start

# Arguments whose values may have parameters of their own.
_OBJECTS = ("kernel", "likelihood", "gamma_schedule", "learning_rate")
# By task, the other one and its estimator.
_OTHER = {
    "regression": ("classification", "NGDSVGPClassifier"),
    "classification": ("regression", "NGDSVGPRegressor"),
}
# Matrices of n_inducing rows and columns that a fit holds at least: covariance, factor, precision, gradient.
_MATRICES_OF_A_FIT = 4
# Latent variance under which expectations are of the size of what they are taken of, on the scale of a logarithm, and
# the rows at which it is looked at.
_WIDEST, _SOME_ROWS = 4.0, 1000
# Arguments that leave the result alone; what a warm start changes is looked at itself.
_WITHOUT_EFFECT = ("verbose", "callback", "checkpoint", "warm_start")
# With rows in single precision, covariances of rows and points have no more digits than this allows for.
_LEAST_JITTER = {"float64": 0.0, "float32": 1e-6}
# What rows of a fit may hold at most: where squares overflow, single precision has no distances.
_LARGEST = {"float64": np.finfo(float).max, "float32": 1e18}


class _Fitted(NamedTuple):
    """What turns a state of training into fitted attributes."""

    kernels: tuple
    likelihood: likelihoods.Likelihood
    problem: Problem
    sizes: tuple
    scales: tuple
    method: algorithm.Method
    arguments: dict
    attributes: dict


class _Resumption(NamedTuple):
    """What a later fit goes on from, in NumPy.

    ``weight`` is that of all rows so far; ``arguments`` are those of the fit (see `_warm_start`), None in a
    file of format 1, as is the ``jitter``.
    """

    q: gaussian.Gaussian
    parameters: Parameters
    masks: bases.Masks
    offset: np.ndarray
    weight: float
    sizes: tuple
    basis: str
    arguments: dict | None = None
    jitter: float | None = None


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
        gamma_schedule="auto",
        optimizer="adam",
        learning_rate=0.02,
        batch_size=1024,
        max_iter=1000,
        tol=1e-3,
        n_iter_no_change=50,
        mean_solver="adam",
        mean_columns="auto",
        normalize_X=True,
        normalize_y=True,
        jitter=1e-8,
        warm_start=False,
        random_state=None,
        verbose=0,
        device="auto",
        dtype="float64",
        callback=None,
        checkpoint=None,
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
        self.mean_columns = mean_columns
        self.normalize_X = normalize_X
        self.normalize_y = normalize_y
        self.jitter = jitter
        self.warm_start = warm_start
        self.random_state = random_state
        self.verbose = verbose
        self.device = device
        self.dtype = dtype
        self.callback = callback
        self.checkpoint = checkpoint

    # -- arguments -----------------------------------------------------------------------

    def _settings(self):
        """Check every argument that needs no data, and return those that drive training."""
        method = self._method()
        self._check_checkpoint()
        _checks.choice("device", self.device, device.DEVICES)
        _checks.integer("verbose", int(self.verbose) if isinstance(self.verbose, bool) else self.verbose, 0)
        _checks.number("jitter", self.jitter)
        for name in ("normalize_X", "normalize_y", "warm_start"):
            _checks.boolean(name, getattr(self, name))
        if self.callback is not None and not callable(self.callback):
            raise ValueError(f"callback={self.callback!r} must be callable, or None.")
        max_iter = _checks.integer("max_iter", self.max_iter, 1)
        rate = self.learning_rate
        if isinstance(rate, (int, float, np.number)) and not isinstance(rate, bool):
            rate = Cosine(_checks.number("learning_rate", rate), 0.0, n_steps=max_iter)
        is_search = isinstance(rate, LineSearch) or rate == "line_search"
        if is_search and algorithm.SOLVERS[method.solver].natural:
            raise ValueError(
                f"learning_rate={rate!r} is for solver='adam' and 'gd'; with solver={method.solver!r} search along the "
                "natural gradient: gamma_schedule='line_search'."
            )
        if isinstance(rate, Auto) or rate == "auto":
            raise ValueError(
                f"learning_rate={rate!r} is for gamma_schedule, the natural gradient's step size; give learning_rate a "
                "number or another schedule."
            )
        gamma_schedule = _checks.schedule("gamma_schedule", self.gamma_schedule, max_iter, 1.0)
        adaptive = isinstance(gamma_schedule, Auto) and algorithm.SOLVERS[method.solver].natural
        return loop.Settings(
            method=method._replace(adaptive=adaptive),
            gamma_schedule=gamma_schedule,
            rate_schedule=_checks.schedule(
                "learning_rate", rate, max_iter, 1e9 if is_search else 10.0, without=("auto",)
            ),
            batch_size=_checks.integer("batch_size", self.batch_size, 1),
            n_columns=self._n_columns(method),
            max_iter=max_iter,
            tol=_checks.number("tol", self.tol, strict=False),
            n_iter_no_change=_checks.integer("n_iter_no_change", self.n_iter_no_change, 1),
            dtype=self._dtype(),
        )

    def _dtype(self):
        """The name of the type in which rows are computed."""
        return _checks.dtype("dtype", self.dtype, device.DTYPES)

    def _method(self):
        """The algorithm's parts by name, checked one by one."""
        if self.basis == "coupled":
            raise ValueError("basis='coupled' is basis='orthogonal' with n_mean_inducing=0; set these.")
        return algorithm.Method(
            solver=_checks.choice("solver", self.solver, tuple(algorithm.SOLVERS)),
            parameterization=_checks.choice("parameterization", self.parameterization, tuple(PARAMETERIZATIONS)),
            basis=_checks.choice("basis", self.basis, tuple(bases.BASES)),
            mean_solver=_checks.choice("mean_solver", self.mean_solver, algorithm.MEAN_SOLVERS),
            optimizer=_checks.choice("optimizer", self.optimizer, (*step.OPTIMIZERS, None)),
        )

    def _check_checkpoint(self):
        """Refuse, before any work is done, a file that could not be written or gone on from."""
        if self.checkpoint is None:
            return
        path = _checks.path("checkpoint", self.checkpoint)
        if self.solver == "lbfgs":
            raise ValueError(
                f"checkpoint={str(path)!r} with solver='lbfgs': scipy keeps what L-BFGS remembers to itself, so that "
                "no fit can go on from a file. Use checkpoint=None, or another solver."
            )

    def _sizes(self):
        """The numbers of points that are asked for; None stands for a point at every row."""
        n_mean = _checks.integer("n_mean_inducing", self.n_mean_inducing, 0)
        if self.n_inducing is None or (isinstance(self.n_inducing, str) and self.n_inducing == "all"):
            if n_mean:
                raise ValueError(
                    f"n_inducing={self.n_inducing!r} puts an inducing point at every row, which leaves nothing for "
                    f"n_mean_inducing={n_mean}; set one of the two."
                )
            return None, 0
        if isinstance(self.n_inducing, str):
            raise ValueError(f'n_inducing={self.n_inducing!r} must be an integer of at least 1, or None or "all".')
        return _checks.integer("n_inducing", self.n_inducing, 1), n_mean

    def _n_columns(self, method):
        """Columns of the mean-only points' covariance in a minibatch step, at most."""
        if isinstance(self.mean_columns, str):
            _checks.choice("mean_columns", self.mean_columns, ("auto",))
            # As many as rows: the step then costs no more than twice as much.
            n_columns = self.batch_size
        else:
            n_columns = _checks.integer("mean_columns", self.mean_columns, 1)
        # A sample of the quadratic form need not be positive, and a search for the best step would not end.
        return self._sizes()[1] if method.mean_solver in algorithm.NATURAL_MEAN_SOLVERS else n_columns

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
            if name not in self._get_param_names():
                raise ValueError(_checks.unknown(f"{type(self).__name__} parameter", name, self._get_param_names()))
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
            options, (other, estimator) = ("auto", *likelihoods.names(self._task)), _OTHER[self._task]
            if self.likelihood not in options and self.likelihood in likelihoods.names(other):
                raise ValueError(
                    f"likelihood={self.likelihood!r} is for {other}, not {self._task}; use {estimator}, or another "
                    "likelihood."
                )
            name = _checks.choice("likelihood", self.likelihood, options)
            return likelihoods.by_name(default if name == "auto" else name)
        if not isinstance(self.likelihood, likelihoods.Likelihood) or self._task not in self.likelihood.tasks:
            raise ValueError(
                f"likelihood={self.likelihood!r} must be a {self._task} likelihood: an object of "
                f"skgp_natgrad.likelihoods, or one of {', '.join(map(repr, likelihoods.names(self._task)))}."
            )
        return self.likelihood

    # -- fitting -------------------------------------------------------------------------

    def _fit(self, X, y, sample_weight, likelihood, types, n_classes=0, scale_y=False, streams=False, **attributes):
        """Fit latent functions to the target columns ``y`` (N, T); sets the fitted attributes.

        ``types`` are those of the columns of X and of y, as they were given.
        With ``streams`` the rows of earlier calls count as well, through their
        site. ``attributes`` are further ones, that the prediction of a subclass
        needs. Nothing is set before everything has succeeded, so that a fit that
        fails or is interrupted leaves an estimator that says it is not fitted, a
        failed ``partial_fit`` the one that there was.
        """
        settings = self._settings()
        previous = self._previous(streams)
        streams = streams and previous is not None
        if streams:
            likelihood = self._as_before(likelihood)
        random_state = check_random_state(self.random_state)
        rows, spans = self._weighted_rows(X, y, sample_weight, types, settings.batch_size)
        checkpoint = self._checkpoint(rows, n_classes, previous, streams)
        if checkpoint is not None:
            random_state = checkpoint.rewound(random_state)
        likelihood = likelihood.prepare(rows.y, n_classes)
        full_batch = batches.is_full(len(rows.weight), settings.batch_size)
        algorithm.check(settings.method, likelihood, full_batch, settings.searched is not None)
        scale_y = scale_y and likelihood.standardises
        arguments = self._arguments(likelihood, scale_y)
        if previous is not None:
            _warm_start.check(previous.arguments, arguments, streams)
        x_scale, y_scale, rows = self._standardise(rows, spans, scale_y, previous, streams)
        with device.computation(self.device):
            kernel, state, problem, sizes = self._start(
                rows, likelihood, n_classes, x_scale, random_state, previous, settings.method, streams, arguments
            )
            fitted_as = _Fitted(
                kernel, likelihood, problem, sizes, (x_scale, y_scale), settings.method, arguments, attributes
            )
            weight = float(rows.weight.sum())
            with _progress.shown(type(self).__name__, self.verbose, settings.max_iter, weight) as show:
                on_chunk = self._on_chunk(show, fitted_as)
                result = loop.run(state, problem, rows, settings, random_state, on_chunk, checkpoint)
            resume, trained = _resumption(fitted_as, result.state), result
            if settings.method.mean_solver == "exact":
                fitted_as, result = self._solve_mean(fitted_as, result, rows, settings, random_state)
            # Of the bound that training saw: the noise of a mean that is solved for is not the bound's own.
            constant = None if streams else _constant_model(fitted_as, trained.state.parameters, rows)
            step_sizes = self._step_sizes(settings.method)
            try:
                _outcome.refuse_diverged(trained, weight, constant, step_sizes)
            except FloatingPointError:
                # Other arguments are to be tried, for which its state is of no use.
                if checkpoint is not None:
                    checkpoint.remove()
                raise
            self._store(fitted_as, result.state, result.report, result.elbo, resume)
        if checkpoint is not None:
            checkpoint.remove()
        _outcome.warn(trained, settings, weight, constant, step_sizes, stacklevel=4)
        if settings.method.optimizer is not None:
            _hyperparameters.warn_at_bounds(result.state.parameters[:2], problem.log_bounds, stacklevel=4)
        if previous is None:
            self._warn_fewer_points(fitted_as.sizes)
        return self

    def _checkpoint(self, rows, n_classes, previous, streams):
        """The file that keeps this fit, or None; what the result depends on is its identity."""
        if self.checkpoint is None:
            return None
        arguments = {k: v for k, v in self.get_params(deep=False).items() if k not in _WITHOUT_EFFECT}
        identity = {name: checkpoint.described(value) for name, value in arguments.items()}
        identity["estimator"] = type(self).__name__
        # It has many names.
        identity["dtype"] = self._dtype()
        identity["number of classes"] = n_classes
        identity["partial_fit"] = streams
        tables = zip(("X", "y", "sample_weight"), rows, strict=True)
        identity |= {name: checkpoint.digest([table]) for name, table in tables}
        if previous is not None:
            leaves = jax.tree.leaves((previous._replace(arguments=None), self._x_scale, self._y_scale))
            found = [checkpoint.digest(leaves), checkpoint.described(previous.arguments)]
            identity["the fit that the warm start goes on from"] = found
        return checkpoint.Checkpoint(self.checkpoint, identity)

    def _solve_mean(self, fitted_as, result, rows, settings, random_state):
        """Add the mean-only points, which training did without, and solve for the mean on all points."""
        parameters, n_mean = result.state.parameters, self._sizes()[1]
        Z_mean = inducing_points.place_mean_only(rows.X, n_mean, random_state)
        points, masks = _pad_points((np.asarray(parameters.points.Z), Z_mean), (0, n_mean))
        weights = bases.first_weights("orthogonal", len(result.state.q.mean), 0, len(points.Z_mean))
        parameters = parameters._replace(points=points, weights=weights)
        problem = fitted_as.problem._replace(masks=masks._replace(Z=fitted_as.problem.masks.Z))
        trains_likelihood = settings.method.optimizer is not None
        solution = exact_mean.solve(
            result.state.q, parameters, problem, rows, settings.tol, random_state, trains_likelihood
        )
        _outcome.warn_of_mean(solution.lost, stacklevel=5)
        state = result.state._replace(q=solution.q, parameters=solution.parameters)
        fitted_as = fitted_as._replace(problem=problem, sizes=(fitted_as.sizes[0], len(Z_mean)))
        return fitted_as, result._replace(state=state, elbo=solution.elbo)

    def _on_chunk(self, show, fitted_as):
        """What is called between chunks of iterations: the progress display, and the user's callback."""
        if show is None and self.callback is None:
            return None

        def on_chunk(report, state):
            if show is not None:
                show(len(report.elbo), report)
            if self.callback is None:
                return False
            state = step.settled(state, fitted_as.problem, fitted_as.method)
            snapshot = copy.copy(self)
            snapshot._store(fitted_as, state, report, float(report.elbo[-1]), _resumption(fitted_as, state))
            return self.callback(len(report.elbo), snapshot) is True

        return on_chunk

    def _arguments(self, likelihood, scale_y):
        """Copies of what says what the model is made of: the likelihood as prepared, ``scale_y`` as used."""
        return _warm_start.recorded(
            kernel=self._by_position(self.kernel),
            likelihood=likelihood,
            basis=self.basis,
            # Of its names there is "all", which is None.
            n_inducing=None if isinstance(self.n_inducing, str) else self.n_inducing,
            mean_solver=self.mean_solver,
            n_mean_inducing=self.n_mean_inducing,
            inducing_init=self.inducing_init,
            normalize_X=self.normalize_X,
            normalize_y=scale_y,
        )

    def _fitted_arguments(self):
        """What `_arguments` were, as far as a fitted estimator tells; of arguments that are not valid as well."""
        fitted, likelihood = self.likelihood_, self.likelihood
        if isinstance(likelihood, str):
            likelihood = type(fitted)()
        started = {name: getattr(likelihood, name, None) for name in fitted.parameters}
        started = {name: value for name, value in started.items() if value is not None}
        scale_y = self._task == "regression" and self.normalize_y and fitted.standardises
        return self._arguments(clone(fitted).set_params(**started), scale_y)

    def _previous(self, streams=False):
        """The state that a warm start, or a stream, goes on from, or None."""
        return self._warm_state if (self.warm_start or streams) and self.__sklearn_is_fitted__() else None

    def _forget(self):
        """Unfit the estimator, before anything can fail; a warm start keeps the last fit."""
        if self._previous() is None:
            vars(self).pop("_posterior", None)
            vars(self).pop("_warm_state", None)

    def _weighted_rows(self, X, y, sample_weight, types, batch_size):
        """The rows that carry weight, the distinct ones where the full batch is used, and X's spans of rounding."""
        weight = _inputs.weights(sample_weight, X)
        used = weight > 0
        tables = X[used], y[used]
        spans = [_table.spans_of_rounding(*pair) for pair in zip(tables, types, strict=True)]
        X, y = map(_table.snapped, tables, spans)
        rows = batches.Rows(X, y.T, weight[used])
        return _table.distinct(rows) if len(rows.weight) <= batch_size else rows, spans[0]

    def _as_before(self, likelihood):
        """The likelihood of the next rows of a stream: what the first rows settled stays settled."""
        if len(self.mean_inducing_points_):
            raise ValueError(
                f"partial_fit cannot go on from a fit with {len(self.mean_inducing_points_)} mean-only points: what "
                "they know cannot be told to later rows. Call fit to start anew."
            )
        fitted = self.likelihood_
        if type(likelihood) is not type(fitted):
            return likelihood
        settled = {name: getattr(fitted, name) for name in fitted.options if getattr(likelihood, name) is None}
        return clone(likelihood).set_params(**settled)

    def _standardise(self, rows, spans, scale_y, previous, streams):
        """Return the scales of X and y, and the rows in these units."""
        if previous is not None:
            x_scale, y_scale = self._x_scale, self._y_scale
            if len(y_scale.scale) != len(rows.y):
                reason = _warm_start.reason(streams)
                raise ValueError(f"{reason}, but y has {len(rows.y)} columns and had {len(y_scale.scale)}.")
        else:
            x_scale = _table.fit_scale("X", rows.X, rows.weight, self.normalize_X, spans)
            y_scale = _table.fit_scale("y", rows.y.T, rows.weight, scale_y)
        with np.errstate(over="ignore"):
            X = x_scale.forward(rows.X)
        largest = np.abs(X).max()
        if not largest <= _LARGEST[self._dtype()]:
            raise ValueError(
                f"X holds values up to {largest:g} in the units of the model, which dtype={self.dtype!r} cannot "
                "square; rescale X (normalize_X=True does), or use dtype='float64'."
            )
        return x_scale, y_scale, rows._replace(X=X, y=y_scale.forward(rows.y.T).T)

    def _start(self, rows, likelihood, n_classes, x_scale, random_state, previous, method, streams, arguments):
        """The scikit-learn kernels as given, the initial state, the problem, and the numbers of points."""
        shape = rows.X.shape[1], len(rows.y)
        n_latent = likelihood.n_latent(len(rows.y), n_classes)
        given = self._kernels(rows, n_latent, previous)
        sklearn_kernels = tuple(self._by_position(given))
        specification = _hyperparameters.specification(sklearn_kernels, likelihood, *shape)
        if previous is None:
            together = functools.reduce(operator.add, sklearn_kernels)
            points, masks, sizes = self._place_points(rows.X, together, x_scale, random_state)
            q = _first_q(sklearn_kernels, likelihood, rows.X, n_latent, len(points.Z))
            weights = bases.first_weights(method.basis, n_latent, *map(len, points))
            parameters = Parameters(*specification[0], points, weights)
            offset = likelihood.initial_latent(rows.y, rows.weight, n_classes).reshape(n_latent, 1)
        else:
            q, parameters, sizes = previous.q, previous.parameters, previous.sizes
            masks, offset = previous.masks, previous.offset
            before = parameters[:2], specification, previous.arguments
            parameters = Parameters(*_warm_start.continued(*before, arguments, *shape, streams), *parameters[2:])
        problem = Problem(
            log_bounds=specification[1:],
            masks=masks,
            offset=offset,
            scale=len(rows.weight) / min(len(rows.weight), self.batch_size),
            weight=float(rows.weight.sum()),
            jitter=max(float(self.jitter), _LEAST_JITTER[self._dtype()]),
            point_rate=float(self._sizes()[0] is not None),
        )
        if previous is not None and not streams:
            whitened_by = previous.parameters[:2], previous.jitter or problem.jitter
            if _differ(whitened_by, (parameters[:2], problem.jitter)):
                before = previous.parameters, problem._replace(jitter=whitened_by[1])
                q = step.rewhitened(q, before, (parameters, problem), method.basis)
        if streams:
            previous = previous._replace(parameters=parameters)
            q, parameters, problem, sizes = self._follow(previous, problem, sklearn_kernels, rows.X, random_state)
        return given, step.initial_state(q, parameters, problem, method), problem, sizes

    def _follow(self, previous, problem, sklearn_kernels, X, random_state):
        """Where the next rows of a stream start: q, the parameters, the problem, and the numbers of points."""
        parameters, n_inducing = previous.parameters, self._sizes()[0]
        kernels_now = jax.tree.map(np.exp, parameters.log_kernels)
        Z = parameters.points.Z[: previous.sizes[0]]
        if n_inducing is None or isinstance(self.inducing_init, str):
            together = functools.reduce(operator.add, map(kernels.to_sklearn, sklearn_kernels, kernels_now))
            Z = inducing_points.follow(Z, X, together, n_inducing, random_state)
        self._require_memory(len(Z))
        points, masks = _pad_points((Z, parameters.points.Z_mean), (n_inducing or batches.bucket(len(Z)), 0))
        site = streaming.of_posterior(self._posterior.Z, self._posterior.whiten, previous.q, points.Z)
        q = streaming.best_q(site, kernels_now, points.Z, masks.Z, problem.jitter)
        problem = problem._replace(masks=masks, site=site, weight=problem.weight + previous.weight)
        return q, parameters._replace(points=points), problem, (len(Z), 0)

    def _fitted_kernels(self):
        """The fitted kernel of all latent functions, or those of each: a tuple."""
        return _warm_start.one_or_each(self._by_position(self.kernel_))

    def _by_position(self, kernel):
        """A kernel, or a list of them, whose `Columns` select by position: a fit's rows are arrays without names."""
        names = getattr(self, "feature_names_in_", None)
        if isinstance(kernel, (list, tuple)):
            return [by_position(each, names) for each in kernel]
        return by_position(kernel, names)

    def _kernels(self, rows, n_latent, previous):
        """One kernel for all latent functions, or one for each: a tuple."""
        if self.kernel is None:
            # A default kernel is that of the first rows.
            return (self._default_kernel(rows),) if previous is None else self._fitted_kernels()
        if isinstance(self.kernel, (list, tuple)) and len(self.kernel) != n_latent:
            raise ValueError(
                f"kernel is a list of {len(self.kernel)}, but there are {n_latent} latent functions; give one kernel "
                "for all, or one for each."
            )
        return _warm_start.one_or_each(self.kernel)

    def _default_kernel(self, rows):
        spread = _table.fit_scale("X", rows.X, rows.weight, active=True).scale
        targets = rows.y.T
        if self._task == "classification":
            targets = np.equal(targets, np.unique(targets)).astype(float)
        return default_kernel.default_kernel(rows.X, targets, spread)

    def _place_points(self, X, kernel, x_scale, random_state):
        """Padded points in standardised units, their masks, and how many there are."""
        n_inducing, n_mean = self._sizes()
        if self.mean_solver == "exact":
            # They are placed when the mean is solved for.
            n_mean = 0
        if n_inducing is None:
            if not isinstance(self.inducing_init, str):
                raise ValueError(
                    f"n_inducing={self.n_inducing!r} puts an inducing point at every row, and inducing_init gives "
                    "points as well; leave one of the two at its default."
                )
            placed = np.unique(X, axis=0), np.empty((0, X.shape[1]))
            self._require_memory(len(placed[0]))
            n_inducing = batches.bucket(len(placed[0]))
        elif isinstance(self.inducing_init, str):
            method = _checks.choice("inducing_init", self.inducing_init, tuple(inducing_points.METHODS))
            self._require_memory(min(n_inducing, len(X)))
            placed = inducing_points.place(method, X, kernel, n_inducing, n_mean, random_state)
        else:
            given = x_scale.forward(self._given_points(X.shape[1]))
            if self.mean_solver == "exact" and self.n_mean_inducing and len(given) == sum(self._sizes()):
                raise ValueError(
                    f"inducing_init has {len(given)} points, but mean_solver='exact' places the mean-only points "
                    "itself; give the inducing points alone."
                )
            placed = inducing_points.complete(given, X, kernel, n_inducing, n_mean, random_state)
        if self.basis == "decoupled":
            # The mean rests on both sets (appendix E); its copy of the inducing points moves on its own.
            placed = placed[0], np.concatenate([placed[1], placed[0]])
        most = [max(len(points), size or 0) for points, size in zip(placed, (n_inducing, n_mean), strict=True)]
        return (*_pad_points(placed, most), tuple(map(len, placed)))

    def _require_memory(self, n_points):
        """Refuse more inducing points than the machine has memory for: a few matrices of their size."""
        purpose = f"n_inducing={self.n_inducing!r}, {n_points} points here,"
        memory.require(_MATRICES_OF_A_FIT * 8 * n_points**2, purpose, "lower n_inducing; some hundreds go far")

    def _given_points(self, n_features):
        """The user's array of points, checked."""
        try:
            given = np.asarray(self.inducing_init, dtype=float)
        except (TypeError, ValueError):
            given = np.empty(0)
        if given.ndim != 2 or given.shape[1] != n_features or len(given) == 0 or not np.all(np.isfinite(given)):
            raise ValueError(
                f"inducing_init={self.inducing_init!r} must be one of {', '.join(map(repr, inducing_points.METHODS))}, "
                f"or a finite array of points of shape (n_points, {n_features}) in the units of X."
            )
        return given

    def _store(self, fitted_as, state, report, elbo, resume):
        """Set the fitted attributes, if all is finite; a warm start goes on from ``resume``."""
        problem, parameters = fitted_as.problem, state.parameters
        with blas.single_threaded(len(parameters.points.Z)):
            fitted, jitter = posterior.condition(fitted_as.method.basis, parameters, state.q, problem)
            fitted, state, jitter = jax.tree.map(np.asarray, (fitted, state, jitter))
        self._check_finite(fitted, elbo)
        parameters, (n_inducing, n_mean) = state.parameters, fitted_as.sizes
        twins, leaves = jax.tree.map(np.exp, parameters[:2])
        fitted_kernels = [kernels.to_sklearn(*pair) for pair in zip(fitted_as.kernels, twins, strict=True)]
        several = len(fitted_kernels) > 1 or isinstance(self.kernel, (list, tuple))
        likelihood = fitted_as.likelihood
        x_scale, y_scale = fitted_as.scales
        # All in one call, which an interrupt comes before or after: never half of a new fit.
        vars(self).update(
            fitted_as.attributes,
            kernel_=fitted_kernels if several else fitted_kernels[0],
            likelihood_=likelihood.fitted([getattr(leaves, name) for name in likelihood.parameters]),
            inducing_points_=x_scale.backward(parameters.points.Z[:n_inducing]),
            mean_inducing_points_=x_scale.backward(parameters.points.Z_mean[:n_mean]),
            elbo_curve_=report.elbo,
            elbo_=elbo,
            n_iter_=len(report.elbo),
            step_sizes_=report.gamma,
            n_rejected_steps_=int(report.rejected.sum()),
            n_clipped_steps_=int(report.clipped.sum()),
            jitter_=float(jitter),
            _x_scale=x_scale,
            _y_scale=y_scale,
            _posterior=fitted,
            _warm_state=resume,
        )

    def _check_finite(self, fitted, elbo):
        if not (np.isfinite(elbo) and all(np.all(np.isfinite(array)) for array in fitted)):
            raise FloatingPointError(
                f"Training gave values that are not finite (ELBO {elbo}). Look for extreme values in X, y and "
                f"sample_weight; keep normalize_X and normalize_y on; raise jitter={self.jitter!r} or lower "
                f"learning_rate={self.learning_rate!r}."
            )

    def _step_sizes(self, method):
        """The arguments that set step sizes, with their values, that of the optimizer last."""
        names = algorithm.SOLVERS[method.solver].step_sizes
        return [
            f"{name}={getattr(self, name)!r}"
            for name in names
            if not (name == "gamma_schedule" and method.adaptive)
            and not (name == "learning_rate" and method.solver == "ngd" and method.optimizer is None)
        ]

    def _warn_fewer_points(self, sizes):
        """Say that X had too few distinct rows for the points that were asked for.

        Not where ``n_inducing`` is at its default, which is an upper limit and no
        request: small tables and the folds of small tables would warn for nothing.
        """
        if not isinstance(self.inducing_init, str):
            return
        n_inducing, n_mean = self._sizes()
        if n_inducing == signature(type(self)).parameters["n_inducing"].default:
            n_inducing = None
        copied = sizes[0] if self.basis == "decoupled" else 0
        wanted = {"n_inducing": n_inducing or 0, "n_mean_inducing": n_mean}
        for name, used in zip(wanted, (sizes[0], sizes[1] - copied), strict=True):
            if used < wanted[name]:
                warnings.warn(
                    f"{name}={wanted[name]}, but {used} are used: X has too few distinct rows with weight; lower it.",
                    UserWarning,
                    stacklevel=5,
                )

    # -- persistence ---------------------------------------------------------------------

    def __getstate__(self):
        return _persistence.stamped(super().__getstate__())

    def __setstate__(self, state):
        super().__setstate__(_persistence.unstamped(type(self).__name__, state))
        resume = vars(self).get("_warm_state")
        if resume is not None and resume.arguments is None:
            # Of format 1. What it was fitted with is what it says as it is loaded.
            self._warm_state = resume._replace(arguments=self._fitted_arguments())

    # -- prediction ----------------------------------------------------------------------

    def __sklearn_is_fitted__(self):
        return hasattr(self, "_posterior")

    def _check_rows(self, X):
        """Validate X for prediction, and return it in standardised units."""
        check_is_fitted(self)
        with _inputs.located(X=X):
            X = validate_data(self, X, dtype=np.float64, reset=False)
        with np.errstate(over="ignore"):
            X = self._x_scale.forward(X)
        if not np.all(np.isfinite(X)):
            raise ValueError("X holds values so far from the training data that they overflow when standardised.")
        return X

    def _twins(self):
        """The twins of the fitted kernels."""
        return tuple(kernels.from_sklearn(kernel, self.n_features_in_).value for kernel in self._fitted_kernels())

    def _fitted_likelihood(self):
        """The fitted likelihood in the form in which it computes."""
        return self.likelihood_.spec(len(self._y_scale.scale))[0]

    def _evaluate(self, function, X, *targets):
        """Evaluate a function of `posterior` at standardised rows."""
        model = self._fitted_likelihood(), self._posterior
        with device.computation(self.device, required=False):
            if len(X) <= posterior.FEW_ROWS:
                values = posterior.at_few_rows(function, self._fitted_kernels(), *model, X, *targets)
            else:
                values = posterior.in_chunks(function, self._twins(), *model, X, *targets)
        if any(np.any(np.isnan(value)) for value in jax.tree.leaves(values)):
            raise FloatingPointError(
                f"The kernel {self.kernel_} is not defined at some rows of X: the prediction is NaN."
            )
        return values

    def _covariance(self, X):
        """Latent covariance (K, N, N) at standardised rows."""
        with device.computation(self.device, required=False):
            return posterior.covariance(self._twins(), self._posterior, X)

    def _sample_targets(self, X, n_samples, random_state):
        """Joint draws of the targets at standardised rows: (T, N, n_samples)."""
        f = self._sample_latent(X, n_samples, random_state)
        with device.computation(self.device, required=False):
            y = self._fitted_likelihood().sample(f.reshape(len(f), -1), random_state)
        return np.reshape(y, (-1, *f.shape[1:]))

    def _sample_latent(self, X, n_samples, random_state):
        """Joint draws of the latent functions at standardised rows: (K, N, n_samples)."""
        n_rows, n_latent = len(X), len(self._posterior.alpha)
        # Covariances and eigenvectors, and what LAPACK works in; the noise, its products and the targets.
        n_numbers = n_rows * ((2 * n_latent + 3) * n_rows + 4 * n_latent * n_samples)
        remedy = "draw at fewer rows, or fewer samples, at a time"
        memory.require(8 * n_numbers, f"sample_y of n_samples={n_samples} at {n_rows} rows", remedy)
        mean = self._evaluate(posterior.latent_mean, X)
        values, vectors = np.linalg.eigh(self._covariance(X))
        root = vectors * np.sqrt(np.maximum(values, 0.0))[:, None, :]
        noise = random_state.standard_normal((*mean.shape, n_samples))
        return mean[:, :, None] + root @ noise


def _pad_points(placed, requested):
    """Pad both point sets with masked points to sizes that similar tables share."""
    padded, masks = [], []
    for points, most in zip(placed, requested, strict=True):
        size = max(len(points), min(most, batches.bucket(len(points)))) if len(points) else 0
        padded.append(np.pad(points, ((0, size - len(points)), (0, 0))))
        masks.append((np.arange(size) < len(points)).astype(float))
    return bases.Points(*padded), bases.Masks(*masks)


def _first_q(sklearn_kernels, likelihood, X, n_latent, size):
    """The q(v) that training starts from: the prior, or narrower where that is too wide to take expectations under."""
    if likelihood.conjugate:
        return gaussian.standard(n_latent, size)
    prior = np.array([np.mean(kernel.diag(X[:_SOME_ROWS])) for kernel in sklearn_kernels])
    variance = np.minimum(1.0, _WIDEST / np.where(prior > 0.0, prior, 1.0))
    return gaussian.isotropic(np.repeat(variance, n_latent // len(prior)), size)


def _differ(first, second):
    """Whether two trees of arrays hold other numbers."""
    return any(map(np.any, map(np.not_equal, jax.tree.leaves(first), jax.tree.leaves(second))))


def _constant_model(fitted_as, parameters, rows):
    """The bound of the constant model, for each unit of weight; None where y is constant itself."""
    if np.all(rows.y == rows.y[:, :1]):
        return None
    problem, free = fitted_as.problem, fitted_as.method.optimizer is not None
    if not free:
        # What the fit may not move the constant model may not either.
        fixed = parameters.log_kernels, parameters.log_likelihood
        problem = problem._replace(log_bounds=(fixed, fixed))
    return constant_model.log_likelihood(parameters.log_likelihood, problem, rows)


def _resumption(fitted_as, state):
    """The `_Resumption` of a state of training."""
    problem = fitted_as.problem
    arrays = jax.tree.map(np.asarray, (state.q, state.parameters, problem.masks, problem.offset))
    others = problem.weight, fitted_as.sizes, fitted_as.method.basis, fitted_as.arguments, problem.jitter
    return _Resumption(*arrays, *others)
