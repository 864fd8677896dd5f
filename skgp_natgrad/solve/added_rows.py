"""q with a few more rows of a stream under Gaussian noise, in closed form, while the hyperparameters stay.

With the earlier rows as a factor exp(t^T v - v^T T v / 2) of the old whitened values (`variational.streaming`), which
B carries to the present points, and sums over the new rows (`system`),

    S^-1 = I + B T B^T + A W A^T / s^2,    S^-1 m = B t + A W y / s^2

and at the old points B is the identity. The bound is that of the new rows, given the earlier ones.
"""

from __future__ import annotations

import numpy as np

from .._backend import in_place
from ..prediction.calibration import Average
from ..training.batches import bucket
from ..variational.points import by_kernel, factorise_in_place
from .closed_form import LOG_2PI, Optimum
from .system import BLOCK_ROWS, Prior, covariances_of, gaussian_of, sums_of


def solve(parameters, constants, table):
    """The `Optimum` of the past and of all rows of a table, and the `Factor` of each kernel.

    Parameters
    ----------
    parameters : Parameters
        With the hyperparameters of the past, and a Gaussian likelihood.
    constants : Constants
        With a past.
    table : Table
    """
    Z, mask, factors = np.asarray(parameters.points.Z), np.asarray(constants.masks.Z), constants.past.factors
    if not np.array_equal(constants.past.Z, Z):
        factors = tuple(factorise_in_place(each, Z, mask, constants.jitter) for each in parameters.log_kernels)
    sums = sums_of(parameters, Prior.of(Z, mask, factors), constants, table, min(bucket(table.n_rows), BLOCK_ROWS))
    log_noise = np.ravel(parameters.raw_likelihood.variance)
    noise = np.exp(log_noise)
    nat1, precision, constant = _carried(constants.past, parameters, mask, factors)
    for k, each in enumerate(precision):
        each += sums.gram[k % len(sums.gram)] / noise[k]
    nat1 = nat1 + sums.cross / noise[:, None]
    q = gaussian_of(nat1, precision, list(map(in_place.definite_cholesky, precision)))
    of_rows = sums.weight * (LOG_2PI + log_noise) + sums.log_widening + (sums.square + sums.residual) / noise
    bound = constant + 0.5 * ((q.nat1 * q.mean).sum(1) + q.log_det_cov - of_rows).sum()
    return Optimum(q, parameters, np.array([float(bound)]), Average(float("nan"), 0.0)), factors


def _carried(past, parameters, mask, factors):
    """The past at the present points: B t (K, M), I + B T B^T (K, M, M), and the constant."""
    Z, T = parameters.points.Z, np.asarray(past.precision)
    if np.array_equal(past.Z, Z):
        return np.asarray(past.nat1), T + np.eye(len(Z)), float(past.constant)
    nat1, precision = np.zeros((len(T), len(Z))), np.zeros((len(T), len(Z), len(Z)))
    pairs = by_kernel(parameters.log_kernels, len(T))
    for (log_kernel, latents), factor, old in zip(pairs, factors, past.factors, strict=True):
        across = np.asarray(covariances_of(log_kernel, Z, mask, past.Z)[0])
        across = across + factor.jitter * past.goes_on * mask[:, None]
        B = in_place.lower_product(factor.inverse, across) @ old.inverse.T
        nat1[latents] = past.nat1[latents] @ B.T
        precision[latents] = [in_place.mirrored(B @ each @ B.T) for each in T[latents]]
    # tr(T (I - B^T B)): what the present points do not explain of the old ones, under an unchanged kernel.
    lost = np.trace(T, axis1=1, axis2=2).sum() - np.trace(precision, axis1=1, axis2=2).sum()
    return nat1, precision + np.eye(len(Z)), float(past.constant) - 0.5 * float(lost)
