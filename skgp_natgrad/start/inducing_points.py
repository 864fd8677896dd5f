"""Inducing points and mean-only points: which rows they are put at, and the padded sets.

Where the table's rows are distinct and in a fixed order (see ``estimators/rows/training_table.py``), the rows that are
chosen depend on neither the order nor the repetition of the user's rows. The sets are padded to sizes that similar
tables share.
"""

from __future__ import annotations

import functools
import operator

import numpy as np
from scipy import linalg as _linalg
from sklearn.cluster import KMeans
from threadpoolctl import threadpool_limits

from .._backend import processes
from .._backend.repeated import grouped
from .._backend.rows import filled_up
from ..training.batches import bucket
from ..training.shares import gathered
from ..variational.bases import BASES
from ..variational.points import Masks, Points

# Greedy selection costs candidates * points^2 / 2 of memory traffic: beyond this many candidates a
# random part of the table represents the whole.
_CANDIDATES = 4000
_CANDIDATES_PER_POINT = 4
# The same for k-means, and its number of iterations.
_CLUSTERED, _CLUSTERED_PER_POINT, _TURNS = 20_000, 20, 30
# A conditional variance below this share of the prior variance is rounding.
_EXHAUSTED = 1e-10


def distinct_rows(X):
    """The distinct rows of ``X``, each where it comes first."""
    order, start = grouped(X)
    return X[np.sort(order[start])]


def candidates(X, n_points, random_state, fewest=_CANDIDATES, per_point=_CANDIDATES_PER_POINT):
    """Return distinct rows of ``X`` to choose from: all of them, or a random part of a large table."""
    limit = max(fewest, per_point * n_points)
    if len(X) > limit:
        X = X[np.sort(random_state.choice(len(X), limit, replace=False))]
    return distinct_rows(X)


def greedy_variance(X, kernel, n_points, random_state, n_given=0):
    """Points chosen one by one, each with the largest prior variance given those before.

    Burt, Rasmussen and van der Wilk (2020), "Convergence of sparse variational
    inference in Gaussian process regression": a Cholesky factorisation of the
    kernel matrix with complete pivoting, stopped after ``n_points`` columns.

    Parameters
    ----------
    X : ndarray of shape (N, D)
        Candidates.
    kernel : sklearn.gaussian_process.kernels.Kernel
    n_points : int
        At most N.
    random_state : numpy.random.RandomState
        Not used; present so that all functions take the same arguments.
    n_given : int, default=0
        This many first rows of ``X`` are chosen first, whatever their variance.

    Returns
    -------
    points : ndarray of shape (n_points, D)
    """
    prior = np.asarray(kernel.diag(X), dtype=float)
    floor = _EXHAUSTED * prior.max()
    variance, free = prior.copy(), np.ones(len(X), bool)
    columns = np.zeros((n_points, len(X)))
    chosen = []
    while len(chosen) < n_points:
        j = len(chosen)
        i = j if j < n_given else int(np.argmax(np.where(free, variance, -np.inf)))
        if variance[i] > floor:
            residual = kernel(X[i : i + 1], X)[0] - columns[:j, i] @ columns[:j]
            columns[j] = residual / np.sqrt(variance[i])
            variance = np.maximum(variance - columns[j] ** 2, 0.0)
        elif j >= n_given:
            # The points explain all rows at these hyperparameters; the remaining ones are spread evenly.
            rest = np.flatnonzero(free)
            chosen.extend(rest[np.linspace(0, len(rest) - 1, n_points - j).round().astype(int)])
            break
        chosen.append(i)
        free[i] = False
    return X[chosen]


def thinned(Z, kernel, n_points):
    """The rows of ``Z`` that `greedy_variance` chooses, found by one factorisation of their whole covariance."""
    _, order, *_ = _linalg.lapack.dpstrf(kernel(Z), lower=1)
    return Z[order[:n_points] - 1]


def k_means(X, kernel, n_points, random_state, weight=None):
    """Centres of k-means clusters of rows with weights (N,)."""
    # Several threads add up in the order in which they end: the centres' last bits would differ.
    with threadpool_limits(1, user_api="openmp"):
        return (
            KMeans(n_points, n_init=1, max_iter=_TURNS, random_state=random_state)
            .fit(X, sample_weight=weight)
            .cluster_centers_
        )


def random_rows(X, kernel, n_points, random_state):
    """Rows drawn at random without replacement."""
    return X[random_state.choice(len(X), n_points, replace=False)]


# The route decides on "auto": see `Steps.init_method`.
METHODS = {"greedy_variance": greedy_variance, "k-means": k_means, "random": random_rows}


def place(method, X, kernel, n_inducing, n_mean_inducing, random_state):
    """Return inducing points (M, D) and mean-only points (G, D).

    One greedy run or one random draw supplies both sets, so that no point is in
    both. The centres of a second k-means would lie too close to those of the
    first; with k-means the mean-only points are random rows, as in appendix E of
    the orthogonal paper. If the table has too few distinct rows there are fewer
    points.
    """
    limits = (_CLUSTERED, _CLUSTERED_PER_POINT) if method == "k-means" else ()
    X = candidates(X, n_inducing + n_mean_inducing, random_state, *limits)
    n_inducing = min(n_inducing, len(X))
    n_mean_inducing = min(n_mean_inducing, len(X) - n_inducing)
    if method == "k-means":
        Z = k_means(X, kernel, n_inducing, random_state)
        return Z, random_rows(X, kernel, n_mean_inducing, random_state)
    both = METHODS[method](X, kernel, n_inducing + n_mean_inducing, random_state)
    return both[:n_inducing], both[n_inducing:]


def place_mean_only(X, n_mean_inducing, random_state):
    """Return random rows for the mean-only points, at most as many as there are distinct rows."""
    X = distinct_rows(X)
    return random_rows(X, None, min(n_mean_inducing, len(X)), random_state)


def complete(given, X, kernel, n_inducing, n_mean_inducing, random_state):
    """Return inducing and mean-only points if the user has given some.

    If ``n_inducing + n_mean_inducing`` points are given, they are both sets. Otherwise the
    given points are the inducing points, and a greedy run adds the mean-only points.
    """
    if n_mean_inducing and len(given) == n_inducing + n_mean_inducing:
        return given[:n_inducing], given[n_inducing:]
    X = candidates(X, len(given) + n_mean_inducing, random_state)
    n_mean_inducing = min(n_mean_inducing, len(X))
    both = np.concatenate([given, X])
    both = greedy_variance(both, kernel, len(given) + n_mean_inducing, random_state, n_given=len(given))
    return both[: len(given)], both[len(given) :]


def follow(old, X, kernel, n_inducing, random_state, share=None):
    """Return the inducing points of a stream: the best of the old points and the new rows together.

    They follow a stream whose inputs move, and still cover the earlier inputs while there are
    enough points. ``n_inducing=None`` keeps all. ``share`` is the weight of the earlier rows, which the old points
    represent, among all rows: if it is given and new rows suffice, the points are centres of k-means clusters.
    """
    if n_inducing is None:
        return distinct_rows(np.concatenate([old, X]))
    X = candidates(X, n_inducing, random_state)
    both = np.concatenate([old, X])
    if share is not None and len(X) >= n_inducing:
        weight = np.repeat([share / len(old), (1.0 - share) / len(X)], [len(old), len(X)])
        return k_means(both, kernel, n_inducing, random_state, weight)
    both = distinct_rows(both)
    return greedy_variance(both, kernel, min(n_inducing, len(both)), random_state)


def first(plan, table, random_state):
    """Return the initial `Points` and their `Masks`."""
    X, kernel = table.sample.X, functools.reduce(operator.add, plan.kernels)
    n_inducing, n_mean = plan.n_inducing, plan.route.n_trained_mean(plan)
    if n_inducing is None:
        # Sorted: with neighbours next to each other the factor of the covariance loses fewer digits.
        placed = np.unique(X, axis=0), np.empty((0, X.shape[1]))
        n_inducing = plan.route.padded(len(placed[0]))
    elif isinstance(plan.inducing_init, str):
        placed = place(plan.route.init_method(plan), X, kernel, n_inducing, n_mean, random_state)
    else:
        placed = complete(plan.inducing_init, X, kernel, n_inducing, n_mean, random_state)
    basis = BASES[plan.basis]
    if basis.mean_on_inducing:
        # The mean uses both sets of points (appendix E); its copy of the inducing points moves on its own.
        placed = placed[0], np.concatenate([placed[1], placed[0]])
    most = [max(len(points), size or 0) for points, size in zip(placed, (n_inducing, n_mean), strict=True)]
    points, masks = padded(placed, most)
    if basis.second_part and len(points.Z_mean):
        points, masks = _with_covariance(points), _with_covariance(masks)
    return points, masks


def _with_covariance(sets):
    """The further points (or their mask) as the second set of q(v)'s points."""
    return sets._replace(Z_mean=sets.Z_mean[:0], Z_second=sets.Z_mean)


def add_mean_only(plan, table, parameters, constants, random_state):
    """The parameters and the constants with random mean-only points of weight zero."""
    X = gathered(table, processes.sharing(plan.n_devices)).sample.X
    Z_mean = place_mean_only(X, plan.n_mean_inducing, random_state)
    a = np.zeros((plan.n_latent(table), len(Z_mean)))
    return _with_further(Z_mean, a, parameters, constants, plan.n_mean_inducing)


def with_means(means, parameters, constants):
    """The parameters and the constants with these `solve.system.Means`."""
    return _with_further(means.Z_mean, means.a, parameters, constants, 0)


def _with_further(Z_mean, a, parameters, constants, requested):
    """The parameters and the constants with mean-only points and weights (K, G), padded to the number requested."""
    points, masks = padded((np.asarray(parameters.points.Z), Z_mean), (0, requested))
    a = filled_up(a, len(points.Z_mean), 1, value=0.0)
    constants = constants._replace(masks=masks._replace(Z=constants.masks.Z))
    return parameters._replace(points=points, weights=parameters.weights._replace(a=a)), constants


def padded(placed, requested):
    """Pad both sets of points with masked ones to sizes that similar tables share."""
    points, masks = [], []
    for some, most in zip(placed, requested, strict=True):
        size = max(len(some), min(most, bucket(len(some)))) if len(some) else 0
        points.append(filled_up(some, size, value=0.0))
        masks.append((np.arange(size) < len(some)).astype(float))
    return Points(*points), Masks(*masks)
