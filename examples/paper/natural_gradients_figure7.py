"""Figure 7 of the natural gradient paper: mnist, robust-max likelihood.

    python examples/paper/natural_gradients_figure7.py [--quick]

The test log-likelihood of NGD+Adam and Adam on the standard test part;
minibatches of 1024 rows, kernel variance 10, the natural gradient log-linear from
1e-6 to 0.02 over 2000 iterations.
"""

import sys

import _natural as natural

if __name__ == "__main__":
    sys.exit(
        natural.held_out_figure(
            "natural_gradients_figure7",
            "Figure 7: mnist, robust-max likelihood",
            __doc__,
            {"mnist": "robust_max"},
            {"initial": 1e-6, "final": 0.02, "n_steps": 2000},
            batch_size=1024,
            kernel_variance=10.0,
        )
    )
