"""A program that compares fits on four devices with the same fits on one, and prints what it found: see test_devices.

Run by ``python -m tests.several_devices`` with ``--xla_force_host_platform_device_count=4`` in XLA_FLAGS.
"""

import json
import os
import re
import tempfile
import warnings

import jax
import numpy as np
from sklearn.gaussian_process.kernels import RBF, Matern

from skgp_natgrad import NGDSVGPClassifier, NGDSVGPRegressor, likelihoods, svgp
from skgp_natgrad._backend import device, placement
from skgp_natgrad.solve import mean_system, system
from skgp_natgrad.step import chunk
from skgp_natgrad.training.batches import BatchStream

from .conftest import count_compilations, few_points_and_neighbours, rough

N_DEVICES = 4
N_ROWS = 301
RNG = np.random.default_rng(0)
X = RNG.normal(size=(N_ROWS, 2))
F = np.sin(2.0 * X[:, 0]) + 0.5 * X[:, 1] ** 2
Y = F + 0.1 * RNG.normal(size=N_ROWS)
KERNEL = 1.0 * RBF(np.ones(2))
# Not a multiple of four: each batch is filled up.
MINIBATCH = {"batch_size": 66, "max_iter": 60}
FULL = {"batch_size": 1000, "max_iter": 45}
SMALL = likelihoods.Gaussian(1e-7, "fixed")


def table_of(y, n_rows=N_ROWS):
    return svgp.Table(X[:n_rows], y[None, :n_rows].astype(float), np.linspace(0.5, 1.5, n_rows))


def trained(table, n_devices, settings, **plan):
    """The bounds of all iterations, the last one, and predictions."""
    plan = svgp.Plan((KERNEL,), n_inducing=10, n_devices=n_devices, settings=svgp.Settings(**settings), **plan)
    result = svgp.train(*svgp.init(plan, table, random_state=0), table, plan, random_state=0)
    model, _ = svgp.condition(result.state, result.constants, plan)
    mean, var = svgp.predict(model, X, "latent_moments", n_devices=n_devices)
    return {"elbo": result.trained.report.elbo, "last": np.array(result.elbo), "mean": mean, "var": var}


def largest_difference(got, want, relative):
    scale = np.abs(want).max() if relative else 1.0
    return float(np.abs(got - want).max() / scale)


EXACT, EVIDENCE, LBFGS = (
    svgp.Algorithm(**options)
    for options in ({"mean_solver": "exact"}, {"solver": "evidence", "optimizer": None}, {"solver": "lbfgs"})
)
CASES = {
    "minibatches": (table_of(Y), MINIBATCH, {}),
    "full batch": (table_of(Y), FULL, {}),
    "mean-only points": (table_of(Y), MINIBATCH, {"n_mean_inducing": 9}),
    "exact mean": (table_of(Y), MINIBATCH | {"algorithm": EXACT}, {"n_mean_inducing": 9}),
    "classes": (table_of(F > 0.5), MINIBATCH, {"likelihood": likelihoods.Bernoulli(), "n_classes": 2}),
    "small noise": (table_of(F), MINIBATCH, {"likelihood": SMALL}),
    "closed form": (table_of(Y), FULL | {"algorithm": EVIDENCE}, {}),
    "L-BFGS": (table_of(Y), FULL | {"algorithm": LBFGS, "max_iter": 8}, {}),
}


def equalities():
    """The largest differences between one and four devices in each case, and what each compiled in all."""
    found, counts = {}, {}
    for n_devices in (None, N_DEVICES):
        jax.clear_caches()
        with count_compilations() as counted:
            cases = {name: trained(table, n_devices, *how, **plan) for name, (table, *how, plan) in CASES.items()}
        found[n_devices], counts[n_devices] = cases, dict(counted)
    differences = {name: differences_of(one, found[N_DEVICES][name]) for name, one in found[None].items()}
    return {"differences": differences, "compiled": [counts[None], counts[N_DEVICES]]}


def differences_of(one, four):
    return {name: largest_difference(four[name], one[name], name in ("elbo", "last")) for name in one}


def collectives():
    """What XLA sends between the devices in a chunk of steps and in the exact mean's sums; shapes of the shards."""
    table, settings = table_of(Y), svgp.Settings(**MINIBATCH)
    plan = svgp.Plan((KERNEL,), n_inducing=10, n_mean_inducing=9, settings=settings)
    state, constants = svgp.init(plan, table, random_state=0)
    with device.computation("auto", N_DEVICES) as where:
        state, constants = where.replicated((state, constants))
        batch = next(BatchStream(table, 66, 9, 9, np.random.RandomState(0)))
        sizes = np.zeros(chunk.STEPS_PER_CALL)
        steps = chunk._run_chunk.lower(state, constants, batch, sizes, sizes, 1, settings.algorithm.of_steps)
        prior = system.prior_of(state.parameters, constants.masks, constants.jitter)
        position = mean_system.Iterate(np.zeros((1, 19)), state.q)
        sums = mean_system.Statistics(np.zeros((1, 19, 19)), np.zeros((1, 19)), np.zeros((1, 10, 10)), np.zeros(()))
        block = next(mean_system._blocks(table))
        gram = mean_system._add_block.lower(
            *where.replicated((sums, state.parameters, prior, position, constants)), block
        )
        compiled = {"steps": steps.compile(), "gram": gram.compile()}
    found = {name: _kinds(each.as_text()) for name, each in compiled.items()}
    replicated = all(each.is_fully_replicated for each in jax.tree.leaves(compiled["steps"].output_shardings))
    shards = {name: getattr(batch, name).addressable_data(0).shape for name in ("X", "y", "weight", "columns")}
    padding = float(np.abs(np.asarray(batch.weight)[:, 66:]).max())
    return found | {"state is replicated": replicated, "shards": shards, "padding": padding}


def _kinds(text):
    kinds = ("all-gather", "all-to-all", "collective-permute", "reduce-scatter", "all-reduce")
    return {kind: len(re.findall(rf"= .*\b{kind}(?:-start)?\(", text)) for kind in kinds}


def estimators():
    """Fits by the estimators, their predictions at many rows, and a fit that was interrupted."""
    many = np.random.default_rng(1).normal(size=(2500, 2))
    options = {"n_inducing": 10, "random_state": 0, "tol": 0.0, **MINIBATCH}
    regressors = [NGDSVGPRegressor(KERNEL, n_devices=n, **options).fit(X, Y) for n in (None, 1, "all")]
    one, same, four = (np.stack(model.predict(many, return_std=True)) for model in regressors)
    classifiers = [NGDSVGPClassifier(KERNEL, n_devices=n, **options).fit(X, F > 0.5) for n in (None, N_DEVICES)]
    p, p_four = (model.predict_proba(many) for model in classifiers)
    found = {
        "one device": bool(np.array_equal(one, same)),
        "regressor": largest_difference(four, one, False),
        "classifier": largest_difference(p_four, p, False),
        "fewer devices than were asked for": largest_difference(
            regressors[2].set_params(n_devices=50).predict(many), one[0], False
        ),
        "few rows": largest_difference(regressors[2].predict(many[:3]), one[0][:3], False),
        "resumed": resumed(regressors[2].elbo_curve_, options),
    }
    try:
        regressors[2].fit(X, Y)
    except ValueError as error:
        found["error"] = str(error)
    return found


def at_once():
    """Fits in one step on one, two and four devices: what they say, densities, and the largest differences."""
    found = {}
    for name, kernel in (("exact", KERNEL), ("neighbours", 1.0 * Matern([1.0, 1.0], nu=1.5))):
        rows = (X, Y) if name == "exact" else rough(np.random.default_rng(0), N_ROWS)
        if name == "neighbours":
            few_points_and_neighbours(20)
        models = [NGDSVGPRegressor(kernel, random_state=0, n_devices=n).fit(*rows) for n in (None, 2, N_DEVICES)]
        one, *others = (np.stack(model.predict(rows[0], return_std=True)) for model in models)
        found[name] = {
            "plans": [model.plan_ for model in models],
            "difference": max(largest_difference(each, one, False) for each in others),
        }
    return found


def resumed(want, options):
    """Whether a fit on four devices that was interrupted and continued has the same bounds to the bit."""

    def interrupt(n_iter, model):
        if n_iter >= 40:
            raise KeyboardInterrupt

    with tempfile.TemporaryDirectory() as folder:
        saved = {"checkpoint": os.path.join(folder, "fit.npz"), "checkpoint_every": 0.0, "n_devices": "all"}
        try:
            NGDSVGPRegressor(KERNEL, callback=interrupt, **saved, **options).fit(X, Y)
        except KeyboardInterrupt:
            model = NGDSVGPRegressor(KERNEL, **saved, **options).fit(X, Y)
            return bool(np.array_equal(model.elbo_curve_, want))
    return False


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    assert placement.current().n_devices == 1
    found = {"equal": equalities(), "collectives": collectives(), "estimators": estimators(), "at once": at_once()}
    print(json.dumps(found))
