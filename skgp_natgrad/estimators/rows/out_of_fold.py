"""What a model of scikit-learn predicts at the rows that it is given: each by a copy that has not seen the row.

A process that learns what is left must see errors like those at new rows. A model that memorises leaves none at its
own rows.
"""

from __future__ import annotations

import numpy as np
from sklearn.base import clone
from sklearn.utils.validation import has_fit_parameter

from ..._backend import processes
from ..._backend.repeated import groups
from ..arguments import checks

# As many as scikit-learn's cross-validation has by default.
FOLDS = 5


def check(estimator, names, method, kind):
    """Refuse a ``mean_function`` other than None, one of the names, a function or such a model."""
    given = estimator.mean_function
    known = given in names if isinstance(given, str) else given is None or callable(given) or is_model(given, method)
    if not known or isinstance(given, type):
        raise ValueError(
            f"mean_function={given!r} must be None, {', '.join(map(repr, names))}, a function of X, or a {kind} with "
            f"fit and {method}."
        )


def is_model(given, method):
    """Whether a ``mean_function`` is to be fitted: a name, or a model with this method."""
    return isinstance(given, str) or (hasattr(given, "fit") and hasattr(given, method))


def check_rows(estimator, X, remedy):
    """Refuse rows that are not all in the memory of one process."""
    if isinstance(X, np.ndarray) and processes.sharing(estimator.n_devices) == 1:
        return
    where = "several processes share" if isinstance(X, np.ndarray) else "is read by blocks"
    raise ValueError(
        f"mean_function={estimator.mean_function!r} needs all rows in the memory of one process, but this table of "
        f"{len(X)} rows {where}; {remedy}."
    )


def fitted_copy(model, X, y, weight):
    """A copy of the model, fitted to the rows with their weights (N,), if any is not one."""
    weighs, takes = np.any(weight != 1.0), has_fit_parameter(model, "sample_weight")
    if weighs and not takes and np.ptp(weight) > 0.0:
        raise ValueError(
            f"mean_function={model!r} takes no sample_weight, but the weights of the rows differ; give a model whose "
            "fit has this argument, or a function of X."
        )
    return clone(model).fit(X, y, **({"sample_weight": weight} if weighs and takes else {}))


def are_enough(X):
    """Whether the rows of X (N, D) that differ are as many as parts."""
    return groups(X).max() + 1 >= FOLDS


def predictions(fit, predict, shape, X, y, weight, labels, random_state):
    """Predictions (N, *shape) of copies fitted to four fifths of the rows, each of the others; NaN where there is none.

    Parameters
    ----------
    fit : callable
        Returns a copy fitted to rows of X, y and weight, such as `fitted_copy` of a model.
    predict : callable
        Returns values (N, *shape) of a fitted copy at rows of X.
    X : ndarray of shape (N, D)
    y : ndarray of shape (N,)
    weight : ndarray of shape (N,)
    labels : ndarray of shape (N,)
        See `parts_of`.
    random_state : int, RandomState instance or None
    """
    found, part = np.full((len(X), *shape), np.nan), parts_of(X, labels, checks.random_numbers(random_state))
    for k in np.unique(part[part >= 0]):
        rest, held = part != k, part == k
        found[held] = predict(fit(X[rest], y[rest], weight[rest]), X[held])
    return found


def parts_of(X, labels, random_state):
    """The part (N,) of each row of X (N, D), from 0 to 4; rows of different parts differ.

    The rows of each label are spread over all parts, so that the other four have some. The rows of a label that has
    fewer different ones than parts are in none: -1.
    """
    _, first, group = np.unique(groups(X), return_index=True, return_inverse=True)
    label = labels[first]
    order = random_state.permutation(len(first))
    order = order[np.argsort(label[order], kind="stable")]
    part = np.empty(len(first), int)
    part[order] = np.arange(len(first)) % FOLDS
    _, of_label, counts = np.unique(label, return_inverse=True, return_counts=True)
    part[counts[of_label] < FOLDS] = -1
    return part[group]
