"""The arguments of the constructor, also of a user's subclass whose own constructor has fewer of them, or others.

By scikit-learn's conventions such a class calls the constructor of its base, which stores them all.
"""

from __future__ import annotations

from inspect import signature

_PACKAGE = __name__.split(".", maxsplit=1)[0]


def defaults(cls):
    """The default of each argument by name, of the first class of this package that ``cls`` is or inherits from."""
    own = next(each for each in cls.__mro__ if each.__module__.split(".", maxsplit=1)[0] == _PACKAGE)
    return {name: each.default for name, each in signature(own).parameters.items()}


def arguments(estimator):
    """The values of all arguments by name, those of a subclass as well."""
    return {name: getattr(estimator, name) for name in defaults(type(estimator))} | estimator.get_params(deep=False)
