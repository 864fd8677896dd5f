"""The base classes of the likelihoods.

A likelihood is one small class: the parameters it stores, and ``log_prob``. Its variational expectation, predictive
moments and predictive density follow by quadrature; a subclass overrides those that have a closed form. Everything that
depends on the data is in ``prepare``, ``check_targets`` and ``initial_latent``.

Each likelihood is a scikit-learn object (its parameters are tuned by ``likelihood__df``) and a JAX pytree (its
parameters are the leaves, its options the structure), so that changing a number never recompiles a program.

Shapes: T target columns, C classes, K latent functions, B rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from types import ModuleType
from typing import Any, ClassVar, Self

import jax
import jax.numpy as jnp
import numpy as np
from sklearn.base import BaseEstimator

from .._backend.linalg import normal_nodes
from .._backend.types import Array, ArrayLike, Floats, NDArray
from ._distribution import expected
from ._known import KnownRows
from ._quadrature import log_expectation
from ._transforms import Transform, positive, unconstrained

# Spacing of 1/6 standard deviation in training, 1/12 in prediction, which happens only once.
TRAINING_NODES = 100
PREDICTION_NODES = 200
# Beyond it an exponential, its square and their sums over rows would overflow.
_LARGEST_EXPONENT = 300.0
_ANY = 0.5  # in place of a missing target: every log density is finite there

REGISTRY = {}


def bounded_exp(x):
    """exp(x), with ``x`` clipped so that squares and sums of the value are finite."""
    return jnp.exp(jnp.clip(x, -_LARGEST_EXPONENT, _LARGEST_EXPONENT))


class Likelihood(KnownRows, BaseEstimator):
    """Base class of the likelihoods.

    Attributes
    ----------
    name : str
        The name by which the estimators know the class.
    parameters : tuple of str
        Numbers that are trained; each has a ``<name>_bounds`` argument beside it.
    transforms : dict of Transform
        The allowed values by the name of the parameter: `positive`, `unit_interval` or
        `unconstrained`. A parameter that is not listed is positive.
    powers : dict of int
        The power of the unit of y in the unit of a parameter: see `in_units`.
    options : tuple of str
        Arguments that select a formula, which is compiled in.
    tasks : tuple of {"regression", "classification"}
        The estimators that take the likelihood.
    standardises : bool
        Whether y may be shifted and scaled before the likelihood sees it.
    additive_noise : bool
        Whether y is a latent function plus noise, so that y has a joint covariance.
    conjugate, by_newton : bool
        Whether the expectation is quadratic in the latent mean; whether it is concave in it, or nearly so, for one
        latent function of each target, so that `solve.newton` finds the best q in one step.
    averages_points : bool
        Whether `expected_log_prob`, `training_log_density` and ``log_class_probabilities`` are averages over so few
        points that single precision is enough for them where class probabilities are calibrated, and means that are a
        start looked for.
    mean_needs_variance : bool
        Whether the mean of y depends on the latent variance.
    support : Transform
        The allowed values of a continuous y: `unconstrained`, `positive` or `unit_interval`.
    discrete : bool
        Whether y is one of the integers 0, 1, 2, ...
    atom : float or None
        The least value of a continuous y, if y has it with positive probability.
    """

    name: ClassVar[str] = ""
    parameters: ClassVar[tuple[str, ...]] = ()
    transforms: ClassVar[dict[str, Transform]] = {}
    powers: ClassVar[dict[str, int]] = {}
    options: ClassVar[tuple[str, ...]] = ()
    tasks: ClassVar[tuple[str, ...]] = ("regression",)
    standardises: ClassVar[bool] = False
    additive_noise: ClassVar[bool] = False
    conjugate: ClassVar[bool] = False
    by_newton: ClassVar[bool] = False
    averages_points: ClassVar[bool] = False
    mean_needs_variance: ClassVar[bool] = True
    support: ClassVar[Transform] = unconstrained
    discrete: ClassVar[bool] = False
    mixed: ClassVar[bool] = False
    atom: ClassVar[float | None] = None

    def __init_subclass__(cls, **kwargs):
        super().__init_subclass__(**kwargs)
        unknown = sorted(set(cls.transforms) - set(cls.parameters))
        if unknown:
            raise ValueError(f"{cls.__qualname__}: transforms names {unknown[0]!r}, which is not among its parameters.")
        jax.tree_util.register_pytree_node(cls, _flatten, lambda aux, leaves: _unflatten(cls, aux, leaves))
        if "name" in vars(cls):
            taken = REGISTRY.setdefault(cls.name, cls)
            if (taken.__module__, taken.__qualname__) != (cls.__module__, cls.__qualname__):
                raise ValueError(
                    f"{cls.__qualname__}: {taken.__qualname__} has the name {cls.name!r} already; choose another name."
                )
            REGISTRY[cls.name] = cls

    def n_latent(self, n_targets: int, n_classes: int) -> int:
        """Number of latent functions for ``n_targets`` columns or ``n_classes`` classes."""
        raise NotImplementedError

    # -- the data ------------------------------------------------------------------------

    def prepare(self, y: Floats, n_classes: int) -> Self:
        """Return the likelihood ready for the targets of a fit, once these are checked.

        Parameters
        ----------
        y : ndarray of shape (T, N)
            Targets; in classification, the positions of the class labels.
        n_classes : int
            Number of classes; 0 in regression.
        """
        self.check_targets(y)
        return self

    def check_targets(self, y: Floats) -> None:
        """Raise ValueError if an element of ``y`` (T, N) is impossible under the likelihood."""

    def _refuse(self, y, allowed, range_, remedy):
        """Raise ValueError for the first element of ``y`` that is not ``allowed``."""
        bad = np.asarray(y)[~allowed]
        if bad.size:
            raise ValueError(
                f"likelihood {type(self).__name__}: y must hold {range_}, but has the value {bad[0]:g}; {remedy}."
            )

    def initial_latent(self, y: Floats, weight: Floats, n_classes: int) -> Floats:
        """Constants for the prior means of the latent functions, chosen from the data: (K,).

        Parameters
        ----------
        y : ndarray of shape (T, N)
        weight : ndarray of shape (N,), or (T, N) where targets are missing or have offsets
        n_classes : int
            As in ``prepare``, which is called first.
        """
        return np.zeros(self.n_latent(len(y), n_classes))

    def best_constant(self, y: Floats, weight: Floats, lower: Likelihood, upper: Likelihood) -> float | None:
        """The largest mean log-likelihood, per unit of weight, of constant latent functions.

        None if there is no closed form: it is then found by a search.

        Parameters
        ----------
        y : ndarray of shape (T, N)
        weight : ndarray of shape (N,)
        lower, upper : Likelihood
            Bounds of the parameters.
        """

    # -- parameters ----------------------------------------------------------------------

    @property
    def fixed(self) -> list[str]:
        """Names of the parameters that are not trained."""
        return [name for name in self.parameters if isinstance(getattr(self, f"{name}_bounds", None), str)]

    def transform(self, name: str) -> Transform:
        """The `Transform` of a parameter."""
        return self.transforms.get(name, positive)

    def to_raw(self) -> Self:
        """Return the likelihood with the raw values of this one's leaves, which are NumPy arrays."""
        return self.with_leaves([self.transform(name).to_raw(getattr(self, name)) for name in self.parameters])

    def from_raw(self, xp: ModuleType = jnp) -> Self:
        """Return the likelihood whose raw values this one holds.

        Parameters
        ----------
        xp : module
            ``jax.numpy``; or ``numpy``, which compiles nothing.
        """
        return self.with_leaves([self.transform(name).from_raw(getattr(self, name), xp) for name in self.parameters])

    def with_leaves(self, leaves: Sequence[Any]) -> Self:
        """Return the likelihood with other parameter values (the pytree's leaves)."""
        return _unflatten(type(self), tuple(getattr(self, name) for name in self.options), (*leaves, self.rows))

    def value_and_bounds(self, n_targets: int) -> tuple[Self, Self, Self]:
        """Values and bounds of the parameters, as three pytrees of NumPy leaves.

        Raises
        ------
        ValueError
            If its transform does not allow a value or its bounds.
        """
        columns = ([], [], [])
        for name in self.parameters:
            for column, part in zip(columns, self._parameter(name, n_targets), strict=True):
                column.append(part)
        return tuple(self.with_leaves(column) for column in columns)

    def _parameter(self, name, n_targets):
        label = f"likelihood {type(self).__name__}({name}={getattr(self, name)!r})"
        transform = self.transform(name)
        try:
            value = np.asarray(getattr(self, name), dtype=float)
        except (TypeError, ValueError):
            raise ValueError(f"{label}: {name} must be a number.") from None
        if not np.all(np.isfinite(value) & transform.allows(value)):
            raise ValueError(f"{label}: {name} must be {transform.values}.")
        shape = self._parameter_shape(name, n_targets)
        if value.size not in (1, int(np.prod(shape))):
            raise ValueError(f"{label}: give one value, or one for each of the {n_targets} columns of y.")
        value = np.broadcast_to(value.reshape(() if value.size == 1 else shape), shape).copy()
        bounds = getattr(self, f"{name}_bounds")
        if isinstance(bounds, str) and bounds == "fixed":
            return value, value, value
        try:
            lower, upper = (float(bound) for bound in bounds)
        except (TypeError, ValueError):
            lower = upper = np.nan
        if not (lower <= upper and transform.allows(lower) and transform.allows(upper)):
            raise ValueError(
                f"likelihood {type(self).__name__}({name}_bounds={bounds!r}): give a pair of "
                f'{transform.bounds}, the lower first, or "fixed".'
            )
        if np.any(value < lower) or np.any(value > upper):
            raise ValueError(f"{label}: outside of {name}_bounds={bounds!r}; widen the bounds or change the value.")
        return value, np.full(shape, lower), np.full(shape, upper)

    def _parameter_shape(self, name, n_targets):
        return ()

    def fitted(self, leaves: Sequence[ArrayLike]) -> Self:
        """Return a copy whose parameters are the fitted ``leaves``, as floats where single."""
        values = {}
        for name, leaf in zip(self.parameters, leaves, strict=True):
            value = np.asarray(leaf, dtype=float).ravel()
            if name not in self.fixed:
                # A bound converted to its raw value and back may exceed itself by rounding.
                value = np.clip(value, *getattr(self, f"{name}_bounds"))
            values[name] = float(value[0]) if value.size == 1 else value
        return type(self)(**{**self.get_params(deep=False), **values})

    # -- to be defined or overridden by a subclass ---------------------------------------

    def log_prob(self, f: Array, y: Array) -> Array:
        """Log density of ``y`` given the latent value(s) ``f``."""
        raise NotImplementedError

    def expected_log_prob(self, mean: Array, var: Array, y: Array) -> Array:
        """E[log p(y | f)] under q(f) = N(mean, var): (B,).

        Parameters
        ----------
        mean, var : array of shape (K, B)
        y : array of shape (T, B)
        """
        raise NotImplementedError

    def latent_units(self, offset: Array, scale: Array) -> tuple[ArrayLike, ArrayLike]:
        """Offset and scale (K,) of the latent functions in the units of y, from those of the targets (T,)."""
        return (offset, scale) if self.standardises else (0.0, 1.0)

    def training_log_density(self, mean: Array, var: Array, y: Array) -> Array:
        """log E[p(y | f)] under q(f) = N(mean, var), in training: (B,); a subclass may take fewer nodes."""
        return self.log_predictive_density(mean, var, y)


def _flatten(likelihood):
    leaves = tuple(getattr(likelihood, name) for name in likelihood.parameters)
    return (*leaves, likelihood.rows), tuple(getattr(likelihood, name) for name in likelihood.options)


def _unflatten(cls, aux, leaves):
    # Leaves may be tracers or placeholders here, so nothing is checked or converted.
    likelihood = object.__new__(cls)
    for name, value in zip(cls.options, aux, strict=True):
        object.__setattr__(likelihood, name, value)
    for name, value in zip((*cls.parameters, "rows"), leaves, strict=True):
        object.__setattr__(likelihood, name, value)
    return likelihood


class ScalarLikelihood(Likelihood):
    """Target columns that are independent given f, each with its own parameters.

    Each has one latent function, unless a subclass says otherwise. ``log_prob(f, y)`` is
    elementwise, and so are the methods named ``*_each``.
    """

    def n_latent(self, n_targets, n_classes):
        return n_targets

    def _parameter_shape(self, name, n_targets):
        return (n_targets, 1)

    def expectation_each(self, mean: Array, var: Array, y: Array) -> Array:
        """E[log p(y | f)], elementwise over (K, B)."""
        nodes, weights = normal_nodes(TRAINING_NODES)
        f = mean[..., None] + jnp.sqrt(var)[..., None] * nodes
        return with_axes(self, 1).log_prob(f, y[..., None]) @ weights

    def expected_log_prob(self, mean, var, y):
        return over_observed(self.expectation_each, mean, var, y)


def over_observed(each, mean, var, y):
    """Sum of ``each(mean, var, y)`` over the targets; one that is NaN is missing, and adds nothing: (B,)."""
    observed = ~jnp.isnan(y)
    return jnp.where(observed, each(mean, var, jnp.where(observed, y, _ANY)), 0.0).sum(0)


def with_axes(likelihood, n_axes, xp=jnp):
    """The same likelihood, its parameters (T, 1) and ``rows`` broadcast to further last axes of nodes."""
    return jax.tree.map(lambda leaf: xp.reshape(leaf, xp.shape(leaf) + n_axes * (1,)), likelihood)


class RegressionLikelihood(ScalarLikelihood):
    """A scalar likelihood of a number, continuous or a count."""

    def log_density_each(self, mean: Array, var: Array, y: Array) -> Array:
        """log E[p(y | f)], elementwise over (K, B)."""
        likelihood = with_axes(self, 1)
        return log_expectation(lambda f: likelihood.log_prob(f, y[..., None]), mean, var)

    def log_predictive_density(self, mean: Array, var: Array, y: Array) -> Array:
        """log E[p(y | f)] under q(f) = N(mean, var), summed over the targets: (B,)."""
        return over_observed(self.log_density_each, mean, var, y)

    def conditional_moments(self, f: Array) -> tuple[Array, Array]:
        """Mean and variance of y given f, elementwise."""
        raise NotImplementedError

    def predictive_mean(self, mean: Array, var: Array | None) -> Array:
        """E[y], elementwise over (K, B); ``var`` is None if it is not needed."""
        return self.predictive_moments(mean, var)[0]

    def predictive_moments(self, mean: Array, var: Array) -> tuple[Array, Array]:
        """Mean and variance of y, elementwise over (K, B)."""
        nodes, weights = normal_nodes(PREDICTION_NODES)
        f = mean[..., None] + jnp.sqrt(var)[..., None] * nodes
        each_mean, each_var = with_axes(self, 1).conditional_moments(f)
        y_mean = each_mean @ weights
        return y_mean, each_var @ weights + (each_mean - y_mean[..., None]) ** 2 @ weights

    def sample(self, f: Array, rng: np.random.RandomState) -> NDArray[Any]:
        """Draw y (T, B) given ``f`` (K, B), with a NumPy random state."""
        raise NotImplementedError

    def conditional_cdf(self, f: Floats, y: Floats) -> Floats:
        """P(Y <= y | f), elementwise, of NumPy arrays; it must be monotone in f."""
        raise NotImplementedError(
            f"likelihood {type(self).__name__} has no distribution function, which quantiles and intervals need; "
            "define conditional_cdf(f, y), or take quantiles of the draws of sample_y."
        )

    def predictive_cdf(self, mean: Floats, var: Floats, y: Floats) -> Floats:
        """P(Y <= y), elementwise over (K, B), of NumPy arrays."""
        likelihood = with_axes(self, 1, np)
        return expected(lambda f: likelihood.conditional_cdf(f, y[..., None]), mean, np.sqrt(var))

    def predictive_quantile(self, mean: Floats, var: Floats, level: float) -> Floats | None:
        """The quantile at a level, elementwise over (K, B); None if there is no closed form: then a search finds it."""


class LocationLikelihood(RegressionLikelihood):
    """y = f + noise: y has the mean of f, and the variances add."""

    standardises = True
    additive_noise = True
    mean_needs_variance = False

    def without_offset(self, y, weight, offset):
        return y - offset[: len(y)], weight

    def noise_variance(self) -> Array:
        """Variance of the noise, (T, 1)."""
        raise NotImplementedError

    def conditional_moments(self, f):
        return f, jnp.broadcast_to(self.noise_variance(), f.shape)

    def predictive_mean(self, mean, var):
        return mean

    def predictive_moments(self, mean, var):
        return mean, var + self.noise_variance()
