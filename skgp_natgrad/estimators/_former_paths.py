"""The modules in which models saved by earlier versions look for their classes."""

from __future__ import annotations

import functools
import sys
import types
from typing import NamedTuple

from .. import svgp
from ..kernels import Kernel, algebra, stationary
from ..start.scale import Scale
from ..training import schedules


class FormerResumption(NamedTuple):
    """The record from which a later fit continued, in files up to format 2."""

    q: object
    parameters: object
    masks: object
    prior_mean: object
    weight: object
    sizes: object
    basis: object
    arguments: object = None
    jitter: object = None


def provide(**estimators):
    """Make the modules of earlier versions importable, with the classes that saved models name.

    A module that exists today does not list them: it only finds them when asked for one by name.
    """
    former = {
        "regressor": {"NGDSVGPRegressor": estimators["regressor"]},
        "classifier": {"NGDSVGPClassifier": estimators["classifier"]},
        "schedules": {name: getattr(schedules, name) for name in schedules.__all__},
        "_base": {"_Resumption": FormerResumption},
        "_rows": {"Scale": Scale},
        "posterior": {"Posterior": svgp.Posterior},
        "gaussians": {"Gaussian": svgp.Gaussian},
        "objectives": {"Parameters": svgp.Parameters},
        "bases": {"Points": svgp.Points, "Masks": svgp.Masks, "Weights": svgp.Weights},
    }
    # The record from which a later fit continued held JAX kernels.
    former["kernels"] = {name: value for module in (algebra, stationary) for name, value in _kernels_of(module)}
    package = __name__.split(".")[0]
    for name, contents in former.items():
        module = sys.modules.get(f"{package}.{name}")
        if module is None:
            module = sys.modules[f"{package}.{name}"] = types.ModuleType(f"{package}.{name}", __doc__)
            vars(module).update(contents)
        else:
            module.__getattr__ = functools.partial(_find, module.__name__, contents)


def _find(module, contents, name):
    """The ``__getattr__`` of a module."""
    try:
        return contents[name]
    except KeyError:
        raise AttributeError(f"module {module!r} has no attribute {name!r}") from None


def _kernels_of(module):
    return [
        (name, value) for name, value in vars(module).items() if isinstance(value, type) and issubclass(value, Kernel)
    ]
