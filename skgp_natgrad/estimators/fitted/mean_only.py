"""Warnings about the mean on mean-only points."""

from __future__ import annotations

import warnings

from sklearn.exceptions import ConvergenceWarning


def warn_of_lost(lost, stacklevel):
    """Warn of what ``mean_solver="exact"`` discarded, or did not finish: see `exact_mean.Solution`."""
    useless = "rounding errors make the {} useless; {} is kept. Lower n_mean_inducing, or raise jitter."
    text = {
        "solution": useless.format("solution", "the trained mean, without mean-only points,"),
        "likelihood": useless.format("likelihood", "the trained likelihood"),
        "passes": "its passes over the rows ended before the mean converged. Raise tol.",
    }.get(lost)
    if text is not None:
        warnings.warn(f'mean_solver="exact": {text}', ConvergenceWarning, stacklevel=stacklevel + 1)


def slow(rise, settings):
    """That natural gradient steps have not found the mean, or None: see `svgp.Result`."""
    if not rise > settings.tol:
        return None
    return (
        f"mean_solver={settings.algorithm.mean_solver!r}: the mean has not converged. The best one on the same points "
        f"has an ELBO that is larger by {rise:.2g} nats per row (tol={settings.tol:g}); its predictions may be better "
        "than these by far. With little noise these steps are short: the number that they need grows with the rows "
        "over the noise variance. Use mean_solver='exact', which solves for the mean, or raise max_iter."
    )
