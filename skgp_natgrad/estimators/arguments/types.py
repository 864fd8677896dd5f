"""Types of the estimators' arguments."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal, TypeAlias

import optax
from sklearn.base import RegressorMixin
from sklearn.gaussian_process.kernels import Kernel

from ..._backend.types import ArrayLike
from ...objectives import Objective
from ...priors import Prior
from ...training.schedules import Schedule

# One value for all rows, one for each, or none.
PerRow: TypeAlias = ArrayLike | None
Kernels: TypeAlias = Kernel | Sequence[Kernel] | None
ObjectiveLike: TypeAlias = Literal["elbo", "tightened", "predictive"] | Objective
HyperparameterPrior: TypeAlias = Literal["weak"] | Prior | Mapping[str, Prior] | None
MeanFunction: TypeAlias = Callable[[Any], Any] | RegressorMixin | Literal["linear"] | None
NormalizeX: TypeAlias = bool | Literal["auto", "quantile"]
Basis: TypeAlias = Literal["orthogonal", "hybrid", "decoupled", "solve"]
InducingInit: TypeAlias = Literal["auto", "greedy_variance", "k-means", "random"] | ArrayLike
Solver: TypeAlias = Literal["auto", "evidence", "ngd", "adam", "gd", "lbfgs"]
Parameterization: TypeAlias = Literal[
    "natural", "natural_sqrt", "natural_log", "mean_var", "mean_var_sqrt", "mean_var_log"
]
Steps: TypeAlias = (
    float | Schedule | Callable[[int], float] | Literal["constant", "linear", "log_linear", "cosine", "line_search"]
)
Optimizer: TypeAlias = (
    Literal["adam", "amsgrad", "nadam", "adabelief", "yogi", "rmsprop"] | optax.GradientTransformation | None
)
MeanSolver: TypeAlias = Literal["auto", "adam", "natural", "diagonal", "exact"]
DType: TypeAlias = Literal["float64", "float32"] | type
Callback: TypeAlias = Callable[[int, Any], Any] | None
Path: TypeAlias = str | os.PathLike[str] | None
