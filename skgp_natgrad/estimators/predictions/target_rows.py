"""What predictions of targets are given and return: targets, known parts of rows, units."""

from __future__ import annotations

import numpy as np
from sklearn.utils import check_consistent_length

from ... import svgp
from ..fitted import attributes
from ..rows import inputs, numbers
from ..rows.training_table import latent_offset
from .latent import LatentDistribution


class TargetRows(LatentDistribution):
    """Rows and targets in the units of the model, and back."""

    def _check_targets(self, X, y, may_lack=False):
        """Validate y (N,) or (N, T) beside the rows ``X``; return it with two axes. With ``may_lack`` some are NaN."""
        y = inputs.targets(y, may_lack)
        check_consistent_length(X, y)
        y = y.reshape(len(X), -1)
        if y.shape[1] != len(self._y_scale.scale):
            raise ValueError(
                f"y has {y.shape[1]} columns, but the regressor was fitted with {len(self._y_scale.scale)}; "
                "give the same number."
            )
        return self.likelihood_.observed(y.T).T

    def _known(self, X, offset, **arguments):
        """What is known of the rows ``X`` in the units of the model: ``offset`` (K, N) and ``known`` (P T, N), or None.

        The first is added to the latent functions; the second is for the likelihood.
        """
        shape = len(X), len(self._y_scale.scale)
        offset = inputs.known("offset", offset, *shape)
        if offset is not None:
            offset = latent_offset(offset.T, self._y_scale, len(self._posterior.alpha))
        known = numbers.known_of_rows(self.likelihood_, arguments, *shape)
        if known is not None:
            known = self.likelihood_.known_in_units(known.T, *self._y_scale[:2])
        return {"offset": offset, "known": known}

    def _possible_targets(self, y, **arguments):
        """Return ``y``, NaN where it is masked; ValueError where what is known of its row excludes a target."""
        y = inputs.with_missing(y, self.missing_targets == "ignore")
        inputs.refuse_masked("y", y)
        columns = np.asarray(y, dtype=float).reshape(len(y), -1)
        given = {name: np.asarray(value) for name, value in arguments.items() if value is not None}
        check_consistent_length(y, *(value for value in given.values() if value.ndim))
        known = numbers.known_of_rows(self.likelihood_, given, *columns.shape)
        self.likelihood_.given(None if known is None else known.T).check_rows(columns.T)
        return y

    def _distribution_at(self, X, offset, known):
        """See `svgp.distribution`, at standardised rows."""
        found = svgp.distribution(attributes.model_of(self), X, self.device, self.n_devices, offset, known)
        self._defined(found[1:3], X)
        return found

    def _by_row(self, values):
        """Values (T, N, ...) with the rows first, and without the axis of the outputs if y had none."""
        return values[0] if self._single_output else np.moveaxis(values, 0, 1)

    def _in_units(self, values):
        """Standardised targets (T, N, ...) in the units of y, by row."""
        offset, scale = (np.reshape(x, (-1,) + (1,) * (values.ndim - 1)) for x in self._y_scale[:2])
        # Rounding must not move a value away from a limit that it is at.
        rounding = 4.0 * np.finfo(float).eps * (np.abs(offset) + np.abs(values * scale))
        return self._by_row(self.likelihood_.observed(values * scale + offset, rounding))

    def _shaped(self, columns):
        """Drop the last axis, that of the outputs, if y had none."""
        return columns[..., 0] if self._single_output else columns
