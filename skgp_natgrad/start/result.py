"""The result of training, with the record from which a later fit starts."""

from __future__ import annotations

from typing import NamedTuple

from .._backend.types import Floats
from ..prediction.calibration import Average, Calibration
from ..prediction.dispersion import Dispersion
from ..solve.held_out_labels import Gain
from ..step.state import State
from ..training import loop
from ..variational.model import Constants
from .state import Previous, previous_of


class Result(NamedTuple):
    """The result of `svgp.train`.

    Attributes
    ----------
    state : State
    constants : Constants
        The constants that belong to ``state``: the exact mean adds points.
    elbo : float
        The bound at ``state``.
    trained : training.loop.Result
        The result of the iterations, before the exact mean: its state, the reports of all
        iterations, the bound and the status.
    previous : Previous
        The record from which a later fit can continue.
    lost : str or None
        The part of the exact mean's solution that was discarded: see `solve.exact_mean.Solution`.
    calibration : Calibration, optional
        That of class probabilities, where it was found together with q.
    dispersion : Dispersion, optional
        How the deviation of y varies with X, where that was asked for and is seen.
    held_out : Average, optional
        The log density of held-out rows in nats per unit of weight, where it was found together with q.
    gain : Gain, optional
        Of class labels, by how much held-out ones are predicted better than by their frequencies, where that was found
        together with q.
    error_of_mean : ndarray of shape (2, T), optional
        The root mean square error of rows that were predicted from all others, in deviations of y; and by how many
        standard errors its square is above that of a constant.
    log_prior : float
        The log density of the hyperparameters under their priors, which ``elbo`` contains.
    """

    state: State
    constants: Constants
    elbo: float
    trained: loop.Result
    previous: Previous
    lost: str | None
    calibration: Calibration | None = None
    dispersion: Dispersion | None = None
    held_out: Average | None = None
    log_prior: float = 0.0
    gain: Gain | None = None
    error_of_mean: Floats | None = None


def of_training(trained: loop.Result, constants: Constants) -> Result:
    """The `Result` where nothing follows the training."""
    log_prior = float(constants.objective.reported(constants.log_prior(trained.state.parameters)))
    previous = previous_of(trained.state, constants)
    return Result(trained.state, constants, trained.elbo, trained, previous, None, log_prior=log_prior)
