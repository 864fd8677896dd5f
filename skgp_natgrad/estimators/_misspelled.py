"""Calls with an argument that does not exist: the error names the public class, and suggests the nearest argument."""

from __future__ import annotations

import functools
import inspect
from typing import TypeVar

from . import _checks

_Class = TypeVar("_Class", bound=type)

# Arguments of other estimators' constructors, and where to give here what they hold.
_ELSEWHERE = {
    "alpha": "Known variances of the noise are given to fit, as in fit(X, y, alpha=...); its initial value is the "
    "likelihood's, as in likelihood=Gaussian(0.1).",
    "n_restarts_optimizer": "There are no restarts; with kernel=None several kernels and starts are compared.",
    "noise": "It is the likelihood's, as in likelihood=Gaussian(0.1).",
    "inducing_points": "Give them as inducing_init.",
    "lengthscale": "It is the kernel's, as in kernel=1.0 * RBF(2.0).",
}


def suggesting(cls: _Class) -> _Class:
    """Let the constructor and the inherited methods of a class suggest arguments in place of unknown ones.

    Python's own errors name the class in which a method is defined, which a user does not know.
    """
    for name in dir(cls):
        method = inspect.getattr_static(cls, name)
        is_ours = inspect.isfunction(method) and method.__module__.startswith(__package__)
        if is_ours and (name == "__init__" or not (name.startswith("_") or name in vars(cls))):
            setattr(cls, name, _suggesting(name, method))
    return cls


def _suggesting(name, method):
    shape = inspect.signature(method)

    @functools.wraps(method)
    def called(self, *arguments, **options):
        try:
            shape.bind(self, *arguments, **options)
        except TypeError as error:
            unknown = next((each for each in options if each not in shape.parameters), None)
            what = str(error) if unknown is None else f"got an unexpected keyword argument {unknown!r}."
            hint = "" if unknown is None else _hint(name, unknown, list(shape.parameters)[1:])
            raise TypeError(f"{type(self).__name__}.{name}() {what}{hint}") from None
        return method(self, *arguments, **options)

    return called


def _hint(method, name, allowed):
    if method == "__init__" and name in _ELSEWHERE:
        return f" {_ELSEWHERE[name]}"
    return _checks.nearest(name, allowed)
