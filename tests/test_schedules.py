"""Schedules: values, tuning, pickling, and the errors of their arguments."""

import pickle
import tracemalloc

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.base import clone
from sklearn.gaussian_process.kernels import RBF

from skgp_natgrad import Constant, Cosine, Linear, LogLinear, NGDSVGPRegressor, Schedule
from skgp_natgrad.training.loop import Settings, counted_iterations, step_sizes

ALL = [Constant(0.2), Linear(0.0, 0.3, 7), LogLinear(1e-4, 0.2, 9), Cosine(0.5, 0.1, 8)]


@pytest.mark.parametrize("schedule", ALL, ids=repr)
def test_scalar_and_array_agree_and_end_at_the_final_value(schedule):
    values = schedule(np.arange(20))
    assert values.shape == (20,)
    assert_allclose(values, [schedule(t) for t in range(20)])
    assert values[0] == pytest.approx(getattr(schedule, "initial", 0.2))
    assert_allclose(values[10:], getattr(schedule, "final", 0.2))


@pytest.mark.parametrize("schedule", ALL, ids=repr)
def test_pickles_and_clones(schedule):
    for copy in (pickle.loads(pickle.dumps(schedule)), clone(schedule)):
        assert copy.get_params() == schedule.get_params()


def test_steps_are_equal_in_size_or_ratio():
    assert_allclose(np.diff(Linear(0.1, 0.8, 7)(np.arange(8))), 0.1)
    values = LogLinear(1e-3, 1.0, 3)(np.arange(4))
    assert_allclose(values[1:] / values[:-1], 10.0)


class Alternating(Schedule):
    def __call__(self, iteration):
        return np.where(np.asarray(iteration) % 2, 0.1, 0.3)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_the_schedule_reaches_the_step(rng):
    X, y = rng.normal(size=(30, 1)), rng.normal(size=30)
    arguments = {"n_inducing": 5, "max_iter": 30, "optimizer": None, "random_state": 0}
    fits = [
        NGDSVGPRegressor(gamma_schedule=gamma, **arguments).fit(X, y).elbo_curve_
        for gamma in (0.1, Constant(0.1), "constant", Alternating(), LogLinear(0.05, 0.5, 10))
    ]
    assert_allclose(fits[0], fits[1])
    assert_allclose(fits[0], fits[2])
    assert not np.allclose(fits[0], fits[3])
    assert not np.allclose(fits[0], fits[4])
    # At fixed hyperparameters and a conjugate likelihood every step of size gamma closes a
    # known part of the gap in natural parameters: the bound rises at each one.
    assert all(np.all(np.diff(curve) > -1e-9) for curve in fits)


@pytest.mark.parametrize(
    ("schedule", "message"),
    [
        (1.5, "within"),
        (0.0, "within"),
        (-0.1, "within"),
        (LogLinear(0.0, 0.1), "must be positive"),
        (Linear(n_steps=0), "n_steps must be at least 1"),
        ("automatic", "must be a number, a schedule object"),
        ("loglinear", "one of .*'log_linear'"),
        (True, "must be a number"),
        (LogLinear, "must be a number"),
    ],
)
def test_bad_schedules_are_named(schedule, message):
    with pytest.raises(ValueError, match=message):
        NGDSVGPRegressor(gamma_schedule=schedule).fit(np.eye(3), np.arange(3.0))


@pytest.mark.slow
def test_ten_million_iterations_take_no_table():
    """One of their step sizes alone would be 76 MiB."""
    X = np.linspace(-2, 2, 60)[:, None]
    model = NGDSVGPRegressor(
        RBF(), n_inducing=5, max_iter=10**7, gamma_schedule=Linear(), callback=lambda n_iter, model: True
    )
    tracemalloc.start()
    try:
        model.fit(X, np.sin(X[:, 0]))
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert model.n_iter_ == 20
    assert peak < 40 * 2**20


def test_a_fit_with_no_end_in_sight_begins_at_once():
    X = np.linspace(-2, 2, 60)[:, None]
    model = NGDSVGPRegressor(RBF(), n_inducing=5, max_iter=10**15, callback=lambda n_iter, model: True)
    assert model.fit(X, np.sin(X[:, 0])).n_iter_ == 20


def test_step_sizes_of_some_iterations_are_those_of_all():
    every = Settings(gamma_schedule=LogLinear(), rate_schedule=Cosine(n_steps=50), max_iter=50)
    gammas, rates = step_sizes(every, 0, 60)
    assert_allclose(gammas[:50], every.gamma_schedule(np.arange(50)), rtol=1e-15)
    assert_array_equal(rates[50:], 10 * [every.rate_schedule(49)])
    for start in (0, 20, 40):
        some = step_sizes(every, start, 20)
        assert_allclose(some, (gammas[start : start + 20], rates[start : start + 20]), rtol=1e-15)
    assert_array_equal(counted_iterations(every)(0, 50), rates[:50] >= 0.1 * rates[0])
    assert_array_equal(counted_iterations(every)(30, 20), rates[30:50] >= 0.1 * rates[0])
