"""The search for a minimum from few values, against scipy's."""

import numpy as np
import pytest
from scipy import optimize

from skgp_natgrad.solve.noise_search import lowest

PRECISION = 0.2


@pytest.mark.parametrize("at", [-3.7, -3.2, -1.0, 0.0, 0.4, 3.0, 8.8, 9.4])
@pytest.mark.parametrize(
    "shape", [np.square, lambda d: np.exp(d) - d, lambda d: np.exp(-d) + d, lambda d: np.exp(-d) + 0.1 * d, np.abs]
)
def test_the_minimum_is_found_with_few_values(at, shape):
    values = []

    def loss(x):
        values.append(x)
        return shape(x - at)

    found = lowest(loss, 0.0, (-4.0, 10.0), 2.0, PRECISION)
    expected = optimize.minimize_scalar(lambda x: shape(x - at), bounds=(-4.0, 10.0), method="bounded").x
    assert found == pytest.approx(expected, abs=2.0 * PRECISION)
    assert found in values
    assert len(values) == len(set(values)) <= 12
    assert min(values) >= -4.0
    assert max(values) <= 10.0


@pytest.mark.parametrize("start", [0.0, -5.0])
def test_a_valley_near_a_limit_at_which_the_search_starts(start):
    found = lowest(lambda x: (x - 0.9) ** 2, start, (0.0, 14.0), 2.0, PRECISION)
    assert found == pytest.approx(0.9, abs=2.0 * PRECISION)


def test_limits_may_leave_one_number():
    assert lowest(np.square, 3.0, (1.0, 1.0), 2.0, PRECISION) == 1.0


@pytest.mark.parametrize(("slope", "end"), [(1.0, -4.0), (-1.0, 10.0)])
def test_a_limit_may_be_the_minimum(slope, end):
    assert lowest(lambda x: slope * x, 0.0, (-4.0, 10.0), 2.0, PRECISION) == end
    assert lowest(lambda x: slope * x, 10.0, (-4.0, 10.0), 2.0, PRECISION) == end


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_values_that_are_not_finite_are_avoided(bad):
    found = lowest(lambda x: (x - 0.5) ** 2 if x > 0.0 else bad, -2.0, (-4.0, 10.0), 2.0, PRECISION)
    assert found == pytest.approx(0.5, abs=2.0 * PRECISION)
    assert lowest(lambda _: bad, 0.0, (-4.0, 10.0), 2.0, PRECISION) == 10.0


def test_a_constant_needs_no_search():
    assert lowest(lambda _: 1.0, 0.0, (-4.0, 10.0), 2.0, PRECISION) == 0.0
