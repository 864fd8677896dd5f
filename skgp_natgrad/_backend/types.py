"""Types of public arguments and results, for annotations."""

from __future__ import annotations

from typing import Any, Literal, TypeAlias

import jax
import numpy as np
from numpy.typing import ArrayLike, NDArray

Floats: TypeAlias = NDArray[np.float64]
# What numerical code takes and returns: of NumPy, or of JAX and then possibly a tracer.
Array: TypeAlias = jax.Array | NDArray[Any]
Seed: TypeAlias = int | np.random.RandomState | None
# One value for all rows, one for each, or none.
PerRow: TypeAlias = ArrayLike | None
# Of a parameter while it is trained.
Bounds: TypeAlias = tuple[float, float] | Literal["fixed"]
Average: TypeAlias = Literal["uniform_average", "raw_values"]
Device: TypeAlias = Literal["auto", "cpu", "gpu"]
Devices: TypeAlias = int | Literal["all"] | None

__all__ = ["Array", "ArrayLike", "Average", "Bounds", "Device", "Devices", "Floats", "NDArray", "PerRow", "Seed"]
