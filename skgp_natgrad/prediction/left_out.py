"""Rows of training, each predicted from all others."""

from __future__ import annotations

from typing import NamedTuple

from .._backend.types import Floats


class LeftOut(NamedTuple):
    """Rows, each predicted from all others.

    Attributes
    ----------
    X : ndarray of shape (B, D)
    error : ndarray of shape (K, B)
        y less its prediction; NaN where the row says nothing of new rows.
    latent, noise : ndarray of shape (K, B)
        Variances of the latent function and of the noise, whose sum is that of the error.
    weight, n_each : ndarray of shape (K, B)
        The weights of the rows, and numbers of observations in them.
    """

    X: Floats
    error: Floats
    latent: Floats
    noise: Floats
    weight: Floats
    n_each: Floats

    @property
    def variance(self) -> Floats:
        """Variance of the error, (K, B)."""
        return self.latent + self.noise
