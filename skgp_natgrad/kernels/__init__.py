"""Kernels: JAX kernels for those of scikit-learn, and kernels on some columns or on combinations of columns.

Kernels are given as expressions of :mod:`sklearn.gaussian_process.kernels`, `Columns` and `LinearTransform`.
`from_sklearn` and `to_sklearn` convert them to JAX kernels and back; `register` adds the JAX kernel of a scikit-learn
class of your own.
"""

from .algebra import amplitudes
from .base import Kernel, register
from .columns import Columns
from .coregionalization import Coregionalization
from .from_sklearn import KernelSpec, from_sklearn, to_sklearn
from .laplacian import Laplacian
from .linear_transform import LinearTransform
from .normalized import Normalized
from .nugget import Nugget
from .stationary import scaled_squared_distance, squared_distance

__all__ = [
    "Columns",
    "Coregionalization",
    "Kernel",
    "KernelSpec",
    "Laplacian",
    "LinearTransform",
    "Normalized",
    "Nugget",
    "amplitudes",
    "from_sklearn",
    "register",
    "scaled_squared_distance",
    "squared_distance",
    "to_sklearn",
]

# Saved models name the place from which users import a class, wherever its file lies.
for _kernel in (Columns, Coregionalization, Laplacian, LinearTransform, Normalized, Nugget):
    _kernel.__module__ = __name__
