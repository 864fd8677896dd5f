"""JAX kernels of the kernels of :mod:`sklearn.gaussian_process.kernels`.

`from_sklearn` and `to_sklearn` convert; `register` adds the JAX kernel of a
scikit-learn class of your own.
"""

from .base import Kernel, register
from .distances import scaled_squared_distance, squared_distance
from .from_sklearn import KernelSpec, from_sklearn, to_sklearn

__all__ = [
    "Kernel",
    "KernelSpec",
    "from_sklearn",
    "register",
    "scaled_squared_distance",
    "squared_distance",
    "to_sklearn",
]
