"""Large matrices by BLAS in place: against NumPy, and the same fits as by XLA's programs."""

import jax
import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.gaussian_process.kernels import RBF, ConstantKernel, Matern

from skgp_natgrad import likelihoods, svgp
from skgp_natgrad._backend import device, in_place, linalg, placement
from skgp_natgrad.solve import class_labels, closed_form, left_out, system

N = 300
STEP = svgp.Settings(algorithm=svgp.Algorithm(solver="evidence"))


@pytest.fixture
def lower(rng):
    return np.tril(rng.normal(size=(N, N))) + 20.0 * np.eye(N)


@pytest.mark.parametrize("fewest", [256, 32])
def test_products_and_solves(rng, lower, monkeypatch, fewest):
    monkeypatch.setattr(in_place, "NUMBERS_AT_ONCE", N * fewest)
    monkeypatch.setattr(in_place, "_FEWEST_COLUMNS", fewest)
    B, weight = rng.normal(size=(N, 70)), rng.uniform(0.0, 2.0, size=70)
    expected = np.linalg.solve(lower, B)
    rows = B.copy()
    assert np.shares_memory(in_place.lower_solve(lower, rows), rows)
    assert_allclose(rows, expected, rtol=1e-12, atol=1e-14)
    assert np.shares_memory(in_place.lower_product(lower, rows), rows)
    assert_allclose(rows, B, rtol=1e-12, atol=1e-12)
    assert_allclose(in_place.squared_lengths(lower, B), ((lower @ B) ** 2).sum(0), rtol=1e-12)
    start = rng.normal(size=(N, N))
    total = start.copy()
    in_place.add_gram(total, B, weight)
    expected = start + (B * weight) @ B.T
    assert_allclose(np.tril(total), np.tril(expected), rtol=1e-12, atol=1e-12)
    assert_array_equal(np.triu(total, 1), np.triu(start, 1))
    in_place.mirrored(total)
    assert_array_equal(total, total.T)
    assert_allclose(np.tril(total), np.tril(expected), rtol=1e-12, atol=1e-12)
    assert_allclose(in_place.triangular_inverse(lower) @ lower, np.eye(N), atol=1e-12)


def test_a_solve_takes_the_place_of_what_jax_has_computed(rng, lower, x64):
    B = rng.normal(size=(N, 70))
    computed = jax.jit(lambda x: 2.0 * x)(B)
    solved = in_place.lower_solve(lower, np.asarray(computed))
    if next(iter(computed.devices())).platform == "cpu":
        assert solved.ctypes.data == computed.unsafe_buffer_pointer()
    assert_allclose(solved, np.linalg.solve(lower, 2.0 * B), rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize("h", [1.0, 1e6, 1e12])
def test_variances_by_the_inverse_root_are_as_exact_as_by_solves(rng, h):
    """Of A = U diag(d) Q with orthonormal rows, for which a^T (I + h A A^T)^-1 a is known."""
    U, Q = np.linalg.qr(rng.normal(size=(N, N)))[0], np.linalg.qr(rng.normal(size=(400, N)))[0].T
    d = np.logspace(0.0, -6.0, N)
    A = U @ (d[:, None] * Q)
    expected = ((d**2 / (1.0 + h * d**2))[:, None] * Q**2).sum(0)
    root = in_place.cholesky_of_sum(h * (A @ A.T), 1.0)
    by_solves = in_place.lower_solve(root, A.copy())
    by_inverse = in_place.lower_product(in_place.triangular_inverse(root), A.copy())
    error, least = (np.abs((half * half).sum(0) / expected - 1.0).max() for half in (by_inverse, by_solves))
    assert error <= 2.0 * least + 1e-13


def test_factors(rng, lower):
    A = lower @ lower.T
    # Only the lower triangle is read.
    L = in_place.cholesky_of_sum(np.tril(A - np.eye(N)) / 3.0, 3.0)
    assert_allclose(L, lower, rtol=1e-10, atol=1e-11)
    b = rng.normal(size=N)
    assert_allclose(A @ in_place.cholesky_solve(L, b), b, rtol=1e-9)
    assert_allclose(in_place.cholesky_inverse(L), np.linalg.inv(A), rtol=1e-8, atol=1e-12)


def test_jitter_only_where_a_factor_needs_it(rng):
    half = rng.normal(size=(N, 40))
    A = half @ half.T
    L = in_place.cholesky_of_sum(A - np.eye(N), 1.0)
    assert_allclose(L @ L.T, A, atol=1e-9 * np.trace(A))
    assert np.all(np.isnan(in_place.cholesky_of_sum(-np.eye(N), 2.0)))


@pytest.mark.parametrize("jitter", [1e-20, 1e-4])
def test_jitter_grows_as_in_xla(rng, x64, jitter):
    half = rng.normal(size=(N, 40))
    L, used = in_place.jittered_cholesky(half @ half.T, jitter)
    expected, same = linalg.jittered_cholesky(half @ half.T, jitter)
    assert used == pytest.approx(float(same), rel=1e-12)
    assert_allclose(L @ L.T, half @ half.T + used * np.eye(N), atol=1e-10)
    assert_allclose(expected @ expected.T, L @ L.T, atol=1e-10)


def test_it_pays_for_large_and_for_small_matrices_in_the_memory_of_one_cpu():
    with device.computation():
        on_one_cpu = jax.default_backend() == "cpu"
        assert placement.on_one_cpu() == in_place.pays(500, 5000) == in_place.pays(2000, 10**6) == on_one_cpu
        # Sums over many rows of few points are left to XLA's threads, unless there are others.
        assert not in_place.pays(500, 10**6)
        assert in_place.pays(500, 10**6, True) == on_one_cpu
        one = jax.devices()[0]
        with placement.using(placement.Placement([one, one])):
            assert not in_place.pays(2000, 10**6)
    with device.computation("cpu"):
        assert in_place.pays(2000, 10**6)


@pytest.fixture(autouse=True)
def _as_on_one_cpu(monkeypatch):
    monkeypatch.delenv(placement.SWITCH, raising=False)


def both_ways(monkeypatch, solve):
    """What ``solve()`` returns by XLA, and in place."""
    calls, add = [], in_place.add_gram
    monkeypatch.setattr(in_place, "add_gram", lambda *arguments: calls.append(1) or add(*arguments))
    found = both_ways_of(monkeypatch, lambda: (solve(), len(calls)))
    assert [n for _, n in found] == [0, len(calls)]
    assert calls
    return [each for each, _ in found]


def both_ways_of(monkeypatch, solve):
    found = []
    for pays in (False, True):
        monkeypatch.setattr(in_place, "pays", lambda *sizes, pays=pays: pays)
        found.append(solve())
    return found


def regression(rng, n_targets, missing, known):
    X = rng.normal(size=(N, 3))
    y = np.sin(2.0 * X).sum(1) + 0.1 * rng.normal(size=(n_targets, N))
    if missing:
        y[0, :40] = np.nan
    return svgp.Table(X, y, rng.uniform(0.5, 2.0, N), known=rng.uniform(0.0, 0.1, (n_targets, N)) if known else None)


@pytest.mark.parametrize("missing", [False, True])
@pytest.mark.parametrize("known", [False, True])
@pytest.mark.parametrize("n_kernels", [0, 1, 2])
def test_q_in_closed_form_is_the_same(rng, x64, monkeypatch, n_kernels, known, missing):
    """One target, and two with one kernel or one each."""
    n_targets = max(2 * (n_kernels > 0), 1)
    table = regression(rng, n_targets, missing, known)
    kernels = (ConstantKernel(1.3) * Matern(1.2, nu=2.5), ConstantKernel(0.7) * RBF(1.5))[: max(n_kernels, 1)]
    plan = svgp.Plan(
        kernels,
        likelihoods.Gaussian(np.full((n_targets, 1), 0.01)),
        n_inducing=60,
        inducing_init="random",
        settings=STEP,
    )
    state, constants = svgp.init(plan, table, random_state=0)

    def solve():
        return closed_form.solve(state.parameters, constants, table, np.random.RandomState(0))

    expected, found = both_ways(monkeypatch, solve)
    assert isinstance(found.q.cov, np.ndarray)
    for one, other in zip(jax.tree.leaves(expected), jax.tree.leaves(found), strict=True):
        assert_allclose(other, one, rtol=1e-8, atol=1e-9 * np.abs(one).max(initial=0.0))


@pytest.mark.parametrize("n_kernels", [1, 2])
def test_sums_over_many_rows_by_xla_and_the_rest_in_place(rng, x64, monkeypatch, n_kernels):
    table = regression(rng, 2, missing=False, known=False)
    kernels = (ConstantKernel(1.3) * Matern(1.2, nu=2.5), ConstantKernel(0.7) * RBF(1.5))[:n_kernels]
    noise = likelihoods.Gaussian(np.full((2, 1), 0.01))
    plan = svgp.Plan(kernels, noise, n_inducing=60, inducing_init="random", settings=STEP)
    state, constants = svgp.init(plan, table, random_state=0)
    found = []
    for few in (np.inf, 0.0):
        monkeypatch.setattr(in_place, "_FEW_OPERATIONS", few)
        assert in_place.pays(60, N) == (few > 0.0)
        found.append(closed_form.solve(state.parameters, constants, table, np.random.RandomState(0)))
    for one, other in zip(*map(jax.tree.leaves, found), strict=True):
        assert_allclose(other, one, rtol=1e-8, atol=1e-9 * np.abs(one).max(initial=0.0))


@pytest.mark.parametrize("counts", [True, False])
def test_held_out_rows_stay_as_they_are(rng, x64, monkeypatch, counts):
    """Also where no row counts."""
    half, A = rng.normal(size=(40, 60)), rng.normal(size=(40, 30))
    weight = np.where(np.arange(30) < 20, rng.uniform(size=30), 0.0) * counts
    of_rows = rng.normal(size=30), weight, 0.1 * np.ones(30), np.ones(30)
    held = left_out.HeldOutRows(np.arange(30), None, *(each[None] for each in of_rows), *np.ones((3, 1, 30)))
    sums = system.Sums((half @ half.T)[None], half[None, :, 0], *np.ones((4, 1)))
    before, rows = A.copy(), left_out.OnPoints(sums, A[None], rng.uniform(size=(1, 30)), held)
    found = both_ways_of(monkeypatch, lambda: left_out.left_out_of(rows, 0, -1.0))
    assert_allclose(*found, rtol=1e-10)
    assert_array_equal(A, before)


@pytest.mark.slow
@pytest.mark.parametrize(("likelihood", "n_classes"), [(likelihoods.Bernoulli(), 2), (likelihoods.Softmax(), 3)])
def test_class_labels_are_the_same(rng, monkeypatch, likelihood, n_classes):
    X = rng.normal(size=(N, 2))
    y = np.digitize(X[:, 0] + 0.3 * rng.normal(size=N), [-0.5, 0.5][: n_classes - 1]).astype(float)
    table = svgp.Table(X, y[None], np.ones(N))
    kernels = (ConstantKernel(3.0) * Matern(1.2, nu=2.5),)
    plan = svgp.Plan(kernels, likelihood.prepare(table.y, n_classes), n_classes, n_inducing=50, settings=STEP)
    state, constants = svgp.init(plan, table, random_state=0)

    def solve():
        with device.computation():
            return class_labels.solve(state.parameters, constants, table, np.random.RandomState(0))

    expected, found = both_ways(monkeypatch, solve)
    assert_allclose(found.elbo, expected.elbo, rtol=1e-9)
    assert_allclose(found.q.mean, expected.q.mean, rtol=1e-6, atol=1e-7)
    assert_allclose(found.q.cov, expected.q.cov, rtol=1e-6, atol=1e-8)


@pytest.mark.parametrize("n_kernels", [1, 2])
def test_models_predict_the_same(rng, monkeypatch, n_kernels):
    table = regression(rng, 2, missing=False, known=False)
    kernels = (ConstantKernel(1.3) * RBF(3.0), ConstantKernel(0.7) * Matern(1.5, nu=1.5))[:n_kernels]
    noise = likelihoods.Gaussian(np.full((2, 1), 0.01))
    plan = svgp.Plan(kernels, noise, n_inducing=120, inducing_init="random", settings=STEP, jitter=1e-9)

    def predicted():
        result = svgp.train(*svgp.init(plan, table, random_state=0), table, plan, random_state=0)
        model, jitter = svgp.condition(result.state, result.constants, plan)
        return *svgp.predict(model, table.X[:80] + 0.1, "target_moments"), jitter

    (mean, var, jitter), found = both_ways(monkeypatch, predicted)
    assert_allclose(found[0], mean, rtol=1e-6, atol=1e-6)
    assert_allclose(found[1], var, rtol=1e-6)
    assert found[2] == pytest.approx(jitter, rel=1e-12)
