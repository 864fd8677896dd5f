"""A user's subclass with a constructor of its own, as scikit-learn allows."""

import pickle

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.gaussian_process.kernels import RBF
from sklearn.model_selection import GridSearchCV

from skgp_natgrad import NGDSVGPClassifier, NGDSVGPRegressor


class Short(NGDSVGPRegressor):
    """Fewer arguments, and one of its own."""

    def __init__(self, n_inducing=8, length_scale=1.0, max_iter=20):
        super().__init__(RBF(length_scale), n_inducing=n_inducing, max_iter=max_iter, random_state=0)
        self.length_scale = length_scale


class Whole(NGDSVGPClassifier):
    def __init__(self):
        super().__init__(1.0 * RBF(1.0), random_state=0)


@pytest.fixture
def table(rng):
    X = rng.normal(size=(50, 2))
    return X, np.sin(X[:, 0])


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_a_subclass_with_fewer_arguments_is_that_with_all(table):
    X, y = table
    model = Short(n_inducing=6).fit(X, y)
    plain = NGDSVGPRegressor(RBF(1.0), n_inducing=6, max_iter=20, random_state=0).fit(X, y)
    np.testing.assert_array_equal(model.predict(X), plain.predict(X))
    assert clone(model).get_params() == {"n_inducing": 6, "length_scale": 1.0, "max_iter": 20}
    np.testing.assert_array_equal(pickle.loads(pickle.dumps(model)).predict(X), plain.predict(X))
    search = GridSearchCV(Short(), {"n_inducing": [4, 6]}, cv=2).fit(X, y)
    assert search.best_params_["n_inducing"] in (4, 6)


def test_a_subclass_without_arguments_takes_one_step_and_checks_what_it_stores(table):
    X, y = table
    model = Whole().fit(X, y > 0.0)
    assert "hyperparameters from some rows" in model.plan_
    assert model.score(X, y > 0.0) > 0.9
    model.calibrate = "yes"
    with pytest.raises(ValueError, match="calibrate='yes'"):
        model.fit(X, y > 0.0)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_a_checkpoint_and_a_warm_start_know_all_arguments(table, tmp_path):
    X, y = table
    model = Short()
    model.checkpoint, model.warm_start = str(tmp_path / "fit.npz"), True
    first = model.fit(X, y).predict(X)
    assert not list(tmp_path.iterdir())
    assert not np.array_equal(model.fit(X, y).predict(X), first)
    model.basis = "hybrid"
    with pytest.raises(ValueError, match="basis"):
        model.fit(X, y)
