"""Predicted distributions behind scikit-learn's meta-estimators, against closed forms and quadrature."""

import warnings

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy import integrate, optimize, special, stats
from sklearn.compose import TransformedTargetRegressor
from sklearn.ensemble import BaggingRegressor, StackingRegressor, VotingRegressor
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import RBF, ConstantKernel, WhiteKernel
from sklearn.linear_model import BayesianRidge, LinearRegression, LogisticRegression
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer, PowerTransformer, QuantileTransformer, StandardScaler

from skgp_natgrad import NGDSVGPRegressor, metrics, predictive_distribution
from skgp_natgrad.inspection import IntervalCalibrationDisplay, PredictiveDisplay, ResidualDisplay
from skgp_natgrad.metrics.distribution import PredictiveDistribution
from skgp_natgrad.metrics.mixture import Mixture
from skgp_natgrad.metrics.of_regressor import Normal
from skgp_natgrad.metrics.transformed import Transformed

RNG = np.random.default_rng(7)
N = 12
MEAN, STD = RNG.normal(size=N), np.exp(0.5 * RNG.normal(size=N) - 1.0)
LEVELS = np.array([1e-6, 0.05, 0.5, 0.9, 1.0 - 1e-6])
Z = np.concatenate([MEAN[:-2] + 1.5 * STD[:-2] * RNG.normal(size=N - 2), [MEAN[-2] - 30 * STD[-2], MEAN[-1] + 9]])

X = RNG.uniform(-2.0, 2.0, size=(80, 3))
TARGET = np.exp(0.3 * X[:, 0] + 0.2 * RNG.normal(size=80))

LOGARITHM = FunctionTransformer(np.log, np.exp)


def behind(transformer, y, mean=MEAN, std=STD):
    return Transformed(Normal(mean, std), transformer.fit(np.reshape(y, (-1, 1))))


def crps_of_log_normal(y, mean, std):
    """Baran and Lerch 2015, appendix."""
    with np.errstate(divide="ignore"):
        score = (np.log(np.maximum(y, 0.0)) - mean) / std
    phi, expected = stats.norm.cdf, np.exp(mean + 0.5 * std**2)
    return y * (2.0 * phi(score) - 1.0) - 2.0 * expected * (phi(score - std) + phi(std / np.sqrt(2.0)) - 1.0)


def crps_of_normals(y, means, stds, weights):
    """Of a mixture: Grimit, Gneiting, Berrocal and Johnson 2006, equation 5."""

    def mean_size(mean, std):
        return 2.0 * std * stats.norm.pdf(mean / std) + mean * (2.0 * stats.norm.cdf(mean / std) - 1.0)

    apart = [w * mean_size(y - m, s) for w, m, s in zip(weights, means, stds, strict=True)]
    pairs = [
        v * w * mean_size(m - n, np.hypot(s, t))
        for v, m, s in zip(weights, means, stds, strict=True)
        for w, n, t in zip(weights, means, stds, strict=True)
    ]
    return sum(apart) - 0.5 * sum(pairs)


# -- behind a transformer ----------------------------------------------------------------------


def test_the_exponential_of_a_normal_variable_is_log_normal():
    found, y = behind(LOGARITHM, np.exp(MEAN)), np.exp(Z)
    expected = stats.lognorm(STD, scale=np.exp(MEAN))
    assert_allclose(found.mean(), expected.mean(), rtol=1e-12)
    assert_allclose(found.std(), expected.std(), rtol=1e-11)
    assert_allclose(found.quantile(LEVELS).T, [expected.ppf(level) for level in LEVELS], rtol=1e-10)
    assert_allclose(found.quantile(0.3), expected.ppf(0.3), rtol=1e-10)
    assert_allclose(found.interval(0.8), expected.interval(0.8), rtol=1e-10)
    assert_allclose(found.cdf(y), expected.cdf(y), atol=2e-12)
    assert_allclose(found.log_density(y), expected.logpdf(y), rtol=1e-9, atol=1e-9)
    assert_allclose(found.crps(y), crps_of_log_normal(y, MEAN, STD), rtol=1e-11)
    draws = found.sample(5000, random_state=3)
    assert draws.shape == (N, 5000)
    for k in range(N):
        assert stats.kstest(np.log(draws[k]), stats.norm(MEAN[k], STD[k]).cdf).pvalue > 1e-4


def test_what_the_inverse_never_returns_has_no_probability():
    found = behind(LOGARITHM, np.exp(MEAN))
    for y in (0.0, -0.3):
        assert_array_equal(found.cdf(y), np.zeros(N))
        assert_allclose(found.crps(y), crps_of_log_normal(np.full(N, y), MEAN, STD), rtol=1e-11)
        with pytest.raises(ValueError, match=r"y = -?0.* has no density.*PowerTransformer"):
            found.log_density(y)


def test_a_decreasing_transformer_swaps_the_quantiles():
    turned = FunctionTransformer(lambda y: -np.log(y), lambda z: np.exp(-z))
    found, y = behind(turned, np.exp(MEAN)), np.exp(Z)
    expected = behind(LOGARITHM, np.exp(MEAN), mean=-MEAN)
    assert_allclose(found.quantile(LEVELS), expected.quantile(LEVELS), rtol=1e-9)
    assert_allclose(found.cdf(y), expected.cdf(y), atol=2e-12)
    assert_allclose(found.log_density(y), expected.log_density(y), rtol=1e-9, atol=1e-9)
    assert_allclose(found.mean(), expected.mean(), rtol=1e-12)
    assert_allclose(found.crps(y), expected.crps(y), rtol=1e-9)


@pytest.mark.parametrize("method", ["box-cox", "yeo-johnson"])
@pytest.mark.parametrize("power", [0.3, 1.0])
def test_power_transformers_have_their_derivatives(method, power):
    y = RNG.gamma(4.0, size=10) ** (1.0 / power)
    transformer = PowerTransformer(method).fit(y[:, None])
    z = transformer.transform(y[:, None])[:, 0]
    normal = stats.norm(z + 0.1, 0.5)
    found = Transformed(Normal(z + 0.1, np.full(10, 0.5)), transformer)
    base = y if method == "box-cox" else y + 1.0
    log_slope = (transformer.lambdas_[0] - 1.0) * np.log(base) - np.log(transformer._scaler.scale_[0])
    assert_allclose(found.log_density(y), normal.logpdf(z) + log_slope, rtol=1e-8, atol=1e-8)
    assert_allclose(found.cdf(y), normal.cdf(z), atol=1e-11)
    assert_allclose(found.cdf(found.quantile(0.9)), 0.9, rtol=1e-10)
    assert_allclose(found.crps(y), crps_by_definition(found, y), rtol=1e-5)


def crps_by_definition(found, y):
    """The integral of the squared quantile score over the levels: independent of the package's own integral."""
    levels = (np.arange(20_000) + 0.5) / 20_000
    at = found.quantile(levels)
    return 2.0 * (((y[:, None] <= at) - levels) * (at - y[:, None])).mean(-1)


def test_beyond_the_end_of_its_domain_an_inverse_stays_there():
    """Box-Cox with a power above zero has no inverse of small numbers: they are y = 0."""
    transformer = PowerTransformer("box-cox", standardize=False).fit(np.exp(RNG.normal(size=(50, 1))))
    transformer.lambdas_ = np.array([0.5])
    mean, std = np.array([-1.0, 0.5]), np.array([0.7, 0.4])
    found, normal = Transformed(Normal(mean, std), transformer), stats.norm(mean, std)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert_allclose(found.cdf(1e-9), normal.cdf(2.0 * (np.sqrt(1e-9) - 1.0)), rtol=1e-7)
        assert_array_equal(found.cdf(-0.1), [0.0, 0.0])
        assert_allclose(found.quantile([0.01, 0.5])[0], [0.0, 0.25], atol=1e-12)
        assert np.all(np.isfinite(found.crps(0.2)))
    # y = (z / 2 + 1)^2 above z = -2.
    expected = [
        integrate.quad(lambda z, k=k: (z / 2 + 1) ** 2 * stats.norm.pdf(z, mean[k], std[k]), -2, 9, epsabs=1e-12)[0]
        for k in range(2)
    ]
    assert_allclose(found.mean(), expected, rtol=1e-4)


@pytest.mark.parametrize("output", ["uniform", "normal"])
def test_quantile_transformers_have_probability_at_their_ends(output):
    y = RNG.gamma(2.0, size=200)
    transformer = QuantileTransformer(n_quantiles=50, output_distribution=output).fit(y[:, None])
    z = 0.6 if output == "uniform" else 0.4
    found = Transformed(Normal(np.array([z]), np.array([0.2])), transformer)
    low, high = y.min(), y.max()
    assert_array_equal(found.cdf(low - 1.0), [0.0])
    assert_array_equal(found.cdf(high), [1.0])
    # Between two neighbouring quantiles of the training targets the distribution function is smooth.
    for left, right in zip(transformer.quantiles_[20:25, 0], transformer.quantiles_[21:26, 0], strict=True):
        part = np.linspace(left, right, 43)[1:-1]
        many = Transformed(Normal(np.full(41, z), np.full(41, 0.2)), transformer)
        area = integrate.simpson(np.exp(many.log_density(part)), x=part)
        assert_allclose(area, np.diff(many.cdf(part)[[0, -1]])[0], rtol=1e-6)
    for q in (0.3, 0.7):
        assert_allclose(found.cdf(found.quantile(q)), q, rtol=1e-9)
    assert_allclose(found.crps(1.0), crps_by_definition(found, np.array([1.0])), rtol=1e-3)
    for end in (high + 1.0, high):
        with pytest.raises(ValueError, match="has no density: it is outside of, or at the end of"):
            found.log_density(end)


@pytest.mark.filterwarnings("ignore:The provided functions are not strictly inverse:UserWarning")
def test_what_defines_no_distribution_is_refused():
    square = FunctionTransformer(np.sqrt, np.square)
    far, near = (behind(square, np.ones(3), np.full(N, mean), np.full(N, 0.3)) for mean in (5.0, 1.0))
    assert_allclose(far.quantile(0.9), (5.0 + 0.3 * stats.norm.ppf(0.9)) ** 2, rtol=1e-12)
    assert_allclose(far.mean(), 25.0 + 0.09, rtol=1e-10)
    with pytest.raises(ValueError, match=r"FunctionTransformer\(.*\) is not monotone .* from -0\.8 to 2\.8"):
        near.quantile(0.5)
    wrong = behind(FunctionTransformer(np.log1p, np.exp), np.exp(MEAN))
    with pytest.raises(ValueError, match=r"does not undo it: y = .* Give functions that are inverse to each other"):
        wrong.cdf(1.0)
    constant = behind(FunctionTransformer(np.log, lambda z: 0.0 * z), np.exp(MEAN))
    with pytest.raises(ValueError, match="is not monotone"):
        constant.mean()


def test_an_affine_transformer_leaves_a_normal_distribution():
    y = 1e6 + 3.0 * RNG.normal(size=50)
    scaler = StandardScaler().fit(y[:, None])
    found = Transformed(Normal(MEAN, STD), scaler)
    mean, std = scaler.mean_ + scaler.scale_ * MEAN, scaler.scale_ * STD
    y = mean + std * RNG.normal(size=N)
    assert_allclose(found.mean(), mean, rtol=1e-14)
    assert_allclose(found.std(), std, rtol=1e-9)
    assert_allclose(found.log_density(y), stats.norm(mean, std).logpdf(y), rtol=1e-8)
    assert_allclose(found.crps(y), metrics.proper_scores.crps_of_normal(y, mean, std), rtol=1e-8)


class StudentT(PredictiveDistribution):
    """Student-t rows, through the methods that quadrature asks for."""

    _closed = True

    def __init__(self, df, scale):
        self._df, self._scale, self.shape = df, scale, scale.shape

    def _quantile(self, levels):
        return self._scale[:, None] * special.stdtrit(self._df, levels)

    def _cdf_at(self, y, rows, k):
        return special.stdtr(self._df, y / self._scale[rows])


@pytest.mark.parametrize(("df", "rtol"), [(2.5, 1e-8), (8.0, 1e-9)])
def test_quadrature_of_heavy_tails(df, rtol):
    scale, y = np.array([0.1, 1.0, 30.0]), np.array([0.5, -1.0, 3.0])
    found = StudentT(df, scale)
    each = [
        integrate.quad(lambda x, k=k: special.stdtr(df, x / scale[k]) ** 2, -np.inf, y[k], epsabs=1e-12)[0]
        + integrate.quad(lambda x, k=k: special.stdtr(df, -x / scale[k]) ** 2, y[k], np.inf, epsabs=1e-12)[0]
        for k in range(3)
    ]
    assert_allclose(found.crps(y), each, rtol=rtol)
    if df == 8.0:
        assert_allclose(found.std(), scale * np.sqrt(8.0 / 6.0), rtol=1e-6)


def test_moments_that_do_not_exist_are_infinite():
    assert_array_equal(StudentT(1.5, np.ones(2)).std(), [np.inf, np.inf])
    found = Transformed(StudentT(3.0, np.ones(2)), LOGARITHM.fit(np.ones((2, 1))))
    assert_array_equal(found.mean(), [np.inf, np.inf])
    assert_array_equal(found.std(), [np.inf, np.inf])
    assert_array_equal(found.crps(1.0), [np.inf, np.inf])
    assert_allclose(found.quantile(0.5), 1.0)


# -- mixtures ----------------------------------------------------------------------------------

WEIGHTS = np.array([0.2, 0.5, 0.3])
MEANS, STDS = RNG.normal(size=(3, N)), np.exp(RNG.normal(size=(3, N)) - 1.0)
# Far apart, and one of them very narrow.
MEANS[:, 0], STDS[:, 0] = [-50.0, 0.0, 1.0], [1.0, 1e-3, 2.0]


def mixture():
    return Mixture([Normal(*each) for each in zip(MEANS, STDS, strict=True)], 2.0 * WEIGHTS)


def test_a_mixture_of_normal_variables():
    found, y = mixture(), np.linspace(-3.0, 3.0, N)
    normal = stats.norm(MEANS, STDS)
    assert_allclose(found.cdf(y), WEIGHTS @ normal.cdf(y), rtol=1e-12)
    assert_allclose(found.log_density(y), np.log(WEIGHTS @ normal.pdf(y)), rtol=1e-10, atol=1e-12)
    assert_allclose(found.mean(), WEIGHTS @ MEANS, rtol=1e-13, atol=1e-14)
    assert_allclose(found.std() ** 2, WEIGHTS @ (STDS**2 + MEANS**2) - (WEIGHTS @ MEANS) ** 2, rtol=1e-10)
    levels = np.array([1e-9, 0.01, 0.2, 0.5, 0.95])
    for k in range(N):
        for level, at in zip(levels, found.quantile(levels)[k], strict=True):

            def excess(x, k=k, level=level):
                return WEIGHTS @ special.ndtr((x - MEANS[:, k]) / STDS[:, k]) - level

            expected = optimize.brentq(excess, -300.0, 300.0, xtol=1e-13)
            # Between distant parts the distribution function is flat.
            assert_allclose(at, expected, rtol=1e-8, atol=1e-9) if level != 0.2 else assert_allclose(
                excess(at), 0.0, atol=1e-14
            )
    assert_allclose(found.crps(y), crps_of_normals(y, MEANS, STDS, WEIGHTS), rtol=1e-9)
    draws = found.sample(4000, random_state=0)
    for k in (1, 2):
        assert (
            stats.kstest(draws[k], lambda x, k=k: WEIGHTS @ normal.cdf(np.reshape(x, (-1, 1, 1)))[..., k].T).pvalue
            > 1e-4
        )


class Poisson(PredictiveDistribution):
    """Poisson rows, through the methods that mixtures ask for."""

    _discrete = True

    def __init__(self, rate):
        self._rate, self.shape = rate, rate.shape

    def _quantile(self, levels):
        return stats.poisson(self._rate[:, None]).ppf(levels)

    def _cdf_at(self, y, rows, k):
        return special.pdtr(np.floor(y), self._rate[rows]) * (y >= 0.0)


def test_quantiles_of_a_mixture_of_counts_are_the_smallest_integers():
    rates = RNG.gamma(2.0, 5.0, size=(3, 40))
    found = Mixture(list(map(Poisson, rates)), WEIGHTS)
    cdf = WEIGHTS @ stats.poisson(rates).cdf(np.arange(200)[:, None, None])
    for level in (1e-3, 0.25, 0.5, 0.99):
        assert_array_equal(found.quantile(level), np.argmax(cdf >= level, axis=0))


def test_equal_parts_are_their_mixture():
    part = Normal(MEAN, STD)
    found = Mixture([part, part, Normal(MEAN + 99.0, STD)], [1.0, 3.0, 0.0])
    for level in (1e-9, 0.5, 1.0 - 1e-9):
        assert_allclose(found.quantile(level), part.quantile(level), rtol=1e-12)
    assert_allclose(found.crps(Z), part.crps(Z), rtol=1e-9)
    assert_allclose(found.log_density(Z), part.log_density(Z), rtol=1e-12)
    for weights in ([1.0, -1.0], [0.0, 0.0], [np.nan, 1.0]):
        with pytest.raises(ValueError, match=r"weights=\[.*\] must be at least zero"):
            Mixture([part, part], weights)


def test_transformers_around_and_within_a_mixture_agree():
    around = Transformed(mixture(), LOGARITHM.fit(np.ones((3, 1))))
    within = Mixture([Transformed(part, LOGARITHM) for part in mixture().parts], WEIGHTS)
    y = np.exp(np.linspace(-2.0, 2.0, N))
    for method in ("cdf", "log_density", "crps"):
        assert_allclose(getattr(around, method)(y), getattr(within, method)(y), rtol=1e-7, atol=1e-9, err_msg=method)
    assert_allclose(around.quantile(LEVELS), within.quantile(LEVELS), rtol=1e-6)
    each = [stats.lognorm(std, scale=np.exp(mean)).mean() for mean, std in zip(MEANS, STDS, strict=True)]
    assert_allclose(within.mean(), WEIGHTS @ each, rtol=1e-9)


# -- behind meta-estimators --------------------------------------------------------------------


def gaussian_process():
    return GaussianProcessRegressor(RBF() + WhiteKernel(), optimizer=None, normalize_y=True)


def voting():
    members = [("line", make_pipeline(StandardScaler(), BayesianRidge())), ("out", "drop"), ("gp", gaussian_process())]
    return VotingRegressor(members, weights=[1.0, 5.0, 3.0]).fit(X, TARGET)


def test_a_pipeline_a_search_and_a_transformed_target_nest():
    inner = TransformedTargetRegressor(
        make_pipeline(StandardScaler(), BayesianRidge()), func=np.log, inverse_func=np.exp
    )
    model = GridSearchCV(make_pipeline(StandardScaler(), inner), {}, cv=3).fit(X, TARGET)
    found = predictive_distribution(model, X)
    line = BayesianRidge().fit(StandardScaler().fit_transform(X), np.log(TARGET))
    mean, std = line.predict(StandardScaler().fit_transform(X), return_std=True)
    assert_allclose(found.log_density(TARGET), stats.lognorm(std, scale=np.exp(mean)).logpdf(TARGET), rtol=1e-8)
    assert_allclose(found.quantile(0.5), model.predict(X), rtol=1e-10)
    assert not np.allclose(found.mean(), model.predict(X), rtol=1e-3)


def test_a_vote_is_the_mixture_of_its_members():
    model = voting()
    found = predictive_distribution(model, X)
    moments = [member.predict(X, return_std=True) for member in model.estimators_]
    normal = stats.norm(*np.swapaxes(moments, 0, 1))
    assert_allclose(found.mean(), model.predict(X), rtol=1e-12)
    assert_allclose(found.log_density(TARGET), np.log([0.25, 0.75] @ normal.pdf(TARGET)), rtol=1e-10)
    unweighted = VotingRegressor([("a", BayesianRidge()), ("b", gaussian_process())]).fit(X, TARGET)
    assert_allclose(predictive_distribution(unweighted, X).mean(), unweighted.predict(X), rtol=1e-12)


def test_a_transformed_vote_is_the_vote_of_transformed_members():
    vote = VotingRegressor([("line", BayesianRidge()), ("gp", gaussian_process())], weights=[2.0, 1.0])
    found, y = (
        predictive_distribution(TransformedTargetRegressor(vote, func=np.log, inverse_func=np.exp).fit(X, TARGET), X),
        TARGET,
    )
    moments = [each.fit(X, np.log(y)).predict(X, return_std=True) for each in (BayesianRidge(), gaussian_process())]
    density = np.array([[2.0, 1.0]]) / 3.0 @ [stats.lognorm(std, scale=np.exp(mean)).pdf(y) for mean, std in moments]
    assert_allclose(found.log_density(y), np.log(density[0]), rtol=1e-8, atol=1e-8)


def test_bagging_is_the_mixture_of_its_members_on_their_own_columns():
    model = BaggingRegressor(BayesianRidge(), 4, max_features=2, random_state=0).fit(X, TARGET)
    found = predictive_distribution(model, X)
    parts = zip(model.estimators_, model.estimators_features_, strict=True)
    normal = stats.norm(*np.swapaxes([each.predict(X[:, columns], return_std=True) for each, columns in parts], 0, 1))
    assert_allclose(found.mean(), model.predict(X), rtol=1e-12)
    assert_allclose(found.cdf(TARGET), normal.cdf(TARGET).mean(0), rtol=1e-12)
    expected = crps_of_normals(TARGET, *normal.args, np.full(4, 0.25))
    assert_allclose(found.crps(TARGET), expected, rtol=1e-10)
    with pytest.raises(ValueError, match="X has 2 features, but BaggingRegressor is expecting 3"):
        predictive_distribution(model, X[:, :2])


def test_bagging_of_several_outputs():
    both = np.column_stack([TARGET, X[:, 1]])
    model = BaggingRegressor(gaussian_process(), 3, random_state=0).fit(X, both)
    found = predictive_distribution(model, X)
    normal = stats.norm(*np.swapaxes([each.predict(X, return_std=True) for each in model.estimators_], 0, 1))
    assert_allclose(found.mean(), model.predict(X), rtol=1e-12)
    assert_allclose(found.cdf(both), normal.cdf(both).mean(0), rtol=1e-12)
    assert_allclose(found.log_density(both), np.log(normal.pdf(both).prod(-1).mean(0)), rtol=1e-10)
    assert_allclose(found.cdf(found.quantile(0.2)), 0.2, rtol=1e-10)
    assert found.quantile(LEVELS).shape == (80, 2, len(LEVELS))
    assert found.sample(7).shape == (80, 2, 7)


def test_a_stack_has_the_distribution_of_its_final_estimator():
    members = [("line", LinearRegression()), ("gp", gaussian_process())]
    model = StackingRegressor(members, BayesianRidge(), cv=3).fit(X, TARGET)
    found = predictive_distribution(model, X)
    assert_allclose((found.mean(), found.std()), model.predict(X, return_std=True), rtol=1e-12)
    default = StackingRegressor(members, cv=3).fit(X, TARGET)
    with pytest.raises(TypeError, match=r"RidgeCV in StackingRegressor predicts no distribution.*final_estimator must"):
        predictive_distribution(default, X)


def test_members_without_a_distribution_and_classifiers_are_refused():
    vote = VotingRegressor([("gp", gaussian_process()), ("line", LinearRegression())]).fit(X, TARGET)
    with pytest.raises(TypeError, match=r"LinearRegression in VotingRegressor predicts no distribution.*every member"):
        predictive_distribution(vote, X)
    with pytest.raises(TypeError, match="LogisticRegression is a classifier; its predict_proba"):
        predictive_distribution(make_pipeline(StandardScaler(), LogisticRegression()).fit(X, TARGET > 1.0), X)
    with pytest.raises(TypeError, match="BayesianRidge takes no alpha"):
        predictive_distribution(BayesianRidge().fit(X, TARGET), X, alpha=1.0)


def test_wrong_values_are_named():
    found = predictive_distribution(voting(), X)
    with pytest.raises(ValueError, match=r"y has the shape \(3,\), but the predicted distribution has \(80,\)"):
        found.cdf(np.ones(3))
    for method in ("cdf", "log_density", "crps"):
        with pytest.raises(ValueError, match="y holds nan, which is not finite"):
            getattr(found, method)(np.full(80, np.nan))
    with pytest.raises(ValueError, match=r"q=1\.0 must be .* strictly between 0 and 1"):
        found.quantile(1.0)
    with pytest.raises(ValueError, match=r"coverage=0 must be a number strictly between"):
        found.interval(0)
    with pytest.raises(ValueError, match=r"n_samples=0 must be an int in the range \[1, inf\)"):
        found.sample(0)


@pytest.mark.parametrize("metric", ["nlpd", "msll", "crps", "interval_score", "coverage_error", "calibration_error"])
@pytest.mark.parametrize("kind", ["log", "vote"])
def test_scorers_score_what_is_predicted(metric, kind):
    logarithm = TransformedTargetRegressor(BayesianRidge(), func=np.log, inverse_func=np.exp)
    model = voting() if kind == "vote" else logarithm.fit(X, TARGET)
    found, weight = predictive_distribution(model, X), RNG.uniform(size=80)
    ends = found.interval(0.9)
    nlpd = -np.average(found.log_density(TARGET), weights=weight)
    mean = np.average(TARGET, weights=weight)
    normal = stats.norm(mean, np.sqrt(np.average((TARGET - mean) ** 2, weights=weight)))
    expected = {
        "nlpd": nlpd,
        "msll": nlpd + np.average(normal.logpdf(TARGET), weights=weight),
        "crps": np.average(found.crps(TARGET), weights=weight),
        "interval_score": metrics.interval_score(TARGET, *ends, 0.9, sample_weight=weight),
        "coverage_error": abs(metrics.interval_coverage(TARGET, *ends, sample_weight=weight) - 0.9),
        "calibration_error": metrics.pit_calibration_error(found.cdf(TARGET), sample_weight=weight),
    }
    scorer = metrics.DistributionScorer(metric)
    assert_allclose(scorer(model, X, TARGET, sample_weight=weight), -expected[metric], rtol=1e-10)
    if metric == "crps" and kind == "log":
        mean, std = model.regressor_.predict(X, return_std=True)
        exact = np.average(crps_of_log_normal(TARGET, mean, std), weights=weight)
        assert_allclose(expected["crps"], exact, rtol=1e-11)


def test_a_search_by_density_compares_transformations():
    plain = make_pipeline(StandardScaler(), BayesianRidge())
    logarithm = TransformedTargetRegressor(plain, func=np.log, inverse_func=np.exp)
    rows, y = X[:, :1], np.exp(1.5 * X[:, 0] + 0.3 * RNG.normal(size=80))
    scores = [cross_val_score(each, rows, y, cv=2, scoring=metrics.nlpd_scorer).mean() for each in (plain, logarithm)]
    assert scores[1] > scores[0] + 0.5


def test_displays_show_what_is_predicted():
    pytest.importorskip("matplotlib").use("Agg")
    model = TransformedTargetRegressor(voting(), func=np.log, inverse_func=np.exp).fit(X, TARGET)
    found = predictive_distribution(model, X)
    display = IntervalCalibrationDisplay.from_estimator(model, X, TARGET, coverages=[0.5, 0.9])
    assert_allclose(display.observed, [metrics.interval_coverage(TARGET, *found.interval(c)) for c in (0.5, 0.9)])
    assert_allclose(ResidualDisplay.from_estimator(model, X, TARGET).pit, found.cdf(TARGET))
    line = TransformedTargetRegressor(BayesianRidge(), func=np.log, inverse_func=np.exp).fit(X[:, :1], TARGET)
    drawn = PredictiveDisplay.from_estimator(line, X[:, :1], coverages=[0.8])
    expected = predictive_distribution(line, drawn.grid[:, None]).interval(0.8)
    assert_allclose(drawn.intervals[0.8], expected)


# -- of this package ---------------------------------------------------------------------------


FIXED = ConstantKernel(1.0, "fixed") * RBF(1.0, "fixed")


def own(**options):
    return NGDSVGPRegressor(FIXED, **{"n_inducing": 8, "calibrate": False, "random_state": 0} | options)


@pytest.fixture(scope="module")
def fitted():
    return own().fit(X[:, :1], TARGET)


@pytest.fixture(scope="module")
def counts():
    y = np.random.default_rng(0).poisson(np.exp(1.0 + 0.5 * X[:, 0]))
    return own(likelihood="poisson").fit(X[:, :1], y), y


@pytest.mark.slow
def test_of_a_regressor_of_this_package_it_is_what_that_predicts(fitted):
    found, rows = predictive_distribution(fitted, X[:, :1]), X[:, :1]
    assert_array_equal((found.mean(), found.std()), fitted.predict(rows, return_std=True))
    assert_array_equal(found.quantile(LEVELS), fitted.predict_quantiles(rows, LEVELS))
    assert_array_equal(found.interval(0.7), fitted.predict_interval(rows, 0.7))
    assert_array_equal(found.cdf(TARGET), fitted.predict_cdf(rows, TARGET))
    assert_array_equal(found.log_density(TARGET), fitted.predict_log_density(rows, TARGET))
    assert_array_equal(found.sample(3, 5), fitted.sample_y(rows, 3, 5, joint=False))
    some = np.array([3, 3, 70])
    assert_allclose(found._cdf_at(np.array([0.9, 1.0, 1.1]), some, 0), fitted.predict_cdf(rows[some], [0.9, 1.0, 1.1]))


def test_offsets_and_known_noise_reach_every_member(fitted):
    vote = VotingRegressor([("a", fitted), ("b", fitted)], weights=[1.0, 2.0])
    vote.estimators_ = [fitted, fitted]
    rows, known = X[:, :1], {"offset": np.linspace(0.0, 1.0, 80), "alpha": 0.5}
    found = predictive_distribution(vote, rows, **known)
    assert_allclose(found.log_density(TARGET), fitted.predict_log_density(rows, TARGET, **known), rtol=1e-9)
    assert_allclose(found.quantile(LEVELS), fitted.predict_quantiles(rows, LEVELS, **known), rtol=1e-9)
    mean, std = fitted.predict(rows, return_std=True, **known)
    assert_allclose(found.crps(TARGET), metrics.proper_scores.crps_of_normal(TARGET, mean, std), rtol=1e-8)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_probabilities_of_counts_have_no_unit(counts):
    model, y = counts
    tenfold = {"func": lambda y: y / 10.0, "inverse_func": lambda y: y * 10.0}
    transformed = TransformedTargetRegressor(model, **tenfold).fit(X[:, :1], 10.0 * y)
    found = predictive_distribution(transformed, X[:, :1]).log_density(10.0 * y)
    assert_allclose(found, transformed.regressor_.predict_log_density(X[:, :1], y), rtol=1e-9)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_mixtures_of_counts(counts):
    model, y = counts
    vote = VotingRegressor([("a", model), ("b", model)])
    other = own(likelihood="poisson", n_inducing=2).fit(X[:, :1], y)
    vote.estimators_ = [model, other]
    found, rows = predictive_distribution(vote, X[:, :1]), X[:, :1]
    every = np.tile(rows, (40, 1)), np.repeat(np.arange(40.0), 80)
    cdf = np.mean([each.predict_cdf(*every).reshape(40, 80) for each in (model, other)], axis=0)
    for level in (0.05, 0.5, 0.95):
        assert_array_equal(found.quantile(level), np.argmax(cdf >= level, axis=0))
    probability = [np.exp(each.predict_log_density(rows, y)) for each in (model, other)]
    assert_allclose(found.log_density(y), np.log(np.mean(probability, axis=0)), rtol=1e-9)
    at, below = found._pit(y.astype(float))
    assert_allclose(at - below, np.mean(probability, axis=0), rtol=1e-6)
    expected = ((cdf - (np.arange(40)[:, None] >= y)) ** 2).sum(0)
    assert_allclose(found.crps(y, n_draws=4000).mean(), expected.mean(), rtol=0.01)
    vote.estimators_ = [model, BayesianRidge().fit(rows, y)]
    with pytest.raises(ValueError, match="predict densities, and others probabilities"):
        predictive_distribution(vote, rows).log_density(y)


@pytest.mark.slow
def test_default_fits_behind_a_logarithm_have_student_errors():
    """The quantiles of calibrated errors have a closed form: the score is an integral, close to that of draws."""
    rng = np.random.default_rng(3)
    rows = rng.uniform(0.0, 10.0, size=(200, 1))
    y = np.exp(np.sin(rows[:, 0]) + 0.1 * rng.standard_t(4, size=200))
    model = TransformedTargetRegressor(NGDSVGPRegressor(random_state=0), func=np.log, inverse_func=np.exp).fit(rows, y)
    found, z = predictive_distribution(model, rows), np.log(y)
    expected = model.regressor_.predict_log_density(rows, z) - z
    assert_allclose(found.log_density(y), expected, rtol=1e-7)
    assert_allclose(found.interval(0.9), np.exp(model.regressor_.predict_interval(rows, 0.9)), rtol=1e-9)
    assert_allclose(found.cdf(y), model.regressor_.predict_cdf(rows, z), atol=1e-9)
    drawn = metrics.crps_samples(y, np.exp(model.regressor_.sample_y(rows, 4000, 1, joint=False)))
    assert_allclose(found.crps(y).mean(), drawn, rtol=0.02)


@pytest.mark.parametrize("scale", [StandardScaler(), LOGARITHM])
def test_a_transformed_target_names_the_remedy(fitted, scale):
    model = TransformedTargetRegressor(fitted, transformer=scale)
    model.regressor_, model.transformer_, model._training_dim = fitted, scale.fit(TARGET[:, None]), 1
    with pytest.raises(AttributeError, match=r"cannot transform it back; use skgp_natgrad\.predictive_distribution"):
        model.predict(X[:, :1], return_std=True)
    mean, std = fitted.predict(X[:, :1], return_std=True)
    assert np.asarray(fitted.predict(X[:, :1], return_std=True)).shape == (2, 80)
    assert mean.shape == std.shape == (80,)
