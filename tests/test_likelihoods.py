"""One battery for every likelihood: densities, integrals, derivatives, samples, errors, recovery."""

import functools
import inspect
from typing import Any, NamedTuple

import jax
import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy import integrate, special, stats
from sklearn.base import clone
from sklearn.gaussian_process.kernels import ConstantKernel, Matern

from skgp_natgrad import NGDSVGPClassifier, NGDSVGPRegressor, likelihoods
from skgp_natgrad.likelihoods import (
    Bernoulli,
    Beta,
    Binomial,
    Censored,
    ChainedBeta,
    Exponential,
    Gamma,
    Gaussian,
    HeteroscedasticGaussian,
    LogNormal,
    NegativeBinomial,
    Ordinal,
    Poisson,
    RobustMax,
    Softmax,
    StudentT,
    Tweedie,
    ZeroInflatedPoisson,
)
from skgp_natgrad.likelihoods._quadrature import expectation, log_ndtr
from skgp_natgrad.likelihoods.beta import log_gamma_1p

from .conftest import all_likelihoods


class Levels:
    """The distribution of an ordinal level, in SciPy's terms."""

    def __init__(self, f, edges, scale):
        edges = (np.r_[-np.inf, edges, np.inf] - np.asarray(f)[..., None]) / scale
        # From the side on which the difference keeps its digits.
        left, right = np.diff(stats.norm.cdf(edges), axis=-1), -np.diff(stats.norm.sf(edges), axis=-1)
        self.p = np.where(edges[..., 1:] + edges[..., :-1] > 0, right, left)
        self.levels = np.arange(self.p.shape[-1])

    def logpmf(self, y):
        return np.log(self.p[..., int(y)])

    def cdf(self, y):
        return np.cumsum(self.p, axis=-1)[..., np.asarray(y, dtype=int)]

    def mean(self):
        return self.p @ self.levels

    def var(self):
        return self.p @ self.levels**2 - self.mean() ** 2


class Inflated:
    """A Poisson count that is set to zero with probability pi, in SciPy's terms."""

    def __init__(self, pi, rate):
        self.pi, self.counted = pi, stats.poisson(rate)

    def logpmf(self, y):
        # Of a positive count the probability itself may underflow.
        of_count = np.log1p(-self.pi) + self.counted.logpmf(y)
        return np.where(np.asarray(y) == 0, np.log(self.pi + np.exp(of_count)), of_count)

    def cdf(self, y):
        return self.pi + (1 - self.pi) * self.counted.cdf(y)

    def mean(self):
        return (1 - self.pi) * self.counted.mean()

    def var(self):
        squared = (1 - self.pi) * (self.counted.var() + self.counted.mean() ** 2)
        return squared - self.mean() ** 2


class Compound:
    """A sum of a Poisson number of Gamma distributed jumps, in SciPy's terms."""

    atoms = (0.0,)

    def __init__(self, power, dispersion, mean):
        self.power, self.dispersion, self.mu = power, dispersion, np.asarray(mean)
        self.rate = self.mu ** (2.0 - power) / (dispersion * (2.0 - power))
        self.shape, self.scale = (2.0 - power) / (power - 1.0), dispersion * (power - 1.0) * self.mu ** (power - 1.0)

    def logpdf(self, y):
        if y == 0.0:
            return -self.rate
        # The numbers of jumps of which the density has a share, whatever the mean (Dunn and Smyth 2005).
        largest = y ** (2.0 - self.power) / (self.dispersion * (2.0 - self.power))
        j = np.arange(1, int(largest + 12.0 * np.sqrt(largest) + 60.0))
        rate, scale = self.rate[..., None], self.scale[..., None]
        terms = j * np.log(rate) - rate - special.gammaln(j + 1.0)
        terms = terms + (j * self.shape - 1.0) * np.log(y / scale) - special.gammaln(j * self.shape) - y / scale
        return special.logsumexp(terms - np.log(scale), axis=-1)

    def cdf(self, y):
        largest = np.max(self.rate)
        j = np.arange(1, int(largest + 40.0 * np.sqrt(largest) + 100.0))
        jumps = stats.gamma.cdf(np.asarray(y)[..., None], j * self.shape, scale=np.asarray(self.scale)[..., None])
        within = np.exp(-self.rate) + (jumps * stats.poisson.pmf(j, np.asarray(self.rate)[..., None])).sum(-1)
        return np.where(np.asarray(y) < 0.0, 0.0, within)

    def support(self):
        return 0.0, np.inf

    def mean(self):
        return self.mu

    def var(self):
        return self.dispersion * self.mu**self.power


class Clipped:
    """A normal value clipped to an interval, in SciPy's terms; its moments by the integral of each part."""

    def __init__(self, lower, upper, mean, deviation):
        self.lower, self.upper, self.value = lower, upper, stats.norm(mean, deviation)
        self.at, self.deviation = np.asarray(mean), deviation
        self.atoms = [limit for limit in (lower, upper) if np.isfinite(limit)]

    def logpdf(self, y):
        beyond = {self.lower: self.value.logcdf, self.upper: self.value.logsf}
        return beyond.get(float(y), self.value.logpdf)(y) if np.ndim(y) == 0 else self.value.logpdf(y)

    def cdf(self, y):
        return np.where(y < self.lower, 0.0, np.where(y >= self.upper, 1.0, self.value.cdf(y)))

    def support(self):
        return self.lower, self.upper

    def _moment(self, power):
        z, weight = np.polynomial.legendre.leggauss(400)
        ends = [np.clip(end, self.at - 14 * self.deviation, self.at + 14 * self.deviation) for end in self.support()]
        middle, half = 0.5 * (ends[1] + ends[0]), 0.5 * (ends[1] - ends[0])
        y = np.asarray(middle)[..., None] + np.asarray(half)[..., None] * z
        inside = (y**power * stats.norm.pdf(y, self.at[..., None], self.deviation)) @ weight * half
        for limit, share in ((self.lower, self.value.cdf), (self.upper, self.value.sf)):
            inside = inside + (limit**power * share(limit) if np.isfinite(limit) else 0.0)
        return inside

    def mean(self):
        return self._moment(1)

    def var(self):
        return self._moment(2) - self._moment(1) ** 2


class Case(NamedTuple):
    """What the battery knows about a likelihood that takes targets one by one.

    ``given(*f)`` is SciPy's distribution of y given one or two latent values, ``targets``
    some values of y, ``bad`` one that must be refused. A log-concave likelihood has an
    expectation that decreases with the latent variance.
    """

    likelihood: Any
    given: Any
    targets: tuple
    bad: tuple = ()
    log_concave: bool = True
    rtol: float = 1e-8


COUNTS, POSITIVE, FRACTIONS, REALS = (0.0, 1.0, 7.0), (0.01, 0.8, 5.0), (0.02, 0.5, 0.97), (-3.0, 0.0, 1.2)
NOT_COUNTS, NOT_POSITIVE, NOT_FRACTIONS, NOT_LEVELS = (-1.0, 0.5), (0.0, -2.0), (0.0, 1.0, 3.0), (-1.0, 0.5, 5.0)
COUNTED = ("poisson", "negative_binomial", "zero_inflated_poisson", "binomial")
LEVELS = (0.0, 1.0, 3.0, 4.0)
LEARNED = np.cumsum([0.0, 0.4, 1.1, 0.7]) - 1.1

CASES = [
    Case(Gaussian(0.3), lambda f: stats.norm(f, np.sqrt(0.3)), REALS),
    # Looser: Frullani's integral is cut at both ends.
    Case(StudentT(3.5, 0.6), lambda f: stats.t(3.5, f, 0.6), REALS, log_concave=False, rtol=1e-7),
    Case(StudentT(8.0, 1.5), lambda f: stats.t(8.0, f, 1.5), REALS, log_concave=False, rtol=1e-7),
    Case(Poisson(), lambda f: stats.poisson(np.exp(f)), COUNTS, NOT_COUNTS),
    Case(NegativeBinomial(0.4), lambda f: stats.nbinom(1 / 0.4, 1 / (1 + 0.4 * np.exp(f))), COUNTS, NOT_COUNTS),
    Case(ZeroInflatedPoisson(0.25), lambda f: Inflated(0.25, np.exp(f)), COUNTS, NOT_COUNTS, log_concave=False),
    Case(Gamma(3.0), lambda f: stats.gamma(3.0, scale=np.exp(f) / 3.0), POSITIVE, NOT_POSITIVE),
    Case(LogNormal(0.3), lambda f: stats.lognorm(np.sqrt(0.3), scale=np.exp(f)), POSITIVE, NOT_POSITIVE),
    Case(Exponential(), lambda f: stats.expon(scale=np.exp(f)), POSITIVE, NOT_POSITIVE),
    Case(
        Beta(8.0),
        lambda f: stats.beta(8.0 * special.expit(f), 8.0 * special.expit(-f)),
        FRACTIONS,
        NOT_FRACTIONS,
        log_concave=False,
    ),
    Case(HeteroscedasticGaussian(), lambda f, g: stats.norm(f, np.exp(0.5 * g)), REALS),
    Case(ChainedBeta(), lambda f, g: stats.beta(np.exp(f), np.exp(g)), FRACTIONS, NOT_FRACTIONS, log_concave=False),
    Case(Ordinal(scale=0.7, n_levels=5), lambda f: Levels(f, np.linspace(-2, 2, 4), 0.7), LEVELS, NOT_LEVELS),
    Case(Ordinal("learned", n_levels=5, widths=[0.4, 1.1, 0.7]), lambda f: Levels(f, LEARNED, 0.5), LEVELS, NOT_LEVELS),
    Case(Binomial(), lambda f: Levels(f, [0.0], 1.0), (0.0, 1.0), NOT_COUNTS),
    Case(Binomial("logit"), lambda f: stats.binom(1, special.expit(f)), (0.0, 1.0), NOT_COUNTS),
    Case(Tweedie(1.4, 0.7), lambda f: Compound(1.4, 0.7, np.exp(f)), (0.0, 0.01, 2.5), (-2.0,)),
    Case(Censored(-0.5, 1.5, 0.3), lambda f: Clipped(-0.5, 1.5, f, np.sqrt(0.3)), (-0.5, 0.2, 1.5)),
    Case(Censored(0.0, variance=0.3), lambda f: Clipped(0.0, np.inf, f, np.sqrt(0.3)), (0.0, 0.2, 1.5)),
    Case(Bernoulli(), lambda f: Levels(f, [0.0], 1.0), (0.0, 1.0)),
    Case(Bernoulli("logit"), lambda f: stats.bernoulli(special.expit(f)), (0.0, 1.0)),
]
MULTICLASS = [Softmax(), RobustMax()]

every_case = pytest.mark.parametrize("case", CASES, ids=lambda case: repr(case.likelihood))
every_regression = pytest.mark.parametrize(
    "case",
    [case for case in CASES if "regression" in case.likelihood.tasks],
    ids=lambda case: repr(case.likelihood),
)
every_classification = pytest.mark.parametrize(
    "likelihood",
    [case.likelihood for case in CASES if "classification" in case.likelihood.tasks] + MULTICLASS,
    ids=repr,
)


def test_every_likelihood_of_the_package_is_in_the_battery():
    tested = {case.likelihood.name for case in CASES} | {likelihood.name for likelihood in MULTICLASS}
    assert tested == {likelihood.name for likelihood in all_likelihoods()}


# -- helpers ------------------------------------------------------------------------------


def model_of(likelihood, y=REALS, n_targets=1):
    """The likelihood's pytree, ready for the targets."""
    n_classes = 0 if "regression" in likelihood.tasks else 2
    ready = likelihood.prepare(np.tile(y, (n_targets, 1)), n_classes)
    model = ready.value_and_bounds(n_targets)[0].given(ready.known_everywhere(n_targets))
    return model, ready.n_latent(n_targets, n_classes)


def is_discrete(case):
    return hasattr(case.given(*np.zeros(model_of(case.likelihood, case.targets)[1])), "logpmf")


def log_prob(case, y, *f):
    given = case.given(*f)
    return given.logpmf(y) if hasattr(given, "logpmf") else given.logpdf(y)


def latent_grid(n_latent):
    """Latent means and variances (K, B)."""
    grid = [(m, v) for m in (-2.3, 0.1, 1.7) for v in (1e-4, 0.2, 1.0)]
    if n_latent == 1:
        return tuple(np.array(grid).T[:, None])
    pairs = [(*one, *other) for one in grid[::2] for other in grid[::4]]
    f_mean, f_var, g_mean, g_var = np.array(pairs).T
    return np.stack([f_mean, g_mean]), np.stack([f_var, g_var])


def reference(function, mean, var):
    """E[function(*f)] of independent f ~ N(mean, var), each (K,), by a dense rule."""
    z = np.linspace(-12.0, 12.0, 6001 if len(mean) == 1 else 361)
    weight = stats.norm.pdf(z) / stats.norm.pdf(z).sum()
    f = mean[:, None] + np.sqrt(var)[:, None] * z
    if len(mean) == 1:
        return function(f[0]) @ weight
    return weight @ function(f[0][:, None], f[1][None, :]) @ weight


def grid_cases(case):
    """The model, and moments (K, B) and targets (1, B) of every pair."""
    model, n_latent = model_of(case.likelihood, case.targets)
    mean, var = latent_grid(n_latent)
    y = np.repeat(case.targets, mean.shape[1])[None]
    return model, np.tile(mean, len(case.targets)), np.tile(var, len(case.targets)), y


@functools.partial(jax.jit, static_argnames="name")
def _call(model, name, *arguments):
    return getattr(model, name)(*arguments)


def shared_size(n_rows):
    return next(size for size in (64, 512, 8192, 2**18) if size >= n_rows)


def padded(x, size):
    """The array with its last column repeated."""
    return np.pad(x, [(0, 0)] * (np.ndim(x) - 1) + [(0, size - np.shape(x)[-1])], mode="edge")


def call(model, name, *arguments):
    """A method of the likelihood, compiled as a whole, as the estimators do; NumPy arrays.

    Rows are filled up to a number that many tables share, for the sake of fewer programs.
    """
    n_rows = np.shape(arguments[0])[-1]
    filled = [None if each is None else padded(each, shared_size(n_rows)) for each in arguments]
    return jax.tree.map(lambda x: x[..., :n_rows], jax.device_get(_call(model, name, *filled)))


@jax.jit
def _value_and_gradients(raw_model, mean, var, y, weight):
    def total(raw_model, mean, var):
        return (weight * raw_model.from_raw().expected_log_prob(mean, var, y)).sum()

    return jax.value_and_grad(total, argnums=(0, 1, 2))(raw_model, mean, var)


def value_and_gradients(raw_model, mean, var, y):
    """The sum of the rows' expectations, and its gradients; filled up like the rows of `call`."""
    n_rows = np.shape(y)[-1]
    size = shared_size(n_rows)
    weight = np.r_[np.ones(n_rows), np.zeros(size - n_rows)]
    filled = (padded(each, size) for each in (mean, var, y))
    value, (of_model, *of_moments) = jax.device_get(_value_and_gradients(raw_model, *filled, weight))
    return value, (of_model, *(x[..., :n_rows] for x in of_moments))


def log_density(model, likelihood, mean, var, y):
    """log p(y), of a number or of a class: (B,)."""
    if "regression" in likelihood.tasks:
        return call(model, "log_predictive_density", mean, var, y)
    return np.take_along_axis(np.asarray(call(model, "log_class_probabilities", mean, var)), y.astype(int), axis=0)[0]


# -- objects ------------------------------------------------------------------------------


def test_names():
    assert {"gaussian", "poisson", "ordinal", "chained_beta"} < set(likelihoods.names("regression"))
    assert likelihoods.names("classification") == ["bernoulli", "ordinal", "robust_max", "softmax"]


@pytest.mark.parametrize("likelihood", all_likelihoods(), ids=repr)
def test_is_a_scikit_learn_object_and_a_pytree(likelihood):
    copy = clone(likelihood)
    assert copy.get_params() == likelihood.get_params()
    y = np.array([[0.0, 1.0, 2.0]]) if likelihood.name == "ordinal" else np.full((1, 3), 0.5)
    if likelihood.name in COUNTED:
        y = y + 0.5
    ready = likelihood.prepare(y, 0)
    assert likelihood.get_params() == copy.get_params()
    value, lower, upper = ready.value_and_bounds(2)
    assert jax.tree.structure(value) == jax.tree.structure(lower) == jax.tree.structure(upper)
    assert len(jax.tree.leaves(value)) == len(likelihood.parameters)
    fitted = ready.fitted(jax.tree.leaves(ready.value_and_bounds(1)[0]))
    assert fitted.get_params() == ready.get_params()
    # A fitted one is a likelihood to start another fit from.
    assert fitted.prepare(y, 0).get_params() == ready.get_params()
    assert eval(repr(ready), vars(likelihoods)).get_params() == ready.get_params()


@pytest.mark.parametrize("likelihood", all_likelihoods(), ids=repr)
def test_documents_each_argument_and_shows_an_example(likelihood):
    doc = inspect.getdoc(type(likelihood))
    assert "Examples" in doc
    assert all(f"{name} : " in doc for name in likelihood.get_params(deep=False))


# -- densities ----------------------------------------------------------------------------


@every_case
@pytest.mark.usefixtures("x64")
def test_log_prob_is_that_of_scipy(case, rng):
    model, n_latent = model_of(case.likelihood, case.targets)
    f = 1.5 * rng.normal(size=(n_latent, 1, 20))
    for y in case.targets:
        got = call(model, "log_prob", *f, np.full((1, 20), y))[0]
        assert_allclose(got, log_prob(case, y, *f[:, 0]), rtol=1e-9, atol=1e-11)


@every_case
@pytest.mark.usefixtures("x64")
def test_density_sums_to_one(case):
    model, n_latent = model_of(case.likelihood, case.targets)
    f = 0.3 - 0.5 * np.arange(n_latent)

    def density(y):
        y = np.atleast_2d(y)
        return np.exp(call(model, "log_prob", *(np.full(y.shape, value) for value in f), y))[0]

    if is_discrete(case):
        last = int(max(case.targets)) if "classification" in case.likelihood.tasks else 2000
        mass = density(np.arange(last + 1.0)).sum()
    else:
        support = case.given(*f).support()
        mass, _ = integrate.quad(lambda y: density(y)[0], *support)
        mass += sum(density(atom)[0] for atom in getattr(case.given(*f), "atoms", ()))
    assert_allclose(mass, 1.0, rtol=1e-6)


@every_case
@pytest.mark.usefixtures("x64")
def test_expectation_equals_quadrature(case):
    model, mean, var, y = grid_cases(case)
    got = call(model, "expected_log_prob", mean, var, y)
    with np.errstate(divide="ignore"):
        want = [
            reference(lambda *f: log_prob(case, target, *f), m, v)
            for m, v, target in zip(mean.T, var.T, y[0], strict=True)
        ]
    assert_allclose(got, want, rtol=case.rtol, atol=1e-9)


@every_case
@pytest.mark.usefixtures("x64")
def test_predictive_density_equals_quadrature(case):
    model, mean, var, y = grid_cases(case)
    got = log_density(model, case.likelihood, mean, var, y)
    want = [
        reference(lambda *f: np.exp(log_prob(case, target, *f)), m, v)
        for m, v, target in zip(mean.T, var.T, y[0], strict=True)
    ]
    assert_allclose(got, np.log(want), rtol=1e-8, atol=1e-9)


@pytest.mark.slow
@every_regression
@pytest.mark.usefixtures("x64")
def test_predictive_moments_equal_quadrature(case):
    model, n_latent = model_of(case.likelihood, case.targets)
    mean, var = latent_grid(n_latent)
    got_mean, got_var = call(model, "predictive_moments", mean, var)
    assert got_mean.shape == got_var.shape == (1, mean.shape[1])
    needed = var if case.likelihood.mean_needs_variance else None
    assert_allclose(call(model, "predictive_mean", mean, needed), got_mean, rtol=1e-12)
    for i, (m, v) in enumerate(zip(mean.T, var.T, strict=True)):
        want = reference(lambda *f: case.given(*f).mean() + 0.0 * sum(f), m, v)
        squared = reference(lambda *f: case.given(*f).var() + case.given(*f).mean() ** 2 + 0.0 * sum(f), m, v)
        assert_allclose(got_mean[0, i], want, rtol=1e-8, atol=1e-12)
        assert_allclose(got_var[0, i], squared - want**2, rtol=1e-8, atol=1e-10)


@every_regression
@pytest.mark.usefixtures("x64")
def test_moments_by_quadrature_equal_those_in_closed_form(case):
    model, n_latent = model_of(case.likelihood, case.targets)
    mean, var = latent_grid(n_latent)
    parent = likelihoods.TwoLatentLikelihood if n_latent == 2 else likelihoods.RegressionLikelihood
    by_quadrature = jax.jit(parent.predictive_moments)(model, mean, var)
    for got, want in zip(by_quadrature, call(model, "predictive_moments", mean, var), strict=True):
        assert_allclose(got, want, rtol=1e-8, atol=1e-12)


OTHER_PARAMETERS = {
    "gaussian": Gaussian(0.9),
    "student_t": StudentT(5.0, 0.3),
    "negative_binomial": NegativeBinomial(2.0),
    "zero_inflated_poisson": ZeroInflatedPoisson(0.6),
    "gamma": Gamma(1.3),
    "lognormal": LogNormal(0.8),
    "beta": Beta(30.0),
    "tweedie": Tweedie(1.7, 0.3),
    "censored": Censored(variance=0.8),
    "ordinal": Ordinal(scale=0.2, n_levels=5, widths=[0.9, 0.3, 0.6]),
}


@pytest.mark.slow
@every_regression
@pytest.mark.usefixtures("x64")
def test_two_columns_are_two_problems(case, rng):
    """Each column has latent functions and parameters of its own: f_1, f_2, then g_1, g_2."""
    y = rng.choice(case.targets, size=(2, 6))
    single = [
        each.prepare(np.array([case.targets]), 0).value_and_bounds(1)[0]
        for each in (case.likelihood, OTHER_PARAMETERS.get(case.likelihood.name, case.likelihood))
    ]
    both = jax.tree.map(lambda *leaves: np.concatenate(leaves), *single)
    n_latent = case.likelihood.n_latent(2, 0)
    mean, var = rng.normal(size=(n_latent, 6)), rng.uniform(0.1, 1.0, size=(n_latent, 6))
    parts = [(model, mean[t::2], var[t::2], y[t : t + 1]) for t, model in enumerate(single)]
    for name in ("expected_log_prob", "log_predictive_density"):
        want = sum(call(model, name, *part) for model, *part in parts)
        assert_allclose(call(both, name, mean, var, y), want, rtol=1e-10)
    for i, moment in enumerate(call(both, "predictive_moments", mean, var)):
        want = [call(model, "predictive_moments", *part[:2])[i][0] for model, *part in parts]
        assert_allclose(moment, want, rtol=1e-10)
    draws = both.sample(np.repeat(mean[:, :1], 4000, axis=1), np.random.RandomState(0))
    want, spread = call(both, "conditional_moments", *np.split(mean[:, :1], n_latent // 2))
    assert_allclose(np.mean(draws, axis=1)[:, None], want, atol=5 * float(np.sqrt(np.max(spread) / 4000)))


# -- peaks that fixed nodes miss -------------------------------------------------------------


@pytest.mark.parametrize("deviation", [0.05, 1.0, 3.0])
@pytest.mark.parametrize(
    ("likelihood", "y", "peak", "width"),
    [
        (Poisson(), 1e4, np.log(1e4), 1e-2),
        (NegativeBinomial(1e-4), 1e4, np.log(1e4), 2e-2),
        (Gamma(1e4), 50.0, np.log(50.0), 1e-2),
        (Beta(1e5), 0.9, np.log(9.0), 1e-2),
        (Gamma(2.0), 1e12, np.log(1e12), 1.0),
    ],
    ids=repr,
)
@pytest.mark.usefixtures("x64")
def test_predictive_density_of_a_narrow_likelihood(likelihood, y, peak, width, deviation):
    model = likelihood.value_and_bounds(1)[0]
    for centre in (peak - 0.5, peak - 4.0):
        moments = np.full((1, 1), centre), np.full((1, 1), deviation**2)
        got = call(model, "log_predictive_density", *moments, np.full((1, 1), y))
        # The integrand's own mode, then a dense rule around it.
        f = np.linspace(centre - 12 * deviation, centre + 30 * deviation + 5, 200_001)

        def log_integrand(f, centre=centre):
            log_prob = call(model, "log_prob", f[None], np.full((1, len(f)), y))[0]
            return log_prob + stats.norm.logpdf(f, centre, deviation)

        mode = f[np.argmax(log_integrand(f))]
        near = mode + 60 * min(width, deviation) * np.linspace(-1.0, 1.0, 200_001)
        want = special.logsumexp(log_integrand(near)) + np.log(near[1] - near[0])
        assert_allclose(got[0], want, rtol=1e-8, atol=1e-8)


@pytest.mark.parametrize("total", [10.0, 1e3, 1e5])
@pytest.mark.usefixtures("x64")
def test_predictive_density_of_a_narrow_chained_beta(total):
    """At one value of g, the integral over f alone; then at one value of f."""
    model, y = ChainedBeta().value_and_bounds(1)[0], 0.3
    mean = np.log(total * np.array([[0.35], [0.65]]))
    for var in (np.array([[0.5], [1e-14]]), np.array([[1e-14], [0.5]])):
        wide = int(np.argmax(var))
        z = np.linspace(-9.0, 9.0, 200_001)
        f = np.repeat(mean, len(z), axis=1)
        f[wide] += np.sqrt(0.5) * z
        log_values = stats.beta.logpdf(y, *np.exp(f)) + stats.norm.logpdf(z)
        want = special.logsumexp(log_values) + np.log(z[1] - z[0])
        got = call(model, "log_predictive_density", mean, var, np.full((1, 1), y))[0]
        assert_allclose(got, want, rtol=1e-6)


@pytest.mark.usefixtures("x64")
def test_ordinal_probabilities_far_out_keep_their_precision():
    """Many deviations from its bin, a level has the probability of the bin's nearer edge."""
    model, _ = model_of(Ordinal(scale=0.1, n_levels=5), LEVELS)
    for f, level, edge in ((30.0, 1.0, -2 / 3), (-30.0, 3.0, 2 / 3), (-30.0, 4.0, 2.0), (30.0, 0.0, -2.0)):
        got = call(model, "log_prob", np.full((1, 1), f), np.full((1, 1), level))[0, 0]
        assert_allclose(got, stats.norm.logcdf(-abs(f - edge) / 0.1), rtol=1e-12)


@pytest.mark.usefixtures("x64")
def test_ordinal_moments_far_out_keep_their_precision():
    """Beyond either end the variance is that of two levels; its root has a derivative where it is zero."""
    model, _ = model_of(Ordinal(scale=0.1, n_levels=5), LEVELS)
    for f in (2.3, 2.6, 3.0, -2.3, -2.6, -3.0):
        # One level more or less than the end, and next to never two.
        p = stats.norm.cdf((2.0 - abs(f)) / 0.1)
        _, var = call(model, "predictive_moments", np.full((1, 1), f), np.zeros((1, 1)))
        assert_allclose(var[0, 0], p * (1.0 - p), rtol=1e-10)
    deviation = jax.jit(jax.grad(lambda f: jax.numpy.sqrt(model.predictive_moments(f, 0.0 * f)[1]).sum()))
    for f in (2.6, 8.0, 40.0, -40.0):
        assert np.isfinite(deviation(np.full((1, 1), f))).all()


@pytest.mark.usefixtures("x64")
def test_log_gamma_equals_scipy():
    x = np.r_[0.0, np.logspace(-12, 13, 200)]
    value, slope = jax.jit(jax.vmap(jax.value_and_grad(log_gamma_1p)))(x)
    assert_allclose(value, special.gammaln(1.0 + x), rtol=1e-13, atol=1e-14)
    assert_allclose(slope, special.digamma(1.0 + x), rtol=1e-13, atol=1e-14)


# -- derivatives --------------------------------------------------------------------------


@every_case
@pytest.mark.usefixtures("x64")
def test_derivatives_equal_finite_differences(case):
    model, mean, var, y = grid_cases(case)
    wide = var[:, :].min(0) > 1e-3
    mean, var, y = mean[:, wide], var[:, wide], y[:, wide]

    point = (model.to_raw(), mean, var)
    gradient, structure = jax.tree.flatten(value_and_gradients(*point, y)[1])
    leaves, h = jax.tree.leaves(point), 1e-4
    # Not by what is known of the rows: at a limit, a density becomes a probability.
    n_parameters, n_known = len(model.parameters), len(model.rows or ())
    for i, leaf in enumerate(leaves):
        if n_parameters <= i < n_parameters + n_known:
            continue
        for index in list(np.ndindex(leaf.shape))[:: max(1, leaf.size // 6)]:
            moved = []
            for size in (h, -h, 2 * h, -2 * h):
                step = leaf.copy()
                step[index] += size
                there = jax.tree.unflatten(structure, [*leaves[:i], step, *leaves[i + 1 :]])
                moved.append(float(value_and_gradients(*there, y)[0]))
            want = (8 * (moved[0] - moved[1]) - (moved[2] - moved[3])) / (12 * h)
            assert_allclose(gradient[i][index], want, rtol=1e-6, atol=1e-7)


@pytest.mark.parametrize("case", [case for case in CASES if case.log_concave], ids=lambda case: repr(case.likelihood))
@pytest.mark.usefixtures("x64")
def test_log_concave_likelihoods_never_take_precision_away(case, rng):
    model, n_latent = model_of(case.likelihood, case.targets)
    y = rng.choice(case.targets, size=(1, 500))
    mean, var = 5.0 * rng.normal(size=(n_latent, 500)), 10.0 ** rng.uniform(-8.0, 1.7, size=(n_latent, 500))
    slope = value_and_gradients(model.to_raw(), mean, var, y)[1][2]
    assert np.all(slope <= 1e-12 * (1.0 + np.abs(slope).max()))


@pytest.mark.slow
@every_case
@pytest.mark.usefixtures("x64")
def test_extreme_latent_moments_give_finite_numbers(case):
    model, n_latent = model_of(case.likelihood, case.targets)
    grid = np.array([(m, v) for m in (-30.0, -5.0, 0.0, 5.0, 30.0) for v in (1e-150, 1e-10, 1.0, 50.0)]).T
    pairs = np.array(np.meshgrid(*[np.arange(grid.shape[1])] * n_latent)).reshape(n_latent, -1)
    mean, var = grid[0][pairs], grid[1][pairs]

    for target in case.targets:
        parts = value_and_gradients(model.to_raw(), mean, var, np.full((1, mean.shape[1]), target))
        assert all(np.all(np.isfinite(leaf)) for leaf in jax.tree.leaves(parts))
    if "regression" in case.likelihood.tasks:
        assert np.all(np.isfinite(call(model, "predictive_moments", mean, var)))
    for target in case.targets:
        assert np.all(np.isfinite(log_density(model, case.likelihood, mean, var, np.full((1, mean.shape[1]), target))))


@pytest.mark.parametrize("name", ["beta", "chained_beta"])
@pytest.mark.usefixtures("x64")
def test_a_fraction_that_rounds_to_one_keeps_a_positive_variance(name):
    # A density would be divided by it.
    model, n_latent = model_of(likelihoods.by_name(name), [0.5])
    mean = np.array([[2000.0, -2000.0], [-2000.0, 2000.0]])[:n_latent]
    y_mean, y_var = call(model, "predictive_moments", mean, np.full_like(mean, 1.0))
    np.testing.assert_array_equal(y_mean.round(12), [[1.0, 0.0]])
    # The square of the rounding of a sum of weights, which differs between versions of XLA.
    assert np.all((y_var > 0.0) & (y_var < 1e-29))


# -- samples ------------------------------------------------------------------------------


@every_case
def test_samples_follow_the_distribution(case):
    model, n_latent = model_of(case.likelihood, case.targets)
    f = 0.6 - 0.5 * np.arange(n_latent)
    draws = np.ravel(model.sample(np.repeat(f[:, None], 5000, axis=1), np.random.RandomState(0)))
    assert draws.shape == (5000,)
    given = case.given(*f)
    if not is_discrete(case):
        continuous = np.ones(5000, bool)
        for atom in getattr(given, "atoms", ()):
            continuous &= draws != atom
            mass = np.exp(given.logpdf(atom))
            assert stats.binomtest(int(np.sum(draws == atom)), 5000, float(mass)).pvalue > 0.01
        low, share = given.cdf(np.min(draws)) if not np.all(continuous) else 0.0, np.mean(continuous)
        assert stats.kstest(draws[continuous], lambda y: (given.cdf(y) - low) / share).pvalue > 0.01
        return
    values, seen = np.unique(draws, return_counts=True)
    expected = 5000 * np.exp([given.logpmf(value) for value in values])
    rare = expected < 10
    seen, expected = np.r_[seen[~rare], seen[rare].sum()], np.r_[expected[~rare], 5000 - expected[~rare].sum()]
    common = expected > 1e-6
    assert stats.chisquare(seen[common], expected[common]).pvalue > 0.01


@every_case
@pytest.mark.usefixtures("x64")
def test_samples_are_targets(case):
    """However extreme the latent value, a draw is one that the likelihood can observe."""
    ready = case.likelihood.prepare(np.array([case.targets]), 2 if case.likelihood.name == "bernoulli" else 0)
    model, n_latent = model_of(case.likelihood, case.targets)
    same = np.repeat([[-500.0, -30.0, 30.0, 500.0]], n_latent, axis=0)
    for f in (same, same * (-1.0) ** np.arange(n_latent)[:, None]):
        y = np.atleast_2d(model.sample(f, np.random.RandomState(0)))
        assert np.all(np.isfinite(y))
        ready.check_targets(y)


# -- the data -----------------------------------------------------------------------------


@every_case
def test_bad_targets_are_named(case):
    good = np.array([case.targets])
    ready = case.likelihood.prepare(good, 2 if case.likelihood.name == "bernoulli" else 0)
    ready.check_targets(good)
    for bad in case.bad:
        with pytest.raises(ValueError, match=rf"{type(case.likelihood).__name__}: y must hold .*value {bad:g}; \w+"):
            ready.check_targets(np.array([[*case.targets, bad]]))
        with pytest.raises(ValueError, match="y must hold"):
            case.likelihood.prepare(np.array([[*case.targets, bad]]), 0)


def test_fit_refuses_bad_targets(rng):
    with pytest.raises(ValueError, match=r"Poisson: y must hold counts.* value -1"):
        NGDSVGPRegressor(likelihood="poisson").fit(rng.normal(size=(20, 1)), np.r_[-1.0, np.ones(19)])


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_log_density_refuses_bad_targets(rng):
    X, y = rng.normal(size=(200, 1)), rng.uniform(0.1, 0.9, size=200)
    reg = NGDSVGPRegressor(likelihood="beta", n_inducing=15, max_iter=2, tol=1e9).fit(X, y)
    with pytest.raises(ValueError, match=r"Beta: y must hold numbers in the open interval \(0, 1\).* value 1;"):
        reg.predict_log_density(X, np.r_[1.0, y[1:]])


@every_regression
@pytest.mark.usefixtures("x64")
def test_initial_latent_is_near_the_data(case):
    """Rows drawn at one latent value: the prior starts near it, whatever the rows' weights."""
    model, n_latent = model_of(case.likelihood, case.targets)
    f = np.array([[0.4], [0.9]])[:n_latent]
    y = np.asarray(model.sample(np.repeat(f, 4000, axis=1), np.random.RandomState(1)), dtype=float)
    y, weight = np.c_[y, y.max(keepdims=True)], np.r_[np.ones(4000), 0.0]
    ready = case.likelihood.prepare(y, 0)
    start = ready.initial_latent(y, weight, 0)
    assert start.shape == (n_latent,)
    if ready.standardises and n_latent == 1:
        assert_allclose(start, 0.0)
    elif ready.name == "heteroscedastic_gaussian":
        assert_allclose(start, [0.0, np.log(0.1 * np.exp(0.9))], atol=0.1)
    else:
        # Ordinal: a prior as wide as the noise's is assumed, which frequencies cannot tell apart.
        assert_allclose(start, f[:, 0], atol=0.4 if ready.name == "ordinal" else 0.1)


def test_initial_latent_of_degenerate_targets():
    ones, zeros = np.ones((1, 5)), np.zeros((1, 5))
    assert_allclose(Poisson().initial_latent(zeros, np.ones(5), 0), np.log(0.1))
    # Two equal shapes: halves, and hardly any variance.
    first, second = ChainedBeta().initial_latent(0.5 * ones, np.ones(5), 0)
    assert first == second > np.log(100.0)
    assert_allclose(HeteroscedasticGaussian().initial_latent(ones, np.ones(5), 0), [0.0, np.log(0.1)])
    for level in (0.0, 2.0):
        ready = Ordinal(n_levels=3).prepare(level * ones, 0)
        assert np.all(np.abs(ready.initial_latent(level * ones, np.ones(5), 0)) < 20.0)
    assert Softmax().initial_latent(zeros, np.ones(5), 4).shape == (4,)
    assert Bernoulli().initial_latent(zeros, np.ones(5), 2).shape == (1,)


def test_ordinal_takes_its_levels_from_the_data():
    y = np.array([[0.0, 3.0, 1.0]])
    ready = Ordinal(half_width=3.0).prepare(y, 0)
    assert ready.n_levels == 4
    assert_allclose(ready.value_and_bounds(1)[0]._edges(1), [[-3.0, 0.0, 3.0]])
    assert ready.value_and_bounds(1)[1].widths.tolist() == ready.value_and_bounds(1)[2].widths.tolist() == [[3.0, 3.0]]
    learned = Ordinal("learned").prepare(y, 0).value_and_bounds(1)
    assert np.all(learned[1].widths < learned[2].widths)
    assert Ordinal().prepare(np.array([[0.0, 1.0]]), 5).n_levels == 5
    assert Ordinal(n_levels=9).prepare(y, 0).n_levels == 9
    assert Ordinal().prepare(np.array([[0.0, 1.0]]), 2).value_and_bounds(1)[0].widths.shape == (1, 0)


@pytest.mark.parametrize(
    ("likelihood", "message"),
    [
        (Ordinal("even"), "uniform, learned"),
        (Ordinal(half_width=-1.0), "half_width must be positive"),
        (Ordinal(n_levels=1), "2 or more"),
        (Ordinal(n_levels=2.5), "2 or more"),
        (Ordinal(n_levels=3), "y has 4 classes"),
    ],
)
def test_bad_ordinal_options_are_named(likelihood, message):
    with pytest.raises(ValueError, match=message):
        likelihood.prepare(np.arange(4.0)[None], 4)


# -- classes ------------------------------------------------------------------------------


@every_classification
@pytest.mark.usefixtures("x64")
def test_class_probabilities_sum_to_one(likelihood, rng):
    n_classes = {"bernoulli": 2, "ordinal": 5}.get(likelihood.name, 4)
    ready = likelihood.prepare(np.arange(float(n_classes))[None], n_classes)
    model, n_latent = ready.value_and_bounds(1)[0], ready.n_latent(1, n_classes)
    mean, var = 3 * rng.normal(size=(n_latent, 9)), rng.uniform(1e-8, 5.0, size=(n_latent, 9))
    proba = call(model, "class_probabilities", mean, var)
    assert proba.shape == (n_classes, 9)
    assert_allclose(proba.sum(0), 1.0, rtol=1e-13)
    assert_allclose(np.exp(call(model, "log_class_probabilities", mean, var)), proba, rtol=1e-10)
    total = sum(
        np.exp(call(model, "log_prob", mean, np.full(9 if n_latent > 1 else (1, 9), float(c))))
        for c in range(n_classes)
    )
    assert_allclose(total, 1.0)
    assert_allclose(call(model, "conditional_probabilities", mean).sum(0), 1.0)


@pytest.mark.parametrize("likelihood", MULTICLASS, ids=repr)
def test_multiclass_samples_follow_the_probabilities(likelihood):
    model, f = likelihood.value_and_bounds(1)[0], np.array([0.3, -0.5, 0.8])
    draws = model.sample(np.repeat(f[:, None], 5000, axis=1), np.random.RandomState(0))
    expected = 5000 * call(model, "conditional_probabilities", f[:, None]).astype(float)[:, 0]
    expected *= 5000 / expected.sum()
    assert stats.chisquare(np.bincount(draws, minlength=3), expected).pvalue > 0.01


# -- special values ---------------------------------------------------------------------------


@pytest.mark.usefixtures("x64")
def test_student_t_without_a_variance_says_so():
    assert np.all(
        np.isinf(StudentT(df=2.0).value_and_bounds(1)[0].predictive_moments(np.zeros((1, 2)), np.ones((1, 2)))[1])
    )


@pytest.mark.usefixtures("x64")
def test_negative_binomial_without_dispersion_is_poisson(rng):
    y, f = rng.poisson(3.0, size=(1, 20)).astype(float), rng.normal(size=(1, 20))
    got, want = (call(each.value_and_bounds(1)[0], "log_prob", f, y) for each in (NegativeBinomial(1e-4), Poisson()))
    assert_allclose(got, want, atol=5e-3)


@pytest.mark.usefixtures("x64")
def test_gamma_of_shape_one_is_exponential(rng):
    y, mean, var = rng.exponential(size=(1, 20)), rng.normal(size=(1, 20)), rng.uniform(size=(1, 20))
    got, want = (
        call(each.value_and_bounds(1)[0], "expected_log_prob", mean, var, y) for each in (Gamma(1.0), Exponential())
    )
    assert_allclose(got, want, rtol=1e-12)


# -- errors -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("likelihood", "message"),
    [
        (Gaussian(variance=-1.0), "variance must be positive"),
        (Gaussian(variance=np.nan), "variance must be positive"),
        (Gaussian(variance=[1.0, 2.0, 3.0]), "one for each of the 1 columns"),
        (Gaussian(variance_bounds=(1.0, 0.1)), "variance_bounds"),
        (StudentT(df=0.0), "df must be positive"),
        (StudentT(scale_bounds="loose"), "scale_bounds"),
        (Gaussian("a"), "must be a number"),
        (Gaussian(1e-10), "outside of variance_bounds"),
    ],
)
def test_bad_parameters_are_named(likelihood, message):
    with pytest.raises(ValueError, match=message):
        NGDSVGPRegressor(likelihood=likelihood).fit(np.eye(3), np.arange(3.0))


@pytest.mark.parametrize(
    ("likelihood", "message"),
    [
        (Bernoulli(link="cauchit"), "probit, logit"),
        (Softmax(n_points=48), "power of two"),
        (RobustMax(epsilon=1.5), "below 1"),
        (Gaussian(), "classification likelihood"),
        ("student_t", "for regression, not classification"),
        ("sofmax", "must be a str among .*'softmax'"),
    ],
)
def test_bad_classification_likelihoods_are_named(likelihood, message):
    with pytest.raises(ValueError, match=message):
        NGDSVGPClassifier(likelihood=likelihood).fit(np.eye(4), [0, 1, 0, 1])


def test_bernoulli_refuses_three_classes():
    with pytest.raises(ValueError, match="two classes, but y has 3"):
        NGDSVGPClassifier(likelihood="bernoulli").fit(np.eye(3), [0, 1, 2])


def test_a_name_belongs_to_one_class():
    class Mine(Gaussian):
        """Without a name of its own."""

    assert likelihoods.by_name("gaussian").__class__ is Gaussian
    with pytest.raises(ValueError, match="Gaussian has the name 'gaussian' already"):

        class Other(Gaussian):
            name = "gaussian"


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_bounds_hold_while_training(rng):
    X = rng.normal(size=(100, 1))
    y = X[:, 0] + 0.5 * rng.normal(size=100)
    options = {"n_inducing": 15, "max_iter": 60, "random_state": 0}
    fixed = NGDSVGPRegressor(likelihood=StudentT(scale=0.1, scale_bounds="fixed"), **options).fit(X, y)
    assert fixed.likelihood_.scale == pytest.approx(0.1, rel=1e-12)
    bounded = NGDSVGPRegressor(likelihood=Gaussian(0.01, (0.005, 0.02)), learning_rate=0.1, **options).fit(X, y)
    assert bounded.likelihood_.variance == pytest.approx(0.02)
    free = NGDSVGPRegressor(
        likelihood=StudentT(df_bounds=(2.1, 100.0)), **{**options, "max_iter": 400, "learning_rate": 0.1}
    ).fit(X, y)
    assert free.likelihood_.df > 3.0


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_student_t_ignores_outliers(rng):
    X = np.linspace(-3, 3, 120)[:, None]
    f = np.sin(2 * X[:, 0])
    y = f + 0.1 * rng.normal(size=120)
    y[::10] += 8.0
    options = {"n_inducing": 15, "max_iter": 400, "random_state": 0}
    robust = NGDSVGPRegressor(likelihood="student_t", **options).fit(X, y)
    plain = NGDSVGPRegressor(likelihood="gaussian", **options).fit(X, y)
    robust_error, plain_error = (np.sqrt(np.mean((m.predict(X) - f) ** 2)) for m in (robust, plain))
    assert robust_error < 0.15
    assert plain_error > 2 * robust_error


# -- recovery -----------------------------------------------------------------------------
# Tables and points have the sizes of the other fits in this file, so that each likelihood has one program.

RECOVERED = [
    Gaussian(0.05),
    StudentT(4.0, 0.2),
    Poisson(),
    NegativeBinomial(0.1),
    ZeroInflatedPoisson(0.3),
    Gamma(5.0),
    LogNormal(0.05),
    Exponential(),
    Beta(20.0),
    Binomial(),
    Tweedie(1.5, 0.3),
    Censored(0.0, variance=0.05),
    HeteroscedasticGaussian(),
    ChainedBeta(),
    Ordinal(scale=0.3, n_levels=5),
    Ordinal("learned", scale=0.3, n_levels=5),
]


def simulate(likelihood, rng, n_rows=200):
    """Rows, targets and the mean of y that these were drawn around."""
    X = np.sort(rng.uniform(-3.0, 3.0, size=(n_rows, 1)), axis=0)
    ready = likelihood.prepare(np.ones((1, 2)), 0) if likelihood.name == "ordinal" else likelihood
    known = {"binomial": np.full((1, 1), 20.0)}.get(likelihood.name, ready.known_everywhere(1))
    model, n_latent = ready.value_and_bounds(1)[0].given(known), ready.n_latent(1, 0)
    f = np.stack([1.5 * np.sin(1.5 * X[:, 0]), 0.5 * X[:, 0] - 1.0])[:n_latent]
    if likelihood.name in (*COUNTED, "chained_beta") and likelihood.name != "binomial":
        f = f + 1.5
    y = np.asarray(model.sample(f, np.random.RandomState(3)))[0]
    return X, y, call(model, "conditional_moments", *f[:, None])[0][0]


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize("likelihood", RECOVERED, ids=repr)
def test_recovers_a_known_function(likelihood, rng):
    with jax.enable_x64(True):
        X, y, truth = simulate(likelihood, rng)
    # Parameters start at their defaults, not at the values that the data were drawn with.
    start = type(likelihood)(bins=likelihood.bins) if likelihood.name == "ordinal" else type(likelihood)()
    options = {"n_inducing": 15, "max_iter": 200, "learning_rate": 0.05, "random_state": 0}
    reg = NGDSVGPRegressor(ConstantKernel() * Matern(nu=2.5), likelihood=start, **options)
    known = {"trials": 20} if likelihood.name == "binomial" else {}
    mean, std = reg.fit(X, y, **known).predict(X, return_std=True, **known)
    assert np.sqrt(np.mean((mean - truth) ** 2)) < 0.3 * np.std(truth)
    inside = np.mean(np.abs(y - mean) <= 2.0 * std)
    assert inside > 0.88
    # The density is worth more than that of one normal distribution for all rows.
    baseline = stats.norm.logpdf(y, np.mean(y), np.std(y)).mean()
    assert reg.predict_log_density(X, y, **known).mean() > baseline


def test_every_regression_likelihood_is_recovered():
    names = {case.likelihood.name for case in CASES if "regression" in case.likelihood.tasks}
    assert {likelihood.name for likelihood in RECOVERED} == names


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize("bins", ["uniform", "learned"])
def test_ordinal_classifier_knows_the_order(bins, rng):
    X, y, _ = simulate(Ordinal(scale=0.3, n_levels=5), rng)
    labels = np.array([10, 20, 30, 50, 90])[y.astype(int)]
    clf = NGDSVGPClassifier(likelihood=Ordinal(bins), n_inducing=15, max_iter=200, learning_rate=0.05, random_state=0)
    proba = clf.fit(X, labels).predict_proba(X)
    assert_allclose(proba.sum(1), 1.0)
    assert clf.likelihood_.n_levels == 5
    assert clf.score(X, labels) > 0.6
    nearby = np.abs(np.searchsorted(clf.classes_, clf.predict(X)) - y) <= 1
    assert nearby.mean() > 0.97


@pytest.mark.usefixtures("x64")
def test_log_ndtr_is_scipys(rng):
    z = np.concatenate([rng.uniform(-40.0, 40.0, 5000), rng.normal(size=5000), -np.logspace(1, 150, 300), [0.0]])
    compiled = jax.jit(log_ndtr)
    assert_allclose(compiled(z), special.log_ndtr(z), rtol=1e-13, atol=1e-300)
    assert_allclose(compiled(np.array([-np.inf, np.inf, np.nan])), [-np.inf, 0.0, np.nan])


@pytest.mark.usefixtures("x64")
def test_derivative_of_log_ndtr(rng):
    z = np.concatenate([rng.uniform(-30.0, 30.0, 2000), rng.normal(size=2000)])
    first = jax.jit(jax.vmap(jax.grad(log_ndtr)))
    slope = np.asarray(first(z))
    assert_allclose(slope, np.exp(stats.norm.logpdf(z) - special.log_ndtr(z)), rtol=1e-12)
    assert_allclose(jax.jit(jax.vmap(jax.grad(jax.grad(log_ndtr))))(z), -slope * (z + slope), rtol=1e-7, atol=1e-9)
    far = np.array([-1e10, -1e100, 1e3, 1e10])
    assert_allclose(first(far), [1e10, 1e100, 0.0, 0.0])


@functools.partial(jax.jit, static_argnums=0)
def expectation_and_slopes(function, mean, deviation):
    def total(mean, deviation):
        return expectation(function, mean, deviation).sum()

    return expectation(function, mean, deviation), *jax.grad(total, argnums=(0, 1))(mean, deviation)


@pytest.mark.parametrize("largest", [0.01, 0.7, 1.72, 1.74, 3.4, 5.1, 6.8])
@pytest.mark.usefixtures("x64")
def test_two_classes_need_few_nodes_for_many_digits(rng, largest):
    """Value and derivatives, for every number of blocks of nodes: f is a link's logarithm, f' and f'' by hand."""
    mean, deviation = 3.0 * rng.normal(size=12), largest * np.append(rng.uniform(size=11), 1.0)
    for link, slope, curvature in (
        (special.log_ndtr, _mills, lambda z: -_mills(z) * (z + _mills(z))),
        (special.log_expit, lambda z: special.expit(-z), lambda z: -special.expit(z) * special.expit(-z)),
    ):
        ours = {special.log_ndtr: log_ndtr, special.log_expit: jax.nn.log_sigmoid}[link]
        value, of_mean, of_deviation = expectation_and_slopes(ours, mean, deviation)
        wanted = [
            [reference(function, np.array([m]), np.array([s**2])) for m, s in zip(mean, deviation, strict=True)]
            for function in (link, slope, curvature)
        ]
        assert_allclose(value, wanted[0], rtol=1e-9, atol=1e-9)
        assert_allclose(of_mean, wanted[1], rtol=1e-8, atol=1e-8)
        # Price (1958): the derivative in half the variance is the mean of the second derivative.
        assert_allclose(of_deviation / deviation, wanted[2], rtol=1e-7, atol=2e-8)


def _mills(z):
    return np.exp(stats.norm.logpdf(z) - special.log_ndtr(z))


@pytest.mark.parametrize(("largest", "blocks"), [(0.3, 1), (1.1, 1), (2.0, 2), (1e6, 4)])
@pytest.mark.usefixtures("x64")
def test_nodes_are_as_many_as_the_widest_needs(largest, blocks):
    seen = []

    def function(f):
        seen.append(f.shape)
        return log_ndtr(f)

    with jax.disable_jit():
        expectation(function, np.zeros(3), np.array([0.1, 0.2, largest]))
    assert seen == blocks * [(32, 3)]


@pytest.mark.parametrize("bad", [np.nan, np.inf])
@pytest.mark.usefixtures("x64")
def test_a_deviation_that_is_no_number_is_its_rows_own(bad):
    mean, deviation = np.zeros(3), np.array([0.5, bad, 5.0])
    value, slope = jax.jit(jax.value_and_grad(lambda mean: expectation(log_ndtr, mean, deviation)[0]))(mean)
    values = jax.jit(functools.partial(expectation, log_ndtr))
    all_ = np.asarray(values(mean, deviation))
    assert not np.isfinite(all_[1])
    assert_allclose([value, all_[2]], values(mean[::2], deviation[::2]), rtol=1e-9)
    assert np.isfinite(slope[0])


@pytest.mark.parametrize("link", ["probit", "logit"])
@pytest.mark.parametrize(("mean", "var"), [(-60.0, 36.0), (-100.0, 100.0), (-200.0, 400.0), (0.0, 1.0), (3.0, 25.0)])
def test_probabilities_of_labels_far_out_keep_their_precision(link, mean, var, x64):
    """Where the integrand's peak is a whole deviation of the latent function from its mean."""
    z = np.linspace(-40.0, 40.0, 200_001)
    of_link = special.log_ndtr if link == "probit" else special.log_expit
    integrand = of_link(mean + np.sqrt(var) * z) + stats.norm.logpdf(z)
    expected = special.logsumexp(integrand) + np.log(z[1] - z[0])
    found = Bernoulli(link).log_class_probabilities(np.full((1, 1), mean), np.full((1, 1), var))
    assert_allclose(found[1, 0], expected, rtol=1e-7)


def test_a_likelihood_says_which_parameters_are_fixed():
    assert likelihoods.StudentT().fixed == ["df"]
    assert likelihoods.Gaussian(0.1, "fixed").fixed == ["variance"]
    assert likelihoods.Gaussian().fixed == likelihoods.Gaussian().value_and_bounds(1)[0].fixed == []
