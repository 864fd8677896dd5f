"""Correlated outputs, of which one is observed at a fifth of the places: one JSON line for each draw and contender.

    python examples/benchmarks/coregionalization.py --draws 10 --contenders correlated independent
    python examples/benchmarks/coregionalization.py --draws 10 --contenders gpflow gpytorch --rst

Three concentrations at random places of a square, as in the soil samples of the Jura (Goovaerts 1997): two maps, rough
and smooth (Matern 3/2), are in all of them, each has a part and a noise of its own, and the first is measured at few
places. Its values at the other places are predicted. Each contender standardises the outputs. Contenders:

- correlated: ``NGDSVGPRegressor(output_kernel="coregionalization", missing_targets="ignore")``;
- same_kernel: the same with the kernel of the two libraries, two Matern 3/2, which is that of the maps;
- independent: the first without ``output_kernel``;
- gpflow: an exact process on stacked rows, the sum of two Matern 3/2 times Coregion of rank one, and a noise for each
  output (SwitchedFunction), by at most 1000 iterations of L-BFGS;
- gpytorch: the same of IndexKernel, with HadamardGaussianLikelihood, by 200 steps of Adam of rate 0.1;
- truth: the process from which the maps are drawn.

The two libraries start at a random matrix W. Log density is in nats per held-out value, of values in units of their own
noiseless deviation; seconds are the median of the processor's.
"""

from __future__ import annotations

import argparse
import json
import time
import warnings
from pathlib import Path

import numpy as np
from scipy.spatial.distance import cdist
from scipy.stats import norm
from sklearn.gaussian_process.kernels import Matern

# Lengthscales of the two maps, how much of each is in each output, deviations of what each has alone, and of the noise.
_LENGTHS = 0.15, 0.6
_SHARES = np.array([[0.7, 0.6], [0.8, 0.5], [-0.5, 0.8]])
_OWN, _NOISE = 0.35, np.array([0.3, 0.2, 0.2])
# Lengthscales at which the two terms of the kernel start, where it is given.
_STARTS = 0.1, 0.5


def parse_arguments(argv=None):
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--draws", type=int, default=10)
    p.add_argument("--places", type=int, default=250)
    p.add_argument("--contenders", nargs="+", default=["correlated", "independent", "truth"], choices=list(CONTENDERS))
    p.add_argument(
        "--output", type=Path, default=Path("coregionalization.jsonl"), help="file of lines, which is added to"
    )
    p.add_argument("--rst", action="store_true", help="print an rst table of these draws")
    return p.parse_args(argv)


def _matern32(X, Z, length_scale):
    r = np.sqrt(3.0) * cdist(X, Z) / length_scale
    return (1.0 + r) * np.exp(-r)


def _covariance(X, p, Z, q):
    """That of the latent functions of outputs p at X and q at Z."""
    maps = [_matern32(X, Z, length_scale) for length_scale in _LENGTHS]
    common = sum(each * np.outer(share[p], share[q]) for each, share in zip(maps, _SHARES.T, strict=True))
    return common + _OWN**2 * maps[0] * (p[:, None] == q)


def drawn(n_places, seed):
    """Places (N, 2), values (N, 3), and the same with the first output missing at four fifths of the places."""
    rng = np.random.default_rng(seed)
    X = rng.uniform(size=(n_places, 2))
    p = np.repeat(np.arange(3), n_places)
    rows = np.tile(X, (3, 1))
    covariance = _covariance(rows, p, rows, p) + np.diag(_NOISE[p] ** 2)
    Y = (np.linalg.cholesky(covariance) @ rng.normal(size=3 * n_places)).reshape(3, -1).T
    seen = Y.copy()
    seen[rng.permutation(n_places)[n_places // 5 :], 0] = np.nan
    return X, Y, seen


def stacked(X, seen):
    """Places, outputs and standardised values of all that is observed; means and deviations of the outputs."""
    mean, deviation = np.nanmean(seen, axis=0), np.nanstd(seen, axis=0)
    p, n = np.nonzero(~np.isnan(seen.T))
    return X[n], p, seen[n, p], mean, deviation


def _ours(output_kernel, X, seen, X_test, **given):
    from skgp_natgrad import NGDSVGPRegressor

    given |= {"output_kernel": output_kernel, "missing_targets": "ignore", "random_state": 0}
    model = NGDSVGPRegressor(**given).fit(X, seen)
    return lambda y: model.predict(X_test)[:, 0], lambda y: _of_first(model, X_test, y)


def _of_first(model, X, y):
    """The log density of the first output alone: the others are missing."""
    return model.predict_log_density(X, np.column_stack([y, np.full((len(y), 2), np.nan)]))


def correlated(X, seen, X_test):
    """This package, with a kernel between outputs."""
    return _ours("coregionalization", X, seen, X_test)


def same_kernel(X, seen, X_test):
    """The same, with the kernel of the other libraries."""
    terms = [Matern([length_scale] * 2, nu=1.5) for length_scale in _STARTS]
    return _ours("coregionalization", X, seen, X_test, kernel=1.0 * terms[0] + 1.0 * terms[1], normalize_X=False)


def independent(X, seen, X_test):
    """This package, output by output."""
    return _ours("independent", X, seen, X_test)


def truth(X, seen, X_test):
    """The process itself."""
    rows, p, y, _, _ = stacked(X, seen)
    first = np.zeros(len(X_test), int)
    cross = _covariance(X_test, first, rows, p)
    weights = np.linalg.solve(_covariance(rows, p, rows, p) + np.diag(_NOISE[p] ** 2), cross.T)
    prior = (_SHARES[0] ** 2).sum() + _OWN**2 + _NOISE[0] ** 2
    return _normal(weights.T @ y, prior - (cross.T * weights).sum(0))


def _normal(mean, variance):
    return lambda y: mean, lambda y: norm.logpdf(y, mean, np.sqrt(variance))


def gpflow(X, seen, X_test):
    """GPflow's linear model of coregionalization."""
    import gpflow as gf

    rows, p, y, mean, deviation = stacked(X, seen)
    data = np.column_stack([rows, p]), ((y - mean[p]) / deviation[p])[:, None]

    rng, terms = np.random.default_rng(0), []
    for length_scale in _STARTS:
        between = gf.kernels.Coregion(output_dim=3, rank=1, active_dims=[2])
        between.W.assign(rng.normal(size=(3, 1)))
        smooth = gf.kernels.Matern32(lengthscales=[length_scale] * 2, active_dims=[0, 1])
        gf.set_trainable(smooth.variance, False)
        terms.append(smooth * between)
    noises = [gf.functions.Constant(gf.Parameter(0.1, transform=gf.utilities.positive(1e-6))) for _ in range(3)]
    likelihood = gf.likelihoods.Gaussian(variance=gf.functions.SwitchedFunction(noises))
    model = gf.models.GPR(data, terms[0] + terms[1], likelihood=likelihood)
    gf.optimizers.Scipy().minimize(model.training_loss, model.trainable_variables, options={"maxiter": 1000})
    moments = model.predict_y(np.column_stack([X_test, np.zeros(len(X_test))]))
    return _in_units(*moments, mean[0], deviation[0])


def gpytorch(X, seen, X_test):
    """GPyTorch's kernels of an index, summed."""
    import gpytorch as gp
    import torch

    torch.set_default_dtype(torch.float64)
    rows, p, y, mean, deviation = stacked(X, seen)
    given = torch.tensor(np.column_stack([rows, p]))
    target = torch.tensor((y - mean[p]) / deviation[p])

    class Multitask(gp.models.ExactGP):
        def __init__(self, likelihood):
            super().__init__(given, target, likelihood)
            self.mean = gp.means.ZeroMean()
            self.smooth = torch.nn.ModuleList(gp.kernels.MaternKernel(nu=1.5, ard_num_dims=2) for _ in range(2))
            self.between = torch.nn.ModuleList(gp.kernels.IndexKernel(num_tasks=3, rank=1) for _ in range(2))
            for kernel, length_scale in zip(self.smooth, _STARTS, strict=True):
                kernel.lengthscale = length_scale

        def forward(self, x):
            place, output = x[:, :2], x[:, 2:].long()
            terms = [k(place).mul(b(output)) for k, b in zip(self.smooth, self.between, strict=True)]
            return gp.distributions.MultivariateNormal(self.mean(place), terms[0] + terms[1])

    torch.manual_seed(0)
    likelihood = gp.likelihoods.HadamardGaussianLikelihood(3, task_feature_index=2)
    model = Multitask(likelihood)
    evidence = gp.mlls.ExactMarginalLogLikelihood(likelihood, model)
    adam = torch.optim.Adam(model.parameters(), lr=0.1)
    model.train(), likelihood.train()
    for _ in range(200):
        adam.zero_grad()
        loss = -evidence(model(given), target, given)
        loss.backward()
        adam.step()
    model.eval(), likelihood.eval()
    at = torch.tensor(np.column_stack([X_test, np.zeros(len(X_test))]))
    with torch.no_grad():
        found = likelihood(model(at), at)
    return _in_units(found.mean, found.variance, mean[0], deviation[0])


def _in_units(found, variance, mean, deviation):
    return _normal(mean + deviation * np.ravel(found), deviation**2 * np.ravel(variance))


CONTENDERS = {each.__name__: each for each in (correlated, same_kernel, independent, gpflow, gpytorch, truth)}


def run(contender, n_places, draw):
    """The record of one contender on one draw."""
    X, Y, seen = drawn(n_places, draw)
    test = np.isnan(seen[:, 0])
    start = time.perf_counter(), time.process_time()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        mean, density = CONTENDERS[contender](X, seen, X[test])
    seconds = time.perf_counter() - start[0], time.process_time() - start[1]
    y = Y[test, 0]
    unit = np.sqrt((_SHARES[0] ** 2).sum() + _OWN**2)
    return {
        "contender": contender,
        "places": n_places,
        "draw": draw,
        "log density": float(np.mean(density(y)) + np.log(unit)),
        "rmse": float(np.sqrt(np.mean((mean(y) - y) ** 2)) / unit),
        "seconds": seconds[0],
        "processor seconds": seconds[1],
    }


def main(argv=None):
    args = parse_arguments(argv)
    lines = args.output.read_text().splitlines() if args.output.exists() else []
    records = [json.loads(line) for line in lines]
    done = {(r["contender"], r["places"], r["draw"]) for r in records}
    for draw in range(args.draws):
        for contender in args.contenders:
            if (contender, args.places, draw) not in done:
                records.append(run(contender, args.places, draw))
                print(records[-1], flush=True)
                with open(args.output, "a") as file:
                    file.write(json.dumps(records[-1]) + "\n")
    if args.rst:
        asked = {(name, args.places, draw) for name in args.contenders for draw in range(args.draws)}
        show_means([r for r in records if (r["contender"], r["places"], r["draw"]) in asked])


def show_means(records):
    """Print means over draws and their standard errors, and medians of seconds, as an rst table."""
    line = f"{'=' * 12}  {'=' * 15}  {'=' * 13}  {'=' * 7}"
    print(f"{line}\n{'contender':12s}  {'log density':15s}  {'RMSE':13s}  seconds\n{line}")
    for contender in dict.fromkeys(record["contender"] for record in records):
        own = [record for record in records if record["contender"] == contender]
        cells = []
        for name in ("log density", "rmse"):
            values = np.array([record[name] for record in own])
            error = values.std(ddof=1) / np.sqrt(len(values)) if len(values) > 1 else np.nan
            cells.append(f"{values.mean():.3f} ({error:.3f})")
        print(
            f"{contender:12s}  {cells[0]:15s}  {cells[1]:13s}  {np.median([r['processor seconds'] for r in own]):7.1f}"
        )
    print(line)


if __name__ == "__main__":
    main()
