"""The two tasks, regression and classification: the arguments of their estimators, and the likelihoods for each.

Type checkers read an estimator's arguments from a class that inherits nothing from scikit-learn: scikit-learn has no
types, and a class with an unknown base would be allowed all arguments.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Literal, NamedTuple, TypeVar

from sklearn.base import ClassifierMixin, RegressorMixin
from sklearn.utils.metaestimators import available_if

from ... import likelihoods, objectives
from ...kernels import Coregionalization
from ...likelihoods import Likelihood
from ...svgp import refused_in_stream
from . import checks, inert
from .constructor import argument, arguments
from .table import Model, Monitoring, Numerics, Points, Training


class Task(NamedTuple):
    """A task and the estimator for it.

    Attributes
    ----------
    name : str
    estimator : str
    """

    name: str
    estimator: str


REGRESSION = Task("regression", "NGDSVGPRegressor")
CLASSIFICATION = Task("classification", "NGDSVGPClassifier")
_TASKS = (REGRESSION, CLASSIFICATION)


@arguments
class RegressorArguments(Model, Points, Training, Numerics, Monitoring):
    """The arguments of the regressor: those of the table and its own.

    Parameters
    ----------
    likelihood : str or object, default="gaussian"
        Distribution of y given the latent functions: "gaussian", "student_t",
        "heteroscedastic_gaussian", "censored", "poisson", "negative_binomial",
        "zero_inflated_poisson", "binomial", "gamma", "lognormal", "exponential",
        "tweedie", "beta", "chained_beta" or "ordinal"; "auto" is "gaussian". An
        object of :mod:`skgp_natgrad.likelihoods` holds initial values, tunable as
        ``likelihood__...``; the noise of "gaussian", "student_t" and "censored"
        is on the scale of the standardised y.
    normalize_y : bool or "center", default=True
        Standardise each column of y. "center" only subtracts its mean: then noise and amplitudes are given in the
        (squared) units of y, and with ``normalize_X=False`` lengthscales in the units of X. False leaves y as it is,
        with a prior mean of zero. Used only by the likelihoods "gaussian", "student_t", "heteroscedastic_gaussian" and
        "censored"; the others see y on its original scale, and their prior mean is chosen from the data.
    calibrate : bool or "auto", default="auto"
        Whether to correct the predicted standard deviation, with ``likelihood="gaussian"``. Each row is predicted from
        all others. If the size of these errors varies with X, or their tails are heavy, a second process multiplies the
        variances of y and of the latent function, and the errors are Student-t. If they have light tails or are skew,
        as with uniform noise, the noise is a mixture of normals (from 100 rows). With fewer than 100 rows and the
        default kernel it is one factor, which allows for hyperparameters that so few rows do not determine. The mean
        and :meth:`score` do not change. "auto": with ``solver="evidence"``, unless the noise is "fixed". Not available
        with ``alpha``.
    mean_function : callable, regressor, "linear" or None, default=None
        The prior mean of the latent function. A function of X (n_samples, n_features), in the units of X (of a data
        frame the columns of ``encoding_``), returns one value for each row, or for each row and output, in the units of
        y (if the likelihood has a link, on the scale of :meth:`predict_latent`). A regressor of scikit-learn is fitted
        to each output, and the process to the residuals of its out-of-fold predictions (five folds): one that memorises
        its rows leaves the errors that it makes at new ones. "linear" is a linear regression, and leaves those of
        regressions without the row, also where there are more columns than rows. With fewer than five different rows
        none is fitted. :meth:`predict_latent` does not include it.
    n_neighbors : int or "auto", default="auto"
        Rows from which each row is predicted, instead of the inducing points: the nearest ones in units of the kernel's
        lengthscales, with ``solver="evidence"`` and ``likelihood="gaussian"``. A few hundred tell nearly all of a row
        in a long table, which some thousand inducing points do not explain. "auto" is 200 for tables of more than 5000
        rows (fewer where memory is short) if rows that are left out are predicted better so, or 400 if these predict
        much better still, and else 0: none. A number of inducing points that is given means none as well. The fitted
        estimator then holds the rows of X and y, also those of files, and those of later calls of ``partial_fit``,
        which keep its hyperparameters.
        Correlations between rows (``return_cov``, :meth:`sample_y`) and gradients are those of the inducing points.
    output_kernel : {"independent", "coregionalization"} or Coregionalization, default="independent"
        Whether the latent functions of several columns of y share information, with ``likelihood="gaussian"``.
        "coregionalization": each term of the kernel is multiplied by a covariance matrix between the outputs, low-rank
        plus diagonal, which is found from the rows, and each output has a noise of its own. An object
        :class:`~skgp_natgrad.kernels.Coregionalization` holds its rank, initial values and bounds. A well observed
        output then helps to predict one that is missing in many rows (``missing_targets``). All observed values are
        rows of one process, of which ``inducing_points_`` and ``kernel_`` are: their last column is the output.
    missing_targets : {"error", "ignore"}, default="error"
        What a NaN in y means: "error" refuses it; with "ignore" this target of the row was not observed. The other
        targets of the row are used, and a row without any target is left out.
    predict_noise : bool, default=True
        What the deviation of ``predict(X, return_std=True)`` (and the covariance) is of: True of y, noise included;
        False of the latent function alone, as of scikit-learn's GaussianProcessRegressor with its noise in ``alpha``.
        Programs that choose the next experiment by this deviation (active learning, Bayesian optimisation) would
        otherwise go where the noise is large; for the same reason it leaves out the factor of ``calibrate`` if that
        varies with X, which :meth:`predict_latent` contains. The mean, scores, intervals and quantiles stay those of y.
        Needs a y that is a latent function plus noise.
    """

    likelihood: str | Likelihood = argument(default="gaussian", check=None)
    calibrate: bool | Literal["auto"] = argument(default="auto", needs=(inert.deviations,))
    mean_function: Callable[[Any], Any] | RegressorMixin | Literal["linear"] | None = argument(default=None, check=None)
    n_neighbors: int | Literal["auto"] = argument(default="auto", least=0, needs=(inert.neighbours,))
    output_kernel: Coregionalization | Literal["independent", "coregionalization"] = argument(default="independent")
    missing_targets: Literal["error", "ignore"] = argument(default="error")
    predict_noise: bool = argument(default=True)


@arguments
class ClassifierArguments(Model, Points, Training, Numerics, Monitoring):
    """The arguments of the classifier: those of the table and its own.

    Parameters
    ----------
    likelihood : {"auto", "bernoulli", "softmax", "robust_max", "ordinal"} or object, default="auto"
        Distribution of y given the latent functions. An object of
        :mod:`skgp_natgrad.likelihoods` holds initial values on the scale of the
        latent functions, tunable as ``likelihood__...``. "auto" is "bernoulli" for two
        classes and "softmax" for more. "ordinal" treats the labels as ordered levels: see
        :class:`~skgp_natgrad.likelihoods.Ordinal` for how to give their order.
    normalize_y : bool, default=True
        Not used; it is here because the regressor has it. Labels are never scaled.
    class_weight : dict, "balanced" or None, default=None
        Weights of the classes, which multiply ``sample_weight``.
    calibrate : bool, default=True
        Whether to calibrate class probabilities and drawn labels: the latent mean and the latent standard deviation are
        each multiplied by a number. The two numbers maximise the log density of held-out labels
        (``solver="evidence"``), or of training labels that are each predicted from all others. ``partial_fit`` finds
        them from the rows of its last call. With ``objective="predictive"``, which trains this density, both are one.
    mean_function : classifier, callable, "auto", "linear" or None, default=None
        Another model whose predictions class probabilities rest on as well: "auto" is scikit-learn's
        HistGradientBoostingClassifier. Of a classifier with ``predict_proba`` the log probabilities (with two classes
        their latent value), times a weight, are added to the latent functions. The weight and the factors of
        ``calibrate`` are found together, on held-out labels: a model that tells them nothing has the weight zero
        (``mean_weight_``). What it says of the rows of the fit is predicted out of fold (five folds); then it is fitted
        to all rows. Where no label has five different rows there is none. "linear" is a logistic regression. A function
        of X (n_samples, n_features), in the units of X (of a data frame the columns of ``encoding_``), returns values
        on the scale of :meth:`predict_latent`, which does not include them. Needs
        ``calibrate``, and all rows in memory.
    """

    likelihood: str | Likelihood = argument(default="auto", check=None)
    class_weight: Mapping[Any, float] | Literal["balanced"] | None = argument(default=None, check=None)
    calibrate: bool = argument(default=True)
    mean_function: Callable[[Any], Any] | ClassifierMixin | Literal["auto", "linear"] | None = argument(
        default=None, check=None
    )


def likelihood_of(task, argument, default):
    """Return the likelihood object for the argument ``likelihood``."""
    own = ("auto", *likelihoods.names(task.name))
    if isinstance(argument, str):
        (other,) = (each for each in _TASKS if each is not task)
        if argument not in own and argument in likelihoods.names(other.name):
            raise ValueError(
                f"likelihood={argument!r} is for {other.name}, not {task.name}; use {other.estimator}, or one of "
                f"{', '.join(map(repr, own))}."
            )
        checks.choice("likelihood", argument, own)
        return likelihoods.by_name(default if argument == "auto" else argument)
    if not isinstance(argument, likelihoods.Likelihood) or task.name not in argument.tasks:
        raise ValueError(
            f"likelihood={argument!r} must be a {task.name} likelihood: an object of "
            f"skgp_natgrad.likelihoods, or one of {', '.join(map(repr, own))}."
        )
    if not type(argument).__module__.startswith(likelihoods.__name__):
        missing = likelihoods.undefined_method(argument, task.name)
        if missing is not None:
            raise ValueError(
                f"likelihood {type(argument).__name__} does not define the method {missing}, which {task.name} needs; "
                "see the documentation's page on a likelihood of your own."
            )
    return argument


_Method = TypeVar("_Method", bound=Callable[..., Any])


def can_stream(estimator):
    """Whether an estimator has ``partial_fit``: its q must contain all information from the data.

    Invalid arguments are not refused here, but in `fit`.

    Raises
    ------
    AttributeError
        Names the arguments and the remedy.
    """
    refused = refused_in_stream(estimator.n_mean_inducing, estimator.basis, estimator.mean_solver, estimator.solver)
    here = f"{type(estimator).__name__} has no partial_fit with"
    if refused:
        given = ", ".join(f"{name}={getattr(estimator, name)!r}" for name in refused)
        raise AttributeError(
            f"{here} {given}: only what the inducing points have learned can be passed on to later rows. Use "
            "n_mean_inducing=0, basis='orthogonal', mean_solver='adam' and solver='ngd'."
        )
    if getattr(estimator, "output_kernel", "independent") != "independent":
        raise AttributeError(
            f"{here} output_kernel={estimator.output_kernel!r}: the kernel between outputs is found from all rows. Use "
            "output_kernel='independent', or call fit with all rows."
        )
    if not _q_is_posterior(estimator.objective):
        raise AttributeError(
            f"{here} objective={estimator.objective!r}: its q is not a posterior, from which later rows could start. "
            "Use objective='elbo'."
        )
    return True


def streaming(method: _Method) -> _Method:
    """Decorate ``partial_fit``, which only estimators have that can stream."""
    return available_if(can_stream)(method)


def _q_is_posterior(objective):
    if not isinstance(objective, objectives.Objective):
        objective = objectives.by_name(objective if objective in objectives.names() else "elbo")
    return objective.closed_form
