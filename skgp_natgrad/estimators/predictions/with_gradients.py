"""Gradients that `predict` returns beside mean and deviation, where scikit-optimize's processes do."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any, TypeVar

import numpy as np

_Method = TypeVar("_Method", bound=Callable[..., Any])
_NAMES = ("return_mean_grad", "return_std_grad")


def with_gradients(method: _Method) -> _Method:
    """Decorate ``predict``, so that it takes ``return_mean_grad`` and ``return_std_grad``."""
    shape = inspect.signature(method)
    own = [inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=False, annotation="bool") for name in _NAMES]

    @functools.wraps(method)
    def called(self, X, *arguments, return_mean_grad=False, return_std_grad=False, **options):
        if not (return_mean_grad or return_std_grad):
            return method(self, X, *arguments, **options)
        given = shape.bind(self, X, *arguments, **options)
        given.apply_defaults()
        _check(X, given.arguments, return_mean_grad, return_std_grad)
        found = method(self, X, *arguments, **options)
        known = {name: given.arguments[name] for name in ("offset", "alpha", "trials")}
        slopes = self.predict_gradient(X, return_std=return_std_grad, **known)
        moments, slopes = (each if isinstance(each, tuple) else (each,) for each in (found, slopes))
        return *moments, *(slope[0] for slope in slopes)

    called.__signature__ = shape.replace(parameters=[*shape.parameters.values(), *own])
    return called


def _check(X, given, return_mean_grad, return_std_grad):
    """Refuse requests that scikit-optimize's processes do not have either."""
    if return_std_grad and not (given["return_std"] and return_mean_grad):
        raise ValueError(
            "return_std_grad=True needs return_std=True and return_mean_grad=True; predict_gradient(X, "
            "return_std=True) returns gradients alone."
        )
    if given["return_cov"] or given["out"] is not None:
        raise ValueError("return_mean_grad=True goes with return_std alone; call predict_gradient for the gradients.")
    n_rows = np.shape(X)[0] if np.ndim(X) == 2 else 0
    if n_rows != 1:
        raise ValueError(
            f"return_mean_grad=True with an X of the shape {np.shape(X)}: it is the gradient at one row, X of the "
            "shape (1, n_features); predict_gradient returns those at many."
        )
