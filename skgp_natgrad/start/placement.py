"""The initial points, padded to sizes that similar tables share."""

from __future__ import annotations

import functools
import operator

import numpy as np

from .._backend import processes
from .._backend.rows import filled_up
from ..training.batches import bucket
from ..training.shares import gathered
from ..variational.bases import BASES
from ..variational.points import Masks, Points
from . import inducing_points


def place(plan, table, random_state):
    """Return the initial `Points` and their `Masks`."""
    X, kernel = table.sample.X, functools.reduce(operator.add, plan.kernels)
    n_inducing, n_mean = plan.n_inducing, plan.route.n_trained_mean(plan)
    if n_inducing is None:
        # Sorted: with neighbours next to each other the factor of the covariance loses fewer digits.
        placed = np.unique(X, axis=0), np.empty((0, X.shape[1]))
        n_inducing = plan.route.padded(len(placed[0]))
    elif isinstance(plan.inducing_init, str):
        placed = inducing_points.place(plan.route.init_method(plan), X, kernel, n_inducing, n_mean, random_state)
    else:
        placed = inducing_points.complete(plan.inducing_init, X, kernel, n_inducing, n_mean, random_state)
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
    Z_mean = inducing_points.place_mean_only(X, plan.n_mean_inducing, random_state)
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
