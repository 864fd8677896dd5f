"""What a linear regression predicts at each of its rows, were it fitted to the rows of all other X: in closed form."""

from __future__ import annotations

import numpy as np
from scipy import linalg

from ..._backend.repeated import groups

# A row whose leverage is this near to one decides alone what is predicted there.
_DECIDES = np.sqrt(np.finfo(float).eps)


def left_out(X, y, weight):
    """Predictions (N,) at the rows; several rows with equal X are left out together.

    Parameters
    ----------
    X : ndarray of shape (N, D)
        At least two rows differ. There may be more columns than rows: of the regressions that fit best each is that
        with the smallest coefficients.
    y : ndarray of shape (N,)
    weight : ndarray of shape (N,)
        Positive.
    """
    _, first, place = np.unique(groups(X), return_index=True, return_inverse=True)
    # One row for each X says the same of all others.
    total = np.bincount(place, weights=weight)
    mean = np.bincount(place, weights=weight * y) / total
    return (mean - _errors(X[first], mean, total))[place]


def _errors(X, y, weight):
    """The errors (N,) at rows that are left out one at a time.

    With X = U S V^T and leverages h, an error is e_i / (1 - h_i). Where h_i = 1 there is no residual e_i: the
    coefficients b change by x^+_i r, of which those of the other rows have no part, so r = x^+_i b / x^+_i x^+_i.
    """
    root, share = np.sqrt(weight), weight / weight.sum()
    U, S, _ = linalg.svd(root[:, None] * (X - share @ X), full_matrices=False)
    known = S / S[0] > max(X.shape) * np.finfo(float).eps
    U, S, y = U[:, known], S[known], root * (y - share @ y)
    along = U.T @ y
    own, scaled = 1.0 - share - np.square(U).sum(1), U / S
    decides = own < _DECIDES
    own = np.where(decides, np.square(scaled).sum(1), own)
    return np.where(decides, scaled @ (along / S), y - U @ along) / (root * own)
