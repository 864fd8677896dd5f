"""The figures of doc/accuracy_table.inc still hold, for real tables and the whole search of kernels."""

import numpy as np
import pytest
from scipy.stats import norm

from skgp_natgrad import NGDSVGPRegressor

from .conftest import example

table = example("benchmarks", "accuracy_table")

# Seconds of which the slow tests need not wait for their turn: these run every time.
_QUICK = {"energy", "pima"}
_CASES = [pytest.param(name, marks=() if name in _QUICK else pytest.mark.slow) for name in table.CASES]


@pytest.mark.parametrize("name", _CASES)
def test_the_figures_are_those_that_landed(name):
    """Better ones are to be recorded, too: what falls behind them later is seen then."""
    case = table.CASES[name]
    if not any(table.DATA.glob(f"*/{case.dataset}.npz")):
        pytest.skip(f"{table.DATA} has no {case.dataset}.npz; SKGP_DATA gives the folder of the data sets")
    contender = case.contenders[0]
    landed, found = table.landed()[name][contender], table.figures_of(case, contender, table.DATA)
    n_test = len(table.parts_of(case, table.DATA)[0][3])
    # Of few rows one label is more than 3 %.
    one_label = 0.0 if "z" in landed else 1.5 / n_test
    said = f"{found} instead of {landed}: run examples/benchmarks/accuracy_table.py, and compare its table"
    assert found["error"] == pytest.approx(landed["error"], rel=0.03, abs=one_label), said
    assert found["density"] == pytest.approx(landed["density"], abs=0.03), said


@pytest.mark.slow
def test_nothing_set_comes_near_the_truth_on_thousands_of_rows():
    """More rows than the thresholds of the search and of the sizes; the noise is a fifth of the signal's deviation."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(8100, 4))
    signal = np.sin(2.0 * X[:, 0]) + 0.5 * X[:, 1] * X[:, 2]
    y = signal + 0.2 * rng.normal(size=len(X))
    fit, held_out = slice(6100), slice(6100, None)
    model = NGDSVGPRegressor(random_state=0).fit(X[fit], y[fit])
    mean, std = model.predict(X[held_out], return_std=True)
    errors = y[held_out] - signal[held_out]
    truth = norm.logpdf(errors, scale=0.2).mean()
    assert np.sqrt(np.mean((mean - signal[held_out]) ** 2)) < 0.032
    assert model.predict_log_density(X[held_out], y[held_out]).mean() == pytest.approx(truth, abs=0.02)
    assert np.std((y[held_out] - mean) / std) == pytest.approx(np.std(errors / 0.2), abs=0.05)
