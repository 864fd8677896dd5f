"""The contenders of the benchmarks, one module for each library; each runs in a process of its own.

A function that trains is called as ``train(data, settings, report)``. It trains
in blocks of ``settings["block"]`` iterations and calls ``report(n_iter, make_predictor)``
after each, until that answers true. The report stops the clock while it looks at
the model, so that nothing but training is timed.

This module needs nothing but Python: the peers live in environments without the
package.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple


class Predictor(NamedTuple):
    """A trained model, as the library's user would call it at a table of rows (N, D).

    Attributes
    ----------
    mean : callable
        Returns the mean of the target (N,).
    moments : callable
        Returns its mean and variance, noise included.
    proba : callable, optional
        Returns the probabilities of two classes (N, 2).
    """

    mean: Callable
    moments: Callable
    proba: Callable | None = None


def train_in_blocks(run, make_predictor, settings, report):
    """Take ``run(n)`` iterations at a time, until the report says that it is enough."""
    n_iter = 0
    while True:
        run(settings["block"])
        n_iter += settings["block"]
        if report(n_iter, make_predictor):
            return
