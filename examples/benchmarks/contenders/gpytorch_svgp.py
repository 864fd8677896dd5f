"""GPyTorch: natural gradients and Adam, its orthogonally decoupled strategy, and skorch around its models."""

from __future__ import annotations

import functools

import gpytorch
import numpy as np
import torch
from gpytorch.kernels import MaternKernel, RBFKernel, ScaleKernel
from gpytorch.variational import (
    CholeskyVariationalDistribution,
    DeltaVariationalDistribution,
    OrthogonallyDecoupledVariationalStrategy,
    TrilNaturalVariationalDistribution,
    VariationalStrategy,
)

from contenders import Predictor, train_in_blocks

torch.set_default_dtype(torch.float64)


def _scaled(kernel, length_scale, amplitude=1.0):
    kernel.lengthscale = length_scale
    scaled = ScaleKernel(kernel)
    scaled.outputscale = amplitude
    return scaled


def _kernel(settings, n_features):
    """The sum of a Matern 5/2 and an RBF kernel of the orthogonal paper's appendix E."""
    size = n_features if settings["ard"] else None
    root = np.sqrt(n_features)
    matern = _scaled(MaternKernel(nu=2.5, ard_num_dims=size), 0.1 * root)
    return matern + _scaled(RBFKernel(ard_num_dims=size), root)


class _Model(gpytorch.models.ApproximateGP):
    """A prior and a variational strategy, which is made for it."""

    def __init__(self, kernel, make_strategy):
        super().__init__(make_strategy(self))
        self.mean_module = gpytorch.means.ZeroMean()
        self.covar_module = kernel

    def forward(self, X):
        """The prior at X."""
        return gpytorch.distributions.MultivariateNormal(self.mean_module(X), self.covar_module(X))


def _coupled(model, Z, distribution):
    return VariationalStrategy(model, Z, distribution(len(Z)), learn_inducing_locations=True)


def _decoupled(model, Z, Z_mean):
    covariance = _coupled(model, Z, CholeskyVariationalDistribution)
    return OrthogonallyDecoupledVariationalStrategy(covariance, Z_mean, DeltaVariationalDistribution(len(Z_mean)))


def train(data, settings, report):
    """Natural gradients on triangular parameters and Adam; with mean-only points, Adam alone."""
    torch.manual_seed(settings["seed"])
    device = torch.device("cuda" if settings.get("device") == "gpu" else "cpu")
    X, y, Z, Z_mean = (torch.from_numpy(data[name].astype(float)).to(device) for name in ("X", "y", "Z", "Z_mean"))
    Z, Z_mean = Z[: settings["n_inducing"]], Z_mean[: settings["n_mean_inducing"]]
    strategy = functools.partial(_coupled, Z=Z, distribution=TrilNaturalVariationalDistribution)
    if len(Z_mean):
        strategy = functools.partial(_decoupled, Z=Z, Z_mean=Z_mean)
    model = _Model(_kernel(settings, X.shape[1]), strategy).to(device)
    likelihood = _likelihood(settings).to(device)
    objective = gpytorch.mlls.VariationalELBO(likelihood, model, num_data=len(y))
    optimizers, scheduler = _optimizers(model, likelihood, settings, len(y))

    def run(n_iter):
        model.train()
        likelihood.train()
        for _ in range(n_iter):
            rows = torch.randint(len(y), (settings["batch_size"],), device=device)
            for optimizer in optimizers:
                optimizer.zero_grad()
            (-objective(model(X[rows]), y[rows])).backward()
            for optimizer in optimizers:
                optimizer.step()
            scheduler.step()
        if device.type == "cuda":
            torch.cuda.synchronize()

    train_in_blocks(run, lambda: _predictor(model, likelihood, device), settings, report)


def _likelihood(settings):
    if settings["task"] == "classification":
        return gpytorch.likelihoods.BernoulliLikelihood()
    likelihood = gpytorch.likelihoods.GaussianLikelihood()
    likelihood.noise = settings["noise_variance"]
    return likelihood


def _optimizers(model, likelihood, settings, n_rows):
    """The optimizers, and the schedule of Adam's step size."""
    others = [*model.hyperparameters(), *likelihood.parameters()]
    variational = list(model.variational_parameters())
    natural = not settings["n_mean_inducing"]
    adam = torch.optim.Adam(others if natural else [*others, *variational], lr=settings["learning_rate"])
    optimizers = [adam]
    if natural:
        optimizers.append(gpytorch.optim.NGD(variational, num_data=n_rows, lr=settings["gamma"]))

    def part(i):
        return 0.5 * (1.0 + np.cos(np.pi * min(1.0, i / settings["max_iter"]))) if settings["decay"] else 1.0

    return optimizers, torch.optim.lr_scheduler.LambdaLR(adam, part)


def _predictor(model, likelihood, device):
    """Prediction with the caches of evaluation mode; rows and answers are NumPy's."""
    model.eval()
    likelihood.eval()

    @torch.no_grad()
    def mean(X):
        return model(torch.from_numpy(X).to(device)).mean.cpu().numpy()

    @torch.no_grad()
    def moments(X):
        predicted = likelihood(model(torch.from_numpy(X).to(device)))
        return predicted.mean.cpu().numpy(), predicted.variance.cpu().numpy()

    def proba(X):
        mean, _ = moments(X)
        return np.stack([1.0 - mean, mean], axis=1)

    classifies = isinstance(likelihood, gpytorch.likelihoods.BernoulliLikelihood)
    return Predictor(mean, moments, proba if classifies else None)


# -- skorch -------------------------------------------------------------------------------


class _Exact(gpytorch.models.ExactGP):
    """The exact Gaussian process of skorch's ``ExactGPRegressor``."""

    def __init__(self, likelihood, X=None, y=None, length_scale=1.0, amplitude=1.0):
        super().__init__(X, y, likelihood)
        self.mean_module = gpytorch.means.ConstantMean()
        self.covar_module = _scaled(RBFKernel(), length_scale, amplitude)

    def forward(self, X):
        """The prior at X."""
        return gpytorch.distributions.MultivariateNormal(self.mean_module(X), self.covar_module(X))


class _Sparse(_Model):
    """The sparse variational one of skorch's ``GPRegressor`` and ``GPBinaryClassifier``."""

    def __init__(self, Z, length_scale=1.0, amplitude=1.0):
        strategy = functools.partial(_coupled, Z=Z, distribution=CholeskyVariationalDistribution)
        super().__init__(_scaled(RBFKernel(), length_scale, amplitude), strategy)


def search(data, settings):
    """The estimator and the grid of a search: skorch's, with Adam, on minibatches unless it is exact."""
    from skorch.probabilistic import ExactGPRegressor, GPBinaryClassifier, GPRegressor

    n_rows = len(data["y"]) * (settings["folds"] - 1) // settings["folds"]
    exact = {"max_epochs": settings["max_iter"], "batch_size": -1}
    common = {
        "optimizer": torch.optim.Adam,
        "lr": settings["learning_rate"],
        "train_split": None,
        "verbose": 0,
        "callbacks__train_loss": None,
    }
    sparse = {
        "module__Z": torch.from_numpy(data["Z"][: settings["n_inducing"]].copy()),
        "criterion__num_data": n_rows,
        "batch_size": settings["batch_size"],
        "max_epochs": max(1, settings["max_iter"] // -(-n_rows // settings["batch_size"])),
    }
    if settings["task"] == "classification":
        model = GPBinaryClassifier(_Sparse, **sparse, **common)
    elif settings["exact"]:
        model = ExactGPRegressor(_Exact, **exact, **common)
    else:
        model = GPRegressor(_Sparse, **sparse, **common)
    grid = {"module__amplitude": settings["amplitudes"], "module__length_scale": settings["length_scales"]}
    return model, grid
