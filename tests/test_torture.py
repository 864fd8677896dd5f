"""Random fits on awkward tables, drawn by hypothesis; ``SKGP_TORTURE_CASES`` says how many."""

import os

import numpy as np
import pytest

from .conftest import campaign

hypothesis = pytest.importorskip("hypothesis", reason="the cases are drawn by hypothesis (the extra `test`)")
st = hypothesis.strategies

N_CASES = int(os.environ.get("SKGP_TORTURE_CASES", "4"))
torture = campaign("torture")

CASES = st.builds(
    lambda pair, *rest: torture.Case(*pair, *rest),
    st.sampled_from(torture.every_likelihood()),
    st.sampled_from(torture.PARAMETERIZATIONS),
    st.sampled_from(torture.BASES),
    st.sampled_from(torture.GAMMAS),
    st.sampled_from(torture.DTYPES),
    st.booleans(),
    st.sampled_from(torture.RATIOS),
    st.sampled_from(torture.PATHOLOGIES),
    st.integers(0, 2**31 - 1),
)


@pytest.mark.slow
@hypothesis.settings(max_examples=N_CASES, deadline=None, derandomize=True, database=None)
@hypothesis.given(case=CASES)
def test_every_fit_is_finite_or_refused(case):
    assert torture.run(case) in (
        *(torture.BETTER, torture.WARNED, torture.UNKNOWN),
        *("refused: one class", "refused: diverged"),
    )


def test_what_is_not_finite_is_found():
    """The check itself can fail."""

    class Model:
        elbo_, n_clipped_steps_, n_rejected_steps_, n_iter_ = float("nan"), 0, 0, 1

    case = torture.Case("regression", "gaussian", "natural", "coupled", 0.1, "float64", False, 1.0, "none", 0)
    with pytest.raises(AssertionError, match="elbo_"):
        torture.check(Model(), case, None)


def test_a_fit_below_the_constant_must_have_warned():
    class Model:
        def predict_log_density(self, X, y):
            return np.full(len(y), -1.6)

    case = torture.Case("regression", "gaussian", "natural", "coupled", 0.1, "float64", False, 1.0, "none", 0)
    X, y = np.zeros((4, 1)), np.array([1.0, -1.0, 1.0, -1.0])
    assert torture.compared(Model(), case, X, y, None, ["a warning"]) == torture.WARNED
    assert torture.compared(Model(), case, X, 1.2 * y, None, []) == torture.BETTER
    with pytest.raises(AssertionError, match="no warning"):
        torture.compared(Model(), case, X, y, None, [])
