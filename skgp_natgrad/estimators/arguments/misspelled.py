"""Calls with an argument that does not exist: the error names the public class, and suggests the nearest argument."""

from __future__ import annotations

import functools
import inspect
from typing import TypeVar

from . import checks

_Class = TypeVar("_Class", bound=type)

# Arguments of other estimators' constructors, and where to give here what they hold; and those of regressors alone.
_ELSEWHERE = {
    "inducing_points": "Give them as inducing_init.",
    "lengthscale": "It is the kernel's, as in kernel=1.0 * RBF(2.0).",
    "length_scale": "It is the kernel's, as in kernel=1.0 * RBF(2.0).",
}
_OF_NOISE = {
    "alpha": "Known variances of the noise are given to fit, as in fit(X, y, alpha=...); its initial value is the "
    "likelihood's, as in likelihood=Gaussian(0.1).",
    "noise": "It is the likelihood's, as in likelihood=Gaussian(0.1).",
}
_ESTIMATORS = __package__.rpartition(".")[0]
# Least similarity of an argument that is suggested.
_ALIKE = 0.75


def suggesting(cls: _Class) -> _Class:
    """Let the constructor and the inherited methods of a class suggest arguments in place of unknown ones.

    Python's own errors name the class in which a method is defined, which a user does not know.
    """
    for name in dir(cls):
        method = inspect.getattr_static(cls, name)
        is_ours = inspect.isfunction(method) and method.__module__.startswith(_ESTIMATORS)
        if is_ours and (name == "__init__" or not (name.startswith("_") or name in vars(cls))):
            setattr(cls, name, _suggesting(cls, name, method))
    return cls


def _suggesting(cls, name, method):
    shape, place = inspect.signature(method), f"{cls.__name__}.{name}"

    @functools.wraps(method)
    def called(self, *arguments, **options):
        try:
            shape.bind(self, *arguments, **options)
        except TypeError as error:
            unknown = next((each for each in options if each not in shape.parameters), None)
            if unknown is None:
                raise TypeError(f"{place}(): {error}") from None
            hint = _hint(cls, name, unknown, list(shape.parameters)[1:])
            raise TypeError(f"{place}() got an unexpected keyword argument {unknown!r}.{hint}") from None
        return method(self, *arguments, **options)

    # By these a method is pickled.
    called.__qualname__, called.__module__ = place, cls.__module__
    return called


def _hint(cls, method, name, allowed):
    if method == "__init__":
        has_noise = "alpha" in inspect.signature(cls.fit).parameters
        elsewhere = _ELSEWHERE | (_OF_NOISE if has_noise else {})
        if name in elsewhere:
            return f" {elsewhere[name]}"
    return checks.question(checks.closest(name, allowed, _ALIKE))
