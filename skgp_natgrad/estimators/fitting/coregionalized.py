"""The fit of correlated outputs: one fit of rows (x, p), which starts at the kernel of independent outputs."""

from __future__ import annotations

import copy

import numpy as np

from ... import svgp
from ..._backend import processes
from ...choose.scale import Scale
from ...kernels import Coregionalization
from ...kernels.coregionalization import check_rank
from ...likelihoods import Gaussian
from ..arguments import constructor, reading
from ..fitted.hyperparameters import in_units_of_X
from ..rows import encoding, outputs
from .preparation import prepare


def fit(learner, X, types, targets, streams, hooks):
    """Fit an estimator to several outputs as to one, and set its fitted attributes; return the `Outcome`."""
    given = constructor.read(learner)
    between = Coregionalization() if isinstance(given.output_kernel, str) else given.output_kernel
    _check(learner, given, X, targets, between)
    alone = _with(learner, output_kernel="independent", normalize_X=bool(learner.normalize_X), n_neighbors=0)
    start = prepare(alone, X, types, targets, None, False, False)
    found = svgp.correlated(start.plan, start.table, between, start.random_state)
    x, y = start.scales
    scale = Scale(y.offset, y.scale * found.ratio)
    (kernel,) = in_units_of_X((found.kernel,), Scale(np.append(x.offset, 0.0), np.append(x.scale, 1.0)))
    bounds = start.plan.likelihood.variance_bounds
    one = _with(alone, kernel=kernel, likelihood=Gaussian(found.noise, bounds), n_restarts_optimizer=0)
    one = _with(one, normalize_y=False, missing_targets="error")
    if not isinstance(learner.inducing_init, str):
        one.inducing_init = outputs.stacked(np.asarray(learner.inducing_init, float), len(scale.scale))
    # What the fitted estimator knows of X and y as given; the fit itself sees a table of numbers.
    kept = {name: getattr(learner, name) for name in ("n_features_in_", "feature_names_in_") if hasattr(learner, name)}
    kept |= {"encoding_": learner.encoding_, "_output_scale": scale}
    vars(one).pop("feature_names_in_", None)
    one.encoding_, one.n_features_in_ = None, X.shape[1] + 1
    rows, targets, seen = outputs.stacked_targets(targets, X, scale)
    targets = targets._replace(attributes=targets.attributes | kept)
    outcome = one._fit(rows, [*types, np.dtype(int)], targets, streams, hooks)
    fitted = vars(one).items()
    vars(learner).update({name: value for name, value in fitted if name not in constructor.values(learner)})
    learner._places = _of_all(learner._places, seen)
    learner._trained_with["output_kernel"] = copy.deepcopy(given.output_kernel)
    return outcome


def _with(estimator, **arguments):
    """A copy with other arguments."""
    found = copy.copy(estimator)
    vars(found).update(arguments)
    return found


def _of_all(places, seen):
    """The places of rows (x, p) for all rows and outputs: none where y is missing."""
    if places is None:
        return None
    found = np.stack([np.full(seen.size, -1.0), np.zeros(seen.size)])
    found[:, seen.ravel()] = places
    return found


# Arguments that must have one of these values, and the remedies.
_ALLOWED = {
    "warm_start": ((False,), "every fit starts anew"),
    "hyperparameter_prior": ((None,), "give bounds to the kernel instead"),
    "mean_function": ((None,), "subtract it from y beforehand"),
    "callback": ((None,), "it would see the model of a single output"),
    "checkpoint": ((None,), "the fit cannot be continued from a file"),
    "normalize_X": (("auto", True, False), "normal scores would change the number of the output"),
    "normalize_y": ((True, False), "deviations between outputs are those of the standardised y"),
    "n_neighbors": (("auto", 0), "all rows, or inducing points, tell of each"),
}


def _check(learner, given, X, targets, between):
    """Refuse what correlated outputs do not have; the message names the argument and the remedy."""
    here = f"output_kernel={learner.output_kernel!r}"
    for name, (allowed, why) in _ALLOWED.items():
        value = getattr(given, name, getattr(learner, name))
        if not any(value is each or (type(value) in (int, str) and value == each) for each in allowed):
            shown = " or ".join(map(repr, allowed))
            raise ValueError(f"{here} needs {name}={shown}, not {value!r}: {why}. Or use output_kernel='independent'.")
    likelihood = reading.likelihood_with_noise(learner, targets.default_likelihood)
    if type(likelihood) is not Gaussian or reading.noise_of(learner) is not None:
        raise ValueError(
            f"{here} needs likelihood='gaussian' (a kernel without WhiteKernel): the noise of each output is found. Or "
            "use output_kernel='independent'."
        )
    if isinstance(learner.kernel, (list, tuple)):
        raise ValueError(f"{here} needs one kernel, of which each term is shared by all outputs, and no list of them.")
    if not isinstance(X, np.ndarray) or processes.sharing(learner.n_devices) > 1:
        raise ValueError(f"{here} needs all rows in the memory of one process; fit to some of the rows.")
    # Rows that lack numbers count zero, which one table of all outputs would not know.
    if encoding.changing(learner) is not None or learner._n_lacking.left_out:
        raise ValueError(
            f"{here} needs an X of numbers, none of them missing; encode it before, as by a pipeline with "
            "scikit-learn's OneHotEncoder and SimpleImputer."
        )
    _check_outputs(here, targets.columns.shape[1], between)


def _check_outputs(here, n_outputs, between):
    if n_outputs < 2:
        raise ValueError(f"{here} needs a y of several columns, and it has one; use output_kernel='independent'.")
    check_rank(between)
    if between.rank > n_outputs:
        raise ValueError(f"{here}: rank={between.rank!r} must be from 1 to {n_outputs}, the number of columns of y.")
    for name, n_values in (("deviation", n_outputs), ("angle", n_outputs * between.rank)):
        value = getattr(between, name)
        if np.ndim(value) and np.shape(value) != (n_values,):
            raise ValueError(
                f"{here}: {name} has the shape {np.shape(value)}, but y has {n_outputs} columns: give {n_values} "
                "values, or one number for all."
            )
