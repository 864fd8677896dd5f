"""A saved estimator: plain arrays and public types, with the version that saved it; and the trusted types.

The state that pickle, joblib, copy and skops save names no private module, so that files stay
readable when code moves. The format number counts changes of the fitted attributes, not releases:
a file of another format is refused with a clear error, instead of failing at some later call.
"""

from __future__ import annotations

import inspect

import jax
import numpy as np
from sklearn.gaussian_process import kernels as sklearn_kernels

from ... import kernels, likelihoods, objectives, priors, svgp
from ..._backend import __version__, in_place
from ...kernels import white
from ...likelihoods import Likelihood
from ...objectives import Objective
from ...priors import Prior
from ...start.scale import NormalScores, Scale
from ...training import schedules
from ...training.schedules import Schedule
from ..arguments.reading import one_or_each
from ..rows.encoding import Encoding
from .attributes import calibration_of
from .few_rows import Few

# Raise it with every change of the attributes that a fitted estimator holds.
FORMAT = 16
_KEY = "_saved_by"
_SCALES = ("_x_scale", "_y_scale")
# That of correlated outputs; None without them.
_OF_OUTPUTS = "_output_scale"
# Those of `svgp.Neighbours`.
_OF_NEIGHBOURS = ("X", "y", "noise", "n_neighbours")


def plain(state):
    """Return an estimator's state as plain arrays and public types, with its format."""
    state = {**state, _KEY: {"format": FORMAT, "skgp_natgrad": __version__}}
    if "_posterior" in state:
        # A function belongs to the program that defines it, and a saved model must load in any other.
        state["callback"] = None
        state.pop("_skl_callbacks", None)
        state["_posterior"] = _packed(state["_posterior"])
        state["_warm_state"] = _plain_previous(state["_warm_state"])
        calibration = calibration_of(state)
        state["_calibration"] = None if calibration is None else dict(calibration._asdict())
        if state.get("_dispersion") is not None:
            fields = state["_dispersion"]._asdict()
            state["_dispersion"] = dict(fields) | {"posterior": _packed(fields["posterior"])}
        if state.get("_neighbours") is not None:
            fields = {name: getattr(state["_neighbours"], name) for name in _OF_NEIGHBOURS}
            state["_neighbours"] = fields | {"noise": _few_values(fields["noise"])}
        state["_rows"] = None if state["_rows"] is None else dict(state["_rows"]._asdict())
        state |= {name: dict(state[name]._asdict()) for name in _scales(state)}
        if state["encoding_"] is not None:
            state["encoding_"] = dict(state["encoding_"]._asdict())
        if state.get("_few") is not None:
            fields = state["_few"]._asdict()
            state["_few"] = dict(fields) | {"before": plain(fields["before"])}
    return state


def restored(cls, state):
    """Undo `plain`: return the state of the estimator.

    Parameters
    ----------
    cls : type
        The estimator's class.
    state : dict
        A state without a stamp is returned unchanged: a subclass may have its own ``__getstate__``.

    Raises
    ------
    ValueError
        If it was saved in another format.
    """
    stamp = state.get(_KEY)
    state = {key: value for key, value in state.items() if key != _KEY}
    if stamp is None:
        return state
    if stamp["format"] != FORMAT:
        raise ValueError(
            f"This {cls.__name__} was saved by skgp_natgrad {stamp['skgp_natgrad']} in format {stamp['format']}, and "
            f"version {__version__} reads only format {FORMAT}; to load it, install "
            f"skgp_natgrad=={stamp['skgp_natgrad']}, or fit it again."
        )
    if "_posterior" not in state:
        return state
    state["_posterior"] = svgp.Posterior(**_unpacked(state["_posterior"]))
    if state["_calibration"] is not None:
        state["_calibration"] = svgp.Calibration(**state["_calibration"])
    if state.get("_dispersion") is not None:
        fields = state["_dispersion"]
        state["_dispersion"] = svgp.Dispersion(
            **fields | {"posterior": svgp.Posterior(**_unpacked(fields["posterior"]))}
        )
    if state.get("_neighbours") is not None:
        fields = state["_neighbours"]
        state["_neighbours"] = svgp.Neighbours(**fields | {"noise": _each_value(fields["noise"])})
    if state["encoding_"] is not None:
        state["encoding_"] = Encoding(**state["encoding_"])
    if state.get("_few") is not None:
        fields = state["_few"]
        state["_few"] = Few(**fields | {"before": restored(cls, fields["before"])})
    state["_rows"] = None if state["_rows"] is None else svgp.Table(**state["_rows"])
    state["_warm_state"] = _restored_previous(state["_warm_state"], state)
    state |= {name: (NormalScores if "knots" in state[name] else Scale)(**state[name]) for name in _scales(state)}
    return state


# Square matrices of which one triangle tells the other are saved as this triangle, in half of the space.
_KINDS = "lower", "symmetric"


def _packed(record):
    """The fields of a named tuple of arrays; of triangular and symmetric matrices a triangle."""
    return {name: _triangle(each) for name, each in record._asdict().items()}


def _triangle(A):
    if np.ndim(A) != 3 or A.shape[1] != A.shape[2]:
        return A
    lower = np.tril(A)
    kinds = [lower, lower + np.tril(A, -1).swapaxes(1, 2)]
    kind = next((kind for kind, whole in zip(_KINDS, kinds, strict=True) if np.array_equal(A, whole)), None)
    return A if kind is None else {"kind": kind, "size": A.shape[1], "rows": A[:, np.tri(A.shape[1], dtype=bool)]}


def _unpacked(fields):
    """Undo `_packed`."""
    return {name: _matrix(**each) if isinstance(each, dict) else each for name, each in fields.items()}


def _matrix(kind, size, rows):
    A = np.zeros((len(rows), size, size), rows.dtype)
    A[:, np.tri(size, dtype=bool)] = rows
    return A if kind == "lower" else np.stack(list(map(in_place.mirrored, A)))


def _few_values(array):
    """Numbers of which few differ, such as noise variances of rows, as these and the place of each among them."""
    values, place = np.unique(array, return_inverse=True)
    place = place.reshape(np.shape(array)).astype(np.min_scalar_type(len(values)))
    return {"values": values, "place": place} if values.nbytes + place.nbytes < array.nbytes else array


def _each_value(fields):
    """Undo `_few_values`."""
    return fields["values"][fields["place"]] if isinstance(fields, dict) else fields


def _scales(state):
    return _SCALES if state.get(_OF_OUTPUTS) is None else (*_SCALES, _OF_OUTPUTS)


def _n_columns(fields):
    return np.shape(fields["knots"])[1] if "knots" in fields else len(fields["scale"])


def _plain_previous(previous):
    fields = previous._asdict()
    # The factors are made again when they are needed.
    parameters, *_ = map(fields.pop, ("parameters", "whitened_by", "factors"))
    q = fields["q"]
    fields |= {"masks": dict(fields["masks"]._asdict()), "q": None if q is None else _packed(q)}
    fields["hyperparameters"] = [np.asarray(leaf) for leaf in jax.tree.leaves(parameters[:2])]
    fields |= {name: dict(getattr(parameters, name)._asdict()) for name in ("points", "weights")}
    return dict(fields)


def _restored_previous(fields, state):
    structure = _structure(state)
    hyperparameters = jax.tree.unflatten(structure, fields["hyperparameters"])
    points, weights = svgp.Points(**fields["points"]), svgp.Weights(**fields["weights"])
    parameters = svgp.Parameters(*hyperparameters, points, weights)
    return svgp.Previous(
        None if fields["q"] is None else svgp.Gaussian(**_unpacked(fields["q"])),
        parameters,
        parameters,
        svgp.Masks(**fields["masks"]),
        fields["prior_mean"],
        fields["weight"],
        fields["jitter"],
        fields["untrained"],
    )


def _structure(state):
    """The structure of the trained hyperparameters: that of the fitted kernels and likelihood."""
    n_features, n_targets = (_n_columns(state[name]) for name in _SCALES)
    encoding = state["encoding_"]
    names = state.get("feature_names_in_") if encoding is None or encoding.is_identity else encoding.names
    latent = (white.parted(kernel)[0] for kernel in one_or_each(state["kernel_"]))
    specs = [kernels.from_sklearn(kernel, n_features, names).value for kernel in latent]
    return jax.tree.structure((tuple(specs), state["likelihood_"].value_and_bounds(n_targets)[0]))


# By the names under which users import them.
_ESTIMATORS = ("skgp_natgrad.NGDSVGPClassifier", "skgp_natgrad.NGDSVGPRegressor")


def trusted_types() -> list[str]:
    """Return the names of the classes that fitted models of this package consist of.

    For programs such as skops that load only trusted classes: a file can then create objects of these classes, and of
    the classes that skops trusts by default, but no others. They are the two estimators, the package's likelihoods,
    objectives, priors, schedules and kernels, the kernels of scikit-learn, and NumPy's types of numbers.

    Returns
    -------
    names : list of str
        Qualified names, sorted. Classes and functions of your own, such as a likelihood or a schedule, are not
        among them: add their names if you trust them.

    Examples
    --------
    >>> from skgp_natgrad import trusted_types
    >>> names = trusted_types()
    >>> "skgp_natgrad.NGDSVGPRegressor" in names, "sklearn.gaussian_process.kernels.RBF" in names
    (True, True)

    With skops, ``trusted`` takes the list as it is:

    >>> import skops.io  # doctest: +SKIP
    >>> model = skops.io.load("model.skops", trusted=trusted_types())  # doctest: +SKIP
    """
    found = []
    families = (schedules, Schedule), (likelihoods, Likelihood), (objectives, Objective), (priors, Prior)
    for module, base in families:
        found += _complete((getattr(module, name) for name in module.__all__), base)
    for values in (vars(kernels).values(), vars(sklearn_kernels).values()):
        found += _complete(values, sklearn_kernels.Kernel)
    # Encoders know the type of what they were fitted to.
    return sorted({*_ESTIMATORS, "numpy.dtype", *(f"{each.__module__}.{each.__qualname__}" for each in found)})


def _complete(values, base):
    """The classes among some values that are made from ``base`` and can be used as they are."""
    classes = [value for value in values if isinstance(value, type) and issubclass(value, base)]
    # Base classes of likelihoods and objectives have no name.
    return [
        each for each in classes if not inspect.isabstract(each) and each is not Prior and getattr(each, "name", True)
    ]
