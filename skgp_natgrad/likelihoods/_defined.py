"""A check that a user-defined likelihood has the methods that training and prediction need."""

from __future__ import annotations

import traceback
from typing import Literal

import jax

from .._backend import device
from ._base import Likelihood

_NEEDED = {
    "regression": ("expected_log_prob", "predictive_moments"),
    "classification": ("expected_log_prob", "log_class_probabilities"),
}
_ROWS, _CLASSES = 2, 3


def undefined_method(likelihood: Likelihood, task: Literal["regression", "classification"]) -> str | None:
    """Return the name of a method that a likelihood lacks for its task, or None.

    Its methods are traced, as training will do; nothing is computed or compiled.

    Parameters
    ----------
    likelihood : Likelihood
    task : {"regression", "classification"}

    Returns
    -------
    name : str or None

    Examples
    --------
    >>> from skgp_natgrad.likelihoods import Gaussian, LocationLikelihood, undefined_method
    >>> class Unfinished(LocationLikelihood):
    ...     "A likelihood without a density."
    >>> undefined_method(Gaussian(), "regression"), undefined_method(Unfinished(), "regression")
    (None, 'log_prob')
    """
    n_classes = 0 if task == "regression" else _CLASSES
    try:
        likelihood = likelihood.value_and_bounds(1)[0]
        moments = jax.ShapeDtypeStruct((likelihood.n_latent(1, n_classes), _ROWS), float)
        y = jax.ShapeDtypeStruct((1, _ROWS), float)
    except NotImplementedError as error:
        return _where(error)
    except Exception:
        # It needs the data first: a missing method shows in training.
        return None
    for name in _NEEDED[task]:
        arguments = (moments, moments, y)[: 3 if name == "expected_log_prob" else 2]
        try:
            # In double precision, as in training: JAX remembers the types of constants.
            with device.computation(in_fork=True):
                jax.eval_shape(getattr(likelihood, name, None) or _absent(name), *arguments)
        except NotImplementedError as error:
            return _where(error)
        except Exception:
            return None
    return None


def _where(error):
    """The name of the method that has raised the error."""
    return error.args[0] if error.args else traceback.extract_tb(error.__traceback__)[-1].name


def _absent(name):
    def method(*arguments):
        raise NotImplementedError(name)

    return method
