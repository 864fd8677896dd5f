"""Fitted models for services without JAX: one file of arrays, beside a module that predicts from it by NumPy alone."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.gaussian_process.kernels import Kernel
from sklearn.utils.validation import check_is_fitted

from .. import kernels, likelihoods
from ..choose.scale import NormalScores
from ..estimators.fitted import attributes
from ..estimators.rows import outputs
from ..estimators.rows.encoding import FURTHER, changing
from . import skgp_predictor, skgp_processes

_LIKELIHOODS = likelihoods.Gaussian, likelihoods.StudentT, likelihoods.Bernoulli, likelihoods.Softmax
_OF_SKLEARN = {
    "ConstantKernel": ("constant_value",),
    "DotProduct": ("sigma_0",),
    "RBF": ("length_scale",),
    "Matern": ("length_scale", "nu"),
    "RationalQuadratic": ("length_scale", "alpha"),
    "ExpSineSquared": ("length_scale", "periodicity"),
    "Sum": ("k1", "k2"),
    "Product": ("k1", "k2"),
    "Exponentiation": ("kernel", "exponent"),
}
_OF_PACKAGE = {
    kernels.Columns: ("kernel", "columns"),
    kernels.Laplacian: ("length_scale",),
    kernels.LinearTransform: ("kernel", "matrix"),
    kernels.Nugget: (),
}


def write(estimator: Any, path: str | os.PathLike[str], return_std: bool) -> None:
    """Write a fitted estimator: the method `export` has the arguments."""
    about, arrays = described(estimator, return_std)
    with open(path, "wb") as file:
        np.savez(file, about=np.array(json.dumps(about)), **arrays)
    (Path(path).parent / Path(skgp_predictor.__file__).name).write_text(_source(), encoding="utf-8")


def _source():
    """The predictor as one file: what it imports from the file beside it stands in the place of this import."""
    whole, part = (Path(each.__file__).read_text(encoding="utf-8") for each in (skgp_predictor, skgp_processes))
    before, after = re.split(r"^from \.skgp_processes import .*\n", whole, flags=re.MULTILINE)
    return before + part.split("import numpy as np\n", 1)[1].lstrip("\n") + after


def described(estimator: Any, return_std: bool) -> tuple[dict[str, Any], dict[str, Any]]:
    """What the file of a fitted estimator holds: a description, and arrays by their names."""
    check_is_fitted(estimator, "_posterior")
    _check_parts(estimator)
    model, classes = attributes.model_of(estimator), getattr(estimator, "classes_", None)
    n_columns, encoding = model.posterior.Z.shape[1], changing(estimator)
    about = {
        "format": skgp_predictor.FORMAT,
        "n_features": estimator.n_features_in_,
        "feature_names": list(map(str, getattr(estimator, "feature_names_in_", ()))),
        "kernels": [_plain(kernel, n_columns) for kernel in model.kernels],
        "encoding": None if encoding is None else _of_encoding(encoding),
    }
    with_variance = (return_std or classes is not None) and model.neighbours is None
    arrays = _named("x_scale", _of_x(estimator._x_scale)) | _named(
        "posterior", _of_process(model.posterior, with_variance)
    )
    if model.neighbours is not None:
        arrays |= _named("neighbours", _of_neighbours(model, n_columns))
    if classes is None:
        about["single_output"] = bool(getattr(estimator, "_single_output", True))
        noise = np.broadcast_to(np.asarray(model.likelihood.noise_variance()), (len(model.posterior.alpha), 1))
        arrays |= _named("y_scale", {"offset": estimator._y_scale.offset, "scale": estimator._y_scale.scale})
        arrays["noise"] = noise
        if model.dispersion is not None and return_std:
            about["dispersion"] = _plain(model.dispersion.kernel, n_columns)
            arrays |= _named("dispersion", _of_dispersion(model.dispersion))
        return about, arrays
    return _of_classes(estimator, model, about, arrays)


def _of_neighbours(model, n_columns):
    """The rows from which others are predicted, and the rates of each kernel by which they are near."""
    rows, of_jax = model.neighbours, tuple(kernels.from_sklearn(each, n_columns).value for each in model.kernels)
    found = {name: getattr(rows, name) for name in ("X", "y", "noise")}
    return found | {"n": rows.n_neighbours, "rates": rows.rates_of(of_jax), "prior_mean": model.posterior.prior_mean}


def _of_encoding(encoding):
    """How cells become numbers: for each category its levels, and the column of its block that is one for each."""
    of_levels, categories = encoding.encoder.categories_ if len(encoding.categories) else (), []
    for j, (column, levels) in enumerate(zip(encoding.categories, of_levels, strict=True)):
        cells = np.tile(np.array([each[0] for each in of_levels], dtype=object), (len(levels), 1))
        cells[:, j] = levels
        widths = [np.count_nonzero(encoding.owner == each) - FURTHER for each in encoding.categories]
        block = np.split(encoding.encoder.transform(cells), np.cumsum(widths)[:-1], axis=1)[j]
        found = {"column": int(column), "levels": list(levels), "places": block.argmax(1).tolist()}
        categories.append(found | {"width": int(widths[j])})
    n_indicators = np.count_nonzero(~encoding.is_level) - len(encoding.numbers)
    return {"numbers": encoding.numbers.tolist(), "n_indicators": int(n_indicators), "categories": categories}


def _of_dispersion(dispersion):
    """The arrays that tell the variance of y from that of the latent functions."""
    of_factor, of_undispersed = dispersion.errors.second_moments
    found = {
        "largest": dispersion.largest,
        "least": dispersion.least,
        "inflation": of_factor,
        "undispersed": of_undispersed,
    }
    return found | _named("posterior", _of_process(dispersion.posterior, False))


def _of_classes(estimator, model, about, arrays):
    """The description and the arrays with those of class probabilities."""
    classes, likelihood, calibration = np.asarray(estimator.classes_), model.likelihood, model.calibration
    if classes.dtype == object:
        if not all(isinstance(each, str) for each in classes):
            raise ValueError(f"export: classes_={classes!r} must be strings or numbers.")
        classes = classes.astype(str)
    ranks = getattr(estimator, "_class_ranks", None)
    arrays["classes"], arrays["ranks"] = classes, np.arange(len(classes)) if ranks is None else ranks
    arrays["calibration"] = np.array([1.0, 1.0] if calibration is None else calibration[:2])
    if isinstance(likelihood, likelihoods.Bernoulli):
        return about | {"link": likelihood.link}, arrays
    arrays["points"] = likelihood.prediction_points(len(model.posterior.alpha))
    return about | {"link": "softmax"}, arrays


def _check_parts(estimator):
    """Refuse what the predictor does not know."""
    reasons = {
        "outputs": outputs.of(estimator) is not None,
        "mean_function": getattr(estimator, "mean_function_", None) is not None,
        "likelihood": type(estimator.likelihood_) not in _LIKELIHOODS,
    }
    remedies = {
        "outputs": "its outputs are correlated; fit with output_kernel='independent'",
        "mean_function": f"mean_function={estimator.mean_function!r} stands for an object of its own; export a fit "
        "with mean_function=None",
        "likelihood": f"likelihood {type(estimator.likelihood_).__name__} is not among "
        f"{', '.join(each.__name__ for each in _LIKELIHOODS)}",
    }
    found = [remedies[name] for name, is_there in reasons.items() if is_there]
    if found:
        raise ValueError(f"This model cannot be exported: {'; '.join(found)}.")


def _named(prefix, arrays):
    return {f"{prefix}.{name}": np.asarray(each) for name, each in arrays.items()}


def _of_x(scale):
    """The scale of X: an affine map, or knots with the slopes outside of them."""
    found = {} if scale.spans is None else {"spans": scale.spans}
    if not isinstance(scale, NormalScores):
        return found | {"offset": scale.offset, "scale": scale.scale}
    return found | {"knots": scale.knots, "scores": scale.scores, "slopes": scale.outer_slopes}


def _of_process(posterior, with_variance):
    """The arrays of a `svgp.Posterior`."""
    found = {name: getattr(posterior, name) for name in ("Z", "Z_mean", "alpha", "a", "prior_mean")}
    if not with_variance:
        return found
    if posterior.reduction is None:
        return found | {"whiten": posterior.whiten, "root_S": posterior.root_S}
    # One triangle, in half of the space.
    size = posterior.reduction.shape[1]
    return found | {
        "triangle": posterior.reduction[:, np.tri(size, dtype=bool)],
        "shape": posterior.reduction.shape[:2],
    }


def _plain(kernel, n_columns):
    """A kernel as a dict of numbers, by scikit-learn's names."""
    name = type(kernel).__name__
    fields = _OF_PACKAGE.get(type(kernel))
    if fields is None and type(kernel).__module__ == "sklearn.gaussian_process.kernels":
        fields = _OF_SKLEARN.get(name)
    if fields is None:
        raise ValueError(f"This model cannot be exported: its kernel contains {kernel!r}, a class of your own.")
    values = {each: getattr(kernel, each) for each in fields}
    if "columns" in values:
        columns = kernels.from_sklearn(kernel, n_columns).value.columns
        return {"name": name, "kernel": _plain(kernel.kernel, len(columns)), "columns": list(columns)}
    n_columns = np.shape(values["matrix"])[1] if "matrix" in values else n_columns
    return {"name": name} | {
        key: _plain(value, n_columns) if isinstance(value, Kernel) else np.asarray(value, dtype=float).tolist()
        for key, value in values.items()
    }
