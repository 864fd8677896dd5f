"""The constructor's arguments, checked once: an immutable `Plan`."""

from __future__ import annotations

import sys
from collections.abc import Mapping

import jax
import numpy as np

from ... import objectives
from ..._backend import processes
from ..._backend.device import DEVICES, DTYPES
from ...kernels import columns
from ...priors import Prior
from ...svgp import (
    BASES,
    MEAN_SOLVERS,
    NATURAL_MEAN_SOLVERS,
    OPTIMIZERS,
    PARAMETERIZATIONS,
    SOLVERS,
    Algorithm,
    Plan,
    Settings,
    is_transformation,
    route_of,
)
from ...training.schedules import Auto, Constant, Cosine, LineSearch
from . import checks, constructor
from .solver import solver_of
from .task import likelihood_of

# What "auto" stands for.
_MAX_ITER = 1000


def read(estimator, targets, by_parts=False):
    """Check every argument that can be checked without data, and return the `Plan` that they describe.

    Parameters
    ----------
    estimator : NGDSVGPRegressor or NGDSVGPClassifier
    targets : Targets
    by_parts : bool, default=False
        Whether further rows may follow.

    Returns
    -------
    plan : Plan
    """
    likelihood = likelihood_of(estimator._task, estimator.likelihood, targets.default_likelihood)
    solver = solver_of(estimator, likelihood, by_parts, len(targets.columns))
    route = route_of(solver, likelihood)
    settings = _settings(estimator, solver, route)
    n_inducing, n_mean_inducing = _sizes(estimator, route)
    return Plan(
        kernels=None if estimator.kernel is None else one_or_each(by_position(estimator.kernel, estimator)),
        likelihood=likelihood,
        n_classes=targets.n_classes,
        objective=_objective(estimator.objective),
        hyperparameter_prior=_hyperparameter_prior(estimator.hyperparameter_prior),
        n_inducing=n_inducing,
        n_mean_inducing=n_mean_inducing,
        inducing_init=estimator.inducing_init,
        train_points=checks.boolean("train_inducing_points", estimator.train_inducing_points),
        jitter=_jitter(estimator, route),
        calibrate=bool(route.calibrates(likelihood) if estimator.calibrate == "auto" else estimator.calibrate),
        device=route.device if estimator.device == "auto" and estimator.n_devices is None else estimator.device,
        n_devices=estimator.n_devices,
        settings=settings,
        n_restarts=_number_or_auto("n_restarts_optimizer", estimator.n_restarts_optimizer, "auto", 0),
    )


def _jitter(estimator, route):
    if isinstance(estimator.jitter, str):
        checks.choice("jitter", estimator.jitter, ("auto",))
        return route.jitter
    return checks.number("jitter", estimator.jitter)


def one_or_each(kernel):
    """Return one kernel for all latent functions, or one kernel for each, as a tuple."""
    return tuple(kernel) if isinstance(kernel, (list, tuple)) else (kernel,)


def by_position(kernel, estimator):
    """The same kernel or list of kernels, with column names replaced by positions."""
    names = getattr(estimator, "feature_names_in_", None)
    if isinstance(kernel, (list, tuple)):
        return [columns.by_position(each, names) for each in kernel]
    return None if kernel is None else columns.by_position(kernel, names)


def dtype(estimator):
    """The name of the floating type in which rows are computed."""
    return checks.dtype("dtype", estimator.dtype, DTYPES)


def _settings(estimator, solver, route):
    algorithm = _algorithm(estimator, solver)
    _check_checkpoint(estimator, algorithm)
    verbose = estimator.verbose
    checks.choice("device", estimator.device, DEVICES)
    checks.n_devices("n_devices", estimator.n_devices)
    checks.integer("verbose", int(verbose) if isinstance(verbose, bool) else verbose, 0)
    checks.choice("normalize_y", estimator.normalize_y, (True, False, "center"))
    checks.boolean("warm_start", estimator.warm_start)
    by_default = constructor.defaults(type(estimator))["calibrate"]
    checks.choice("calibrate", estimator.calibrate, tuple(dict.fromkeys((True, False, by_default))))
    checks.choice("missing_targets", getattr(estimator, "missing_targets", "error"), ("error", "ignore"))
    checks.choice("normalize_X", estimator.normalize_X, (True, False, "auto", "quantile"))
    if estimator.callback is not None and not callable(estimator.callback):
        raise ValueError(f"callback={estimator.callback!r} must be callable, or None.")
    max_iter = _number_or_auto("max_iter", estimator.max_iter, _MAX_ITER)
    gamma_schedule = checks.schedule("gamma_schedule", estimator.gamma_schedule, max_iter, 1.0)
    adaptive = isinstance(gamma_schedule, Auto) and SOLVERS[algorithm.solver].natural
    return Settings(
        algorithm=algorithm._replace(adaptive=adaptive),
        gamma_schedule=gamma_schedule,
        rate_schedule=_rate_schedule(estimator, algorithm, max_iter),
        batch_size=_batch_size(estimator, route.batch_size),
        n_columns=_n_columns(estimator, algorithm, route),
        max_iter=max_iter,
        tol=checks.number("tol", estimator.tol, strict=False),
        n_iter_no_change=checks.integer("n_iter_no_change", estimator.n_iter_no_change, 1),
        dtype=dtype(estimator),
    )


def _rate_schedule(estimator, algorithm, max_iter):
    """The optimizer's schedule; a number is the start of half a cosine that ends at zero."""
    rate = estimator.learning_rate
    if is_transformation(algorithm.optimizer):
        if rate != constructor.defaults(type(estimator))["learning_rate"]:
            raise ValueError(
                f"learning_rate={rate!r} has no effect with an optimizer of optax, which has step sizes of its own; "
                "leave it at its default, and give the transformation the rate, as in optimizer=optax.adam(0.01)."
            )
        return Constant(1.0)
    if isinstance(rate, (int, float, np.number)) and not isinstance(rate, bool):
        if rate == 0:
            raise ValueError(
                f"learning_rate={rate!r} must be above 0; to keep hyperparameters and points at their initial values, "
                "set optimizer=None."
            )
        rate = Cosine(checks.number("learning_rate", rate), 0.0, n_steps=max_iter)
    is_search = isinstance(rate, LineSearch) or rate == "line_search"
    if is_search and SOLVERS[algorithm.solver].natural:
        raise ValueError(
            f"learning_rate={rate!r} is only available with solver='adam' and 'gd'; with solver={algorithm.solver!r} "
            "use gamma_schedule='line_search', which searches along the natural gradient."
        )
    if isinstance(rate, Auto) or rate == "auto":
        raise ValueError(
            f"learning_rate={rate!r} is not available: only gamma_schedule, the step size of natural gradients, can be "
            "adapted automatically. Give learning_rate a number or another schedule."
        )
    return checks.schedule("learning_rate", rate, max_iter, 1e9 if is_search else 10.0, without=("auto",))


def _number_or_auto(name, value, auto, least=1):
    """The value of an argument that is an integer, or "auto", which stands for ``auto``."""
    if isinstance(value, str) and value == "auto":
        return auto
    return checks.integer(name, value, least, word="auto")


def _batch_size(estimator, auto):
    """The number of rows in a batch; None stands for all."""
    return sys.maxsize if estimator.batch_size is None else _number_or_auto("batch_size", estimator.batch_size, auto)


def _algorithm(estimator, solver):
    """The algorithm's parts by name, checked one by one."""
    if estimator.basis == "coupled":
        raise ValueError(
            "basis='coupled' is not available; use basis='orthogonal' with n_mean_inducing=0, which is the same."
        )
    optimizer = estimator.optimizer
    if is_transformation(optimizer):
        if not SOLVERS[solver].optimizes:
            raise ValueError(
                f"optimizer is a transformation of optax, which has no effect with solver={solver!r}; use "
                "solver='ngd' or 'adam', or leave optimizer at its default."
            )
        _check_transformation(optimizer)
    else:
        optimizer = checks.choice("optimizer", optimizer, (*OPTIMIZERS, None))
    mean_solver = checks.choice("mean_solver", estimator.mean_solver, ("auto", *MEAN_SOLVERS))
    return Algorithm(
        solver=solver,
        parameterization=checks.choice("parameterization", estimator.parameterization, tuple(PARAMETERIZATIONS)),
        basis=checks.choice("basis", estimator.basis, tuple(BASES)),
        mean_solver={"auto": "adam"}.get(mean_solver, mean_solver),
        optimizer=optimizer,
    )


def _check_transformation(optimizer):
    """Refuse a transformation that asks for more than a gradient and where it is."""
    try:
        jax.eval_shape(lambda at: optimizer.update(at, optimizer.init(at), at), jax.ShapeDtypeStruct((3,), "float32"))
    except TypeError as error:
        raise ValueError(
            "optimizer: this transformation of optax cannot be used, since it needs the value of the objective or "
            f"other arguments ({error}); use one that needs only gradients, such as optax.adam(0.01)."
        ) from error


def _objective(objective):
    """The objective that the argument stands for."""
    if isinstance(objective, objectives.Objective):
        return objective
    return objectives.by_name(checks.choice("objective", objective, tuple(objectives.names())))


def _hyperparameter_prior(given):
    """The priors that the argument stands for; names are compared with those of the hyperparameters later."""
    if isinstance(given, str):
        return checks.choice("hyperparameter_prior", given, ("weak",))
    if given is None or isinstance(given, Prior):
        return given
    each = given.values() if isinstance(given, Mapping) else ["no mapping"]
    if not all(isinstance(value, Prior) for value in each):
        raise ValueError(
            f"hyperparameter_prior={given!r} must be None, 'weak', a prior of skgp_natgrad.priors such as "
            "LogNormal(2.0, 0.5), or a dict of these by the names of hyperparameters."
        )
    return given


def _check_checkpoint(estimator, algorithm):
    """Before any work is done, refuse a checkpoint that could not be written or resumed."""
    checks.number("checkpoint_every", estimator.checkpoint_every, strict=False)
    if estimator.checkpoint is None or not processes.is_first(estimator.n_devices):
        return
    path = checks.path("checkpoint", estimator.checkpoint)
    if SOLVERS[algorithm.solver].minimises:
        raise ValueError(
            f"checkpoint={str(path)!r} cannot be used with solver='lbfgs': scipy does not expose the state of L-BFGS, "
            "so that a fit cannot be continued from a file. Use checkpoint=None, or another solver."
        )
    if is_transformation(estimator.optimizer):
        raise ValueError(
            f"checkpoint={str(path)!r} cannot be used with an optimizer of optax: its parameters cannot be read, so "
            "that a later fit cannot be compared with the file. Use checkpoint=None, or the name of an optimizer."
        )


def _sizes(estimator, route):
    """The requested numbers of points; None stands for a point at every row."""
    n_inducing = estimator.n_inducing
    auto = route.n_mean_inducing if isinstance(n_inducing, str) and n_inducing == "auto" else 0
    n_mean = _number_or_auto("n_mean_inducing", estimator.n_mean_inducing, auto, 0)
    if n_inducing is None or (isinstance(n_inducing, str) and n_inducing == "all"):
        if n_mean:
            raise ValueError(
                f"n_inducing={n_inducing!r} puts an inducing point at every row, so that no row remains for "
                f"n_mean_inducing={n_mean}; set only one of the two."
            )
        return None, 0
    if isinstance(n_inducing, str):
        if n_inducing == "auto":
            return "auto", n_mean
        raise ValueError(f'n_inducing={n_inducing!r} must be an integer of at least 1, "auto", None or "all".')
    return checks.integer("n_inducing", n_inducing, 1), n_mean


def _n_columns(estimator, algorithm, route):
    """Largest number of columns of the mean-only points' covariance in a minibatch step."""
    if isinstance(estimator.mean_columns, str):
        checks.choice("mean_columns", estimator.mean_columns, ("auto",))
        # As many as there are rows: the step then costs at most twice as much.
        n_columns = _batch_size(estimator, route.batch_size)
    else:
        n_columns = checks.integer("mean_columns", estimator.mean_columns, 1)
    # A sampled quadratic form may be negative; a search for the best step would then never end.
    return _sizes(estimator, route)[1] if algorithm.mean_solver in NATURAL_MEAN_SOLVERS else n_columns


def check_kernels(kernel, n_latent):
    """Refuse a list of kernels whose length is not the number of latent functions."""
    if isinstance(kernel, (list, tuple)) and len(kernel) != n_latent:
        raise ValueError(
            f"kernel is a list of {len(kernel)}, but the number of latent functions is {n_latent}; give one kernel "
            "for all, or one for each."
        )


def step_sizes(estimator, algorithm):
    """The arguments that set step sizes, with their values; the optimizer's comes last."""
    return [
        f"{name}={getattr(estimator, name)!r}"
        if name == "gamma_schedule" or not is_transformation(algorithm.optimizer)
        else "the step size of optimizer"
        for name in SOLVERS[algorithm.solver].step_sizes
        if not (name == "gamma_schedule" and algorithm.adaptive)
        and not (name == "learning_rate" and SOLVERS[algorithm.solver].natural and algorithm.optimizer is None)
    ]


def check_names(estimator, params):
    """Refuse names that ``set_params`` cannot set, and suggest the nearest one that it can."""
    for key in params:
        name, nested, _ = key.partition("__")
        names = estimator._get_param_names()
        if name not in names:
            raise ValueError(checks.unknown(f"{type(estimator).__name__} parameter", name, names))
        value = params.get(name, getattr(estimator, name, None))
        if nested and not hasattr(value, "set_params"):
            raise ValueError(
                f"{key} cannot be set: {name}={value!r} has no parameters of its own. Pass an object, "
                "such as kernel=RBF(), likelihood=StudentT(), objective=Predictive(), gamma_schedule=LogLinear()."
            )
