"""scikit-learn's contract under calls in random order, drawn by hypothesis.

    python examples/campaigns/contract.py --results campaigns.jsonl

Each case is some sequences of ``fit``, ``partial_fit``, refused and interrupted fits, ``set_params``,
``clone``, copies and pickles, and predictions of one estimator. After every call: what a fit was given
is what the estimator says; predictions are finite and change nothing; a refused call changes nothing.
"""

from __future__ import annotations

import copy
import pickle
import sys
import warnings

import _campaign
import hypothesis
import joblib
import numpy as np
from hypothesis import stateful
from hypothesis import strategies as st
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.gaussian_process.kernels import RBF

from skgp_natgrad import NGDSVGPClassifier, NGDSVGPRegressor

N_ROWS, N_SEQUENCES, N_CALLS = 30, 10, 25
REGRESSOR = NGDSVGPRegressor(RBF(), n_inducing=5, max_iter=3, n_iter_no_change=1, random_state=0)
CLASSIFIER = NGDSVGPClassifier(RBF(), n_inducing=5, max_iter=3, n_iter_no_change=1, random_state=0, calibrate=False)
ESTIMATORS = {
    ("regressor", "float64"): REGRESSOR,
    ("classifier", "float64"): CLASSIFIER,
    ("regressor", "float32"): clone(REGRESSOR).set_params(dtype="float32"),
    ("classifier", "float32"): clone(CLASSIFIER).set_params(dtype="float32"),
}
# Values with which a fit succeeds. The first ones need no new program.
NUMBERS = {
    "learning_rate": (0.02, 0.1),
    "random_state": (0, 1),
    "jitter": (1e-8, 1e-6),
    "warm_start": (False, True),
    "tol": (0.0, 1.0),
}
VALUES = {
    **NUMBERS,
    "n_inducing": (5, 7),
    "batch_size": ("auto", 16),
    "gamma_schedule": ("auto", 0.1),
    "normalize_X": (True, False),
    "solver": ("auto", "adam"),
}
WRONG_VALUES = {"max_iter": 0, "n_inducing": -1, "learning_rate": "fast", "jitter": np.nan, "solver": "none"}
SPOILED = ("NaN in X", "NaN in y", "rows missing", "negative weight", "no rows", "text", "one dimension")


def table(n_features, seed):
    """Rows, numbers and labels."""
    rng = np.random.default_rng([n_features, seed])
    X = rng.normal(size=(N_ROWS, n_features))
    return X, np.sin(X[:, 0]) + 0.1 * rng.normal(size=N_ROWS)


def spoiled(how, X, y):
    """Arguments that `fit` must refuse."""
    X, y, weight = X.copy(), y.copy(), None
    if how == "NaN in X":
        X[3, 1] = np.nan
    elif how == "NaN in y":
        y = np.where(np.arange(N_ROWS) == 3, np.nan, y)
    elif how == "rows missing":
        y = y[:-1]
    elif how == "negative weight":
        weight = np.full(N_ROWS, -1.0)
    elif how == "no rows":
        X, y = X[:0], y[:0]
    elif how == "text":
        X = X.astype(str).astype(object)
        X[0, 0] = "a word"
    else:
        X = X[:, 0]
    return {"X": X, "y": y, "sample_weight": weight}


def interrupting(n_iter, model):
    """A callback."""
    raise KeyboardInterrupt


class Contract(stateful.RuleBasedStateMachine):
    """An estimator, and what is known of it."""

    estimators = tuple(ESTIMATORS)
    columns = (2, 3)
    values = VALUES
    n_calls = 0

    def __init__(self):
        super().__init__()
        self.model, self.n_features, self.asked = None, None, {}

    @stateful.initialize(data=st.data())
    def begin(self, data):
        """Unfitted."""
        self.of_labels = None
        which = data.draw(st.sampled_from(self.estimators))
        self.of_labels, self.model = which[0] == "classifier", clone(ESTIMATORS[which])

    # -- what is looked at ---------------------------------------------------------------

    @property
    def fitted(self):
        return self.n_features is not None

    def rows(self):
        """A few, so that NumPy predicts."""
        return table(self.n_features, 99)[0][:6]

    def predictions(self):
        if self.of_labels:
            return self.model.predict_proba(self.rows())
        return np.array(self.model.predict(self.rows(), return_std=True))

    def state(self):
        """All that the estimator holds, as a digest."""
        return joblib.hash(vars(self.model))

    def data(self, n_features, seed):
        X, y = table(n_features, seed)
        return X, y > 0.0 if self.of_labels else y

    def refused(self, call, errors=(ValueError, TypeError)):
        """The call is refused, and changes nothing."""
        before = self.state()
        try:
            call()
        except errors:
            assert self.state() == before, "a refused call changed the estimator"
        else:
            raise AssertionError("the call was not refused")

    def learn(self, call, n_features, allowed):
        """Learn, unless an argument was changed that a fit which goes on must not change."""
        before = self.state()
        try:
            found = call()
        except ValueError as error:
            if not (self.fitted and allowed in str(error)):
                raise
            assert self.state() == before, "a refused call changed the estimator"
            return
        assert found is self.model, "fit returns the estimator"
        self.n_features = n_features

    # -- calls ---------------------------------------------------------------------------

    @stateful.rule(more=st.booleans(), seed=st.integers(0, 3), weighted=st.booleans())
    def fit(self, more, seed, weighted):
        """A warm start keeps the columns."""
        n_features = self.columns[-1] if more else self.columns[0]
        if self.fitted and self.model.warm_start:
            n_features = self.n_features
        X, y = self.data(n_features, seed)
        copies, weight = (X.copy(), y.copy()), np.linspace(0.0, 2.0, N_ROWS) if weighted else None
        self.learn(lambda: self.model.fit(X, y, sample_weight=weight), n_features, "warm_start")
        assert np.array_equal(X, copies[0]), "X was changed"
        assert np.array_equal(y, copies[1]), "y was changed"

    @stateful.rule(seed=st.integers(0, 3))
    def partial_fit(self, seed):
        n_features = self.n_features or 2
        X, y = self.data(n_features, seed)
        self.learn(lambda: self.model.partial_fit(X, y), n_features, "partial_fit")

    @stateful.rule(how=st.sampled_from(SPOILED), part=st.booleans())
    def refused_fit(self, how, part):
        if how == "NaN in y" and self.of_labels:
            how = "NaN in X"
        arguments = spoiled(how, *self.data(self.n_features or 2, 0))
        self.refused(lambda: (self.model.partial_fit if part else self.model.fit)(**arguments))

    @stateful.rule(name=st.sampled_from(sorted(WRONG_VALUES)))
    def fit_with_a_wrong_value(self, name):
        value = getattr(self.model, name)
        self.model.set_params(**{name: WRONG_VALUES[name]})
        self.refused(lambda: self.model.fit(*self.data(self.n_features or 2, 0)))
        self.model.set_params(**{name: value})

    @stateful.rule()
    def interrupted_fit(self):
        """By a callback; one step alone has none before its end."""
        self.model.set_params(callback=interrupting)
        try:
            self.refused(lambda: self.model.fit(*self.data(self.n_features or 2, 1)), (KeyboardInterrupt, ValueError))
        finally:
            self.model.set_params(callback=None)

    @stateful.rule(data=st.data())
    def set_params(self, data):
        name = data.draw(st.sampled_from(sorted(self.values)))
        value = data.draw(st.sampled_from(self.values[name]))
        before = self.predictions() if self.fitted else None
        assert self.model.set_params(**{name: value}) is self.model
        self.asked[name] = value
        if self.fitted:
            assert np.array_equal(self.predictions(), before), "set_params changed predictions"

    @stateful.rule()
    def set_an_unknown_parameter(self):
        self.refused(lambda: self.model.set_params(no_such_parameter=1))

    @stateful.rule(stay=st.booleans())
    def clone(self, stay):
        found = clone(self.model)
        assert vars(found).keys() == found.get_params(deep=False).keys(), "a clone has more than its arguments"
        assert joblib.hash(found.get_params()) == joblib.hash(self.model.get_params()), "a clone's arguments differ"
        if not stay:
            self.model, self.n_features = found, None

    @stateful.rule(how=st.sampled_from((lambda model: pickle.loads(pickle.dumps(model)), copy.deepcopy, copy.copy)))
    def copied(self, how):
        """Goes on with the copy."""
        before = self.predictions() if self.fitted else None
        self.model = how(self.model)
        if self.fitted:
            assert np.array_equal(self.predictions(), before), "a copy predicts otherwise"

    @stateful.rule()
    def predict(self):
        """The same twice, whatever the other rows, and nothing changes."""
        if not self.fitted:
            self.refused(lambda: self.model.predict(np.zeros((2, 2))), NotFittedError)
            return
        before, X = self.state(), self.rows()
        first, found = self.predictions(), self.model.predict(X)
        assert np.array_equal(self.predictions(), first), "predictions differ"
        assert np.array_equal(self.model.predict(X[:1]), found[:1]) or np.allclose(self.model.predict(X[:1]), found[:1])
        assert self.state() == before, "a prediction changed the estimator"
        self.refused(lambda: self.model.predict(np.zeros((2, self.n_features + 1))))

    # -- what always holds ---------------------------------------------------------------

    @stateful.invariant()
    def keeps_its_word(self):
        if self.model is None:
            return
        type(self).n_calls += 1
        arguments = self.model.get_params(deep=False)
        assert all(arguments[name] == value for name, value in self.asked.items()), "get_params differs from set_params"
        public = [name for name in vars(self.model) if name.endswith("_") and not name.startswith("_")]
        if not self.fitted:
            assert not public, f"not fitted, and has {public}"
            return
        assert self.model.n_features_in_ == self.n_features, "n_features_in_"
        assert np.all(np.isfinite(self.predictions())), "a prediction is not finite"
        assert np.isfinite(self.model.elbo_), "elbo_"


def run(machine, n_sequences, n_calls, **options):
    """Draw sequences of calls, none of which is shrunk."""
    settings = hypothesis.settings(
        max_examples=n_sequences,
        stateful_step_count=n_calls,
        deadline=None,
        database=None,
        phases=[hypothesis.Phase.generate],
        suppress_health_check=list(hypothesis.HealthCheck),
        **options,
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        stateful.run_state_machine_as_test(machine, settings=settings)


def perform(number, args):
    """Some sequences with one of the estimators."""
    which = list(ESTIMATORS)[number % len(ESTIMATORS)]
    seed = int(_campaign.rng_of(args, number).integers(2**31))
    machine = hypothesis.seed(seed)(type("OneEstimator", (Contract,), {"estimators": (which,)}))
    run(machine, N_SEQUENCES, N_CALLS)
    counts = {"calls": machine.n_calls}
    return {"dtype": which[1], "kind": which[0], "outcome": "kept", "counts": counts}


def main(argv=None):
    args = _campaign.parser(__doc__, 50).parse_args(argv)
    return _campaign.run(args, "contract", lambda number: perform(number, args), keep_programs=True)


if __name__ == "__main__":
    sys.exit(main())
