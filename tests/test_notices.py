"""Warnings in loops: what a first line holds, and how often it is shown."""

import ast
import copy
import functools
import re
import warnings
from pathlib import Path

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning
from sklearn.gaussian_process.kernels import RBF
from sklearn.utils import check_array

import skgp_natgrad
from skgp_natgrad import NGDSVGPRegressor
from skgp_natgrad._backend import notices
from skgp_natgrad._backend.notices import Notice

PACKAGE = Path(skgp_natgrad.__file__).parent


def shown(action, call):
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter(action)
        call()
    return caught


def in_a_loop(*given):
    for one in given:
        one.give()
        # Empties Python's own memory of what was shown.
        check_array([[0.0]])


def test_the_default_filter_shows_a_kind_once_at_each_line():
    first, second, other = Notice("A kind.", "1.5 nats"), Notice("A kind.", "2.5 nats"), Notice("Another.", "1 row")
    (one, another) = shown("default", lambda: in_a_loop(first, second, other, first))
    assert str(one.message) == "A kind.\n1.5 nats"
    assert str(another.message) == "Another.\n1 row"
    assert one.filename == __file__
    assert "one.give()" in Path(__file__).read_text().splitlines()[one.lineno - 1]
    # Another line is another place.
    assert len(shown("default", lambda: second.give())) == 1


def test_other_filters_do_as_always():
    one = Notice("A kind of its own.", "1.5 nats", ConvergenceWarning)
    assert len(shown("always", lambda: in_a_loop(one, one))) == 2
    assert len(shown("default", lambda: in_a_loop(one, one))) == 0
    assert len(shown("ignore", lambda: in_a_loop(one, one))) == 0
    with pytest.raises(ConvergenceWarning, match=r"A kind of its own.\n1.5 nats"):
        shown("error", lambda: in_a_loop(one))
    for start, suits in (("A kind", 2), ("Other", 0)):
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("default")
            warnings.filterwarnings("always", start)
            in_a_loop(one, one)
        assert len(caught) == suits


def test_what_was_shown_long_ago_is_forgotten(monkeypatch):
    monkeypatch.setattr(notices, "_MOST", 2)
    kinds = [Notice(f"Kind {name}.", "") for name in "abc"]
    assert len(shown("default", lambda: in_a_loop(*kinds, *kinds))) == 6
    assert len(notices._shown) == 2


def test_a_worker_without_code_of_the_user_names_what_calls_the_package(monkeypatch):
    monkeypatch.setattr(notices, "_LIBRARIES", re.compile(""))
    (one,) = shown("always", functools.partial(in_a_loop, Notice("A kind.", "")))
    assert one.filename == __file__


def test_warnings_are_given_in_one_place():
    """The predictor, which is a file of its own, has one without figures."""
    for path in PACKAGE.rglob("*.py"):
        calls = [node for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.Call)]
        warn = [call for call in calls if re.fullmatch(r"warnings\.warn(_explicit)?", ast.unparse(call.func))]
        assert len(warn) == (path.name in ("notices.py", "skgp_predictor.py")), path


X = np.random.default_rng(0).uniform(-2.0, 2.0, size=(150, 3))
KERNEL = 1.0 * RBF([1.0, 1.0, 1.0], (1e-2, 1e3))


def fits_with_an_irrelevant_column(estimator, copied):
    """As of a library that fits copies to the parts of a table; which column is irrelevant differs."""
    for column in (0, 2):
        copied(estimator).fit(X, np.sin(2.0 * X[:, 1]) + 0.1 * np.cos(40.0 * X[:, column]))


@pytest.mark.parametrize("copied", [clone, copy.deepcopy, lambda estimator: clone(copy.deepcopy(estimator))])
def test_copies_of_an_estimator_name_irrelevant_columns_once(copied, monkeypatch):
    monkeypatch.setattr(notices, "_shown", {})
    caught = shown("default", lambda: fits_with_an_irrelevant_column(NGDSVGPRegressor(KERNEL), copied))
    assert sum("irrelevant" in str(each.message) for each in caught) == 1


def test_a_fitted_copy_is_told_each_time():
    model = NGDSVGPRegressor(KERNEL).fit(X, np.sin(2.0 * X[:, 1]))
    copies = [copy.deepcopy(model) for _ in range(2)]
    caught = shown("always", lambda: [each.fit(X, np.sin(2.0 * X[:, 1])) for each in copies])
    assert sum("irrelevant" in str(each.message) for each in caught) == 2


@pytest.mark.parametrize("kernel", [None, KERNEL])
def test_few_rows_that_look_like_noise_are_no_fault_of_the_fit(kernel):
    def fits():
        rng = np.random.default_rng(1)
        for n_rows in (6, 12, 19):
            NGDSVGPRegressor(kernel).fit(rng.normal(size=(n_rows, 3)), rng.normal(size=n_rows))

    assert [str(each.message) for each in shown("always", fits) if "solver" in str(each.message)] == []
