"""The constructor's arguments, checked once: an immutable `Plan`, with the solver that was left open."""

from __future__ import annotations

import sys

import jax
import numpy as np

from ..._backend import memory, processes, rows
from ...kernels import columns, from_sklearn, normalized, white
from ...likelihoods import Gaussian
from ...svgp import NATURAL_MEAN_SOLVERS, SOLVERS, Algorithm, Plan, Settings, is_transformation, route_of
from ...training.schedules import Auto, Constant, Cosine, LineSearch
from . import checks, constructor, inert
from .task import likelihood_of

# What "auto" stands for.
_MAX_ITER = 1000
# Columns of numbers of another fit, up to which a kernel is recognised as one of them.
_MOST_NUMBERS = 500


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
    given = constructor.read(estimator)
    likelihood = likelihood_with_noise(estimator, targets.default_likelihood)
    if not getattr(given, "predict_noise", True) and not likelihood.additive_noise:
        raise ValueError(
            f"predict_noise=False, but under likelihood {likelihood!r} y is not one latent function plus noise of one "
            "size; leave predict_noise at its default, and use predict_latent for the latent functions."
        )
    solver = solver_of(estimator, likelihood, by_parts, len(targets.columns))
    route = route_of(solver, likelihood)
    n_inducing, n_mean_inducing = _sizes(given, route)
    return Plan(
        kernels=None if given.kernel is None else one_or_each(kernel_on_numbers(estimator)),
        likelihood=likelihood,
        n_classes=targets.n_classes,
        objective=given.objective,
        hyperparameter_prior=given.hyperparameter_prior,
        n_inducing=n_inducing,
        n_mean_inducing=n_mean_inducing,
        n_neighbours=_n_neighbours(given, route),
        inducing_init=given.inducing_init,
        train_points=given.train_inducing_points,
        jitter=_or_auto(given.jitter, route.jitter),
        calibrate=_or_auto(given.calibrate, route.calibrates(likelihood)),
        n_bytes=memory.available(),
        device=given.device,
        n_devices=given.n_devices,
        settings=_settings(estimator, given, solver, route, n_mean_inducing),
        n_restarts=given.n_restarts_optimizer,
    )


def _or_auto(value, auto):
    """The value of an argument; "auto" stands for ``auto``."""
    return auto if isinstance(value, str) and value == "auto" else value


def one_or_each(kernel):
    """Return one kernel for all latent functions, or one kernel for each, as a tuple."""
    return tuple(kernel) if isinstance(kernel, (list, tuple)) else (kernel,)


def _each(function, kernel):
    """The value of a function of kernels: of one, of each in a list, or None."""
    if isinstance(kernel, (list, tuple)):
        return [function(each) for each in kernel]
    return None if kernel is None else function(kernel)


def latent(kernel, estimator):
    """The kernel or list of kernels of the latent functions: positions in place of names, without a WhiteKernel."""
    names = getattr(estimator, "feature_names_in_", None)
    found = _each(lambda each: columns.by_position(each, names), kernel)
    return found if found is None or isinstance(found, list) else white.parted(found)[0]


def kernel_on_numbers(estimator):
    """That of the argument ``kernel``, on the columns of numbers that stand for those of X."""
    kernel, encoding = latent(estimator.kernel, estimator), getattr(estimator, "encoding_", None)
    if kernel is None or encoding is None or encoding.is_identity:
        return kernel
    numbers_of_columns = len(encoding.blocks), sum(map(len, encoding.blocks))
    as_given, on_numbers = ([_is_for(each, n) for each in one_or_each(kernel)] for n in numbers_of_columns)
    if all(on_numbers) and not any(as_given):
        # That of an earlier fit, which is on the columns of numbers already.
        return kernel
    for each, *is_for in zip(one_or_each(kernel), as_given, on_numbers, strict=True):
        if not any(is_for):
            _refuse_other_levels(each, *numbers_of_columns)
    return _each(lambda each: columns.on_blocks(each, encoding.blocks), kernel)


def _refuse_other_levels(kernel, n_columns, n_numbers):
    """Raise ValueError if the kernel can be one of more columns than those of X: as of a fit with other levels."""
    if not any(_is_for(kernel, n) for n in range(n_columns + 1, _MOST_NUMBERS)):
        return
    try:
        from_sklearn(kernel, n_columns)
    except ValueError as error:
        raise ValueError(
            f"{error} The fit takes X as {n_numbers} columns of numbers, since each level in its rows has one. If the "
            "kernel is the kernel_ of a fit to rows with other levels, refit that estimator, which keeps its columns: "
            "estimator.set_params(kernel=estimator.kernel_, likelihood=estimator.likelihood_, optimizer=None, "
            "warm_start=True).fit(X, y). Otherwise fit anew, without kernel."
        ) from error


def _is_for(kernel, n_columns):
    """Whether a kernel can be one of so many columns."""
    try:
        from_sklearn(kernel, n_columns)
    except (TypeError, ValueError):
        return False
    return True


def normalize_X(estimator):
    """The argument of this name, or what a `Normalized` kernel says in place of "auto"."""
    given, how = estimator.normalize_X, normalized.parted(estimator.kernel)[1]
    if how is None:
        return given
    checks.choice("how, of kernel", how, ("quantile", "common"))
    if given not in ("auto", how):
        raise ValueError(
            f"normalize_X={given!r}, but kernel={estimator.kernel!r} is for normalize_X={how!r}; leave normalize_X at "
            "its default, or give the kernel inside."
        )
    return how


def noise_of(estimator):
    """The WhiteKernel in the kernel that is given; None without one."""
    kernel = estimator.kernel
    return None if kernel is None or isinstance(kernel, (list, tuple)) else white.parted(kernel)[1]


def likelihood_with_noise(estimator, default):
    """The likelihood; a WhiteKernel is the Gaussian noise, its value where it starts and its bounds its bounds."""
    likelihood, noise = likelihood_of(estimator._task, estimator.likelihood, default), noise_of(estimator)
    if noise is None:
        return likelihood
    agree = type(likelihood) is Gaussian and np.mean(likelihood.variance) == noise.noise_level
    if agree and not isinstance(estimator.likelihood, str):
        # Of an earlier fit, whose kernel_ and likelihood_ say the same.
        return likelihood
    if type(likelihood) is not Gaussian or not isinstance(estimator.likelihood, str):
        says = "has no Gaussian noise" if type(likelihood) is not Gaussian else "states the noise as well"
        raise ValueError(
            f"kernel contains {noise!r}, which is read as Gaussian noise, but likelihood={estimator.likelihood!r} "
            f"{says}: the noise belongs to the likelihood; leave the WhiteKernel out."
        )
    return Gaussian(noise.noise_level, noise.noise_level_bounds)


def _settings(estimator, given, solver, route, n_mean_inducing):
    algorithm = _algorithm(given, solver)
    _check_checkpoint(given, algorithm)
    max_iter = _or_auto(given.max_iter, _MAX_ITER)
    gamma_schedule = checks.schedule("gamma_schedule", given.gamma_schedule, max_iter, 1.0)
    adaptive = isinstance(gamma_schedule, Auto) and SOLVERS[solver].natural
    n_columns = _or_auto(given.mean_columns, _batch_size(given, route))
    return Settings(
        algorithm=algorithm._replace(adaptive=adaptive),
        gamma_schedule=gamma_schedule,
        rate_schedule=_rate_schedule(estimator, algorithm, max_iter),
        batch_size=_batch_size(given, route),
        # A sampled quadratic form may be negative; a search for the best step would then never end.
        n_columns=n_mean_inducing if algorithm.mean_solver in NATURAL_MEAN_SOLVERS else n_columns,
        max_iter=max_iter,
        tol=given.tol,
        n_iter_no_change=given.n_iter_no_change,
        dtype=given.dtype,
    )


def _rate_schedule(estimator, algorithm, max_iter):
    """The optimizer's schedule; a number is the start of half a cosine that ends at zero."""
    rate = estimator.learning_rate
    if is_transformation(algorithm.optimizer):
        if not constructor.is_default(estimator, "learning_rate"):
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
        rate = Cosine(checks.of_type("learning_rate", rate, float, above=0.0), 0.0, n_steps=max_iter)
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


def _batch_size(given, route):
    """The number of rows in a batch; None stands for all."""
    return sys.maxsize if given.batch_size is None else _or_auto(given.batch_size, route.batch_size)


def _algorithm(given, solver):
    """The algorithm's parts by name."""
    if is_transformation(given.optimizer):
        if not SOLVERS[solver].optimizes:
            raise ValueError(
                f"optimizer is a transformation of optax, which has no effect with solver={solver!r}; use "
                "solver='ngd' or 'adam', or leave optimizer at its default."
            )
        _check_transformation(given.optimizer)
    return Algorithm(
        solver=solver,
        parameterization=given.parameterization,
        basis=given.basis,
        mean_solver=_or_auto(given.mean_solver, "adam"),
        optimizer=given.optimizer,
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


def _check_checkpoint(given, algorithm):
    """Before any work is done, refuse a checkpoint that could not be written or resumed."""
    if given.checkpoint is None or not processes.is_first(given.n_devices):
        return
    path = checks.path("checkpoint", given.checkpoint)
    if SOLVERS[algorithm.solver].minimises:
        raise ValueError(
            f"checkpoint={str(path)!r} cannot be used with solver='lbfgs': scipy does not expose the state of L-BFGS, "
            "so that a fit cannot be continued from a file. Use checkpoint=None, or another solver."
        )
    if is_transformation(given.optimizer):
        raise ValueError(
            f"checkpoint={str(path)!r} cannot be used with an optimizer of optax: its parameters cannot be read, so "
            "that a later fit cannot be compared with the file. Use checkpoint=None, or the name of an optimizer."
        )


def _sizes(given, route):
    """The requested numbers of points; None stands for a point at every row."""
    n_inducing = given.n_inducing
    n_mean = _or_auto(given.n_mean_inducing, route.n_mean_inducing if n_inducing == "auto" else 0)
    if n_inducing not in (None, "all"):
        return n_inducing, n_mean
    if n_mean:
        raise ValueError(
            f"n_inducing={n_inducing!r} puts an inducing point at every row, so that no row remains for "
            f"n_mean_inducing={n_mean}; set only one of the two."
        )
    return None, 0


def _n_neighbours(given, route):
    """The number of rows from which each is predicted; "auto" is none with numbers of points that are given."""
    is_open = given.n_inducing == "auto" and given.n_mean_inducing in ("auto", 0)
    found = _or_auto(getattr(given, "n_neighbors", 0), "auto" if is_open else 0)
    return found if route.search == "evidence" else 0


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


def solver_of(estimator, likelihood, by_parts, n_rows):
    """The name of the solver; "auto" goes to the best q in one step where nothing speaks of more steps.

    Parameters
    ----------
    estimator : NGDSVGPRegressor or NGDSVGPClassifier
    likelihood : Likelihood
    by_parts : bool
        Whether further rows may follow.
    n_rows : int
    """
    if estimator.solver != "auto":
        return estimator.solver
    route = route_of("evidence", likelihood)
    several = isinstance(estimator.kernel, (list, tuple)) or processes.sharing(estimator.n_devices) > 1
    has_prior, is_long = estimator.hyperparameter_prior is not None, n_rows > rows.WINDOW_ROWS
    asked = (has_prior, route.takes_prior), (several, route.takes_several), (is_long, route.takes_long)
    if any(is_asked and not taken for is_asked, taken in asked):
        return "ngd"
    # With these at their defaults nothing says how to take many steps. Without an optimizer there are none.
    of_steps = {name for name, row in estimator._arguments.items() if row.asks_for_steps or inert.steps in row.needs}
    of_steps |= {"optimizer"} if estimator.optimizer is not None else set()
    # One step takes as many inducing points as are asked for, and no further ones are none with every solver. For those
    # of labels it solves, where steps of an optimizer end far from the best means; those of a regression are trained.
    has_sizes = route.takes_further or estimator.n_mean_inducing in (0, "auto")
    names = of_steps - {"n_inducing", "n_mean_inducing"} if has_sizes else of_steps
    as_default = all(constructor.is_default(estimator, name) for name in names)
    return "evidence" if route.suits(likelihood) and not by_parts and as_default else "ngd"
