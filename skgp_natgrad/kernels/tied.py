"""A JAX kernel whose columns share lengthscales: those of the levels of one category."""

from __future__ import annotations

from typing import ClassVar

import jax
import numpy as np

from .base import Kernel


class Tied(Kernel):
    """``kernel`` with one lengthscale for each group of columns.

    A search sees as many lengthscales as there are groups. ``owner`` is the group of each column, part of the
    structure. It has no class of scikit-learn: `spread` gives the kernel with a lengthscale for each column.
    """

    kernel: Kernel
    owner: tuple
    static: ClassVar[tuple] = ("owner",)

    def __call__(self, X, Z):
        return self.spread()(X, Z)

    def diag(self, X):
        return self.spread().diag(X)

    def spread(self):
        """The kernel with the value of its group for each column; also of logarithms."""
        owner = np.array(self.owner)
        return jax.tree.map(lambda each: each[owner] if np.ndim(each) else each, self.kernel)

    @classmethod
    def of(cls, kernel, owner):
        """The tied form of a kernel in which the columns of a group have one value."""
        first = np.unique(owner, return_index=True)[1]
        return cls(jax.tree.map(lambda each: each[first] if np.ndim(each) else each, kernel), tuple(owner))
