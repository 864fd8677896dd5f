"""Kernels for a model on few inducing points are compared by its bound."""

import numpy as np
import pytest
from scipy.stats import multivariate_normal
from sklearn.gaussian_process.kernels import RBF, ConstantKernel, Matern

from skgp_natgrad import svgp
from skgp_natgrad.start import candidates, evidence, few_points, search
from skgp_natgrad.start.candidates import matern52
from skgp_natgrad.start.refinement import Candidate
from skgp_natgrad.start.view import View


def table_of(X, y, weight=None):
    return svgp.Table(X, np.atleast_2d(y), np.ones(len(X)) if weight is None else weight)


def collapsed_bound(kernel, X, y, Z, noise):
    """Titsias (2009), eq. 9, without any of the identities that make it cheap."""
    cross = kernel(X, Z)
    Q = cross @ np.linalg.solve(kernel(Z) + 1e-8 * kernel.diag(Z).mean() * np.eye(len(Z)), cross.T)
    density = multivariate_normal(np.zeros(len(X)), Q + noise * np.eye(len(X))).logpdf(y)
    return density - 0.5 * (kernel.diag(X) - Q.diagonal()).sum() / noise


def test_bound_is_the_collapsed_bound_at_the_noise_that_suits(rng):
    X, kernel = rng.normal(size=(60, 2)), ConstantKernel(0.8) * Matern([0.7, 1.3], nu=1.5)
    y = np.stack([np.sin(X[:, 0]), X[:, 1]]) + 0.1 * rng.normal(size=(2, 60))
    Z = X[np.random.RandomState(0).permutation(60)[:15]]
    each = [np.mean([collapsed_bound(kernel, X, one, Z, noise) for one in y]) for noise in few_points._NOISES]
    assert few_points.bound(kernel, table_of(X, y), 15) == pytest.approx(max(each) / 60, rel=1e-7)


def test_some_rows_stand_for_all(rng, monkeypatch):
    X = rng.normal(size=(3000, 2))
    table = table_of(X, np.sin(2.0 * X[:, 0]) + 0.3 * rng.normal(size=3000))
    whole = few_points.bound(RBF(1.0), table, 20)
    monkeypatch.setattr(few_points, "_ROWS", 1500)
    assert few_points.bound(RBF(1.0), table, 20) == pytest.approx(whole, abs=0.03)


def test_points_without_a_factor_have_no_bound():
    X = np.zeros((30, 1))
    kernel = ConstantKernel(0.0) * RBF(1.0)
    assert few_points.bound(kernel, table_of(X, np.ones(30)), 10) == -np.inf


@pytest.mark.slow
@pytest.mark.parametrize("sign", [1.0, -1.0])
def test_kernels_for_few_points_are_compared_by_their_bound(sign, rng, monkeypatch):
    """And the sum of a rough and a smooth kernel is one of two smooth ones."""
    monkeypatch.setattr(search, "OF_FEW_POINTS", (candidates.matern52, candidates.smooth_sum))
    monkeypatch.setattr(few_points, "bound", lambda kernel, table, n_points: sign * ("RBF" in repr(kernel)) * n_points)
    X = rng.normal(size=(700, 2))
    table = table_of(X, np.sin(X[:, 0]) + 0.1 * rng.normal(size=700))
    _, (found,) = search.best_kernels([table], np.random.RandomState(0), n_points=20)
    assert ("RBF" in repr(found.kernel)) == (sign > 0.0)
    assert "nu=0.5" not in repr(found.kernel)
    assert found.density == max(sign * 20.0, 0.0)
    # With a point at every row the process is the exact one.
    _, (found,) = search.best_kernels([table], np.random.RandomState(0), n_points=700)
    assert found.density not in (0.0, 20.0)


def test_the_bound_sees_each_lengthscale_at_its_own_column(rng):
    """Whatever the order in which a view has the columns."""
    X = rng.normal(size=(400, 2))
    y = np.sin(2.0 * X[:, 0])
    tables = [table_of(X[:, order], y) for order in ([0, 1], [1, 0])]
    found = []
    for table, lengths in zip(tables, ([1.0, 50.0], [50.0, 1.0]), strict=True):
        view = View(table)
        own = np.pad(np.array(lengths)[view._order], (0, 6), constant_values=1e3)
        start = view.start(matern52, own, -3.0, np.inf)[0]
        candidate = Candidate(matern52, np.inf, (evidence.Best(start, 0.0),), 0.0)
        found.append(search._compared(view, candidate, 30).density)
    assert found[0] == pytest.approx(found[1], abs=0.05)
    assert found[0] > -0.8
