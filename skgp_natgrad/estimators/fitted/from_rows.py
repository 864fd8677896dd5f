"""What is computed from the training rows: their log marginal likelihood, and each predicted from all others."""

from __future__ import annotations

import functools
from typing import Any, Literal, NamedTuple, overload

import numpy as np
from sklearn.utils.validation import check_is_fitted

from ... import svgp
from ..._backend.types import ArrayLike, Floats, NDArray
from ...kernels import white
from ...kernels.base import is_signed
from ...kernels.linear_transform import LARGEST
from ...likelihoods import Gaussian
from ..arguments import reading
from ..rows import outputs, training_table
from ..rows.encoding import changing
from .hyperparameters import in_units_of_model

# Bounds that exclude no value.
_ALL, _OF_SIGNED = (1e-300, 1e300), (-LARGEST, LARGEST)
_LOG_2PI = float(np.log(2.0 * np.pi))


class Evidence:
    """`log_marginal_likelihood`, of every estimator."""

    @overload
    def log_marginal_likelihood(
        self, theta: ArrayLike | None = None, eval_gradient: Literal[False] = False
    ) -> float: ...

    @overload
    def log_marginal_likelihood(self, theta: ArrayLike, eval_gradient: Literal[True]) -> tuple[float, Floats]: ...

    def log_marginal_likelihood(
        self, theta: ArrayLike | None = None, eval_gradient: bool = False
    ) -> float | tuple[float, Floats]:
        """Log marginal likelihood of the training rows, or its lower bound, under other hyperparameters.

        It changes nothing: predictions stay those of the fit.

        Parameters
        ----------
        theta : array-like of shape (n_dims,), default=None
            Logarithms of hyperparameters in the order and the units of ``kernel_.theta``: those of the kernel that are
            not fixed, and the noise if a WhiteKernel is in it. All other numbers, such as the noise without it, are
            those of the fit, and so is everything with None.
        eval_gradient : bool, default=False
            Also return the gradient in ``theta``; with "softmax" it is right to about a percent.

        Returns
        -------
        log_likelihood : float
            In nats, for y on the scale of ``likelihood_``, as scikit-learn has it; of all outputs together. Under
            Gaussian noise it is exact if all rows are inducing points, as with nothing set up to 5000 rows. Otherwise
            it is the bound (ELBO) of the best q on ``inducing_points_``. Priors of hyperparameters are not part of it.
        log_likelihood_gradient : ndarray of shape (n_dims,), with ``eval_gradient``

        Raises
        ------
        ValueError
            If the estimator holds no rows, as after fits to more than 5000 rows or ``partial_fit``; or if the best q
            has no direct solution: with a list of kernels, or another likelihood than "gaussian", "poisson",
            "bernoulli" and "softmax". ``elbo_`` has the bound of the fit.

        Examples
        --------
        >>> import numpy as np
        >>> from sklearn.gaussian_process.kernels import RBF, WhiteKernel
        >>> from skgp_natgrad import NGDSVGPRegressor
        >>> X = np.linspace(0, 10, 100)[:, None]
        >>> y = np.sin(X[:, 0]) + 0.1 * np.random.default_rng(0).normal(size=100)
        >>> reg = NGDSVGPRegressor(1.0 * RBF() + WhiteKernel(0.1), random_state=0).fit(X, y)
        >>> value, gradient = reg.log_marginal_likelihood(reg.kernel_.theta, eval_gradient=True)
        >>> gradient.shape, bool(value > reg.log_marginal_likelihood(reg.kernel.theta))
        ((3,), True)
        """
        check_is_fitted(self, "_posterior")
        if theta is None and eval_gradient:
            raise ValueError("Gradient can only be evaluated for theta!=None: give theta=kernel_.theta.")
        plan = plan_of(self, "log_marginal_likelihood", theta)
        if not svgp.has_marginal_likelihood(plan):
            raise ValueError(
                f"log_marginal_likelihood: the best q under likelihood {type(plan.likelihood).__name__} has no direct "
                "solution; elbo_ has the bound of the fit."
            )
        found = svgp.log_marginal_likelihood(plan, self._rows, self._warm_state)
        return (found.value, _gradient(self.kernel_, found)) if eval_gradient else found.value


def plan_of(estimator, name, theta=None):
    """The `svgp.Plan` of the fitted hyperparameters, or of those of ``theta``; refused without the training rows.

    Parameters
    ----------
    estimator : NGDSVGPRegressor or NGDSVGPClassifier
    name : str
        What needs it.
    theta : array-like, optional
    """
    kernel, likelihood = estimator.kernel_, estimator.likelihood_
    if estimator._rows is None or isinstance(kernel, list):
        why = "kernel_ is a list" if isinstance(kernel, list) else "the estimator holds no rows"
        raise ValueError(
            f"{name} needs one kernel and the training rows, but {why}. Rows are held after fit to at most "
            f"{training_table.KEPT_ROWS} of them; elbo_ has the bound of the fit."
        )
    if theta is not None:
        kernel = kernel.clone_with_theta(_checked(theta, kernel))
        _, noise = white.parted(kernel)
        likelihood = likelihood if noise is None else Gaussian(noise.noise_level, "fixed")
    latent = in_units_of_model((_without_bounds(reading.latent(kernel, estimator)),), estimator._x_scale)
    return svgp.Plan(latent, likelihood, len(getattr(estimator, "classes_", ())), device="cpu")


def _checked(theta, kernel):
    """The logarithms as an array."""
    found = np.asarray(theta, dtype=float)
    if found.shape != kernel.theta.shape or not np.all(np.isfinite(found)):
        raise ValueError(
            f"theta={theta!r} must be {len(kernel.theta)} finite logarithms, as many as kernel_.theta has: of "
            f"{', '.join(each.name for each in kernel.hyperparameters if not each.fixed) or 'nothing'}."
        )
    return found


def _without_bounds(kernel):
    """A copy of the kernel whose free hyperparameters may have any value."""
    free = [each.name for each in kernel.hyperparameters if not each.fixed]
    bounds = {f"{name}_bounds": _OF_SIGNED if is_signed(kernel, name) else _ALL for name in free}
    return kernel.clone_with_theta(kernel.theta).set_params(**bounds)


def _gradient(kernel, found):
    """The gradient in ``kernel.theta``."""
    latent, noise = white.parted(kernel)
    free = [each.name.split("__") for each in latent.hyperparameters if not each.fixed]
    slopes = [np.ravel(functools.reduce(getattr, name, found.kernels[0])) for name in free]
    gradient = np.concatenate([*slopes, np.zeros(0)])
    if noise is None or noise.hyperparameter_noise_level.fixed:
        return gradient
    return np.insert(gradient, white.place(kernel), np.sum(found.likelihood.variance))


class LeaveOneOut(NamedTuple):
    """Predictions of the training rows, each from all others, in the units of y.

    Attributes
    ----------
    residual : ndarray of shape (n_samples,) or (n_samples, n_outputs)
        y minus its predicted mean.
    std : ndarray of the same shape
        The predicted standard deviation of y, noise included.
    log_density : ndarray of the same shape
        Of y under this normal distribution, in nats.
    """

    residual: Floats
    std: Floats
    log_density: Floats


class LeftOutRows:
    """``leave_one_out_``, of regressors."""

    @property
    def leave_one_out_(self) -> LeaveOneOut:
        """Predictions of the training rows, each from all others, in the order of `fit`: closed forms, without refits.

        A named tuple of ``residual`` (y minus its prediction), ``std`` (noise included) and ``log_density`` (in nats)
        for each row (and output), all in the units of y. Kernel, noise and inducing points stay those of the fit. They
        are those of the Gaussian process: a factor that ``calibrate`` found from such errors is not part of them.
        Values of missing targets, and of rows without weight, are NaN. For ``likelihood="gaussian"`` with one kernel,
        after `fit` to at most 5000 rows; an AttributeError says so otherwise.
        """
        check_is_fitted(self, "_posterior")
        if not (self.likelihood_.conjugate and self.likelihood_.additive_noise):
            raise AttributeError(f"leave_one_out_ needs Gaussian noise, not {type(self.likelihood_).__name__}.")
        try:
            plan = plan_of(self, "leave_one_out_")
        except ValueError as error:
            raise AttributeError(str(error)) from error
        if self._places is None:
            raise AttributeError(f"leave_one_out_ needs at most {training_table.KEPT_ROWS} rows, given in memory.")
        index, weight = self._places
        seen = index >= 0
        found = np.full((3, len(self._y_scale.scale), len(index)), np.nan)
        of_rows = index[seen].astype(int), weight[seen]
        found[:, :, seen] = svgp.leave_one_out(plan, self._rows, self._warm_state, *of_rows)
        error, variance = found[0], found[1] + found[2]
        log_scale = np.log(self._y_scale.scale)[:, None]
        log_density = -0.5 * (_LOG_2PI + np.log(variance) + error**2 / variance) - log_scale
        scaled = (each * self._y_scale.scale[:, None] for each in (error, np.sqrt(variance)))
        if outputs.of(self) is not None:
            return LeaveOneOut(*outputs.left_out((*scaled, log_density), outputs.of(self)))
        return LeaveOneOut(*map(self._by_row, (*scaled, log_density)))


class KeptRows:
    """``X_train_`` and ``y_train_``, of regressors, under the names of scikit-learn's process."""

    @property
    def X_train_(self) -> NDArray[Any]:
        """The rows of the last `fit` to at most 5000 rows, equal ones once; an AttributeError otherwise."""
        rows, encoding = self._x_scale.backward(_kept(self, "X_train_").X), changing(self)
        return rows if encoding is None else encoding.backward(rows)

    @property
    def y_train_(self) -> Floats:
        """The targets of the rows of ``X_train_``, in the units of y."""
        return self._by_row(self._y_scale.backward(_kept(self, "y_train_").y.T).T)


def _kept(estimator, name):
    check_is_fitted(estimator, "_posterior")
    if estimator._rows is None or outputs.of(estimator) is not None:
        raise AttributeError(
            f"{name} needs the training rows, which are held after fit to at most {training_table.KEPT_ROWS} rows with "
            "independent outputs, and neither after partial_fit nor where several processes share them; "
            "inducing_points_ has the points that predictions rest on."
        )
    return estimator._rows
