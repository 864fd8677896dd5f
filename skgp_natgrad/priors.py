"""Priors on hyperparameters: training adds their log density to the bound.

Training then ends at the most probable hyperparameters (MAP). A density depends on its coordinates. Here these are the
logarithms of positive numbers, as in training, so that the mode does not depend on the units.
"""

from __future__ import annotations

import dataclasses
from typing import Self

import jax
import jax.numpy as jnp
import numpy as np
from sklearn.base import BaseEstimator

from . import kernels, likelihoods
from ._backend.types import Array, ArrayLike

__all__ = ["Gamma", "LogNormal", "Prior"]

_LOG_2PI = float(np.log(2.0 * np.pi))
# Of hyperparameters of any sign: a prior sees their exponentials.
_SIGNED = likelihoods.positive._replace(name="signed")
# Standard deviation of the weak prior: it only matters for hyperparameters that the data do not determine.
_WEAK = 3.0


def _flatten(prior):
    names = tuple(prior._get_param_names())
    return [getattr(prior, name) for name in names], names


def _unflatten(cls, names, leaves):
    # Leaves may be tracers or placeholders here, so that nothing is checked.
    prior = object.__new__(cls)
    for name, leaf in zip(names, leaves, strict=True):
        object.__setattr__(prior, name, leaf)
    return prior


class Prior(BaseEstimator):
    """Base class of the priors on a positive hyperparameter.

    A subclass stores the numbers that its constructor takes and defines ``log_density``. It is a pytree whose
    leaves are these numbers: another number compiles nothing.

    Examples
    --------
    >>> import jax.numpy as jnp
    >>> from skgp_natgrad.priors import Prior
    >>> class HalfCauchy(Prior):
    ...     "A half-Cauchy density of the value; ``log(value)`` makes it the density of the logarithm."
    ...     def __init__(self, scale=1.0):
    ...         self.scale = scale
    ...     def log_density(self, value):
    ...         return jnp.log(value) - jnp.log1p((value / self.scale) ** 2)
    >>> HalfCauchy(2.0)
    HalfCauchy(scale=2.0)
    """

    def __init_subclass__(cls, **kwargs):
        super().__init_subclass__(**kwargs)
        jax.tree_util.register_pytree_node(cls, _flatten, lambda names, leaves: _unflatten(cls, names, leaves))

    def log_density(self, value: Array) -> Array:
        """The log density of the logarithm of ``value`` at ``value``, elementwise, up to a constant."""
        raise NotImplementedError

    def around(self, value: ArrayLike) -> Self:
        """The prior with arrays as its numbers; numbers that are None are taken from the initial ``value``, an array.

        Raises
        ------
        ValueError
            If its numbers do not fit the hyperparameter.
        """
        found = {}
        for name, number in self.get_params(deep=False).items():
            try:
                found[name] = np.asarray(number, dtype=float)
                found[name] = found[name].reshape(() if found[name].size == 1 else np.shape(value))
            except (TypeError, ValueError):
                raise ValueError(
                    f"prior {self!r}: {name} must be a number, or one for each of the {np.size(value)} values of the "
                    "hyperparameter."
                ) from None
            if not np.all(np.isfinite(found[name]) & (found[name] > 0.0)):
                raise ValueError(f"prior {self!r}: {name} must be positive and finite.")
        return type(self)(**found)


class LogNormal(Prior):
    """A normal density of the logarithm.

    Parameters
    ----------
    median : float, array-like or None, default=None
        In the units in which the hyperparameter is given. None takes the initial value. If ``warm_start`` or
        ``partial_fit`` continues a fit with the default kernel, this is the trained value of the previous fit: give a
        median there.
    sigma : float or array-like, default=1.0
        Standard deviation of the logarithm: the value lies within a factor of exp(2 sigma) of the median with a
        probability of 95 %.

    Examples
    --------
    >>> from skgp_natgrad.priors import LogNormal
    >>> prior = LogNormal(median=2.0, sigma=0.5)
    >>> bool(prior.log_density(2.0) > prior.log_density(1.0) == prior.log_density(4.0))
    True
    """

    def __init__(self, median: ArrayLike | None = None, sigma: ArrayLike = 1.0) -> None:
        self.median = median
        self.sigma = sigma

    def log_density(self, value: Array) -> Array:
        """The log density of the logarithm of ``value``."""
        away = (jnp.log(value) - jnp.log(self.median)) / self.sigma
        return -0.5 * (_LOG_2PI + away**2) - jnp.log(self.sigma)

    def around(self, value: ArrayLike) -> Self:
        """The prior with the initial ``value`` as its median, unless it has one."""
        found = self if self.median is not None else type(self)(np.asarray(value), self.sigma)
        return super(LogNormal, found).around(value)


class Gamma(Prior):
    """A gamma density of the value, taken in its logarithm.

    Parameters
    ----------
    shape : float or array-like, default=2.0
        Large values make it narrow: the deviation of the logarithm is about 1 / sqrt(shape).
    mean : float or array-like, default=1.0
        Its mean, which is also the mode of the density in the logarithm.

    Examples
    --------
    >>> from skgp_natgrad.priors import Gamma
    >>> prior = Gamma(shape=3.0, mean=0.5)
    >>> bool(prior.log_density(0.5) > max(prior.log_density(0.45), prior.log_density(0.55)))
    True
    """

    def __init__(self, shape: ArrayLike = 2.0, mean: ArrayLike = 1.0) -> None:
        self.shape = shape
        self.mean = mean

    def log_density(self, value: Array) -> Array:
        """The log density of the logarithm of ``value``."""
        rate = self.shape / self.mean
        of_value = self.shape * jnp.log(rate) + (self.shape - 1.0) * jnp.log(value) - rate * value
        return of_value + jnp.log(value) - jax.scipy.special.gammaln(self.shape)


# -- hyperparameters by name ---------------------------------------------------------------


def named(tree):
    """The name (as in ``set_params``), transform and raw value of every hyperparameter.

    Parameters
    ----------
    tree : tuple of (tuple of Kernel, Likelihood)
        Logarithms of the kernels' hyperparameters and raw values of the likelihood's.
    """
    of_kernels, likelihood = tree
    for i, kernel in enumerate(of_kernels):
        for name, transform, value in _named_in_kernel("kernel" if len(of_kernels) == 1 else f"kernel[{i}]", kernel):
            yield name, transform, value
    for name in likelihood.parameters:
        yield f"likelihood__{name}", likelihood.transform(name), getattr(likelihood, name)


def _named_in_kernel(prefix, kernel):
    for field in dataclasses.fields(kernel):
        name, value = f"{prefix}__{field.name}", getattr(kernel, field.name)
        if isinstance(value, kernels.Kernel):
            yield from _named_in_kernel(name, value)
        elif field.name not in kernel.static:
            yield name, _SIGNED if field.name in kernel.signed else likelihoods.positive, value


def settled(given, start, lower, upper):
    """The prior of each hyperparameter that is trained, by its full name.

    Parameters
    ----------
    given : "weak", Prior, or mapping of str to Prior
        A name in a mapping stands for all hyperparameters whose names end with it; the longest match decides.
    start, lower, upper : tuple of (tuple of Kernel, Likelihood)
        Raw initial values and bounds: see `start.hyperparameters.specification`. None of the priors is for a
        hyperparameter that is fixed.

    Returns
    -------
    priors : dict of str to Prior
        With all numbers.

    Raises
    ------
    ValueError
        If a name in the mapping stands for nothing, or a prior's numbers do not fit.
    """
    given = LogNormal(sigma=_WEAK) if isinstance(given, str) else given
    names = [name for name, _, _ in named(start)]
    if not isinstance(given, Prior):
        for key in given:
            if not any(_stands_for(key, name) for name in names):
                raise ValueError(
                    f"hyperparameter_prior names {key!r}, but the hyperparameters are {', '.join(names)}; give one of "
                    "these names, or an ending of some of them."
                )
    found = {}
    for (name, transform, raw), (*_, low), (*_, high) in zip(*map(named, (start, lower, upper)), strict=True):
        prior = given if isinstance(given, Prior) else _longest(given, name)
        if prior is not None and np.any(np.less(low, high)):
            found[name] = prior.around(transform.from_raw(np.asarray(raw), np))
    return found


def _stands_for(key, name):
    return name == key or name.endswith(f"__{key}")


def _longest(given, name):
    keys = [key for key in given if _stands_for(key, name)]
    return given[max(keys, key=len)] if keys else None


def log_density(priors, tree):
    """The sum of the log densities of hyperparameters.

    Parameters
    ----------
    priors : dict of str to Prior
        From `settled`.
    tree : tuple of (tuple of Kernel, Likelihood)
        As for `named`; JAX arrays.
    """
    terms = [
        jnp.sum(priors[name].log_density(transform.from_raw(raw, jnp)))
        for name, transform, raw in named(tree)
        if name in priors
    ]
    return sum(terms, jnp.zeros(()))


def pinned(priors, tree, log_bounds):
    """The bounds with those of every hyperparameter that has a prior at its value in ``tree``.

    For searches that choose hyperparameters by another criterion than the bound: those with priors keep their most
    probable values.
    """
    has_prior = [name in priors for name, _, _ in named(tree)]
    values, structure = jax.tree.flatten(tree)
    return tuple(
        structure.unflatten(
            [
                value if pins else bound
                for pins, value, bound in zip(has_prior, values, jax.tree.leaves(each), strict=True)
            ]
        )
        for each in log_bounds
    )
