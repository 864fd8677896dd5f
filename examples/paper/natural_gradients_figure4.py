"""Figure 4 of the natural gradient paper: hyperparameters are trained too.

    python examples/paper/natural_gradients_figure4.py [--quick]

As figure 3, with kernel, likelihood and inducing points trained: a step of Adam
on these and a natural gradient step on q in turn (NGD+Adam), against Adam and
gradient descent on everything. NGD+Adam uses the rate found for Adam.
"""

import sys

import _natural as natural

if __name__ == "__main__":
    title = "Figure 4: joint optimisation of hyperparameters and q"
    methods = ("ngd+adam", "adam", "gd")
    failures = natural.stochastic_figure("natural_gradients_figure4", title, __doc__, True, methods)
    sys.exit(1 if failures else 0)
