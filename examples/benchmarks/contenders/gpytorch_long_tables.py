"""GPyTorch on long tables: SVGP and VNNGP with Adam on minibatches, as in its examples."""

from __future__ import annotations

import gpytorch
import numpy as np
import torch
from gpytorch.kernels import MaternKernel, ScaleKernel
from gpytorch.variational import (
    CholeskyVariationalDistribution,
    MeanFieldVariationalDistribution,
    NNVariationalStrategy,
    VariationalStrategy,
)

_POINTS, _NEIGHBOURS, _RATE = 500, 32, 0.01
_BATCH, _EPOCHS = {"svgp": 1024, "vnngp": 256}, {"svgp": 10, "vnngp": 5}
_ROWS_PREDICTED = 1000


class _Model(gpytorch.models.ApproximateGP):
    """A Matern 5/2 prior with a lengthscale for each column, and a variational strategy, which is made for it."""

    def __init__(self, n_columns, make_strategy):
        super().__init__(make_strategy(self))
        self.mean_module = gpytorch.means.ConstantMean()
        self.covar_module = ScaleKernel(MaternKernel(nu=2.5, ard_num_dims=n_columns))

    def forward(self, X):
        """The prior at X."""
        return gpytorch.distributions.MultivariateNormal(self.mean_module(X), self.covar_module(X))


def _points(X):
    Z = X[torch.randperm(len(X))[:_POINTS]].clone()
    distribution = CholeskyVariationalDistribution(len(Z))
    return lambda model: VariationalStrategy(model, Z, distribution, learn_inducing_locations=True)


def _neighbours(X):
    distribution = MeanFieldVariationalDistribution(len(X))
    k = min(_NEIGHBOURS, len(X) - 1)
    return lambda model: NNVariationalStrategy(model, X, distribution, k=k, training_batch_size=_BATCH["vnngp"])


def fitted(X, y, seed, kind):
    """Train; returns a function of rows that returns mean and deviation of their targets."""
    torch.manual_seed(seed)
    centre, scale = X.mean(0), np.where(X.std(0) > 0.0, X.std(0), 1.0)

    def scaled(X):
        return torch.from_numpy((X - centre) / scale).float()

    X, y = scaled(X), torch.from_numpy(y).float()
    model = _Model(X.shape[1], {"svgp": _points, "vnngp": _neighbours}[kind](X))
    likelihood = gpytorch.likelihoods.GaussianLikelihood()
    objective = gpytorch.mlls.VariationalELBO(likelihood, model, num_data=len(y))
    optimizer = torch.optim.Adam([*model.parameters(), *likelihood.parameters()], lr=_RATE)
    model.train()
    likelihood.train()
    for _ in range(_EPOCHS[kind] * -(-len(y) // _BATCH[kind])):
        optimizer.zero_grad()
        (-_bound(model, objective, X, y, kind)).backward()
        optimizer.step()
    model.eval()
    likelihood.eval()

    @torch.no_grad()
    def moments(X):
        parts = [likelihood(model(rows)) for rows in scaled(X).split(_ROWS_PREDICTED)]
        mean, variance = (
            torch.cat([getattr(part, name) for part in parts]).double().numpy() for name in ("mean", "variance")
        )
        return mean, np.sqrt(variance)

    return moments


def _bound(model, objective, X, y, kind):
    """The objective on a minibatch; VNNGP's strategy draws its rows itself, and tells which they are."""
    if kind == "vnngp":
        output = model(None)
        return objective(output, y[model.variational_strategy.current_training_indices])
    rows = torch.randint(len(y), (_BATCH[kind],))
    return objective(model(X[rows]), y[rows])
