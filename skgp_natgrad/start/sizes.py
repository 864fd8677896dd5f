"""The sizes of a fit that its user leaves open, so that its time is bounded."""

from __future__ import annotations

import numpy as np

# Rows whose evidence sets the hyperparameters of a given kernel.
EVIDENCE_ROWS = 1000
# Points of a fit by steps.
_OF_STEPS = 100
# The solution on all rows costs about 3 N M^2 operations for each latent function. That is half a minute on two
# cores; memory for some matrices of the largest size.
_OPERATIONS, _MOST, _FEWEST = 2.7e12, 5000, 100


def n_inducing(one_step, n_rows, n_latent):
    """The number of inducing points.

    Parameters
    ----------
    one_step : bool
        Whether one step on all rows is all that the solver takes.
    n_rows : int
    n_latent : int
    """
    if not one_step:
        return _OF_STEPS
    affordable = np.sqrt(_OPERATIONS / (3.0 * n_rows * n_latent))
    return int(np.clip(affordable, _FEWEST, _MOST))
