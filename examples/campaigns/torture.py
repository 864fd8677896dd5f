"""Random fits on awkward tables: every prediction must be finite, every refusal explained.

    python examples/campaigns/torture.py --results campaigns.jsonl

A case is a likelihood, a solver, an objective, a parameterization, a basis, a step size, a precision, a
ratio of signal to noise from 1 to 1e8, and a pathology of the data; one in ten has nothing set. A fit whose
density of its own training rows is below that of a constant must have warned. Most of the time is
compilation: ``--cases-per-program`` cases in a row share all that is compiled in, and differ in the data,
their pathology and the step size, and ``XLA_FLAGS=--xla_backend_optimization_level=0`` halves what a
program takes.
"""

from __future__ import annotations

import sys
import warnings
from typing import NamedTuple

import _campaign
import jax
import numpy as np
from scipy.special import xlogy
from scipy.stats import binom, norm, poisson
from sklearn.exceptions import ConvergenceWarning
from sklearn.gaussian_process.kernels import RBF, ConstantKernel, Matern

from skgp_natgrad import NGDSVGPClassifier, NGDSVGPRegressor
from skgp_natgrad.likelihoods import Censored, Gaussian, StudentT, Tweedie, names

PARAMETERIZATIONS = ("natural", "natural_sqrt", "natural_log", "mean_var", "mean_var_sqrt", "mean_var_log")
DTYPES = _campaign.DTYPES
# Natural gradients more often than others.
SOLVERS = ("ngd", "ngd", "ngd", "adam", "lbfgs", "evidence")
OBJECTIVES = ("elbo", "elbo", "elbo", "predictive", "tightened")
BASES = ("coupled", "orthogonal", "hybrid")
GAMMAS = ("auto", "log_linear", 0.01, 0.1, 0.5, 1.0)
RATIOS = (1.0, 1e2, 1e4, 1e6, 1e8)
PATHOLOGIES = (
    "none",
    "duplicated rows",
    "constant columns",
    "outlier in X",
    "outlier in y",
    "one row",
    "two rows",
    "three rows",
    "scales",
    "duplicated points",
    "short lengthscale",
    "long lengthscale",
    "weights",
)
N_FEATURES = 3
# A fit that is not converged warns, and is compared with nothing; long fits take most of the campaign's time.
ITERATIONS = (100,) * 7 + (600,)
# One block of cases in so many has nothing set.
NOTHING_SET = 10
POSITIVE = ("gamma", "exponential", "lognormal")
# Of each row, where y counts successes.
N_TRIALS = 12
# Nats a row by which a fit may be worse than a constant without a warning; its bound, which is trained, may not.
_WORSE = 0.1
# What a finite fit is.
BETTER, WARNED = "finite, without a warning and no worse than a constant", "finite, with a warning"
UNKNOWN = "finite, without a warning; no constant is known"


class Case(NamedTuple):
    """One fit."""

    task: str
    likelihood: str
    parameterization: str
    basis: str
    gamma: object
    dtype: str
    minibatch: bool
    ratio: float
    pathology: str
    seed: int
    solver: str = "ngd"
    objective: str = "elbo"
    nothing_set: bool = False
    max_iter: int = 100


def every_likelihood():
    """Pairs of a task and a likelihood."""
    return [(task, name) for task in ("regression", "classification") for name in names(task)]


def one_of(rng, options):
    """Draw one of the options."""
    return options[rng.integers(len(options))]


def random_case(rng):
    """Draw a case."""
    task, likelihood = one_of(rng, every_likelihood())
    chosen = [one_of(rng, options) for options in (PARAMETERIZATIONS, BASES, GAMMAS, DTYPES)]
    ratio, pathology = one_of(rng, RATIOS), one_of(rng, PATHOLOGIES)
    solver, objective, nothing_set = one_of(rng, SOLVERS), one_of(rng, OBJECTIVES), rng.integers(NOTHING_SET) == 0
    minibatch = bool(rng.integers(2)) and solver != "lbfgs"
    if solver == "evidence":
        chosen[1], objective = "coupled", "elbo"
    drawn = Case(task, likelihood, *chosen, minibatch, ratio, pathology, int(rng.integers(2**31)), solver, objective)
    return drawn._replace(nothing_set=bool(nothing_set), max_iter=one_of(rng, ITERATIONS))


def numbered_case(args, number):
    """The case of a number; so many in a row have one program, which knows a fixed step size from one found alone."""
    first = random_case(_campaign.rng_of(args, 10**9 + number // args.cases_per_program))
    rng = _campaign.rng_of(args, number)
    fixed = [gamma for gamma in GAMMAS if gamma != "auto"]
    gamma = "auto" if first.gamma == "auto" else one_of(rng, fixed)
    numbers = {"gamma": gamma, "ratio": one_of(rng, RATIOS), "seed": int(rng.integers(2**31))}
    return first._replace(**numbers, pathology=one_of(rng, PATHOLOGIES))


def table(case):
    """The rows of a case: X, y and weights or None."""
    rng = np.random.default_rng(case.seed)
    n = {"one row": 1, "two rows": 2, "three rows": 3}.get(case.pathology, 50)
    X = rng.normal(size=(n, N_FEATURES))
    if case.pathology == "duplicated rows":
        X = X[rng.integers(n // 3, size=n)]
    if case.pathology == "constant columns":
        X[:, 1:] = 7.0
    if case.pathology == "outlier in X":
        X[0, 0] = 1e6
    if case.pathology == "scales":
        X = X * 10.0 ** np.array([-12.0, 0.0, 12.0])
    noise = 0.1 / np.sqrt(case.ratio) * rng.normal(size=n)
    y = targets(case, np.tanh(X[:, 0] / (np.abs(X[:, 0]).max() + 1e-300)) + noise, rng)
    weight = rng.uniform(0.0, 1.0, size=n) ** 8 * 1e3 if case.pathology == "weights" else None
    return X, y, weight


def targets(case, f, rng):
    """Targets that the likelihood can observe, with an outlier where it can be one."""
    outlier = case.pathology == "outlier in y"
    if case.task == "classification":
        n_classes = 2 if case.likelihood == "bernoulli" else 3
        y = np.digitize(f, [0.0] if n_classes == 2 else [-0.2, 0.2])
        # Whatever the rows, no class is missing.
        y[: min(len(y), n_classes)] = np.arange(n_classes)[: len(y)]
        return y
    if case.likelihood in ("poisson", "negative_binomial", "zero_inflated_poisson"):
        y = rng.poisson(np.exp(f))
        y[0] = 10**6 if outlier else y[0]
    elif case.likelihood == "binomial":
        y = rng.binomial(N_TRIALS, 1.0 / (1.0 + np.exp(-3.0 * f)))
        y[0] = N_TRIALS if outlier else y[0]
    elif case.likelihood == "tweedie":
        y = np.exp(f) * rng.gamma(2.0 * rng.poisson(1.0, size=len(f)))
        y[0] = 1e6 if outlier else y[0]
    elif case.likelihood == "ordinal":
        y = np.digitize(f, [-0.2, 0.2])
        y[: min(len(y), 3)] = np.arange(3)[: len(y)]
    elif case.likelihood in ("beta", "chained_beta"):
        y = 1.0 / (1.0 + np.exp(-3.0 * f))
        y[0] = 1e-9 if outlier else y[0]
    elif case.likelihood in POSITIVE:
        y = np.exp(f) * rng.gamma(2.0, size=len(f))
        y[0] = 1e6 if outlier else y[0]
    else:
        # Censored at zero, the default, if at all.
        y = np.maximum(f, 0.0) if case.likelihood == "censored" else f.copy()
        y[0] = 1e6 if outlier else y[0]
    return y


def known(case):
    """What is known of the rows besides X and y, by the name of the argument."""
    return {"trials": N_TRIALS} if case.likelihood == "binomial" else {}


def estimator(case, X):
    """The estimator of a case."""
    lengthscale = {"short lengthscale": 1e-5, "long lengthscale": 1e5}.get(case.pathology)
    bounds = (1e-5, 1e5) if lengthscale is None else "fixed"
    lengthscale = lengthscale or 1.0
    # The noise of a number, and the prior variance, each take their half of the ratio.
    amplitude = np.sqrt(case.ratio)
    kernel = ConstantKernel(amplitude) * RBF(np.full(N_FEATURES, lengthscale), bounds)
    kernel = kernel + Matern(lengthscale, bounds, nu=2.5)
    points = "greedy_variance"
    if case.pathology == "duplicated points":
        points = np.repeat(X[:3], 2, axis=0)
    cls = NGDSVGPRegressor if case.task == "regression" else NGDSVGPClassifier
    if case.nothing_set:
        return cls(likelihood=case.likelihood, dtype=case.dtype, random_state=0)
    return cls(
        kernel,
        solver=case.solver,
        objective=case.objective,
        likelihood=likelihood_of(case, 1.0 / amplitude),
        parameterization=case.parameterization,
        n_inducing=6,
        n_mean_inducing=0 if case.basis == "coupled" else 4,
        basis="orthogonal" if case.basis == "coupled" else case.basis,
        inducing_init=points,
        gamma_schedule=case.gamma,
        dtype=case.dtype,
        batch_size=20 if case.minibatch else 1024,
        max_iter=case.max_iter,
        n_iter_no_change=10,
        tol=1e-2,
        random_state=0,
    )


def likelihood_of(case, noise):
    """The likelihood, with that variance of the noise where it starts from one."""
    return {
        "gaussian": Gaussian(noise, (1e-10, 1e3)),
        "censored": Censored(variance=noise, variance_bounds=(1e-10, 1e3)),
        "student_t": StudentT(scale=np.sqrt(noise), scale_bounds=(1e-5, 1e3)),
    }.get(case.likelihood, case.likelihood)


def run(case):
    """Fit and predict; returns what it was, or the refusal. Anything else raises."""
    X, y, weight = table(case)
    if case.task == "classification" and len(np.unique(y)) < 2:
        return expect_refusal(case, X, y, weight)
    model = estimator(case, X)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("error")
        warnings.simplefilter("always", ConvergenceWarning)
        warnings.filterwarnings("always", message="y is constant.*", category=UserWarning)
        warnings.filterwarnings("ignore", message="There are fewer points than asked for.*", category=UserWarning)
        warnings.filterwarnings("ignore", message="Without effect.*", category=UserWarning)
        warnings.filterwarnings("ignore", message="The fit has a single row.*", category=UserWarning)
        # The last rows of the check are ten times as far out as those of the fit.
        warnings.filterwarnings("ignore", message="X lies far outside.*", category=UserWarning)
        try:
            model.fit(X, y, sample_weight=weight, **known(case))
        except FloatingPointError as error:
            if str(error).startswith("Training diverged"):
                return "refused: diverged"
            raise
        except ValueError as error:
            if any(name in str(error) for name in ("solver=", "objective=", "parameterization=")):
                return "refused: arguments"
            raise
        check(model, case, np.concatenate([X, X.mean(0, keepdims=True), 10.0 * X[:3]]))
    return compared(model, case, X, y, weight, caught)


def compared(model, case, X, y, weight, caught):
    """What a finite fit is beside a constant, by the density of its training rows; one that warns may be anything."""
    if caught:
        return WARNED
    weight = np.ones(len(y)) if weight is None else weight
    constant = constant_density(case, y, weight)
    if len(y) <= 3 or constant is None:
        return UNKNOWN
    if case.task == "classification":
        each = np.take_along_axis(model.predict_log_proba(X), np.searchsorted(model.classes_, y)[:, None], axis=1)[:, 0]
    else:
        each = model.predict_log_density(X, y, **known(case))
    value = np.average(each, weights=weight)
    assert value >= constant - _WORSE, f"{value:.3g} nats a row, a constant has {constant:.3g}, and no warning"
    return BETTER


def constant_density(case, y, weight):
    """The log density of y under a constant of its kind, in nats a row, or less; None if none is known."""
    average = np.average(y, weights=weight)
    if case.task == "classification" or case.likelihood == "ordinal":
        p = np.bincount(y, weights=weight) / weight.sum()
        # The levels' distances may be fixed.
        return xlogy(p, p).sum() if case.task == "classification" else None
    if case.likelihood in ("poisson", "negative_binomial", "zero_inflated_poisson"):
        return np.average(poisson.logpmf(y, average), weights=weight)
    if case.likelihood in ("gamma", "exponential"):
        return -np.log(average) - 1.0
    if case.likelihood in ("beta", "chained_beta"):
        return 0.0
    if case.likelihood == "binomial":
        return np.average(binom.logpmf(y, N_TRIALS, average / N_TRIALS), weights=weight)
    if case.likelihood == "lognormal":
        of_logarithm = constant_density(case._replace(likelihood="gaussian"), np.log(y), weight)
        return None if of_logarithm is None else of_logarithm - np.average(np.log(y), weights=weight)
    variance = np.average((y - average) ** 2, weights=weight)
    if case.likelihood == "tweedie":
        return _tweedie_density(y, average, variance, weight)
    if case.likelihood == "censored" and variance > 0.0:
        law = norm(average, np.sqrt(variance))
        return np.average(np.where(y > 0.0, law.logpdf(y), law.logcdf(0.0)), weights=weight)
    return -0.5 * np.log(2.0 * np.pi * np.e * variance) if variance > 0.0 else None


def _tweedie_density(y, average, variance, weight):
    """The density of y under the compound law of power 1.5 with its mean and variance."""
    if not (average > 0.0 and variance > 0.0):
        return None
    with jax.enable_x64(True):
        law = Tweedie(1.5, variance / average**1.5, dispersion_bounds=(1e-300, 1e300)).value_and_bounds(1)[0]
        return np.average(law.log_prob(np.full((1, len(y)), np.log(average)), y[None])[0], weights=weight)


def expect_refusal(case, X, y, weight):
    """One class cannot be told from others: a ValueError says so."""
    try:
        estimator(case, X).fit(X, y, sample_weight=weight)
    except ValueError as error:
        if "class" in str(error):
            return "refused: one class"
        raise
    raise AssertionError("one class was accepted")


def check(model, case, X):
    """All that is fitted or predicted is finite."""
    assert np.isfinite(model.elbo_), "elbo_"
    assert np.all(np.isfinite(model.elbo_curve_)), "elbo_curve_"
    assert model.n_clipped_steps_ <= model.n_rejected_steps_ <= model.n_iter_, "counts of steps"
    if case.task == "regression":
        mean, std = model.predict(X, return_std=True)
        # Under an absurd latent variance a logarithmic link's mean is infinite in truth.
        logarithmic = case.likelihood in ("poisson", "negative_binomial", "tweedie", *POSITIVE)
        assert not np.any(np.isnan([mean, std])), "NaN"
        assert logarithmic or np.all(np.isfinite([mean, std])), "not finite"
        assert np.all(std > 0) or case.likelihood == "ordinal", "std"
    else:
        probability = model.predict_proba(X)
        assert np.all(np.isfinite(probability)), "predict_proba"
        assert np.allclose(probability.sum(1), 1.0), "sum of probabilities"
        assert set(np.unique(model.predict(X))) <= set(model.classes_), "predict"


def perform(number, args):
    """The record of a case."""
    case = numbered_case(args, number)
    try:
        return {"dtype": case.dtype, "outcome": run(case)}
    except Exception as error:
        error.case = {"dtype": case.dtype, "what": case._asdict()}
        raise


def main(argv=None):
    parser = _campaign.parser(__doc__, 10_000)
    parser.add_argument("--cases-per-program", type=int, default=50)
    args = parser.parse_args(argv)
    return _campaign.run(args, "torture", lambda number: perform(number, args))


if __name__ == "__main__":
    sys.exit(main())
