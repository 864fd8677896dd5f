"""Figure 6 of the natural gradient paper: larger regression sets, Student-t likelihood.

    python examples/paper/natural_gradients_figure6.py [--quick]

The test log-likelihood of NGD+Adam and Adam on kin8nm, power and protein;
minibatches of 256 rows, the natural gradient log-linear from 1e-4 to 0.1 in 40
steps. The paper's fourth set, year, is not among the data.
"""

import sys

import _natural as natural

if __name__ == "__main__":
    sys.exit(
        natural.held_out_figure(
            "natural_gradients_figure6",
            "Figure 6: larger sets, Student-t likelihood",
            __doc__,
            {"kin8nm": "student_t", "power": "student_t", "protein": "student_t"},
            natural.SCHEDULE | {"n_steps": 40},
            batch_size=256,
        )
    )
