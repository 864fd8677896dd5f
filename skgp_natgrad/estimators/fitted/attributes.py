"""The result of training as fitted attributes, and the model that a fitted estimator predicts with."""

from __future__ import annotations

import copy

import jax
import numpy as np

from ... import svgp
from ..._backend import device, placement
from ..._backend.notices import Notice
from ...choose.scale import NormalScores
from ...kernels import from_sklearn, normalized, nugget, to_sklearn, white
from ...kernels.formula import formula
from ..arguments import constructor
from ..arguments.reading import latent, noise_of, one_or_each
from ..rows import training_table
from ..rows.donors import said
from ..rows.encoding import changing
from .hyperparameters import in_units_of_model, in_units_of_X, without_noise

# Points at which a kernel is tried, and how negative an eigenvalue is, relative to the largest, beyond rounding.
_MOST_POINTS, _NEGATIVE = 300, 1e-6


def store(estimator, fit, result, is_interim=False):
    """Set the fitted attributes if all values are finite.

    Parameters
    ----------
    estimator : NGDSVGPRegressor or NGDSVGPClassifier
    fit : preparation.Fit
    result : svgp.Result
    is_interim : bool, default=False
        Whether it is for a callback: then it draws its own random numbers, and is calibrated at its first use.

    Returns
    -------
    left_out : Average or None
        Of training labels that were predicted without themselves, for the calibration.
    """
    model, jitter = svgp.condition(result.state, result.constants, fit.plan, result.previous.factors, result.posterior)
    model = model._replace(neighbours=_neighbours(fit, result))
    _check_finite(estimator, model, result.elbo, fit.plan)
    model, left_out = _calibrated(estimator, fit, result, model, is_interim)
    points, masks, report = result.state.parameters.points, result.constants.masks, result.trained.report
    encoding = changing(estimator)
    shown = fit.scales.x.backward(np.asarray(points.Z)[: n_points(masks.Z)])
    further = fit.scales.x.backward(np.asarray(points.further)[: n_points(masks.further)])
    several = len(model.kernels) > 1 or isinstance(estimator.kernel, (list, tuple))
    likelihood, scales = fit.plan.likelihood, fit.scales
    likelihood = likelihood.fitted([getattr(model.likelihood, name) for name in likelihood.parameters])
    if fit.plan.averages is not None and likelihood.conjugate:
        inflation, df = fit.plan.averages
        likelihood.set_params(inflation=inflation if len(inflation) > 1 else float(inflation[0]), df=df)
    kernels = _as_given(estimator, in_units_of_X(model.kernels, scales.x), likelihood, scales.x)
    # All in one call: an interrupt comes before or after it, so that half a fit is never stored.
    vars(estimator).update(
        fit.attributes,
        kernel_=list(kernels) if several else kernels[0],
        likelihood_=likelihood,
        inducing_points_=shown if encoding is None else encoding.backward(shown),
        mean_inducing_points_=further if encoding is None else encoding.backward(further),
        _encoded_points=None if encoding is None else shown,
        elbo_curve_=report.elbo,
        elbo_=result.elbo,
        log_prior_=result.log_prior,
        n_iter_=len(report.elbo),
        step_sizes_=report.gamma,
        n_rejected_steps_=int(report.rejected.sum()),
        n_clipped_steps_=int(report.clipped.sum()),
        jitter_=jitter,
        plan_=_paragraph(fit, model, result, "; ".join(["", *said(estimator)]) + _of_noise(estimator, fit, result)),
        _x_scale=scales.x,
        _y_scale=scales.y,
        _posterior=model.posterior.read_by(with_variance=True),
        _calibration=model.calibration,
        _dispersion=model.dispersion,
        _neighbours=model.neighbours,
        _compared=_compared(fit, model, result),
        _fitted_on=_place(fit.plan),
        _rows=_kept_rows(fit),
        _warm_state=_kept_record(fit, result),
        _trained_with=fit.trained_with,
    )
    return left_out


def _neighbours(fit, result):
    """The rows from which others are predicted; in a stream those of earlier calls and the present ones."""
    if fit.neighbours is None:
        return result.neighbours
    return svgp.joined(fit.neighbours, result, fit.table)


def _kept_rows(fit):
    """The table, for its log marginal likelihood: none of many rows, of several processes, or of a stream."""
    is_whole = fit.some is fit.table and fit.posterior is None and isinstance(fit.table, svgp.Table)
    return fit.table if is_whole and fit.table.n_rows <= training_table.KEPT_ROWS else None


def _kept_record(fit, result):
    """The record for a later fit, without a q that follows from the rows that are kept."""
    plan, previous = fit.plan, result.previous
    if not (plan.route.trains or plan.untrained):
        # They take as much memory as all else, and are made again when they are needed.
        previous = previous._replace(factors=None)
    one_step = not plan.route.trains and plan.likelihood.conjugate and not len(previous.parameters.points.Z_mean)
    return previous._replace(q=None) if one_step and _kept_rows(fit) is not None else previous


def _calibrated(estimator, fit, result, model, is_interim):
    """The model with calibrated predictions, and the density of labels that were left out for it."""
    plan, classifies = fit.plan, fit.plan.n_classes > 0
    if fit.posterior is not None and not classifies:
        # Later rows of a stream show nothing about the deviation elsewhere, so the factor of the first rows stays.
        return model._replace(dispersion=_dispersion_before(estimator, fit.scales.y)), None
    random_state = copy.deepcopy(fit.random_state) if is_interim else fit.random_state
    by = plan.route.calibration(plan)
    if by == "solution":
        model = model._replace(calibration=result.calibration, dispersion=result.dispersion)
    if by == "cavities" and is_interim:
        return model._replace(calibration=_later(model, fit.some, random_state, estimator.device)), None
    if by == "cavities":
        return svgp.calibrated(model, fit.some, random_state, estimator.device)
    if by == "errors":
        return svgp.dispersed(model, result, fit.table, plan, random_state), None
    return model, None


def _dispersion_before(estimator, scale):
    """The dispersion that the earlier rows of a stream gave, in the present units of y; None without one."""
    before, former = getattr(estimator, "_dispersion", None), estimator._y_scale
    # Later rows determine what a few rows had left open.
    if before is None or np.any(np.isinf(before.largest)):
        return None
    variance = ((scale.scale / former.scale) ** 2)[:, None]
    if np.all(variance == 1.0):
        return before
    return before._replace(largest=before.largest / variance, least=before.least / variance)


def _paragraph(fit, model, result, rest):
    """What was fitted, and how, for people."""
    plan, scales, of_mean = fit.plan, fit.scales, _weights(fit, model.calibration)
    settings, masks = plan.settings, result.constants.masks
    algorithm, n_further = settings.algorithm, n_points(masks.further)
    n_inducing = n_points(masks.Z)
    points = f"{n_inducing} inducing point" + "s" * (n_inducing != 1)
    if model.neighbours is not None:
        points = f"each row predicted from {model.neighbours.n_neighbours} neighbors; {points} for all else"
    if n_further:
        points += (
            f" and {n_further} further point{'s' * (n_further != 1)} for the mean ({plan.route.of_further(algorithm)})"
        )
    elif algorithm.solves_mean:
        points += " (mean and noise by the mean solver 'exact' in the end)"
    steps = plan.route.described(plan, len(result.trained.report.elbo))
    kernels = ", ".join(map(formula, model.kernels))
    found = f"{type(plan.likelihood).__name__} likelihood; kernel {kernels} on {_scaling(scales.x)}; {points}; {steps}"
    return found + rest + _of_dispersion(model.dispersion) + (of_mean and f"; {of_mean}") + "."


def _place(plan):
    """The devices on which all rows were fitted."""
    with device.computation(plan.device, plan.n_devices, required=False):
        return placement.described()


def _weights(fit, calibration):
    """How much labels that were left out count the process and a mean function beside it: words, none without one."""
    if fit.attributes.get("mean_function_") is None or not isinstance(calibration, svgp.Calibration):
        return ""
    return f"the mean function has the weight {calibration.mean_function:.3g}, the process {calibration.mean:.3g}"


def _compared(fit, model, result):
    """What was chosen by the density of rows left out, and by how much, a line for each choice."""
    lines, plan = list(filter(None, [_weights(fit, model.calibration)])), fit.plan
    if plan.ahead is not None:
        lines.append(plan.ahead.said(plan.kernels[0]))
    if result.ahead is not None:
        n_neighbours = model.neighbours.n_neighbours
        lines.append(f"{n_neighbours} neighbors ahead by {result.ahead:.2g} nats a row of inducing points")
    return tuple(lines)


def _scaling(scale):
    """What the kernel sees of X."""
    if isinstance(scale, NormalScores):
        return "normal scores of X"
    if np.all(scale.scale == 1.0) and np.all(scale.offset == 0.0):
        return "X as it is"
    return "X in one unit for all columns" if scale.in_common_unit else "standardised X"


def noise_may_vanish(estimator, fit):
    """Whether noise at its lower bound means that there is hardly any noise: leave-one-out predictions chose it.

    Noise found by steps may compensate for a variance that is too wide, and with ``alpha`` no further noise may be
    needed.
    """
    is_open = isinstance(estimator.likelihood, str) and noise_of(estimator) is None
    return fit.plan.route.finds_noise and is_open and not fit.some.has_known


def _of_noise(estimator, fit, result):
    """The words of ``plan_`` for targets that have hardly any noise."""
    if not noise_may_vanish(estimator, fit):
        return ""
    parameters = result.state.parameters
    which = without_noise(parameters[:2], result.constants.log_bounds)
    if not len(which):
        return ""
    of_targets = f" (outputs {', '.join(map(str, which))})" if np.size(parameters.raw_likelihood.variance) > 1 else ""
    return f"; hardly any noise: its variance is at the lower bound{of_targets}"


def _of_dispersion(dispersion):
    """The words of ``plan_`` for errors that do not have the likelihood's distribution."""
    if dispersion is None:
        return ""
    varies = ["the deviation varies with X"] if np.any(dispersion.posterior.alpha) else []
    df = dispersion.error_df
    if not varies and np.all(np.isinf(df)) and not np.any(dispersion.posterior.prior_mean):
        return "; calibrated: the deviation is at least half of that of rounding"
    of_few = df[np.isfinite(df)]
    if len(of_few):
        varies.append(f"errors are Student-t (degrees of freedom: {', '.join(f'{each:.3g}' for each in of_few)})")
    if np.any(np.isnan(df)):
        varies.append("errors are a mixture of normals")
    return f"; calibrated: {', '.join(varies)}"


def _chosen_scaling(estimator, x_scale):
    """What `Normalized` says of the scaling that was chosen with the default kernel; None of standardised columns."""
    if estimator.normalize_X != "auto":
        return None
    return "quantile" if isinstance(x_scale, NormalScores) else "common" if x_scale.in_common_unit else None


def _as_given(estimator, trained, likelihood, x_scale):
    """The trained kernels, with column names where the user gave names, and with a WhiteKernel where one was given.

    The fit may have added an effect of the place to those that were given.
    """
    if estimator.kernel is None:
        how = _chosen_scaling(estimator, x_scale)
        return [normalized.joined(each, how) for each in trained]
    pairs = [
        (each, None) if nugget.in_sklearn(given) else nugget.parted(each)
        for given, each in zip(one_or_each(estimator.kernel), trained, strict=True)
    ]
    found = _with_given_parts(estimator, [each for each, _ in pairs], likelihood)
    found = [each if effect is None else each + effect for each, (_, effect) in zip(found, pairs, strict=True)]
    how = normalized.parted(estimator.kernel)[1]
    return [normalized.joined(each, how) for each in found]


def _with_given_parts(estimator, trained, likelihood):
    """The trained kernels with column names and WhiteKernel as given."""
    found = trained if changing(estimator) is not None else _with_names(estimator, trained)
    # A WhiteKernel has one number, also for several outputs.
    noise = None if noise_of(estimator) is None else np.mean(likelihood.variance)
    return found if noise is None else [white.joined(normalized.parted(estimator.kernel)[0], found[0], noise)]


def _with_names(estimator, trained):
    pairs = [(white.parted(given)[0], each) for given, each in zip(one_or_each(estimator.kernel), trained, strict=True)]
    return [to_sklearn(given, from_sklearn(kernel, estimator.n_features_in_).value) for given, kernel in pairs]


def n_points(mask):
    """The number of points that a mask keeps."""
    return int(np.sum(mask))


def _check_finite(estimator, model, elbo, plan):
    if not (np.isfinite(elbo) and all(np.all(np.isfinite(array)) for array in jax.tree.leaves(model.posterior))):
        _refuse_no_covariance(plan.kernels, model.posterior.Z[:_MOST_POINTS])
        raise FloatingPointError(
            f"Training gave values that are not finite (ELBO {elbo}). Look for extreme values in X, y and "
            f"sample_weight; keep normalize_X and normalize_y on; raise jitter above {plan.jitter:g} or lower "
            f"learning_rate={estimator.learning_rate!r}."
        )


def _refuse_no_covariance(kernels, Z):
    """Raise if the matrix of a kernel at points Z has a negative eigenvalue: no rows are to blame."""
    for kernel in kernels:
        K = kernel(Z)
        least, *_, largest = np.linalg.eigvalsh(K) if np.all(np.isfinite(K)) and len(Z) > 1 else (0.0, 0.0)
        if least < -_NEGATIVE * abs(largest):
            raise FloatingPointError(
                f"The kernel {kernel} is no covariance: its matrix at {len(Z)} points has the eigenvalue {least:.2g} "
                f"(the largest is {largest:.2g}). ExpSineSquared is a covariance along one column: give each column "
                "its own, as Columns(ExpSineSquared(), 0) * Columns(ExpSineSquared(), 1). Otherwise give another "
                "kernel."
            )


def of_fewer_points(estimator, plan, masks):
    """Warnings that X has too few distinct rows for the requested number of points.

    There is no warning where a number is at its default, which is an upper limit
    and not a request: small tables, and their folds, would warn for nothing.
    """
    if not isinstance(plan.inducing_init, str):
        return []
    asks = not constructor.is_default(estimator, "n_inducing")
    n_inducing = plan.n_inducing if asks and plan.n_inducing is not None else 0
    # With "auto" the number is an upper limit.
    n_mean = plan.n_mean_inducing if plan.route.takes_further and estimator.n_mean_inducing != "auto" else 0
    used, used_for_mean = map(n_points, (masks.Z, masks.further))
    # The mean's copy of the inducing points does not count as requested.
    copied = used if svgp.BASES[plan.basis].mean_on_inducing else 0
    wanted = {
        "n_inducing": (n_inducing, used, ""),
        "n_mean_inducing": (n_mean, used_for_mean - copied, " or n_inducing"),
    }
    kind, why = "There are fewer points than asked for.", "X has too few distinct rows of positive weight"
    return [
        Notice(kind, f"{name}={asked}, but {found} are used: {why}; lower it{other}.")
        for name, (asked, found, other) in wanted.items()
        if found < asked
    ]


def model_of(estimator):
    """The `svgp.Model` that a fitted estimator predicts with."""
    offset, scale = estimator._y_scale[:2]
    likelihood, everywhere = estimator.likelihood_, estimator.likelihood_.known_everywhere(len(scale))
    if everywhere is not None:
        everywhere = likelihood.known_in_units(everywhere, offset, scale)
    likelihood = likelihood.value_and_bounds(len(scale))[0].given(everywhere)
    kernels = in_units_of_model(one_or_each(latent(estimator.kernel_, estimator)), estimator._x_scale)
    found = (getattr(estimator, name, None) for name in ("_dispersion", "_neighbours"))
    return svgp.Model(kernels, likelihood, estimator._posterior, calibration_of(vars(estimator)), *found)


def _later(model, rows, random_state, device):
    """A function that returns the calibration: few of the models that callbacks see are used for predictions."""

    given, found = [(model, rows, random_state, device)], []

    def find():
        # Taken first: another thread may find it in the meantime, and lets go of the rows.
        arguments = list(given)
        if not found:
            model, rows, random_state, device = arguments[0]
            # After an interrupt, or by another thread, the same numbers are drawn again.
            found.append(svgp.calibrated(model, rows, copy.deepcopy(random_state), device)[0].calibration)
            given.clear()
        return found[0]

    return find


def calibration_of(state):
    """The `svgp.Calibration` in an estimator's ``__dict__``; None where there is none."""
    found = state.get("_calibration")
    return found() if callable(found) else found
