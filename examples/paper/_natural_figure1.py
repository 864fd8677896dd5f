"""Figure 1 of the natural gradient paper: ordinary and natural gradient in one picture.

    python examples/paper/figures.py natural1 [--pictures FOLDER]

A GP with a Bernoulli likelihood and a single Gaussian inducing point: contours of
the bound over the mean and variance of q(u), the ordinary gradient (orange) and
the natural gradient (blue) at the starting point, and the paths of very small
steps. The paper does not print its data: three points of class 1 are used here.
"""

import argparse
from pathlib import Path

import _common as common
import _pictures as pictures
import jax
import jax.numpy as jnp
import numpy as np

from skgp_natgrad import likelihoods
from skgp_natgrad.variational import gaussian, natural_gradient

X = np.array([[-0.5], [0.1], [0.6]])
Y = np.array([[1.0, 1.0, 1.0]])
START = (-0.4, 0.12)


def expected_log_likelihood(m, S):
    """E[log p(y | f)] for q(u) = N(m, S) at the single point zero.

    The kernel, exp(-x^2 / 2), has unit variance, so that u is its own whitened self.
    """
    k = np.exp(-0.5 * X[:, 0] ** 2)
    mean, variance = k * m[0, 0], 1.0 - k**2 + k**2 * S[0, 0, 0]
    return likelihoods.Bernoulli().expected_log_prob(mean[None], variance[None], Y).sum()


def q_of(mean, variance):
    """q(u) in the package's form: one latent function, one dimension."""
    return gaussian.from_natural((mean / variance)[None, None], (1.0 / variance)[None, None, None])


def bound(mean, variance):
    q = q_of(mean, variance)
    return expected_log_likelihood(q.mean, q.cov) - gaussian.kl_to_standard(q)


def natural_step(mean, variance, gamma):
    """Mean and variance after the package's own natural gradient step."""
    q = q_of(mean, variance)
    dm, dS = jax.grad(expected_log_likelihood, argnums=(0, 1))(q.mean, q.cov)
    moved = natural_gradient.candidate(q, dm, dS, gamma)
    return moved.mean[0, 0], moved.cov[0, 0, 0]


@jax.jit
def natural_path(start):
    """Two thousand steps of size 0.005."""
    return jax.lax.scan(lambda at, _: (natural_step(*at, 0.005), at), start, None, length=2000)[1]


@jax.jit
def ordinary_path(start):
    """Twenty thousand steps up the ordinary gradient in mean and variance."""

    def step(at, _):
        gradient = jax.grad(bound, argnums=(0, 1))(*at)
        return tuple(x + 0.001 * g for x, g in zip(at, gradient, strict=True)), at

    return jax.lax.scan(step, start, None, length=20000)[1]


def directions(start):
    """The ordinary gradient, and the natural one: the derivative of the step at size zero."""
    ordinary = jax.grad(bound, argnums=(0, 1))(*start)
    natural = jax.jvp(lambda gamma: natural_step(*start, gamma), (0.0,), (1.0,))[1]
    return ordinary, natural


def plot(args):
    plt = pictures.pyplot()
    figure, axis = plt.subplots(figsize=(6.4, 4.4))
    with jax.enable_x64(True):
        start = tuple(map(jnp.asarray, START))
        mean, variance = np.meshgrid(np.linspace(-0.7, 2.0, 161), np.linspace(0.03, 1.1, 141))
        height = np.asarray(jax.jit(jax.vmap(bound))(mean.ravel(), variance.ravel())).reshape(mean.shape)
        paths = {"ordinary": ordinary_path(start), "natural": natural_path(start)}
        arrows = dict(zip(("ordinary", "natural"), directions(start), strict=True))
    levels = np.quantile(height, np.linspace(0.02, 0.995, 22))
    axis.contour(mean, variance, height, levels=levels, colors="0.75", linestyles="solid", linewidths=0.8)
    for name, colour in (("ordinary", pictures.ORANGE), ("natural", pictures.BLUE)):
        axis.plot(*map(np.asarray, paths[name]), color=colour, label=f"{name} gradient, very small steps")
        # To scale, and cut off by the frame where it leaves it.
        axis.quiver(
            *START, *map(float, arrows[name]), color=colour, angles="xy", scale_units="xy", scale=1, width=0.008
        )
        print(f"{name:8} gradient at {START}: ({arrows[name][0]:+.3f}, {arrows[name][1]:+.3f})")
    optimum = tuple(float(x[-1]) for x in paths["natural"])
    axis.plot(*optimum, "k*", markersize=11, label="optimum")
    print(f"optimum of the bound: mean {optimum[0]:.4f}, variance {optimum[1]:.4f}")
    axis.set(xlabel="mean of q(u)", ylabel="variance of q(u)", xlim=(-0.7, 2.0), ylim=(0.03, 1.1))
    axis.legend(loc="lower right", fontsize=8)
    pictures.save(figure, args, "natural1")


def main(argv=None):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pictures", type=Path, default=common.DEFAULT_OUTPUT, help="folder of the picture")
    parser.set_defaults(quick=False)
    plot(parser.parse_args(argv))
    return 0
