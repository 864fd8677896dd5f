"""What a noise variance costs, once the sums over the rows are there: one factorisation of I + gram / noise."""

from __future__ import annotations

import numpy as np

from .._backend import in_place
from .system import gaussian_of

_MIN_REST = 1e-9
_LOG_2PI = float(np.log(2.0 * np.pi))


def leave_one_out(gram, cross, log_noise, A, residual, y, weight, left_out, widening):
    """Predictions of held-out rows that count, each from all others: their positions come first.

    Parameters
    ----------
    gram : array of shape (M, M)
    cross : array of shape (M,)
    log_noise : float
    A : array of shape (M, B)
        The held-out rows, whitened.
    residual, y, weight, left_out, widening : arrays of shape (B,)
        Of the held-out rows: see `closed_form.HeldOut`.

    Returns
    -------
    counted : ndarray of shape (C,)
    error, variance : ndarray of shape (C,)
    rest : ndarray of shape (C,)
        One less the leverage of what is left out.
    """
    counted = np.flatnonzero(weight)
    # Without what fills up, and the rows that do not count. A copy, in whose place the solution is.
    A, *held = (np.array(np.asarray(each)[..., counted], order="C") for each in (A, residual, y, left_out, widening))
    noise = np.exp(log_noise)
    factor = in_place.cholesky_of_sum(np.asarray(gram), 1.0 / noise)
    mean = in_place.cholesky_solve(factor, np.asarray(cross) / noise) @ A
    half = in_place.lower_solve(factor, A) if len(counted) else A
    return counted, *_without_each(noise, mean, np.einsum("mb,mb->b", half, half), *held)


def _without_each(noise, mean, s, residual, y, left_out, widening):
    """Error and variance of each row, and one less its leverage.

    With s = a^T (I + gram / noise)^-1 a and the leverage h of what is left out, that part of W times s / noise, the
    error without it is (y - mean) / (1 - h), and its variance residual + s / (1 - h) + noise * widening.
    """
    rest = np.maximum(1.0 - left_out * s / noise, _MIN_REST)
    return (y - mean) / rest, residual + s / rest + noise * widening, rest


def leverages(gram, log_noise, A, left_out):
    """By how much the mean at each held-out row (B, first axis) follows the target of each: (B, B)."""
    noise = np.exp(log_noise)
    half = in_place.lower_solve(in_place.cholesky_of_sum(np.asarray(gram), 1.0 / noise), np.array(A, order="C"))
    return half.T @ half * (np.asarray(left_out) / noise)


def optimum(sums, log_noise):
    """The best q for these noise variances (K,), and the bound."""
    noise = np.exp(log_noise)
    grams = [sums.gram[k % len(sums.gram)] for k in range(len(noise))]
    precision = np.stack([1.0 / each * gram for each, gram in zip(noise, grams, strict=True)])
    precision[:, *np.diag_indices(precision.shape[-1])] += 1.0
    q = gaussian_of(sums.cross / noise[:, None], precision, list(map(in_place.definite_cholesky, precision)))
    explained = np.stack([2.0 * cross - gram @ m for cross, gram, m in zip(sums.cross, grams, q.mean, strict=True)])
    return q, _bound(sums, log_noise, noise, q, explained)


def _bound(sums, log_noise, noise, q, explained):
    """The collapsed bound, from ``explained`` = 2 cross - gram m.

    Least at the best mean: an error of the mean counts as its square, and not times 1 / s^2.
    """
    fit = (sums.square - (explained * q.mean).sum(1)) / noise + (q.mean**2).sum(1)
    normaliser = sums.weight * (_LOG_2PI + log_noise) + sums.log_widening
    each = normaliser - q.log_det_cov + fit + sums.residual / noise
    return -0.5 * each.sum()
