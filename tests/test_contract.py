"""scikit-learn's contract under calls in random order, drawn by hypothesis."""

import numpy as np
import pytest

pytest.importorskip("hypothesis", reason="the calls are drawn by hypothesis (the extra `test`)")

from .conftest import campaign

contract = campaign("contract")


class Short(contract.Contract):
    """One estimator, and arguments that need no other program."""

    estimators = (("regressor", "float64"),)
    columns = (2,)
    values = contract.NUMBERS


def test_calls_in_random_order_keep_the_contract():
    contract.run(Short, 3, 15, derandomize=True)
    assert Short.n_calls > 30


def test_a_broken_promise_is_found(monkeypatch):
    """The check itself can fail."""
    machine = Short()
    monkeypatch.setattr(type(contract.REGRESSOR), "fit", lambda self, X, y, sample_weight=None: setattr(self, "x_", 1))
    machine.model, machine.of_labels = contract.clone(contract.REGRESSOR), False
    with pytest.raises(AssertionError, match="not refused"):
        machine.refused_fit("NaN in X", False)
    with pytest.raises(AssertionError, match=r"has \['x_'\]"):
        machine.keeps_its_word()
    machine.model = contract.clone(contract.REGRESSOR)
    with pytest.raises(AssertionError, match="changed the estimator"):
        machine.refused(lambda: np.log(machine.model.fit(1, 2) or "text"))
