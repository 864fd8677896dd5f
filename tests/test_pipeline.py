"""The estimators among scikit-learn's tools.

Tables have sizes in common where nothing depends on them, so that their fits have a program in common.
"""

import pickle
import warnings

import joblib
import numpy as np
import pandas as pd
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from sklearn import set_config
from sklearn.base import clone
from sklearn.calibration import CalibratedClassifierCV
from sklearn.compose import ColumnTransformer
from sklearn.datasets import load_breast_cancer, load_diabetes, load_iris
from sklearn.ensemble import VotingClassifier, VotingRegressor
from sklearn.gaussian_process.kernels import RBF, ConstantKernel, Matern
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.model_selection import GridSearchCV, cross_validate
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler

from skgp_natgrad import LogLinear, NGDSVGPClassifier, NGDSVGPRegressor
from skgp_natgrad.likelihoods import RobustMax, StudentT
from skgp_natgrad.priors import LogNormal

pytestmark = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")


@pytest.fixture(scope="module")
def diabetes():
    X, y = load_diabetes(return_X_y=True)
    return X[:150], y[:150]


def regressor(**kwargs):
    return NGDSVGPRegressor(**{"n_inducing": 15, "max_iter": 60, "random_state": 0, **kwargs})


def classifier(**kwargs):
    return NGDSVGPClassifier(**{"n_inducing": 15, "max_iter": 60, "random_state": 0, **kwargs})


@pytest.mark.slow
def test_grid_search_in_a_pipeline(diabetes):
    pipeline = Pipeline(
        [
            ("scale", StandardScaler()),
            (
                "gp",
                regressor(
                    kernel=ConstantKernel(1.0) * Matern(2.0, nu=2.5),
                    likelihood=StudentT(),
                    gamma_schedule=LogLinear(1e-3, 0.1, 10),
                ),
            ),
        ]
    )
    values = {
        "gp__likelihood__df": [3.0, 6.0],
        "gp__n_inducing": [10, 15],
        "gp__gamma_schedule__final": [0.1, 0.3],
        "gp__kernel__k2__length_scale": [2.0, 4.0],
    }
    # All first values, all second ones, and each parameter's second one alone.
    first, second = ({name: pair[i : i + 1] for name, pair in values.items()} for i in (0, 1))
    grid = [first, second, *({**first, name: second[name]} for name in values)]
    search = GridSearchCV(pipeline, grid, cv=2, error_score="raise").fit(*diabetes)
    assert set(search.best_params_) == set(values)
    assert search.best_score_ > 0.2
    scores = search.cv_results_["mean_test_score"]
    assert len(np.unique(scores.round(9))) == 6  # each of the parameters reaches the fit


@pytest.mark.slow
def test_cross_validation_with_several_scorers():
    X, y = load_iris(return_X_y=True)
    scores = cross_validate(classifier(), X, y, cv=3, scoring=["accuracy", "neg_log_loss", "roc_auc_ovr"])
    assert scores["test_accuracy"].mean() > 0.9
    assert scores["test_neg_log_loss"].mean() > -0.4
    assert scores["test_roc_auc_ovr"].mean() > 0.97


@pytest.mark.slow
def test_ensembles_and_calibration():
    X, y = load_breast_cancer(return_X_y=True)
    X, y = X[:200, :10], y[:200]
    vote = VotingClassifier(
        [("gp", classifier()), ("lr", make_pipeline(StandardScaler(), LogisticRegression()))], voting="soft"
    )
    assert vote.fit(X, y).score(X, y) > 0.9
    calibrated = CalibratedClassifierCV(classifier(), cv=2).fit(X, y)
    assert_allclose(calibrated.predict_proba(X).sum(1), 1.0)
    X, y = load_diabetes(return_X_y=True)
    assert (
        VotingRegressor([("gp", regressor()), ("ridge", Ridge())]).fit(X[:100], y[:100]).score(X[:100], y[:100]) > 0.3
    )


@pytest.mark.slow
def test_data_frame_and_string_labels():
    X, y = load_iris(return_X_y=True, as_frame=True)
    labels = y.map({0: "setosa", 1: "versicolor", 2: "virginica"})
    clf = classifier().fit(X, labels)
    assert_array_equal(clf.feature_names_in_, X.columns)
    assert list(clf.classes_) == ["setosa", "versicolor", "virginica"]
    assert set(clf.predict(X)) <= set(labels)
    assert clf.score(X, labels) > 0.93
    with pytest.raises(ValueError, match="feature names"):
        clf.predict(X[X.columns[::-1]])
    assert set(np.unique(clf.sample_y(X[:4], 5))) <= set(clf.classes_)


@pytest.mark.slow
def test_mixed_columns():
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"x": rng.normal(size=90), "group": rng.choice(["a", "b"], 90)})
    y = frame["x"] ** 2 + (frame["group"] == "a")
    columns = ColumnTransformer([("number", StandardScaler(), ["x"]), ("group", OneHotEncoder(), ["group"])])
    assert make_pipeline(columns, regressor()).fit(frame, y).score(frame, y) > 0.9


@pytest.mark.slow
@pytest.mark.parametrize(
    "labels", [np.array([True, False]), np.array([3, -7]), np.array([2.0, 1.0]), np.array(["b", "a"], object)]
)
def test_labels_of_any_type(labels, rng):
    X = rng.normal(size=(200, 1))
    y = labels[(X[:, 0] > 0).astype(int)]
    clf = classifier().fit(X, y)
    assert clf.predict(X).dtype == y.dtype
    assert clf.score(X, y) > 0.9


@pytest.mark.slow
def test_class_weight_moves_the_boundary(rng):
    X = rng.normal(size=(200, 1))
    y = (X[:, 0] + rng.normal(size=200) > 1.2).astype(int)
    plain = classifier(kernel=1.0 * RBF()).fit(X, y)
    balanced = classifier(kernel=1.0 * RBF(), class_weight="balanced").fit(X, y)
    assert balanced.predict(X).mean() > plain.predict(X).mean() + 0.1
    weight = np.where(y == 1, (y == 0).mean(), (y == 1).mean()) / (2 * (y == 0).mean() * (y == 1).mean())
    explicit = classifier(kernel=1.0 * RBF()).fit(X, y, sample_weight=weight)
    assert_allclose(balanced.predict_proba(X), explicit.predict_proba(X), atol=1e-9)
    # Balanced by weight: a row of weight two is the row twice.
    row_weight = rng.integers(1, 3, size=200)
    weighted = classifier(kernel=1.0 * RBF(), class_weight="balanced").fit(X, y, sample_weight=row_weight)
    repeated = classifier(kernel=1.0 * RBF(), class_weight="balanced").fit(
        np.repeat(X, row_weight, axis=0), np.repeat(y, row_weight)
    )
    assert_allclose(weighted.predict_proba(X), repeated.predict_proba(X), atol=1e-9)


@pytest.mark.parametrize(
    ("class_weight", "message"),
    [
        ({0: 0.0, 1: 1.0}, "two classes"),
        ({0: -1.0}, "class_weight"),
        ({0: 0.0, 1: 0.0}, "class_weight=.*gives all rows of y the weight zero"),
        ("balance", "class_weight"),
        ({5: 1.0}, r"names \[5\], which do not occur in y, but not \[0, 1\]"),
        ({"1": 50.0, 0: 1.0}, r"names \['1'\], which do not occur in y, but not \[1\]"),
    ],
)
def test_bad_class_weights_are_named(class_weight, message, rng):
    with pytest.raises(ValueError, match=message):
        classifier(class_weight=class_weight).fit(rng.normal(size=(20, 1)), np.arange(20) % 2)


@pytest.mark.slow
def test_a_class_that_is_not_there_may_have_a_weight(rng):
    X, y = rng.normal(size=(200, 1)), np.arange(200) % 2
    given = classifier(class_weight={0: 1.0, 1: 3.0, 2: 5.0}).fit(X, y)
    assert_array_equal(given.predict_proba(X), classifier(class_weight={1: 3.0}).fit(X, y).predict_proba(X))


@pytest.mark.parametrize(
    ("estimator", "likelihood", "remedy"),
    [(NGDSVGPRegressor, "bernoulli", "use NGDSVGPClassifier"), (NGDSVGPClassifier, "poisson", "use NGDSVGPRegressor")],
)
def test_a_likelihood_of_the_other_task_names_its_estimator(estimator, likelihood, remedy):
    with pytest.raises(ValueError, match=f"likelihood='{likelihood}' is for .*{remedy}"):
        estimator(likelihood=likelihood).fit(np.zeros((4, 1)), [0, 1, 0, 1])


@pytest.mark.parametrize(
    "key",
    [
        *("likelihood__df", "gamma_schedule__final", "kernel__length_scale"),
        *("hyperparameter_prior__sigma", "mean_function__alpha"),
    ],
)
def test_nested_parameters_of_a_name_are_explained(key):
    with pytest.raises(ValueError, match=f"{key} cannot be set.*Pass an object"):
        NGDSVGPRegressor(likelihood="student_t").set_params(**{key: 2.0})
    objects = {"likelihood": StudentT(), "gamma_schedule": LogLinear(), "kernel": RBF()}
    objects |= {"hyperparameter_prior": LogNormal(sigma=1.0), "mean_function": Ridge()}
    model = NGDSVGPRegressor(likelihood="student_t").set_params(**objects, **{key: 0.5})
    assert model.get_params()[key] == 0.5


# -- rows, weights and seeds --------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("inducing_init", ["greedy_variance", "k-means", "random"])
def test_weights_are_repeated_rows_and_order_does_not_matter(diabetes, inducing_init, rng):
    X, y = diabetes
    X, y = X[:100], y[:100]
    weight = rng.integers(0, 4, size=100)
    options = {"inducing_init": inducing_init, "n_mean_inducing": 5}
    weighted = regressor(**options).fit(X, y, sample_weight=weight)
    repeated = regressor(**options).fit(np.repeat(X, weight, axis=0), np.repeat(y, weight))
    order = rng.permutation(100)
    shuffled = regressor(**options).fit(X[order], y[order], sample_weight=weight[order])
    for other in (repeated, shuffled):
        assert_array_equal(other.inducing_points_, weighted.inducing_points_)
        assert_array_equal(other.mean_inducing_points_, weighted.mean_inducing_points_)
        for got, want in zip(other.predict(X, return_std=True), weighted.predict(X, return_std=True), strict=True):
            assert_array_equal(got, want)


@pytest.mark.slow
def test_same_seed_same_bits(rng):
    X, y = rng.normal(size=(300, 2)), rng.normal(size=300)
    options = {"batch_size": 64, "n_mean_inducing": 10, "max_iter": 50}
    first, second, other = (regressor(**{**options, "random_state": seed}).fit(X, y) for seed in (1, 1, 2))
    assert_array_equal(first.predict(X), second.predict(X))
    assert_array_equal(first.elbo_curve_, second.elbo_curve_)
    assert np.any(first.predict(X) != other.predict(X))


@pytest.mark.slow
@pytest.mark.parametrize("dump", ["pickle", "joblib"])
def test_persistence_after_fit_and_after_predict(diabetes, dump, tmp_path):
    X, y = diabetes
    for model in (regressor(n_mean_inducing=5).fit(X, y), classifier(likelihood=RobustMax()).fit(X, y > 150)):
        for _ in range(2):
            if dump == "pickle":
                loaded = pickle.loads(pickle.dumps(model))
            else:
                joblib.dump(model, tmp_path / "model")
                loaded = joblib.load(tmp_path / "model")
            assert_array_equal(loaded.predict(X), model.predict(X))
        if hasattr(model, "predict_proba"):
            assert_array_equal(loaded.predict_proba(X), model.predict_proba(X))


@pytest.mark.slow
def test_clone_keeps_objects_and_fit_leaves_them_alone(diabetes):
    likelihood, schedule, kernel = StudentT(df=5.0), LogLinear(final=0.2), ConstantKernel() * Matern(3.0, nu=2.5)
    model = regressor(kernel=kernel, likelihood=likelihood, gamma_schedule=schedule)
    copy = clone(model).fit(*diabetes)
    assert copy.likelihood is not likelihood
    assert copy.likelihood.df == 5.0
    model.fit(*diabetes)
    assert model.kernel is kernel
    assert kernel == ConstantKernel() * Matern(3.0, nu=2.5)
    assert likelihood.get_params() == StudentT(df=5.0).get_params()
    assert model.likelihood_.scale != likelihood.scale
    assert_array_equal(model.predict(diabetes[0]), copy.predict(diabetes[0]))


@pytest.mark.slow
def test_metadata_routing(diabetes, rng):
    X, y = diabetes
    weight = rng.uniform(0.5, 2.0, size=len(y))
    set_config(enable_metadata_routing=True)
    try:
        model = regressor().set_fit_request(sample_weight=True).set_score_request(sample_weight=True)
        search = GridSearchCV(model, {"learning_rate": [0.05]}, cv=2).fit(X, y, sample_weight=weight)
        assert search.best_estimator_.n_iter_ >= 1
        pipeline = make_pipeline(StandardScaler().set_fit_request(sample_weight=False), model)
        pipeline.fit(X, y, sample_weight=weight)
    finally:
        set_config(enable_metadata_routing=False)
    assert_allclose(search.predict(X), regressor(learning_rate=0.05).fit(X, y, sample_weight=weight).predict(X))


# -- outputs ------------------------------------------------------------------------------


@pytest.mark.slow
def test_several_outputs(diabetes, rng):
    X, y = diabetes
    Y = np.column_stack([y, 1e4 * X[:, 2] + 7.0, rng.normal(size=len(y))])
    model = regressor(max_iter=400, learning_rate=0.05).fit(X, Y)
    mean, std = model.predict(X, return_std=True)
    assert mean.shape == std.shape == Y.shape
    assert model.predict(X[:9], return_cov=True)[1].shape == (9, 9, 3)
    assert model.sample_y(X[:9], 4).shape == (9, 3, 4)
    assert model.predict_log_density(X, Y).shape == (len(y),)
    noise = model.likelihood_.variance
    assert noise[1] < 0.1 * noise[0] < noise[2]
    column = regressor().fit(X, Y[:, :1])
    assert column.predict(X).shape == (len(y), 1)
    assert_array_equal(column.predict(X)[:, 0], regressor().fit(X, y).predict(X))


@pytest.mark.slow
def test_predictions_agree_with_each_other(diabetes):
    X, y = diabetes
    model = regressor(n_mean_inducing=5, max_iter=200).fit(X, y)
    mean, std = model.predict(X, return_std=True)
    assert_allclose(model.predict(X), mean, rtol=1e-12)
    mean_, cov = model.predict(X, return_cov=True)
    assert_allclose(mean_, mean, rtol=1e-12)
    assert_allclose(np.sqrt(np.diag(cov)), std, rtol=1e-10)
    assert np.linalg.eigvalsh(cov).min() > 0
    draws = model.sample_y(X[:20], 20_000, random_state=1)
    assert_allclose(draws.mean(1), mean[:20], atol=5 * std.max() / np.sqrt(20_000))
    assert_allclose(np.cov(draws), cov[:20, :20], atol=0.05 * std.max() ** 2)
    z = (y - mean) / std
    assert_allclose(model.predict_log_density(X, y), -0.5 * z**2 - np.log(std) - 0.5 * np.log(2 * np.pi), rtol=1e-8)
    with pytest.raises(RuntimeError, match="At most one"):
        model.predict(X, return_std=True, return_cov=True)


@pytest.mark.slow
def test_class_draws_follow_the_probabilities():
    X, y = load_iris(return_X_y=True)
    for likelihood in ("softmax", "robust_max"):
        clf = classifier(likelihood=likelihood).fit(X, y)
        rows = X[[0, 70, 83, 120]]
        draws = clf.sample_y(rows, 20_000, random_state=0)
        frequency = np.stack([(draws == c).mean(1) for c in clf.classes_], axis=1)
        assert_allclose(frequency, clf.predict_proba(rows), atol=0.03)
        assert_allclose(np.exp(clf.predict_log_proba(X)), clf.predict_proba(X), rtol=1e-10)


@pytest.mark.slow
def test_scales_and_constant_columns(rng):
    Z = rng.normal(size=(120, 3))
    y = np.sin(Z[:, 0]) + Z[:, 1] ** 2
    X = np.column_stack([Z * [1e-6, 1e3, 1.0] + [5.0, -1e4, 0.0], np.full(120, 3.7)])
    with warnings.catch_warnings():
        warnings.simplefilter("error", RuntimeWarning)
        model = regressor(n_inducing=40, max_iter=400).fit(X, 1e6 * y - 3e7)
    assert model.score(X, 1e6 * y - 3e7) > 0.97
    plain = regressor(n_inducing=40, max_iter=400).fit(np.column_stack([Z, np.zeros(120)]), y)
    assert_allclose((model.predict(X) + 3e7) / 1e6, plain.predict(np.column_stack([Z, np.zeros(120)])), atol=0.05)


@pytest.mark.slow
def test_warm_start_goes_on(diabetes):
    X, y = diabetes
    model = regressor(warm_start=True, max_iter=40, learning_rate=0.01).fit(X, y)
    first, kernel = model.elbo_, model.kernel_
    model.fit(X, y)
    assert model.elbo_curve_[0] == pytest.approx(first, rel=1e-9)
    assert model.elbo_ > first
    assert model.kernel_ != kernel
    kept = model.predict(X)
    for bad, message in (((np.c_[X, X], y), "features"), ((X, np.c_[y, y]), "columns")):
        with pytest.raises(ValueError, match=message):
            model.fit(*bad)
    with pytest.raises(ValueError, match=r"warm_start=True, but kernel=RBF\(length_scale=1\)"):
        model.set_params(kernel=RBF()).fit(X, y)
    assert_array_equal(model.predict(X), kept)
    # Other rows, and a fit that was not a warm start itself.
    kernel = 1.0 * Matern(3.0, nu=2.5)
    cold = regressor(kernel=kernel, max_iter=40).fit(X[:70], y[:70])
    assert cold.set_params(warm_start=True).fit(X, y).elbo_ > clone(cold).fit(X, y).elbo_curve_[20]
    clf = classifier(warm_start=True).fit(X, np.where(y > 150, "b", "a"))
    with pytest.raises(ValueError, match="classes"):
        clf.fit(X, np.where(y > 150, "c", "b"))
