"""The natural gradient's step size that is found while training."""

import functools

import jax
import numpy as np
import pytest
from numpy.testing import assert_allclose
from sklearn.gaussian_process.kernels import RBF, ConstantKernel, Matern

from skgp_natgrad import Auto, Cosine, NGDSVGPRegressor, svgp
from skgp_natgrad.step import adaptive_gamma, step
from skgp_natgrad.step.chunk import STEPS_PER_CALL
from skgp_natgrad.step.mean_weights import refreshed
from skgp_natgrad.step.whitening import whitened_anew
from skgp_natgrad.training import batches
from skgp_natgrad.training.loop import step_sizes
from skgp_natgrad.variational import bound as bounds
from skgp_natgrad.variational import gaussian, natural_gradient

pytestmark = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")

# Fewer rows than two batches, two, some, a whole number of them, and many.
TABLES = [(1400, 1024), (2048, 1024), (5000, 1024), (5120, 1024), (36000, 1024)]

# -- a parabola seen with noise ---------------------------------------------------------------


@jax.jit
def _update(gain, q, target, correlation):
    direction = target - q.mean, jax.numpy.zeros_like(q.cov)
    gain = adaptive_gamma.updated(gain, q, direction, correlation)
    mean = q.mean + gain.gamma * direction[0]
    return gain, q._replace(mean=mean, nat1=mean), direction[0]


def followed(size, drift, noises, rng):
    """Follow an optimum that walks at random; return the gains that were taken, and the best one for all of them.

    ``noises`` yields the noise of each batch, and its correlation with the next. The best
    step leaves the least square: the mean slope's product with the slope over the slope's square.
    """
    q = jax.tree.map(jax.numpy.asarray, gaussian.standard(1, size))
    gain, optimum, taken, products, powers = adaptive_gamma.initial(q), np.zeros((1, size)), [], [], []
    for noise, correlation in noises:
        optimum = optimum + drift * rng.normal(size=optimum.shape)
        mean_slope = optimum - np.asarray(q.mean)
        gain, q, slope = _update(gain, q, optimum + noise, correlation)
        taken.append(float(gain.gamma))
        products.append((mean_slope * slope).sum())
        powers.append((slope * slope).sum())
    return np.array(taken), np.sum(products[100:]) / np.sum(powers[100:])


@pytest.mark.slow
@pytest.mark.usefixtures("x64")
@pytest.mark.parametrize("noise", [0.0, 1.0, 10.0])
def test_the_gain_is_that_of_a_noisy_parabola(noise, rng):
    """The optimum moves by a random walk: the best gain is Kalman's, in closed form."""
    size, drift = 400, 0.3
    noises = (noise * rng.normal(size=(1, size)) for _ in range(400))
    taken, _ = followed(size, drift, ((each, 0.0) for each in noises), rng)
    ratio = (drift / noise) ** 2 if noise else np.inf
    # Steady state of the variance of a scalar random walk seen in noise.
    kalman = 1.0 if noise == 0.0 else 0.5 * (np.sqrt(ratio**2 + 4.0 * ratio) - ratio)
    assert_allclose(np.mean(taken[100:]), kalman, rtol=0.15, atol=0.01)


def epochs(n_rows, size, slopes, n_steps):
    """The noise of batches that a fit draws from rows with these slopes (N, M), of variance one for half the rows."""
    rows = batches.Table(np.arange(n_rows, dtype=float)[:, None], np.zeros((1, n_rows)), np.ones(n_rows))
    stream = batches.BatchStream(rows, size, 0, 0, np.random.RandomState(0))
    slopes = np.sqrt(size) * (slopes - slopes.mean(0)) / slopes.std()
    for _ in range(n_steps // STEPS_PER_CALL):
        batch = next(stream)
        for X, correlation in zip(np.asarray(batch.X), np.asarray(batch.correlation), strict=True):
            yield slopes[X[:, 0].astype(int)].mean(0)[None], correlation


@pytest.mark.usefixtures("x64")
@pytest.mark.parametrize(("n_rows", "size"), [(7, 5), (10, 5), (12, 5), (15, 5), (70, 16), (101, 100)])
def test_the_noise_of_successive_batches_correlates_as_it_is_said(n_rows, size):
    """At each place in the epoch, in the mean over all contrasts of rows."""
    noise, said = (np.array(each) for each in zip(*epochs(n_rows, size, np.eye(n_rows), 4000), strict=True))
    products, powers = (noise[:-1] * noise[1:]).sum((1, 2)), (noise[:-1] ** 2).sum((1, 2))
    assert said.min() >= -1.0
    for each in np.unique(said[1:].round(9)):
        here = np.abs(said[1:] - each) < 1e-8
        assert_allclose(products[here].sum() / powers[here].sum(), each, atol=0.05)


@pytest.mark.usefixtures("x64")
@pytest.mark.parametrize("gain", [0.02, 0.2, 0.8])
@pytest.mark.parametrize(("n_rows", "size"), TABLES)
def test_the_ratio_of_the_averages_is_the_gain(n_rows, size, gain, rng):
    """While q stays in place, and with it the mean slope."""
    n_points, n_steps = 60, 400
    noises = list(epochs(n_rows, size, rng.normal(size=(n_rows, n_points)), n_steps))
    power = np.mean([(noise**2).sum() for noise, _ in noises])
    mean_slope = np.full((1, n_points), np.sqrt(gain / (1.0 - gain) * power / n_points))
    q = jax.tree.map(jax.numpy.asarray, gaussian.standard(1, n_points))
    found, ratios = adaptive_gamma.initial(q), []
    for noise, correlation in noises:
        found = _update(found._replace(gamma=0.0), q, mean_slope + noise, correlation)[0]
        ratios.append(float(found.product / found.power) if found.power > 0 else np.nan)
    assert_allclose(np.mean(ratios[100:]), gain, atol=0.03)


@pytest.mark.slow
@pytest.mark.usefixtures("x64")
@pytest.mark.parametrize("drift", [0.05, 0.2])
@pytest.mark.parametrize(("n_rows", "size"), TABLES)
def test_the_gain_on_batches_without_replacement(n_rows, size, drift, rng):
    """Somewhat above the best for the single step, for the noise in q that later batches cancel."""
    noises = epochs(n_rows, size, rng.normal(size=(n_rows, 100)), 800)
    taken, best = followed(100, drift, noises, rng)
    assert 0.9 * best < np.mean(taken[100:]) < 1.4 * best


@pytest.mark.slow
@pytest.mark.usefixtures("x64")
def test_batches_of_uneven_noise(rng):
    """An average of ratios would give those of little noise too much weight."""
    noises = (rng.choice([0.5, 3.0], p=[0.9, 0.1]) * rng.normal(size=(1, 50)) for _ in range(1500))
    taken, best = followed(50, 0.05, ((each, 0.0) for each in noises), rng)
    assert_allclose(np.mean(taken[100:]), best, rtol=0.25)


@pytest.mark.usefixtures("x64")
def test_a_direction_that_is_not_finite_leaves_the_gain():
    """And one that is far too large is forgotten."""
    q = jax.tree.map(jax.numpy.asarray, gaussian.standard(1, 4))
    direction = (jax.numpy.ones((1, 4)), jax.numpy.zeros((1, 4, 4)))
    update = jax.jit(adaptive_gamma.updated)
    for bad in (np.nan, np.inf, -1e200, -1e100, -1e10):
        gain = update(adaptive_gamma.initial(q), q, direction)
        gain = update(gain, q, (bad * direction[0], direction[1]))
        gain = update(gain, q, direction)
        assert 0.0 < float(gain.gamma) < 0.01
        for _ in range(200):
            gain = update(gain, q, direction)
        assert float(gain.gamma) > 0.9


# -- fits -----------------------------------------------------------------------------------


@functools.partial(jax.jit, static_argnames="method")
def _step_and_gain(state, constants, batch, table, gamma, rate, method):
    """A step, and what the best gain is made of: the mean slope's product with the batch's, and the batch's square."""

    def slope(batch, constants):
        def bound(m, S):
            return bounds.bound_given_q(method.basis, state.parameters, m, S, batch, constants)

        dm, dS = jax.grad(bound, argnums=(0, 1))(state.q.mean, state.q.cov)
        return adaptive_gamma._slope(natural_gradient.direction(state.q, dm, dS), state.q)

    state = whitened_anew(state, bounds.factors(method.basis, state.parameters, constants), method)
    seen = slope(batch, constants)
    toward = jax.numpy.einsum("kij,kj->ki", state.q.cov, seen)
    product = (toward * slope(table, constants._replace(scale=1.0))).sum()
    _, state, report = step.step(state, constants, batch, gamma, rate, method)
    return state, (report.gamma, product, (toward * seen).sum())


@pytest.mark.slow
@pytest.mark.parametrize("n_rows", [140, 205, 500])
def test_a_fit_takes_the_steps_that_are_best_for_its_batches(n_rows):
    """In the mean of iterations 50 to 250, by the slope of the whole table at each; hyperparameters move too."""
    rng, seen = np.random.default_rng(0), []
    X = rng.uniform(-3, 3, size=(n_rows, 2))
    y = np.sin(2.0 * X[:, 0]) + X[:, 1] ** 2 / 3.0 + 0.3 * rng.normal(size=n_rows)
    rows = batches.Table(X / X.std(0), (y - y.mean())[None] / y.std(), np.ones(n_rows))
    settings = svgp.Settings(svgp.Algorithm(adaptive=True), Auto(), Cosine(0.02, 0.0, n_steps=400), 102, max_iter=400)
    plan = svgp.Plan((ConstantKernel() * Matern([1.5, 1.5], nu=2.5),), n_inducing=20, settings=settings)
    state, constants = svgp.init(plan, rows, random_state=0)
    with jax.enable_x64(True):
        constants = jax.tree.map(jax.numpy.asarray, constants)
        stream = batches.BatchStream(rows, settings.batch_size, 0, 0, np.random.RandomState(0))
        table = jax.tree.map(jax.numpy.asarray, batches.padded(rows, 512))
        sizes = list(zip(*step_sizes(settings, 0, 250 + STEPS_PER_CALL), strict=True))
        for i in range(0, 250, STEPS_PER_CALL):
            state, drawn = refreshed(state, constants, settings.algorithm), next(stream)
            for j, (gamma, rate) in enumerate(sizes[i : i + STEPS_PER_CALL]):
                batch = jax.tree.map(lambda x, j=j: x[j], drawn)
                state, one = _step_and_gain(state, constants, batch, table, gamma, rate, settings.algorithm)
                seen.append(np.array(one, dtype=float))
    taken, product, power = np.array(seen[50:]).T
    best = product.sum() / power.sum()
    # It is above the best single step where noise of earlier minibatches is still to cancel: see `gains`.
    assert 0.8 * best < taken.mean() < 2.0 * best


@pytest.mark.slow
def test_without_noise_the_gain_is_one(rng):
    """A conjugate likelihood, the full batch and fixed hyperparameters: the optimum is one step away."""
    X = rng.normal(size=(100, 2))
    y = np.sin(2.0 * X[:, 0]) + 0.1 * rng.normal(size=100)
    options = {"kernel": RBF(1.0), "n_inducing": 20, "optimizer": None, "random_state": 0}
    model = NGDSVGPRegressor(gamma_schedule="auto", max_iter=80, n_iter_no_change=40, **options).fit(X, y)
    exact = NGDSVGPRegressor(gamma_schedule=1.0, max_iter=80, n_iter_no_change=40, **options).fit(X, y)
    # The first steps are small all the same.
    assert_allclose(model.step_sizes_[:5], 1e-3 * 1.5 ** np.array([0, 1, 2, 3, 4]))
    assert model.step_sizes_[:25].max() > 0.9
    assert_allclose(model.elbo_, exact.elbo_, rtol=1e-10)


@pytest.mark.slow
def test_minibatch_noise_shrinks_the_gain(rng):
    X = rng.uniform(-3, 3, size=(2000, 1))
    y = np.sin(2.0 * X[:, 0]) + 0.5 * rng.normal(size=2000)
    options = {"n_inducing": 20, "batch_size": 50, "max_iter": 300, "random_state": 0}
    model = NGDSVGPRegressor(gamma_schedule="auto", **options).fit(X, y)
    assert np.median(model.step_sizes_[-50:]) < 0.15
    for final in (0.1, 1.0):
        assert model.elbo_ > NGDSVGPRegressor(gamma_schedule=final, **options).fit(X, y).elbo_


def test_auto_is_for_gamma_alone():
    X, y = np.ones((5, 1)), np.arange(5.0)
    for value in ("auto", Auto()):
        with pytest.raises(ValueError, match=r"learning_rate=.*gamma_schedule"):
            NGDSVGPRegressor(learning_rate=value).fit(X, y)
    with pytest.raises(ValueError, match=r"gamma_schedule=Auto\(maximum=2.0\)"):
        NGDSVGPRegressor(gamma_schedule=Auto(maximum=2.0)).fit(X, y)
