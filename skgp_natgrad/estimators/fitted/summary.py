"""The fitted kernel and noise in the units of X and y."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from sklearn.gaussian_process import kernels as sklearn_kernels

from ..._backend.types import Floats
from ...kernels import Columns

# A printed summary names this many columns of a factor.
_LISTED = 8


class Factor(NamedTuple):
    """One kernel of distances, or another one, in a product.

    Attributes
    ----------
    kernel : str
        Without its numbers.
    quantity : str or None
        What ``by_column`` holds: "length_scale" or "periodicity"; None if the kernel has neither.
    by_column : dict of str to float
        In the units of each column that the kernel sees.
    """

    kernel: str
    quantity: str | None
    by_column: dict[str, float]


class Term(NamedTuple):
    """One term of a sum of kernels.

    Attributes
    ----------
    latent : int or None
        The latent function that it belongs to; None: all of them share the kernel.
    amplitude : float or ndarray of shape (n_latent,)
        Prior standard deviation of the term, in the units of `predict_latent`: the root of its mean variance at the
        inducing points.
    factors : tuple of Factor
    """

    latent: int | None
    amplitude: float | Floats
    factors: tuple[Factor, ...]


class Summary(NamedTuple):
    """What was fitted, in the units of X and y: see `NGDSVGPRegressor.summary`."""

    terms: tuple[Term, ...]
    prior_mean: float | Floats
    noise: float | Floats | None
    likelihood: str
    varies: bool = False

    def __repr__(self):
        # Its variance is on the model's own scale, and the noise is in the units of y.
        name = "Gaussian" if self.likelihood.startswith("Gaussian(") else self.likelihood
        noise = "" if self.noise is None else f", noise {_number(self.noise)}"
        noise += " (times a factor that varies with X)" if self.varies else ""
        lines = [f"{name}: prior mean {_number(self.prior_mean)}{noise}"]
        for term in self.terms:
            owner = "" if term.latent is None else f"latent function {term.latent}: "
            form = " * ".join(factor.kernel for factor in term.factors) or "constant"
            lines.append(f"  {owner}{form}, amplitude {_number(term.amplitude)}")
            lines += [f"    {_line(factor)}" for factor in term.factors if factor.by_column]
        return "\n".join(lines)


def _number(value):
    return ", ".join(f"{each:.4g}" for each in np.ravel(value))


def _line(factor):
    listed = [f"{name} {value:.4g}" for name, value in list(factor.by_column.items())[:_LISTED]]
    more = len(factor.by_column) - len(listed)
    return f"{factor.quantity}: {', '.join(listed)}" + (f", and {more} more" if more else "")


def terms_of(kernel, names, units, points, scale, latent=None):
    """The `Term` of each summand of a kernel.

    Parameters
    ----------
    kernel : sklearn.gaussian_process.kernels.Kernel
        With columns by position.
    names : list of str
        Of the columns.
    units : ndarray of shape (D,)
        What one unit of the scaled X is in each column.
    points : ndarray of shape (M, D)
        Scaled rows at which amplitudes are taken.
    scale : float or ndarray of shape (n_latent,)
        What one unit of the latent functions is.
    latent : int, optional
    """
    terms = []
    for product in _summands(kernel):
        variance, factors = 1.0, []
        for each, columns in product:
            seen = points if columns is None else points[:, columns]
            variance = variance * each.diag(seen)
            if not isinstance(_base(each), sklearn_kernels.ConstantKernel):
                columns = np.arange(len(names)) if columns is None else np.asarray(columns)
                factors.append(_factor(each, [names[i] for i in columns], units[columns]))
        amplitude = scale * np.sqrt(np.mean(variance))
        terms.append(Term(latent, float(amplitude) if np.ndim(amplitude) == 0 else amplitude, tuple(factors)))
    return terms


def _summands(kernel, columns=None):
    """The kernel as a sum of products: lists of pairs (kernel without parts, its columns or None for all)."""
    if isinstance(kernel, Columns):
        selected = list(kernel.columns) if np.ndim(kernel.columns) else [kernel.columns]
        return _summands(kernel.kernel, np.asarray(selected) if columns is None else columns[selected])
    if isinstance(kernel, sklearn_kernels.Sum):
        return _summands(kernel.k1, columns) + _summands(kernel.k2, columns)
    if isinstance(kernel, sklearn_kernels.Product):
        return [a + b for a in _summands(kernel.k1, columns) for b in _summands(kernel.k2, columns)]
    if isinstance(kernel, sklearn_kernels.Exponentiation):
        # The power of a product is a product of powers; that of a sum stays whole.
        found = _summands(kernel.kernel, columns)
        if len(found) == 1:
            return [[(each**kernel.exponent, own) for each, own in found[0]]]
    return [[(kernel, columns)]]


def _base(kernel):
    """The kernel of which this is a power, or itself."""
    return _base(kernel.kernel) if isinstance(kernel, sklearn_kernels.Exponentiation) else kernel


def _form(kernel):
    """The name of a kernel without its numbers, but for those that make it another kernel."""
    if isinstance(kernel, sklearn_kernels.Exponentiation):
        return f"{_form(kernel.kernel)} ** {kernel.exponent:g}"
    if isinstance(kernel, sklearn_kernels.Sum):
        return f"({_form(kernel.k1)} + {_form(kernel.k2)})"
    if isinstance(kernel, sklearn_kernels.Product):
        return f"{_form(kernel.k1)} * {_form(kernel.k2)}"
    if isinstance(kernel, Columns):
        return _form(kernel.kernel)
    return type(kernel).__name__ + (f"(nu={kernel.nu:g})" if hasattr(kernel, "nu") else "")


def _factor(kernel, names, units):
    form, kernel = _form(kernel), _base(kernel)
    # A periodic kernel's lengthscale has no unit.
    quantity = next((name for name in ("periodicity", "length_scale") if hasattr(kernel, name)), None)
    if quantity is None:
        return Factor(form, None, {})
    values = getattr(kernel, quantity) * units
    return Factor(form, quantity, {name: float(value) for name, value in zip(names, values, strict=True)})
