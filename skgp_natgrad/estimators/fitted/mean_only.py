"""Warnings about the mean on mean-only points."""

from __future__ import annotations

from sklearn.exceptions import ConvergenceWarning

from ..._backend.notices import Notice

_USELESS = "The {} that mean_solver='exact' found is useless because of rounding errors."
_INSTEAD = "The trained {} is kept. Lower n_mean_inducing, or raise jitter."
_LOST = {
    "solution": (_USELESS.format("mean"), _INSTEAD.format("mean, without mean-only points,")),
    "likelihood": (_USELESS.format("likelihood"), _INSTEAD.format("likelihood")),
    "passes": ("mean_solver='exact' ended its passes over the rows before the mean converged.", "Raise tol."),
}


def of_lost(lost):
    """What ``mean_solver="exact"`` discarded, or did not finish, as a list of warnings: see `exact_mean.Solution`."""
    return [Notice(*_LOST[lost], ConvergenceWarning)] if lost in _LOST else []


def slow(rise, settings):
    """That natural gradient steps have not found the mean, or None: see `svgp.Result`."""
    if not rise > settings.tol:
        return None
    return Notice(
        "The mean has not converged.",
        f"mean_solver={settings.algorithm.mean_solver!r}: the best mean on the same points has an ELBO that is larger "
        f"by {rise:.2g} nats per row (tol={settings.tol:g}); its predictions may be better than these by far. With "
        "little noise these steps are short: the number that they need grows with the rows over the noise variance. "
        "Use mean_solver='exact', which solves for the mean, or raise max_iter.",
        ConvergenceWarning,
    )
