"""What a fit says of itself at its end."""

import warnings
from types import SimpleNamespace

import jax
import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy import optimize, stats
from sklearn.exceptions import ConvergenceWarning
from sklearn.gaussian_process.kernels import RBF, ConstantKernel
from sklearn.metrics import roc_auc_score

from skgp_natgrad import NGDSVGPClassifier, NGDSVGPRegressor, svgp
from skgp_natgrad.estimators.fitted import attributes, outcome
from skgp_natgrad.estimators.fitted.outcome import Outcome, _worse_labels, refuse_diverged
from skgp_natgrad.likelihoods import Bernoulli, Gaussian, Poisson, Softmax, StudentT
from skgp_natgrad.prediction.left_out import LeftOut
from skgp_natgrad.solve.held_out_labels import Densities, Gain
from skgp_natgrad.step.state import Report
from skgp_natgrad.training import constant_model, loop
from skgp_natgrad.training.batches import Table

from .conftest import make_problem

SMALL = {"n_inducing": 20, "max_iter": 120, "n_iter_no_change": 20, "random_state": 0}


def messages(model, X, y):
    """What a fit warns of."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        model.fit(X, y)
    return [str(each.message) for each in caught if issubclass(each.category, ConvergenceWarning)]


def told(found, what):
    return any(what in message for message in found)


NO_BETTER = "no better than that of a constant"


@pytest.fixture
def table(rng):
    X = rng.normal(size=(400, 2))
    return X, np.sin(2.0 * X).sum(1)


@pytest.mark.parametrize("y", [1.5, [1.5, 1.5]])
def test_a_single_row_tells_no_deviation(y):
    n = np.size(y)
    with pytest.warns(UserWarning, match="The fit has a single row"):
        model = NGDSVGPRegressor(RBF(), random_state=0).fit(np.ones((n, 2)), np.ravel(y))
    assert "; 1 inducing point;" in model.plan_


@pytest.mark.slow
def test_an_output_without_variance_does_not_judge_the_others(table, rng):
    X, y = table[0][:200], table[1][:200] + rng.normal(size=200)
    model = NGDSVGPRegressor(RBF(), solver="evidence", random_state=0)
    assert not told(messages(model, X, np.column_stack([y, np.full(len(y), 2.0)])), NO_BETTER)


# -- the constant model ----------------------------------------------------------------------


def best_by_differences(log_prob, y, weight, start):
    def loss(x):
        return -np.average(log_prob(y, x), weights=weight)

    return -optimize.minimize(loss, start, method="Nelder-Mead", options={"xatol": 1e-9, "fatol": 1e-11}).fun


@pytest.mark.parametrize(
    ("likelihood", "log_prob", "start"),
    [
        (Gaussian(0.3), lambda y, x: stats.norm.logpdf(y, x[0], np.exp(x[1])), [0.0, 0.0]),
        (Poisson(), lambda y, x: stats.poisson.logpmf(y, np.exp(x[0])), [0.0]),
        (StudentT(4.0, 0.5, df_bounds="fixed"), lambda y, x: stats.t.logpdf(y, 4.0, x[0], np.exp(x[1])), [0.0, 0.0]),
    ],
    ids=["gaussian", "poisson", "student_t"],
)
@pytest.mark.usefixtures("x64")
def test_the_constant_model_is_the_best_of_scipys(likelihood, log_prob, start, rng):
    parameters, _, batch, constants = make_problem(likelihood, rng, n_rows=60, n_targets=1)
    y = batch.y
    if not isinstance(likelihood, Poisson):
        y = 2.0 + 1.5 * y
    lower, upper = (jax.tree.map(np.log, bounds) for bounds in likelihood.value_and_bounds(1)[1:])
    constants = constants._replace(
        log_bounds=((constants.log_bounds[0][0], lower), (constants.log_bounds[1][0], upper))
    )
    got = constant_model.best_log_likelihood(parameters.raw_likelihood, constants, Table(batch.X, y, batch.weight))
    assert_allclose(got, best_by_differences(log_prob, y[0], batch.weight, start), atol=1e-5)


@pytest.mark.parametrize("likelihood", [Bernoulli(), Softmax()], ids=repr)
@pytest.mark.usefixtures("x64")
def test_constant_classes_are_their_frequencies(likelihood, rng, monkeypatch):
    """The closed form, and what the search finds without it."""
    parameters, _, batch, constants = make_problem(likelihood, rng, n_rows=60)
    rows = Table(batch.X, batch.y, batch.weight)
    p = np.bincount(batch.y[0].astype(int), weights=batch.weight) / batch.weight.sum()
    assert_allclose(
        constant_model.best_log_likelihood(parameters.raw_likelihood, constants, rows),
        (p * np.log(p)).sum(),
        rtol=1e-12,
    )
    monkeypatch.setattr(type(likelihood), "best_constant", lambda *arguments: None)
    assert_allclose(
        constant_model.best_log_likelihood(parameters.raw_likelihood, constants, rows), (p * np.log(p)).sum(), atol=1e-5
    )


# -- what is said ----------------------------------------------------------------------------


@pytest.mark.slow
def test_a_good_fit_says_nothing_of_it(table):
    found = messages(NGDSVGPRegressor(**SMALL), *table)
    assert not told(found, NO_BETTER)
    assert not any("rejected" in message or "float32" in message for message in found)


@pytest.mark.slow
def test_a_constant_target_is_no_failure(table):
    assert not told(messages(NGDSVGPRegressor(**SMALL), table[0], np.ones(400)), NO_BETTER)


@pytest.mark.slow
@pytest.mark.parametrize("likelihood", ["gaussian", "student_t"])
def test_noise_that_took_everything_is_named(likelihood, table, rng):
    found = messages(NGDSVGPRegressor(likelihood=likelihood, **SMALL), table[0], rng.normal(size=400))
    assert told(found, NO_BETTER)


@pytest.mark.slow
def test_a_function_far_too_fast_for_the_kernel(rng):
    """Lengthscales from which no gradient leads out: all is noise, and it is said."""
    X = rng.uniform(-1.0, 1.0, size=(300, 1))
    y = np.sin(40.0 * X[:, 0])
    reg = NGDSVGPRegressor(1.0 * RBF(5.0), **SMALL)
    assert told(messages(reg, X, y), NO_BETTER)
    assert reg.score(X, y) < 0.1


@pytest.mark.slow
def test_what_the_fit_may_not_move_the_constant_may_not_either(table):
    """Noise that is fixed far too low: the fit explains y well, and its bound is poor."""
    X, f = table
    reg = NGDSVGPRegressor(1.0 * RBF(0.5), likelihood=Gaussian(1e-3), optimizer=None, **SMALL)
    assert not told(messages(reg, X, f), NO_BETTER)
    assert reg.score(X, f) > 0.5


@pytest.mark.slow
def test_a_mean_that_is_solved_for_is_judged_before(rng):
    """Its noise is that of the leave-one-out density, with which the bound of few points is poor."""
    X = rng.uniform(-3.0, 3.0, size=(400, 1))
    y = np.sin(6.0 * X[:, 0])
    # The kernel is given: another default kernel would change what few points can do.
    kernel = 1.0 * RBF(0.3)
    reg = NGDSVGPRegressor(kernel, mean_solver="exact", n_mean_inducing=200, **{**SMALL, "n_inducing": 12})
    found = messages(reg, X, y)
    constant = -0.5 * np.log(2.0 * np.pi) - 0.5
    assert reg.elbo_ < 400 * constant
    assert reg.elbo_curve_.max() > 400 * constant
    assert not told(found, NO_BETTER)
    assert reg.score(X, y) > 0.999


@pytest.mark.slow
def test_a_fit_that_lost_its_signal_is_named(table):
    """Steps so large that the lengthscales end where nothing varies."""
    X, f = table
    kernel = RBF(1.0, (1e-5, 1e5))
    reg = NGDSVGPRegressor(kernel, learning_rate=5.0, batch_size=50, **SMALL)
    assert told(messages(reg, X, f), NO_BETTER)
    assert reg.score(X, f) < 0.1
    clf = NGDSVGPClassifier(kernel, learning_rate=5.0, batch_size=50, **SMALL)
    assert told(messages(clf, X, f > 0), NO_BETTER)


def left_out(y, predicted):
    nothing = np.zeros(y.shape)
    return LeftOut(nothing.T, y - predicted, nothing, nothing, nothing + 1.0, nothing, np.zeros(len(y)), y=y)


def test_a_mean_is_not_worse_than_a_constant_by_chance(rng):
    """As good as a constant: the errors of 40 rows are worse by more than 2 % in a third of all draws."""
    y = rng.normal(size=(400, 40))
    ratio, ahead = left_out(y, 0.09 * y + 0.4444 * rng.normal(size=y.shape)).error_of_mean
    assert np.mean(ratio > outcome._WORSE_MEAN) > 0.25
    assert np.mean((ratio > outcome._WORSE_MEAN) & (ahead > outcome._SURE)) < 0.05
    y = rng.normal(size=(20, 2000))
    ratio, ahead = left_out(y, 0.3 * rng.normal(size=y.shape)).error_of_mean
    assert_allclose(ratio, np.sqrt(1.09), atol=0.04)
    assert np.all((ratio > outcome._WORSE_MEAN) & (ahead > outcome._SURE))


WORSE = "always predicting that class would be better"
IN_BATCHES = {"kernel": RBF(1.0, (1e-5, 1e5)), "batch_size": 50, **SMALL}


@pytest.mark.slow
def test_labels_worse_than_the_most_frequent_one_are_named(table, rng):
    """Steps so large that random labels are not even answered by the class that most rows have."""
    y = rng.choice(2, size=400, p=[0.7, 0.3])
    reckless = NGDSVGPClassifier(**IN_BATCHES, optimizer=None, gamma_schedule=1.0)
    assert told(messages(reckless, table[0], y), WORSE)
    assert reckless.score(table[0], y) < 0.65


@pytest.mark.slow
def test_worse_labels_are_told_apart_from_a_poor_bound(table, monkeypatch):
    """Whatever the bound says: here a mean of the wrong sign, and a bound just above a constant's."""
    X, f = table
    clf = NGDSVGPClassifier(**IN_BATCHES)
    assert not told(messages(clf, X, f > 0), WORSE)
    train = svgp.train

    def turned(*arguments):
        result = train(*arguments)
        q = result.state.q._replace(mean=-result.state.q.mean)
        trained = result.trained._replace(elbo=-0.6 * 400)
        return result._replace(state=result.state._replace(q=q), trained=trained)

    monkeypatch.setattr(svgp, "train", turned)
    found = messages(clf.set_params(calibrate=False), X, f > 0)
    assert told(found, WORSE)
    assert not told(found, NO_BETTER)


@pytest.mark.slow
def test_the_accuracy_of_weighted_rows_and_ties(table, monkeypatch):
    X, f = table
    clf = NGDSVGPClassifier(**IN_BATCHES).fit(X, f > 0)
    labels, rng = clf.predict(X), np.random.default_rng(1)
    y, weight = rng.permutation(labels), rng.uniform(size=400) * (rng.uniform(size=400) < 0.5)
    rows = Table(clf._x_scale.forward(X), 1.0 * y[None], weight)
    found = svgp.accuracy(attributes.model_of(clf), rows)
    assert_allclose(found.model, np.average(labels == y, weights=weight))
    assert_allclose(found.constant, max(np.average(y == c, weights=weight) for c in (False, True)))
    plan = SimpleNamespace(n_classes=2, device="auto", route=SimpleNamespace(remedy="change it"))
    fit, result = SimpleNamespace(plan=plan, some=rows), SimpleNamespace(trained=SimpleNamespace(status=None))
    monkeypatch.setattr(outcome, "_value", lambda *arguments: (-9.0, "ELBO"))
    for model, is_told in ((0.5, False), (0.4, True)):
        monkeypatch.setattr(
            svgp, "accuracy", lambda *_, model=model: found._replace(model=model, constant=0.5, error=0.0)
        )
        assert (_worse_labels(Outcome(clf, fit, result, -0.7, [])) is not None) == is_told


@pytest.mark.slow
def test_rejected_steps_are_news(table):
    X, f = table
    y = np.digitize(f, [-1.0, 1.0])
    reckless = NGDSVGPClassifier(likelihood="robust_max", gamma_schedule=1.0, **SMALL)
    found = messages(reckless, X[:200], y[:200])
    expected = f"{reckless.n_rejected_steps_} of {reckless.n_iter_} steps were rejected, shortened or undone"
    assert reckless.n_rejected_steps_ > 0.05 * reckless.n_iter_
    assert told(found, expected)
    assert any("Lower gamma_schedule (1.0 now) or learning_rate" in message for message in found)


def result(elbo, curve):
    curve = np.asarray(curve, dtype=float)
    none = np.zeros(len(curve), bool)
    return loop.Result(None, Report(curve, 0.0 * curve, none, none), elbo, "rising", 0.0)


def test_a_bound_far_below_the_constant_models_is_an_error():
    """Not one that began there, not one that a single minibatch spoils."""
    with pytest.raises(FloatingPointError, match=r"diverged.*-4e\+15.*-5 .*-1\.42.*Lower learning_rate \(9"):
        refuse_diverged(result(-4e16, [-50.0, -4e16, -4e16, -4e16]), 10.0, -1.42, ["learning_rate=9"])
    refuse_diverged(result(-4e16, [-5e16, -4e16, -4e16, -4e16]), 10.0, -1.42, [])
    refuse_diverged(result(-1e15, [-50.0, -14.0, -14.0, -4e16, -14.0]), 10.0, -1.42, [])
    with pytest.raises(FloatingPointError, match="Give gamma_schedule a small number"):
        refuse_diverged(result(-4e16, [-50.0, -4e16]), 10.0, None, [])


@pytest.mark.slow
def test_a_diverged_fit_leaves_no_model(table, monkeypatch):
    """The error comes before anything is stored."""
    train = svgp.train

    def spoiled(*arguments):
        result = train(*arguments)
        report = result.trained.report
        curve = report.elbo.copy()
        curve[1:] = -1e9
        trained = result.trained._replace(elbo=-1e9, report=report._replace(elbo=curve))
        return result._replace(elbo=-1e9, trained=trained)

    monkeypatch.setattr(svgp, "train", spoiled)
    model = NGDSVGPRegressor(**SMALL)
    with pytest.raises(FloatingPointError, match="diverged"):
        model.fit(*table)
    assert not hasattr(model, "elbo_")


@pytest.mark.slow
def test_labels_that_were_only_memorised_are_named(rng):
    """Of heavy rows the bound beats the constant, and the calibration leaves next to nothing of the probabilities."""
    X, y = rng.normal(size=(60, 3)), rng.choice(3, size=60, p=[0.7, 0.15, 0.15])
    kernel = ConstantKernel(9.0, "fixed") * RBF(1.5, "fixed")
    clf = NGDSVGPClassifier(kernel, solver="ngd", max_iter=100, n_iter_no_change=10, tol=0.05, random_state=0)
    for is_noise in (True, False):
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            clf.fit(X, y if is_noise else X[:, 0] > 0.5, sample_weight=np.full(60, 20.0))
        assert told([str(each.message) for each in caught], "each predicted without itself") == is_noise


# -- held-out labels against their frequencies -----------------------------------------------


@pytest.mark.slow
def test_the_gain_of_held_out_labels_is_that_over_the_frequencies(rng):
    y, latent, frequencies = rng.integers(0, 3, 60), rng.normal(size=(3, 60)), np.array([0.2, 0.3, 0.5])
    p = np.exp(latent) / np.exp(latent).sum(0)
    each = np.log(p[y, np.arange(60)])
    gain = Gain.of(Densities(each, np.ones(60), np.ones(60)), latent, y, frequencies)
    assert_allclose(gain.mean, np.mean(each - np.log(frequencies[y])), rtol=1e-12)
    assert_allclose(gain.error, np.std(each - np.log(frequencies[y])) / np.sqrt(60), rtol=1e-12)
    assert_allclose(gain.ranking, roc_auc_score(y, p.T, multi_class="ovr"), rtol=1e-12)
    two = Gain.of(Densities(each, np.ones(60), np.ones(60)), latent[:1], y // 2, frequencies[:2])
    assert_allclose(two.ranking, roc_auc_score(y // 2, latent[0]), rtol=1e-12)
    drawn = [roc_auc_score(y // 2, rng.normal(size=60)) for _ in range(2000)]
    assert_allclose(two.chance, np.std(drawn), rtol=0.06)


@pytest.mark.slow
@pytest.mark.parametrize("ranking", [0.8, 0.52])
def test_few_rare_labels_say_nothing_against_a_ranking(ranking, table, monkeypatch):
    """As of 20 positive rows among 450: their density is below that of a constant by chance."""
    found = Gain(-0.002, 0.02, ranking, 0.07)
    monkeypatch.setattr(Gain, "of", classmethod(lambda cls, *arguments: found))
    monkeypatch.setattr(outcome, "_value", lambda *arguments: (-9.0, "log density of held-out rows"))
    (message,) = messages(NGDSVGPClassifier(1.0 * RBF(1.0, "fixed"), random_state=0), table[0], table[1] > 1.0) or [""]
    assert ("no information about y" in message) == (ranking < 0.6)
    ranked = "0.52 of all pairs of rows with different labels are ranked correctly (by chance 0.5 +- 0.07)"
    assert (ranked in message) == (ranking < 0.6)
