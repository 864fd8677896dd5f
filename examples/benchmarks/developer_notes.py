"""The simulations behind the figures of the developer's notes.

    python examples/benchmarks/developer_notes.py --rst
    python examples/benchmarks/developer_notes.py --quick

``walk``: gamma_schedule="auto" follows an optimum that walks at random and is seen
through minibatches drawn without replacement. Its estimate is compared with the best
single step and with other estimates, by their mean step size and by the mean square of
q's error in each coordinate. ``clipped``: the mean of the ratios of two minibatches'
slopes, clipped at zero. ``uneven``: the ratio of averages against the average of ratios
where one minibatch in ten has six times the noise. ``held``: q at the optimum of fixed
hyperparameters, which are then set free, with the mean of u and with the mean of v held,
and with the inducing points at the full learning rate beside.
"""

from __future__ import annotations

import argparse
import contextlib
import functools
import itertools
import warnings
from unittest import mock

import jax
import jax.numpy as jnp
import numpy as np
from _common import machine, show, where
from sklearn.gaussian_process.kernels import RBF, ConstantKernel

from skgp_natgrad import Constant, NGDSVGPRegressor
from skgp_natgrad.likelihoods import Gaussian
from skgp_natgrad.step import adaptive_gamma, mean_weights, step
from skgp_natgrad.training.batches import noise_correlation
from skgp_natgrad.variational import gaussian

# Of rows and minibatches: fewer rows than two minibatches, two, some, and many.
TABLES = [(1400, 1024), (2048, 1024), (5000, 1024), (36000, 1024)]
ESTIMATES = ("corrected", "uncorrected", "independent", "exact")
# Steps before anything is counted.
BURN_IN = 100


def parse_arguments(argv=None):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--parts", nargs="+", choices=list(PARTS), default=list(PARTS))
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--steps", type=int, default=2000)
    parser.add_argument("--quick", action="store_true", help="one seed, few steps, small fits: half a minute")
    parser.add_argument("--rst", action="store_true", help="print rst tables")
    args = parser.parse_args(argv)
    if args.quick:
        args.seeds, args.steps = 1, 400
    return args


# -- an optimum that walks at random ----------------------------------------------------------


@functools.partial(jax.jit, static_argnames=("average_of_ratios", "exact"))
def followed(walk, noises, correlations, counts, spreads, constant=0.0, average_of_ratios=False, exact=False):
    """Follow an optimum, one minibatch after the other.

    Parameters
    ----------
    walk, noises : arrays of shape (T, M)
        What the optimum moves by before each step, and the noise of the slope that is seen.
    correlations : array of shape (T,)
        Of each minibatch's noise with that of the one before, as the estimate is told.
    counts : array of shape (T, P)
        Rows of each minibatch that come from each permutation of the table.
    spreads : array of shape (T,)
        The variance of each minibatch's noise, in the units in which the covariance of two is minus the
        product of their counts.
    constant : scalar
        The step size, where it is not zero; else it is estimated.
    average_of_ratios : bool
        In place of the ratio of averages.
    exact : bool
        Whether the noise that q itself holds is told as well: a recursion for its covariance with the
        minibatches' noise.

    Returns
    -------
    sizes, products, powers, errors : arrays of shape (T,)
        Of each step: its size, the product of the slope without noise and the one that is seen, the square of
        the latter, and the square of q's error after it.
    """
    size = walk.shape[1]
    q = gaussian.standard(1, size)

    def body(carry, now):
        gain, q, optimum, ratio, held, before = carry
        move, noise, correlation, count, spread = now
        optimum = optimum + move
        mean_slope = optimum - q.mean
        slope = mean_slope + noise
        if exact:
            # Covariances with minus q's noise, in units of the noise's variance: q's before the last step.
            own, next_ = (held @ each / before[1] for each in (before[0], count))
            correlation = (correlation + next_) / (1.0 + own)
            held = (1.0 - gain.gamma) * held + gain.gamma * before[0]
        direction = slope, jnp.zeros_like(q.cov)
        updated = adaptive_gamma.updated(gain, q, direction, correlation)
        if average_of_ratios:
            first = gain.direction[0]
            power = (first**2).sum()
            one = (first * (slope + gain.gamma * first)).sum() / jnp.where(power > 0, power, 1.0)
            share = jnp.clip(gain.gamma / 2.0, 1 / 50, 1 / 5)
            ratio = jnp.where(power > 0, (1.0 - share) * ratio + share * jnp.clip(one, -3.0, 3.0), ratio)
            updated = updated._replace(gamma=jnp.clip(ratio, 1e-3, jnp.minimum(1.0, 1.5 * gain.gamma)))
        updated = updated._replace(gamma=jnp.where(constant > 0.0, constant, updated.gamma))
        mean = q.mean + updated.gamma * slope
        report = updated.gamma, (mean_slope * slope).sum(), (slope**2).sum(), ((optimum - mean) ** 2).mean()
        carry = updated, q._replace(mean=mean, nat1=mean), optimum, ratio, held, (count, spread)
        return carry, report

    nothing = jnp.zeros_like(counts[0])
    start = adaptive_gamma.initial(q), q, jnp.zeros((1, size)), jnp.zeros(()), nothing, (nothing, jnp.ones(()))
    return jax.lax.scan(body, start, (walk, noises, correlations, counts, spreads))[1]


def minibatches(n_rows, size, n_coordinates, n_steps, rng, independent=False):
    """The noise of minibatches, what is known of it, and how many of their rows come from which permutation.

    The noise has the variance one, were it not that a minibatch is a part of the table.
    """
    slopes = rng.normal(size=(n_rows, n_coordinates))
    slopes = np.sqrt(size) * (slopes - slopes.mean(0)) / slopes.std()
    starts = np.arange(n_steps) * size
    if independent:
        rows = np.stack([rng.permutation(n_rows)[:size] for _ in range(n_steps)])
        return slopes[rows].mean(1), np.zeros(n_steps), np.zeros((n_steps, 1)), np.ones(n_steps)
    n_permutations = -(-n_steps * size // n_rows)
    rows = np.concatenate([rng.permutation(n_rows) for _ in range(n_permutations)])[: n_steps * size]
    correlations = noise_correlation(n_rows, size, (starts - size) % n_rows)
    # Rows [n p, n (p + 1)) of the stream are those of permutation p.
    edges = n_rows * np.arange(n_permutations + 1)
    inside = np.clip(edges[None, :] - starts[:, None], 0, size)
    counts = np.diff(inside, axis=1).astype(float)
    spreads = n_rows * size - (counts**2).sum(1)
    noises = np.stack([slopes[each].mean(0) for each in rows.reshape(n_steps, size)])
    return noises, correlations, counts, spreads


def summary(run):
    """The mean step size, the best one for all steps, and the mean square of q's error."""
    sizes, products, powers, errors = (np.asarray(each)[BURN_IN:] for each in run)
    return sizes.mean(), products.sum() / powers.sum(), errors.mean()


def walk(args):
    """Each estimate, and the constant step sizes that leave the least error, or are the best at once."""
    n_coordinates, body, constants = 100, [], np.geomspace(0.01, 1.0, 21)
    settings = itertools.product(TABLES[1:2] if args.quick else TABLES, (0.05, 0.2))
    for (n_rows, size), drift in settings:
        found = {name: [] for name in (*ESTIMATES, "constant")}
        for seed in range(args.seeds):
            rng = np.random.default_rng(seed)
            moves = drift * rng.normal(size=(args.steps, n_coordinates))
            epochs = minibatches(n_rows, size, n_coordinates, args.steps, rng)
            alone = minibatches(n_rows, size, n_coordinates, args.steps, rng, independent=True)
            untold = epochs[0], np.zeros(args.steps), *epochs[2:]
            for name, noise in zip(ESTIMATES, (epochs, untold, alone, epochs), strict=True):
                found[name].append(summary(followed(moves, *noise, exact=name == "exact")))
            found["constant"].append([summary(followed(moves, *epochs, constant=each))[2] for each in constants])
        means = {name: np.mean(each, axis=0) for name, each in found.items()}
        least = means.pop("constant")
        body.append([f"{n_rows}", f"{drift:g}", *(f"{each[0]:.3f}, {each[2]:.3f}" for each in means.values())])
        body[-1] += [f"{means['corrected'][1]:.3f}", f"{constants[least.argmin()]:.3f}"]
        body[-1] += [f"{least.min():.3f}"]
    header = ["rows", "drift", *(f"{name}: size, error" for name in ESTIMATES), "best at once"]
    show([*header, "best constant", "its error"], body, args.rst, ["walk: minibatches of 1024, 100 coordinates"])


def clipped(args):
    """The mean of clipped ratios, of minibatches with independent noise and a slope that stays."""
    rng, gain, n_coordinates = np.random.default_rng(0), 0.02, 20
    slope = np.full(n_coordinates, np.sqrt(gain / (1.0 - gain)))
    first, second = slope + rng.normal(size=(2, 100 * args.steps, n_coordinates))
    ratios = (first * second).sum(1) / (first**2).sum(1)
    body = [
        [f"{gain:g}", f"{ratios.mean():.3f}", f"{np.maximum(ratios, 0.0).mean():.3f}", f"{np.mean(ratios < 0):.2f}"]
    ]
    header = ["gain", "mean of ratios", "of ratios clipped at zero", "part below zero"]
    show(header, body, args.rst, ["clipped: 20 coordinates"])


def uneven(args):
    """Minibatches of which one in ten has six times the noise."""
    body = []
    for drift in (0.02, 0.05, 0.1, 0.2):
        found = []
        for seed in range(args.seeds):
            rng = np.random.default_rng(seed)
            moves = drift * rng.normal(size=(args.steps, 50))
            noises = rng.choice([0.5, 3.0], p=[0.9, 0.1], size=(args.steps, 1)) * rng.normal(size=(args.steps, 50))
            noise = noises, np.zeros(args.steps), np.zeros((args.steps, 1)), np.ones(args.steps)
            ours, theirs = (summary(followed(moves, *noise, average_of_ratios=each)) for each in (False, True))
            found.append([ours[1], ours[0], ours[2], theirs[0], theirs[2]])
        body.append([f"{drift:g}", *(f"{each:.3f}" for each in np.mean(found, axis=0))])
    header = ["drift", "best at once", "ratio of averages", "its error", "average of ratios", "its error"]
    show(header, body, args.rst, ["uneven: independent minibatches, 50 coordinates"])


# -- q under a kernel that moves --------------------------------------------------------------


def close_to_a_surface(n_rows):
    """Rows close to a surface of three dimensions in sixteen columns, and a smooth function of these three."""
    rng = np.random.default_rng(0)
    T = rng.uniform(-1, 1, size=(n_rows, 3))
    X = np.sin(T @ rng.normal(size=(3, 16)) + rng.uniform(0, 6, 16)) + 0.01 * rng.normal(size=(n_rows, 16))
    y = np.sin(2 * T).sum(1)
    return X, (y - y.mean()) / y.std()


def set_free(X, y, n_points):
    """Nats a row: at the optimum of fixed hyperparameters, and of the 100 steps after these are set free."""
    noise, Z = 3e-3, X[np.random.default_rng(1).choice(len(X), n_points, replace=False)]
    model = NGDSVGPRegressor(
        ConstantKernel(100.0) * RBF(6.0),
        likelihood=Gaussian(noise, (1e-8, 1.0)),
        n_inducing=n_points,
        inducing_init=Z,
        normalize_X=False,
        normalize_y=False,
        jitter=1e-8,
        random_state=0,
        tol=0.0,
        warm_start=True,
    )
    model.set_params(optimizer=None, gamma_schedule=Constant(1.0), batch_size=len(X), max_iter=1).fit(X, y)
    reached = model.elbo_ / len(X)
    free = {"optimizer": "adam", "learning_rate": 0.01, "gamma_schedule": 0.1, "batch_size": 256, "max_iter": 100}
    curve = model.set_params(**free).fit(X, y).elbo_curve_ / len(X)
    return reached, *curve[[0, 1]], curve.min(), curve[-20:].mean()


def held(args):
    """With the mean of u held, as the package does, and with that of v."""
    n_rows, n_points = (1000, 60) if args.quick else (5000, 300)
    X, y = close_to_a_surface(n_rows)
    body = [["u", *set_free(X, y, n_points)]]
    # Without this function q stays in whitened coordinates; what has been compiled has it inside.
    v_held = [mock.patch.object(module, "whitened_anew", lambda state, *_: state) for module in (step, mean_weights)]
    full_rate = mock.patch.object(step, "point_rate_of", return_value=1.0)
    for name, patches in (("v", v_held), ("v, points at the full rate", [*v_held, full_rate])):
        with contextlib.ExitStack() as stack:
            for patch in patches:
                stack.enter_context(patch)
            jax.clear_caches()
            body.append([name, *set_free(X, y, n_points)])
    jax.clear_caches()
    body = [[name, *(f"{value:.2f}" for value in values)] for name, *values in body]
    header = ["held", "at the optimum", "before step 1", "after it", "lowest", "mean of the last 20"]
    note = f"held: nats a row, {n_rows} rows, {n_points} points, noise 3e-3, minibatches of 256, learning rate 0.01"
    show(header, body, args.rst, [note])


PARTS = {"walk": walk, "clipped": clipped, "uneven": uneven, "held": held}


def main(argv=None):
    args = parse_arguments(argv)
    warnings.simplefilter("ignore")
    for name in args.parts:
        with jax.enable_x64(True):
            PARTS[name](args)
    print(f"\n{where([machine()])}")


if __name__ == "__main__":
    main()
