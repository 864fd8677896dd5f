"""The training rows, each predicted from all others: closed forms of a regression with Gaussian noise."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from sklearn.utils.validation import check_is_fitted

from ... import svgp
from ..._backend.types import Floats
from ..rows import outputs, training_table
from .evidence import plan_of

_LOG_2PI = float(np.log(2.0 * np.pi))


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
