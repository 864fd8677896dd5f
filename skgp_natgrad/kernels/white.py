"""Gaussian noise that is given as a kernel: the WhiteKernel of a sum, which is parted from the rest and put back."""

from __future__ import annotations

import numpy as np
from sklearn.base import clone
from sklearn.gaussian_process.kernels import Kernel, Sum, WhiteKernel

from . import normalized


def parted(kernel: Kernel) -> tuple[Kernel, WhiteKernel | None]:
    """Return the kernel of the function, and the WhiteKernel that a sum has beside it.

    Parameters
    ----------
    kernel : sklearn.gaussian_process.kernels.Kernel

    Returns
    -------
    latent : sklearn.gaussian_process.kernels.Kernel
        The sum without its WhiteKernel and outside of `Normalized`; the kernel itself if it is none of both.
        `from_sklearn` refuses a WhiteKernel in products and powers.
    white : WhiteKernel or None

    Raises
    ------
    ValueError
        If the sum has several of them, or nothing else.

    Examples
    --------
    >>> from sklearn.gaussian_process.kernels import RBF, WhiteKernel
    >>> from skgp_natgrad.kernels.white import parted
    >>> parted(2.0 * RBF(3.0) + WhiteKernel(0.1))
    (1.41**2 * RBF(length_scale=3), WhiteKernel(noise_level=0.1))
    """
    latent, found = _parted(normalized.parted(kernel)[0])
    if latent is None:
        raise ValueError(
            f"kernel={kernel!r} is noise alone; add the kernel of a function, as in RBF() + WhiteKernel()."
        )
    if len(found) > 1:
        raise ValueError(
            f"kernel={kernel!r} has {len(found)} WhiteKernels, which the data cannot tell apart; give one, with the "
            "sum of their noise levels."
        )
    return latent, found[0] if found else None


def _parted(kernel):
    """The sum without WhiteKernels, None if nothing is left, and a list of these."""
    if isinstance(kernel, WhiteKernel):
        return None, [kernel]
    if not isinstance(kernel, Sum):
        return kernel, []
    (left, of_left), (right, of_right) = _parted(kernel.k1), _parted(kernel.k2)
    if not (of_left or of_right):
        return kernel, []
    rest = [each for each in (left, right) if each is not None]
    return Sum(*rest) if len(rest) == 2 else (rest or [None])[0], of_left + of_right


def joined(given: Kernel, latent: Kernel, noise_level: float) -> Kernel:
    """Undo `parted`: the kernel ``given`` with other hyperparameters, which do not leave their bounds.

    Parameters
    ----------
    given : sklearn.gaussian_process.kernels.Kernel
    latent : sklearn.gaussian_process.kernels.Kernel
        Of the form of the first result of ``parted(given)``.
    noise_level : float
        That of the WhiteKernel, if there is one that is not fixed.

    Returns
    -------
    kernel : sklearn.gaussian_process.kernels.Kernel
    """
    if isinstance(given, WhiteKernel):
        white = clone(given)
        if not white.hyperparameter_noise_level.fixed:
            white.noise_level = float(np.clip(noise_level, *given.noise_level_bounds))
        return white
    if not _parted(given)[1]:
        return latent
    sides = [_parted(each)[0] is not None for each in (given.k1, given.k2)]
    left, right = (latent.k1, latent.k2) if all(sides) else (latent, latent)
    return Sum(joined(given.k1, left, noise_level), joined(given.k2, right, noise_level))


def place(kernel: Kernel) -> int | None:
    """Return the position in ``kernel.theta`` of the noise in a sum; None without a WhiteKernel."""
    kernel, _ = normalized.parted(kernel)
    if isinstance(kernel, WhiteKernel):
        return 0
    if not _parted(kernel)[1]:
        return None
    left = place(kernel.k1)
    return len(kernel.k1.theta) + place(kernel.k2) if left is None else left
