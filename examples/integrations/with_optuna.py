"""Optuna: hyperparameters by cross-validated density, and trials that end early through the callback."""

import numpy as np
import optuna
from sklearn.gaussian_process.kernels import RBF
from sklearn.model_selection import cross_val_score

from skgp_natgrad import NGDSVGPRegressor
from skgp_natgrad.metrics import nlpd_scorer

rng = np.random.default_rng(0)
X = rng.uniform(0, 10, size=(240, 1))
y = np.sin(2 * X[:, 0]) + 0.2 * rng.standard_t(3, size=240)
X_train, y_train, X_valid, y_valid = X[:160], y[:160], X[160:], y[160:]
optuna.logging.set_verbosity(optuna.logging.WARNING)


# %% The recipe
def cross_validated(trial):
    likelihood = trial.suggest_categorical("likelihood", ["gaussian", "student_t"])
    length_scale = trial.suggest_float("length_scale", 0.05, 1.0, log=True)
    reg = NGDSVGPRegressor(RBF(length_scale, "fixed"), likelihood=likelihood, n_inducing=30, random_state=0)
    return cross_val_score(reg, X_train, y_train, cv=3, scoring=nlpd_scorer, error_score="raise").mean()


def pruned(trial):
    def report(n_iter, model):
        trial.report(nlpd_scorer(model, X_valid, y_valid), n_iter)
        if trial.should_prune():
            raise optuna.TrialPruned

    kernel = RBF(trial.suggest_float("length_scale", 0.05, 10.0, log=True), "fixed")
    reg = NGDSVGPRegressor(kernel, n_inducing=30, max_iter=200, callback=report, random_state=0)
    return nlpd_scorer(reg.fit(X_train, y_train), X_valid, y_valid)


sampler = optuna.samplers.TPESampler(seed=0)
study = optuna.create_study(direction="maximize", sampler=sampler)
study.optimize(cross_validated, n_trials=12)

pruner = optuna.pruners.MedianPruner(n_startup_trials=3)
with_pruning = optuna.create_study(direction="maximize", sampler=sampler, pruner=pruner)
with_pruning.optimize(pruned, n_trials=10)

# %% What it shows
states = [trial.state.name for trial in with_pruning.trials]
print(f"best of 12 trials: {study.best_params}, log density {study.best_value:.3f}")
print(f"{states.count('PRUNED')} of 10 trials were ended early; the best of the others: {with_pruning.best_params}")
assert study.best_params["likelihood"] == "student_t"
assert set(states) == {"COMPLETE", "PRUNED"}
