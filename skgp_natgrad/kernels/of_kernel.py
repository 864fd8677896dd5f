"""What scikit-learn asks of a kernel that is made of another one, and has no further hyperparameters."""

from __future__ import annotations

import inspect
from typing import Any

from sklearn.gaussian_process import kernels as sklearn_kernels

from .._backend.types import Floats


class OfKernel(sklearn_kernels.Kernel):
    """A kernel whose hyperparameters are those of its parameter ``kernel``."""

    kernel: sklearn_kernels.Kernel

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """Return the parameters, with ``deep`` those of ``kernel`` as well, as ``kernel__<name>``."""
        params = {name: getattr(self, name) for name in inspect.signature(type(self)).parameters}
        if deep and isinstance(self.kernel, sklearn_kernels.Kernel):
            params |= {f"kernel__{name}": value for name, value in self.kernel.get_params().items()}
        return params

    @property
    def hyperparameters(self) -> list[sklearn_kernels.Hyperparameter]:
        """The hyperparameters of ``kernel``, as ``kernel__<name>``."""
        return [each._replace(name=f"kernel__{each.name}") for each in self.kernel.hyperparameters]

    @property
    def theta(self) -> Floats:
        """Logarithms of the hyperparameters that are not fixed."""
        return self.kernel.theta

    @theta.setter
    def theta(self, theta: Floats) -> None:
        self.kernel.theta = theta

    @property
    def bounds(self) -> Floats:
        """Logarithms of the bounds of ``theta``."""
        return self.kernel.bounds
