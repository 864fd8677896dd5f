"""The figures of both papers: run what is missing, print the state at the end of training, draw.

    python examples/paper/figures.py natural4                 # the paper's settings
    python examples/paper/figures.py natural4 --quick         # minutes; marked as such
    python examples/paper/figures.py orthogonal2 --panels a b --pictures doc/pictures
    python examples/paper/figures.py natural4 --help          # what a figure takes

natural1 to natural7 are those of the natural gradient paper (natural2 draws 8 to 13 of its
supplement, too), orthogonal2 and orthogonal3 those of the orthogonal one.
"""

from __future__ import annotations

import sys

import _natural as natural
import _natural_figure1
import _natural_figure2
import _natural_figure5
import _orthogonal_curves as curves


def natural3(argv):
    """Figure 3 of the natural gradient paper: stochastic optimisation, fixed hyperparameters.

    Minibatches of 256 rows, 5000 iterations, five splits; the bound against the
    seconds of training. Adam and gradient descent take the largest power of ten that
    remains stable; the natural gradient goes log-linearly from 1e-4 to 0.1 in 5 steps.
    """
    title = "Figure 3: stochastic optimisation, fixed hyperparameters"
    return natural.stochastic_figure("natural3", title, natural3.__doc__, False, ("ngd", "adam", "gd"), argv)


def natural4(argv):
    """Figure 4 of the natural gradient paper: hyperparameters are trained too.

    As figure 3, with kernel, likelihood and inducing points trained: a step of Adam
    on these and a natural gradient step on q in turn (NGD+Adam), against Adam and
    gradient descent on everything. NGD+Adam uses the rate found for Adam. The table
    has the estimator with nothing set as well.
    """
    title = "Figure 4: joint optimisation of hyperparameters and q"
    return natural.stochastic_figure("natural4", title, natural4.__doc__, True, natural.JOINT, argv)


def natural6(argv):
    """Figure 6 of the natural gradient paper: larger regression sets, Student-t likelihood.

    The test log-likelihood of NGD+Adam and Adam on kin8nm, power and protein;
    minibatches of 256 rows, the natural gradient log-linear from 1e-4 to 0.1 in 40
    steps. The paper's fourth set, year, is not among the data. A point is the
    estimator with nothing set.
    """
    title, sets = "Figure 6: larger sets, Student-t likelihood", ("kin8nm", "power", "protein")
    schedule = natural.SCHEDULE | {"n_steps": 40}
    made = {"batch_size": 256}
    return natural.held_out_figure(
        "natural6", title, natural6.__doc__, dict.fromkeys(sets, "student_t"), schedule, argv, **made
    )


def natural7(argv):
    """Figure 7 of the natural gradient paper: mnist, robust-max likelihood.

    The test log-likelihood of NGD+Adam and Adam on the standard test part;
    minibatches of 1024 rows, kernel variance 10, the natural gradient log-linear from
    1e-6 to 0.02 over 2000 iterations.
    """
    schedule = {"initial": 1e-6, "final": 0.02, "n_steps": 2000}
    made = {"batch_size": 1024, "kernel_variance": 10.0}
    title = "Figure 7: mnist, robust-max likelihood"
    return natural.held_out_figure("natural7", title, natural7.__doc__, {"mnist": "robust_max"}, schedule, argv, **made)


FIGURES = {
    "natural1": _natural_figure1.main,
    "natural2": _natural_figure2.main,
    "natural3": natural3,
    "natural4": natural4,
    "natural5": _natural_figure5.main,
    "natural6": natural6,
    "natural7": natural7,
    "orthogonal2": curves.figure2,
    "orthogonal3": curves.figure3,
}


def main(argv=None):
    name, *rest = (sys.argv[1:] if argv is None else argv) or [""]
    if name not in FIGURES:
        print(__doc__ + f"\nFigures: {', '.join(FIGURES)}")
        return 0 if name in ("-h", "--help") else 2
    return FIGURES[name](rest)


if __name__ == "__main__":
    sys.exit(main())
