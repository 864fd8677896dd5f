"""Predictions of an exported Gaussian process by NumPy: this file and the model's file are all that a service needs.

The method ``export`` of an estimator of skgp_natgrad writes both into one folder. There,

    from skgp_predictor import load
    model = load("model.npz")
    mean, std = model.predict(X, return_std=True)

The predictor imports nothing but NumPy, and SciPy where two classes have a probit link. It predicts the estimator's
numbers up to rounding.
"""

from __future__ import annotations

import hashlib
import json
import math
import numbers
import warnings
import zipfile
import zlib

import numpy as np

from .skgp_processes import BLOCK, Neighbours, Process

# Raise it with every change of what a file holds.
FORMAT = 4
_LOG_2PI = float(np.log(2.0 * np.pi))
# Largest logarithm of the factor of the variance, and minus the least.
_LARGEST = 18.0
# How missing cells of a data frame are written; and columns of the place of a level that the fit has not seen.
_EMPTY, _FURTHER = ("None", "<NA>", "NaT"), 3


def load(path):
    """Read an exported model.

    Parameters
    ----------
    path : str or path

    Returns
    -------
    model : Regressor or Classifier

    Raises
    ------
    ValueError
        If the file was not written by ``export``, is damaged, or has another format than this module reads.
    """
    try:
        arrays = _arrays(path)
        about = json.loads(str(arrays.pop("about")))
        number = about["format"]
    except (KeyError, TypeError, ValueError, EOFError, zipfile.BadZipFile, zlib.error) as error:
        raise ValueError(
            f"{path} is no model that the method export of an estimator of skgp_natgrad has written, or it is damaged "
            f"({type(error).__name__}: {error}); export the model again."
        ) from error
    if number != FORMAT:
        raise ValueError(
            f"{path} has format {number}, and this skgp_predictor.py reads format {FORMAT}; use the file that was "
            "written beside the model."
        )
    return (Classifier if "link" in about else Regressor)(about, arrays)


def _arrays(path):
    """The arrays of a file by their names."""
    found = np.load(path, allow_pickle=False)
    if isinstance(found, np.ndarray):
        raise ValueError("it holds a single array")
    with found:
        return {name: found[name] for name in found.files}


class _Model:
    """What both kinds of models hold: the map of X, and the latent functions."""

    def __init__(self, about, arrays):
        self.about, self._arrays = about, arrays
        self.n_features_in_ = about["n_features"]
        self._latent = Process(about["kernels"], _part(arrays, "posterior"))
        if "neighbours.X" in arrays:
            self._latent = Neighbours(about["kernels"], _part(arrays, "neighbours"))
        self._of_x = _part(arrays, "x_scale")

    def _check_shape(self, X):
        if X.ndim != 2 or X.shape[1] != self.n_features_in_:
            raise ValueError(f"X has the shape {X.shape}; give a table with {self.n_features_in_} columns.")

    def _scaled(self, X):
        """Rows in the units of the kernels."""
        _check_names(X, self.about["feature_names"])
        encoding = self.about.get("encoding")
        if encoding and not hasattr(X, "toarray") and not np.ma.is_masked(X):
            cells = np.array(X, dtype=object)
            self._check_shape(cells)
            of_categories = [cells[:, each["column"]].copy() for each in encoding["categories"]]
            cells[:, [each["column"] for each in encoding["categories"]]] = 0.0
            X = cells
        X = _numbers(X)
        self._check_shape(X)
        bad = np.argwhere(~np.isfinite(X))
        if len(bad):
            row, column = bad[0]
            raise ValueError(
                f"X[{row}, {column}]={X[row, column]} is not finite; leave the row out, or fill the value in: this "
                "predictor takes complete rows alone."
            )
        X = _mapped(_encoded(X, of_categories, encoding) if encoding else X, self._of_x)
        if not np.all(np.isfinite(X)):
            raise ValueError("X holds values so far from the training data that they overflow; leave these rows out.")
        return X


def _check_names(X, expected):
    """Refuse a table with other columns than those of the fit, or in another order, if both have names."""
    given = getattr(X, "column_names", getattr(X, "columns", ()))
    given = list(given) if all(isinstance(name, str) for name in given) else []
    if not expected or not given:
        if expected or given:
            here, there = ("X", "the table of the fit") if given else ("The table of the fit", "X")
            text = f"{here} has names of columns, and {there} has none: the columns are taken in their order."
            warnings.warn(text, UserWarning, stacklevel=4)
        return
    if given == expected:
        return
    if sorted(given) == sorted(expected):
        k = next(k for k, names in enumerate(zip(given, expected, strict=True)) if names[0] != names[1])
        what = f"column {k} is {given[k]!r}, and was {expected[k]!r}; give the columns in the order of the fit"
    else:
        lists = {
            "lacks": [name for name in expected if name not in given],
            "holds": [name for name in given if name not in expected],
        }
        parts = [f"it {verb} {', '.join(map(repr, names))}" for verb, names in lists.items() if names]
        what = f"{' and '.join(parts) or 'some are repeated'}; give {expected!r}"
    raise ValueError(f"The columns of X must be those of the fit, in their order: {what}.")


def _numbers(X):
    """A table as an array of floats. NumPy alone would take text, dates and masked or complex values for numbers."""
    if hasattr(X, "toarray"):
        raise ValueError("X is sparse; give X.toarray().")
    if np.ma.is_masked(X):
        raise ValueError("X holds masked values; leave these rows out, or fill them in.")
    found = np.asarray(X)
    if found.dtype.kind in "biuf":
        return found.astype(float, copy=False)
    if found.dtype.kind != "O":
        raise ValueError(f"X has the type {found.dtype}; give numbers.")
    for place, value in np.ndenumerate(found):
        if isinstance(value, (str, bytes)) or not np.isrealobj(value) or not hasattr(value, "__float__"):
            raise ValueError(f"X[{', '.join(map(str, place))}]={value!r} is not a number.")
    return found.astype(float)


def _encoded(X, of_categories, encoding):
    """Numbers and the cells of categories as the columns of the fit: its levels, and places of other levels."""
    known, further = [], []
    for each, cells in zip(encoding["categories"], of_categories, strict=True):
        levels, place = [_level(cell) for cell in cells], dict(zip(each["levels"], each["places"], strict=True))
        known.append(np.zeros((len(X), each["width"])))
        further.append(np.zeros((len(X), _FURTHER)))
        for row, level in enumerate(levels):
            if level in place:
                known[-1][row, place[level]] = 1.0
            else:
                further[-1][row] = _place_of_another(level)
    return np.hstack([X[:, encoding["numbers"]], np.zeros((len(X), encoding["n_indicators"])), *known, *further])


def _level(cell):
    """The cell of a category as a string; None where missing. A whole number is the same level as an integer."""
    if isinstance(cell, (str, bool)):
        return str(cell)
    if str(cell) in _EMPTY or (isinstance(cell, numbers.Real) and math.isnan(cell)):
        return None
    if not isinstance(cell, numbers.Real):
        return str(cell)
    if math.isinf(cell):
        raise ValueError(f"X holds {cell} in a column of categories, which is no level; replace it by a value.")
    return str(int(cell)) if cell == int(cell) else repr(float(cell))


def _place_of_another(level):
    """On the unit sphere, by the name of a level that the fit has not seen."""
    digest = hashlib.blake2b((level or "").encode(), digest_size=16).digest()
    height, angle = np.frombuffer(digest, "<u8") / 2.0**64 * [2.0, 2.0 * np.pi] - [1.0, 0.0]
    radius = np.sqrt(1.0 - height**2)
    return radius * np.cos(angle), radius * np.sin(angle), height


class Regressor(_Model):
    """A regression: see `predict`."""

    def __init__(self, about, arrays):
        super().__init__(about, arrays)
        self._dispersion = _part(arrays, "dispersion")
        if self._dispersion:
            self._log_factor = Process([about["dispersion"]], _part(self._dispersion, "posterior"))

    def predict(self, X, return_std=False):
        """The mean of y at rows X (N, D), and on request its standard deviation, noise included.

        Parameters
        ----------
        X : array-like of shape (N, D)
        return_std : bool, default=False

        Returns
        -------
        mean : ndarray of shape (N,) or (N, n_outputs)
        std : ndarray of the same shape, with ``return_std``
        """
        offset, scale = self._arrays["y_scale.offset"], self._arrays["y_scale.scale"]
        shaped = (lambda values: values[:, 0]) if self.about["single_output"] else (lambda values: values)
        if return_std and not self._latent.has_variance:
            raise ValueError("This model was exported without its variance; export it with return_std=True.")
        X = self._scaled(X)
        mean, var = self._latent.moments(X, return_std)
        shown = shaped(mean.T * scale + offset)
        return (shown, shaped(np.sqrt(self._of_targets(var, X)).T * scale)) if return_std else shown

    def _of_targets(self, var, X):
        """The variance of y (T, N), from that of the latent functions, at rows in the units of the kernels."""
        noise, of = self._arrays["noise"], self._dispersion
        if not of:
            return var + noise
        # The factor holds up to the largest variance of rows that were left out.
        factor = np.exp(np.clip(self._log_factor.moments(X, False)[0], -_LARGEST, _LARGEST))
        seen = np.minimum(var, of["largest"])
        least = of["least"] / (of["inflation"] + of["undispersed"])
        total = np.maximum(factor * (seen + noise) + (var - seen), least)
        return of["inflation"] * total + of["undispersed"] * (var + noise)


class Classifier(_Model):
    """A classification: see `predict_proba` and `predict`.

    Attributes
    ----------
    classes_ : ndarray of shape (C,)
    """

    def __init__(self, about, arrays):
        super().__init__(about, arrays)
        self.classes_ = arrays["classes"]

    def predict_proba(self, X):
        """The probability of each class at rows X (N, D): (N, C), in the order of ``classes_``."""
        mean, var = self._latent.moments(self._scaled(X), True)
        by_mean, by_deviation = self._arrays["calibration"]
        mean, var = by_mean * mean, by_deviation**2 * var
        if self.about["link"] == "softmax":
            found = _softmax(mean, var, self._arrays["points"])
        else:
            log_link = _log_ndtr if self.about["link"] == "probit" else _log_sigmoid
            found = np.exp(np.concatenate([log_link(-mean, var), log_link(mean, var)]))
        return found[self._arrays["ranks"]].T

    def predict(self, X):
        """The most probable class at rows X (N, D): (N,)."""
        return self.classes_[np.argmax(self.predict_proba(X), axis=1)]


def _part(arrays, prefix):
    """The arrays whose names begin with a prefix and a dot, without these."""
    return {name[len(prefix) + 1 :]: each for name, each in arrays.items() if name.startswith(f"{prefix}.")}


# -- the scale of X -----------------------------------------------------------------------


def _mapped(table, scale):
    if "spans" in scale:
        # Columns that are constant up to rounding.
        lower, upper = scale["spans"]
        table = np.where((table >= lower) & (table <= upper), lower, table)
    if "offset" in scale:
        return (table - scale["offset"]) / scale["scale"]
    knots, scores, slopes = (scale[name] for name in ("knots", "scores", "slopes"))
    inside = np.column_stack([np.interp(*each) for each in zip(table.T, knots.T, scores.T, strict=True)])
    return inside + slopes[0] * np.minimum(table - knots[0], 0.0) + slopes[1] * np.maximum(table - knots[-1], 0.0)


# -- probabilities of classes -------------------------------------------------------------


def _softmax(mean, var, points):
    """Averages (C, N) over normal points (S, C), a few rows at a time."""
    found, size = np.empty_like(mean), max(BLOCK // points.size, 1)
    for start in range(0, mean.shape[1], size):
        rows = slice(start, start + size)
        f = mean[:, rows] + np.sqrt(var[:, rows]) * points[:, :, None]
        p = np.exp(f - f.max(1, keepdims=True))
        found[:, rows] = (p / p.sum(1, keepdims=True)).mean(0)
    return found


def _log_ndtr(mean, var):
    """log E[link(f)] of the normal distribution function."""
    from scipy.special import log_ndtr

    return log_ndtr(mean / np.sqrt(1.0 + var))


def _log_sigmoid(mean, var, n_nodes=128, reach=1e4, drop=40.0, zooms=4):
    """log E[link(f)] of the logistic function: by a grid that is shrunk to where the integrand is not negligible."""
    mean, deviation = mean[..., None], np.sqrt(var)[..., None]

    def log_integrand(z):
        return -np.logaddexp(0.0, -(mean + deviation * z)) - 0.5 * z**2

    grid = np.sinh(np.linspace(-1.0, 1.0, n_nodes) * np.arcsinh(reach)) + 0.0 * mean
    for _ in range(zooms):
        values = log_integrand(grid)
        kept = values >= values.max(-1, keepdims=True) - drop
        first, last = np.argmax(kept, -1), n_nodes - 1 - np.argmax(kept[..., ::-1], -1)
        ends = np.maximum(first - 1, 0), np.minimum(last + 1, n_nodes - 1)
        low, high = (np.take_along_axis(grid, each[..., None], -1) for each in ends)
        grid = low + (high - low) * np.linspace(0.0, 1.0, n_nodes)
    values, spacing = log_integrand(grid), grid[..., 1] - grid[..., 0]
    top = values.max(-1)
    return top + np.log(np.exp(values - top[..., None]).sum(-1)) + np.log(spacing) - 0.5 * _LOG_2PI
