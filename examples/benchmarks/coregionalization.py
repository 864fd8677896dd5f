"""Correlated outputs, of which one is observed at a fifth of the places: one JSON line for each draw and contender.

    python examples/benchmarks/coregionalization.py --draws 10 --contenders correlated independent
    python examples/benchmarks/coregionalization.py --draws 10 --contenders gpflow gpytorch --rst

Three concentrations at random places of a square, as in the soil samples of the Jura (Goovaerts 1997): two maps, rough
and smooth (Matern 3/2), are in all of them, each has a part and a noise of its own, and the first is measured at few
places. Its values at the other places are predicted. Each contender standardises the outputs. Contenders:

- correlated: ``NGDSVGPRegressor(output_kernel="coregionalization", missing_targets="ignore")``;
- independent: the same without ``output_kernel``;
- gpflow: an exact process on stacked rows, two terms of Matern 5/2 times Coregion of rank one, and a noise for each
  output, by L-BFGS;
- gpytorch: the same of IndexKernel, 200 steps of Adam, with a noise for each output where the version has one;
- truth: the process from which the maps are drawn.

Log density is in nats per held-out value, of values in units of their own noiseless deviation.
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

# Lengthscales of the two maps, how much of each is in each output, deviations of what each has alone, and of the noise.
_LENGTHS = 0.15, 0.6
_SHARES = np.array([[0.7, 0.6], [0.8, 0.5], [-0.5, 0.8]])
_OWN, _NOISE = 0.35, np.array([0.3, 0.2, 0.2])


def parse_arguments(argv=None):
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--draws", type=int, default=10)
    p.add_argument("--places", type=int, default=250)
    p.add_argument("--contenders", nargs="+", default=["correlated", "independent", "truth"], choices=list(CONTENDERS))
    p.add_argument(
        "--output", type=Path, default=Path("coregionalization.jsonl"), help="file of lines, which is added to"
    )
    p.add_argument("--rst", action="store_true", help="print an rst table of the whole file")
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


def _ours(output_kernel, X, seen, X_test):
    from skgp_natgrad import NGDSVGPRegressor

    model = NGDSVGPRegressor(output_kernel=output_kernel, missing_targets="ignore", random_state=0).fit(X, seen)
    return lambda y: model.predict(X_test)[:, 0], lambda y: _of_first(model, X_test, y)


def _of_first(model, X, y):
    """The log density of the first output alone: the others are missing."""
    return model.predict_log_density(X, np.column_stack([y, np.full((len(y), 2), np.nan)]))


def correlated(X, seen, X_test):
    """This package, with a kernel between outputs."""
    return _ours("coregionalization", X, seen, X_test)


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
    import tensorflow as tf

    class PerOutput(gf.functions.Function):
        def __init__(self):
            super().__init__()
            self.variance = gf.Parameter(np.full(3, 0.1), transform=gf.utilities.positive(1e-6))

        def __call__(self, rows):
            return tf.gather(self.variance, tf.cast(rows[..., 2], tf.int32))[..., None]

    rows, p, y, mean, deviation = stacked(X, seen)
    data = np.column_stack([rows, p]), ((y - mean[p]) / deviation[p])[:, None]
    terms = []
    for k, length_scale in enumerate((0.1, 0.5)):
        between = gf.kernels.Coregion(output_dim=3, rank=1, active_dims=[2])
        between.W.assign(np.random.default_rng(k).normal(size=(3, 1)))
        between.kappa.assign(np.full(3, 0.3))
        smooth = gf.kernels.Matern52(lengthscales=[length_scale] * 2, active_dims=[0, 1])
        gf.set_trainable(smooth.variance, False)
        terms.append(smooth * between)
    model = gf.models.GPR(data, terms[0] + terms[1], likelihood=gf.likelihoods.Gaussian(variance=PerOutput()))
    gf.optimizers.Scipy().minimize(model.training_loss, model.trainable_variables, options={"maxiter": 300})
    at = np.column_stack([X_test, np.zeros(len(X_test))])
    found, variance = (np.ravel(each) for each in model.predict_y(at))
    return _normal(mean[0] + deviation[0] * found, deviation[0] ** 2 * variance)


def gpytorch(X, seen, X_test):
    """GPyTorch's kernels of an index, summed."""
    import gpytorch as gp
    import torch

    rows, p, y, mean, deviation = stacked(X, seen)
    given = (torch.tensor(rows), torch.tensor(p)[:, None])
    target = torch.tensor((y - mean[p]) / deviation[p])

    class Multitask(gp.models.ExactGP):
        def __init__(self, likelihood):
            super().__init__(given, target, likelihood)
            self.mean = gp.means.ZeroMean()
            self.smooth = torch.nn.ModuleList(gp.kernels.MaternKernel(nu=2.5, ard_num_dims=2) for _ in range(2))
            self.between = torch.nn.ModuleList(gp.kernels.IndexKernel(num_tasks=3, rank=1) for _ in range(2))
            for kernel, length_scale in zip(self.smooth, (0.1, 0.5), strict=True):
                kernel.lengthscale = length_scale

        def forward(self, x, i):
            terms = [k(x).mul(b(i)) for k, b in zip(self.smooth, self.between, strict=True)]
            return gp.distributions.MultivariateNormal(self.mean(x), terms[0] + terms[1])

    torch.manual_seed(0)
    torch.set_default_dtype(torch.float64)
    per_output = hasattr(gp.likelihoods, "HadamardGaussianLikelihood")
    likelihood = gp.likelihoods.HadamardGaussianLikelihood(3) if per_output else gp.likelihoods.GaussianLikelihood()
    model = Multitask(likelihood)
    evidence = gp.mlls.ExactMarginalLogLikelihood(likelihood, model)
    adam = torch.optim.Adam(model.parameters(), lr=0.1)
    model.train(), likelihood.train()
    of_rows = (given,) if per_output else ()
    for _ in range(200):
        adam.zero_grad()
        loss = -evidence(model(*given), target, *of_rows)
        loss.backward()
        adam.step()
    model.eval(), likelihood.eval()
    at = (torch.tensor(X_test), torch.zeros((len(X_test), 1), dtype=torch.long))
    with torch.no_grad():
        found = likelihood(model(*at), *((at,) if per_output else ()))
    return _normal(mean[0] + deviation[0] * found.mean.numpy(), deviation[0] ** 2 * found.variance.numpy())


CONTENDERS = {each.__name__: each for each in (correlated, independent, gpflow, gpytorch, truth)}


def run(contender, n_places, draw):
    """The record of one contender on one draw."""
    X, Y, seen = drawn(n_places, draw)
    test = np.isnan(seen[:, 0])
    start = time.perf_counter()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        mean, density = CONTENDERS[contender](X, seen, X[test])
    seconds, y = time.perf_counter() - start, Y[test, 0]
    unit = np.sqrt((_SHARES[0] ** 2).sum() + _OWN**2)
    return {
        "contender": contender,
        "places": n_places,
        "draw": draw,
        "log density": float(np.mean(density(y)) + np.log(unit)),
        "rmse": float(np.sqrt(np.mean((mean(y) - y) ** 2)) / unit),
        "seconds": seconds,
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
        show_means(records)


def show_means(records):
    """Print means over draws and their standard errors, as an rst table."""
    line = f"{'=' * 12}  {'=' * 15}  {'=' * 13}  {'=' * 7}"
    print(f"{line}\n{'contender':12s}  {'log density':15s}  {'RMSE':13s}  seconds\n{line}")
    for contender in dict.fromkeys(record["contender"] for record in records):
        own = [record for record in records if record["contender"] == contender]
        cells = []
        for name in ("log density", "rmse"):
            values = np.array([record[name] for record in own])
            error = values.std(ddof=1) / np.sqrt(len(values)) if len(values) > 1 else np.nan
            cells.append(f"{values.mean():.3f} ({error:.3f})")
        print(f"{contender:12s}  {cells[0]:15s}  {cells[1]:13s}  {np.mean([r['seconds'] for r in own]):7.1f}")
    print(line)


if __name__ == "__main__":
    main()
