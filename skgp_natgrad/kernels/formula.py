"""The name of a kernel without its numbers, for people."""

from __future__ import annotations

from sklearn.gaussian_process.kernels import Exponentiation, Product, Sum

from .columns import Columns
from .linear_transform import LinearTransform


def formula(kernel):
    """A kernel of scikit-learn without its numbers, but for those that make it another kernel."""
    if isinstance(kernel, Sum):
        return f"{formula(kernel.k1)} + {formula(kernel.k2)}"
    if isinstance(kernel, Product):
        return f"{_factor(kernel.k1)} * {_factor(kernel.k2)}"
    if isinstance(kernel, Exponentiation):
        return f"{_factor(kernel.kernel)} ** {kernel.exponent:g}"
    if isinstance(kernel, Columns):
        return formula(kernel.kernel)
    if isinstance(kernel, LinearTransform):
        return f"{_factor(kernel.kernel)} of linear combinations"
    return type(kernel).__name__ + (f"(nu={kernel.nu:g})" if hasattr(kernel, "nu") else "")


def _factor(kernel):
    """The same as a part of a product or a power."""
    return f"({formula(kernel)})" if isinstance(kernel, Sum) else formula(kernel)
