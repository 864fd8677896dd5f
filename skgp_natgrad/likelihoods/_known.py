"""Known values of each row besides y: variances of the noise, numbers of trials, limits."""

from __future__ import annotations

from typing import ClassVar, Self

import numpy as np

from .._backend.types import Array, ArrayLike, Floats, NDArray


class KnownRows:
    """The part of a likelihood that uses known values of rows; by default there are none.

    Attributes
    ----------
    known : tuple of str
        Arguments of the estimator's methods that hold what is known of each row, besides X and y.
    rows : tuple of arrays of shape (T, B), or None
        Their values at some rows: see `given`.
    """

    known: ClassVar[tuple[str, ...]] = ()
    rows = None

    def given(self, known: Array | None) -> Self:
        """Return the likelihood at rows with known values.

        Parameters
        ----------
        known : array of shape (P T, B) or (P T, 1), or None
            In the units of the model, the P quantities of ``known`` one after the other; None if nothing is known.
        """
        if known is None:
            return self
        found = self.with_leaves([getattr(self, name) for name in self.parameters])
        n_targets = len(known) // len(self.known)
        found.rows = tuple(known[i * n_targets : (i + 1) * n_targets] for i in range(len(self.known)))
        return found

    def known_everywhere(self, n_targets: int) -> Floats | None:
        """Default known values of all rows: (P T, 1) in the units of y, or None."""

    def known_in_units(self, known: Floats, offset: Floats, scale: Floats) -> Floats:
        """``known`` (P T, B) in the units of the model, from those of y, which ``offset`` and ``scale`` (T,) map."""
        return known

    def check_rows(self, y: Floats) -> None:
        """Raise ValueError if an element of ``y`` (T, N), NaN apart, is impossible under what is known of its row."""

    def observed(self, y: Floats, rounding: ArrayLike = 0.0) -> Floats:
        """``y`` (T, ...) in its own units, as it would be without rounding to single precision, or by ``rounding``."""
        return y

    def has_mass(self, y: Floats) -> NDArray[np.bool_]:
        """Whether each element of a standardised ``y`` (T, N) has a probability, where others have a density."""
        return np.zeros(np.shape(y), bool)

    def without_offset(self, y: Floats, weight: Floats, offset: Floats) -> tuple[Floats, Floats]:
        """Targets and weights without offsets and known values, for initial values.

        Parameters
        ----------
        y, weight : ndarray of shape (T, N)
        offset : ndarray of shape (K, N)
            Added to the latent functions. Other known values are in ``rows``.
        """
        return y, weight
