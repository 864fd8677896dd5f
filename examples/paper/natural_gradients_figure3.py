"""Figure 3 of the natural gradient paper: stochastic optimisation, fixed hyperparameters.

    python examples/paper/natural_gradients_figure3.py [--quick]

Minibatches of 256 rows, 5000 iterations, five splits; the bound against the
seconds of training. Adam and gradient descent take the largest power of ten that
remains stable; the natural gradient goes log-linearly from 1e-4 to 0.1 in 5 steps.
"""

import sys

import _natural as natural

if __name__ == "__main__":
    title = "Figure 3: stochastic optimisation, fixed hyperparameters"
    methods = ("ngd", "adam", "gd")
    failures = natural.stochastic_figure("natural_gradients_figure3", title, __doc__, False, methods)
    sys.exit(1 if failures else 0)
