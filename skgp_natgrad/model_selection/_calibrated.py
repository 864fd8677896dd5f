"""A regressor whose deviations and intervals are right for rows that cross-validation leaves out."""

from __future__ import annotations

from typing import Any, Self

import numpy as np
from scipy import optimize, stats
from sklearn import get_config
from sklearn.base import BaseEstimator, MetaEstimatorMixin, RegressorMixin, clone, is_classifier
from sklearn.model_selection import check_cv
from sklearn.pipeline import Pipeline
from sklearn.utils import _safe_indexing, get_tags, indexable
from sklearn.utils.metadata_routing import UNUSED, MetadataRouter, MethodMapping, process_routing
from sklearn.utils.parallel import Parallel, delayed
from sklearn.utils.validation import _check_method_params, check_is_fitted

from .._backend.types import ArrayLike, Floats
from ..metrics.of_regressor import StudentT
from ..metrics.predictions import predictive_distribution

# What is known of rows: the prediction of left-out rows needs it as well.
_OF_PREDICTIONS = ("offset", "alpha", "trials")
# With three degrees of freedom the deviation is sqrt(3) = 1.7 times the scale, and still of use.
_FEWEST_DF = 3.0
# The prior deviation of the factor's logarithm from zero.
_DEVIATION = 1.0
# Bounds of the logarithms of the two parts of the variance, relative to the errors' mean square, and of the degrees of
# freedom above the fewest.
_BOUNDS = [(-10.0, 5.0), (-10.0, 5.0), (-10.0, 7.0)]
# Starts of the search: errors in proportion to the predicted deviation, or of one size everywhere.
_STARTS = [(0.0, -3.0, 2.0), (-3.0, 0.0, 2.0)]


class CalibratedRegressorCV(MetaEstimatorMixin, RegressorMixin, BaseEstimator):
    """A regressor whose deviations and intervals are right for rows that cross-validation leaves out.

    A fit judges its deviations by rows like its own. Rows of a new group, or of a later time, have larger errors. Here
    a splitter says what is new about them: for each of its folds a copy of the regressor is fitted to the training
    rows, and predicts the others. Their errors decide how the deviation s of the fit to all rows is widened,

    .. math::

        y = m(x) + \\sqrt{a s(x)^2 + b} \\, t

    where t is Student-t with variance one. Means do not change.

    Parameters
    ----------
    estimator : estimator
        A regressor with a predictive deviation, such as :class:`~skgp_natgrad.NGDSVGPRegressor`, also inside a
        Pipeline or another meta-estimator that `predictive_distribution` knows. A TransformedTargetRegressor goes
        around this class, not inside.
    cv : int, cross-validation generator or iterable, default=None
        As in scikit-learn: :class:`~sklearn.model_selection.GroupKFold` for rows of new groups,
        :class:`~sklearn.model_selection.TimeSeriesSplit` for later rows. Rows may be left out several times, or never.
    n_jobs : int or None, default=None
        Number of fits at the same time, in threads unless a ``joblib.parallel_config`` names a backend.

    Attributes
    ----------
    estimator_ : estimator
        The regressor fitted to all rows.
    factor_ : float or ndarray of shape (n_outputs,)
        The factor a of the predicted variance.
    added_variance_ : float or ndarray of shape (n_outputs,)
        The variance b that is added, in the squared units of y.
    error_df_ : float or ndarray of shape (n_outputs,)
        Degrees of freedom of t.
    standardized_errors_ : ndarray of shape (n_left_out,) or (n_left_out, n_outputs)
        Errors of the left-out rows, fold by fold, divided by the deviations that the regressor predicted. If it was
        right, their mean square is one.
    n_features_in_, feature_names_in_ : object
        As in scikit-learn.

    See Also
    --------
    skgp_natgrad.predictive_distribution : Densities, distribution functions, scores and draws.

    Notes
    -----
    It costs a fit for each fold and one for all rows; far less with the kernel and the noise of an earlier fit and
    ``optimizer=None``, as the documentation's page on new groups and later times shows. Three numbers are learned from
    all left-out errors, so a dozen groups are few, and fifty are enough. y should be real: the distribution ignores
    which values counts or positive targets can take.

    Examples
    --------
    Twenty persons of ten rows each, whose age is the same in all of their rows. The rows of a person have something in
    common that X does not say, and a plain fit takes it for an effect of the age:

    >>> import numpy as np
    >>> from sklearn.gaussian_process.kernels import RBF
    >>> from sklearn.model_selection import GroupKFold
    >>> from skgp_natgrad import NGDSVGPRegressor
    >>> from skgp_natgrad.model_selection import CalibratedRegressorCV
    >>> rng = np.random.default_rng(0)
    >>> person = np.repeat(np.arange(20), 10)
    >>> X = np.column_stack([rng.uniform(0, 5, 200), rng.uniform(20, 80, 20)[person]])
    >>> y = np.sin(X[:, 0]) + rng.normal(size=20)[person] + 0.2 * rng.normal(size=200)
    >>> reg = NGDSVGPRegressor(1.0 * RBF([1.0, 0.1]), random_state=0)
    >>> calibrated = CalibratedRegressorCV(reg, cv=GroupKFold(4)).fit(X, y, groups=person)
    >>> lower, upper = calibrated.predict_interval(X, coverage=0.9)
    >>> bool(np.all(upper > lower))
    True
    """

    # Weights of a fit are the estimator's, and groups the splitter's.
    __metadata_request__fit = {"sample_weight": UNUSED, "groups": UNUSED}

    def __init__(self, estimator: Any, *, cv: Any = None, n_jobs: int | None = None) -> None:
        self.estimator = estimator
        self.cv = cv
        self.n_jobs = n_jobs

    def fit(
        self,
        X: ArrayLike,
        y: ArrayLike,
        sample_weight: ArrayLike | None = None,
        groups: ArrayLike | None = None,
        **known: Any,
    ) -> Self:
        """Fit the regressor to all rows, and copies of it to the training rows of each fold.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Inputs.
        y : array-like of shape (n_samples,) or (n_samples, n_outputs)
            Targets.
        sample_weight : array-like of shape (n_samples,), default=None
            Weight of each row, in the fits and among the errors of left-out rows. A Pipeline takes that of its last
            step, ``step__sample_weight``.
        groups : array-like of shape (n_samples,), default=None
            The group of each row, for a splitter such as GroupKFold.
        **known : dict
            Other arguments of the regressor's ``fit``; of a Pipeline those of its steps, such as ``step__offset``. With
            scikit-learn's metadata routing, the regressor's ``fit`` and the splitter's ``split`` are given what they
            request; splitters of groups request them by themselves.

        Returns
        -------
        self : object
        """
        known |= {"sample_weight": sample_weight, "groups": groups}
        of_fit, of_split = self._routed({name: value for name, value in known.items() if value is not None})
        if is_classifier(self.estimator):
            raise TypeError(
                f"CalibratedRegressorCV needs a regressor, and {type(self.estimator).__name__} is a classifier; for "
                "probabilities there is scikit-learn's CalibratedClassifierCV."
            )
        # What is wrong with the folds is said before a fit that may take long.
        splits = [split for split in check_cv(self.cv, y).split(*indexable(X, y), **of_split) if len(split[1])]
        if not splits:
            raise ValueError(f"cv={self.cv!r} leaves out no row, so no error is seen; give a splitter that does.")
        # The estimator checks all rows, before folds are taken from them.
        fitted = clone(self.estimator).fit(X, y, **of_fit)
        X, y = indexable(X, y)
        run = Parallel(self.n_jobs, prefer="threads")
        folds = run(delayed(_left_out)(self.estimator, X, y, of_fit, *split) for split in splits)
        errors, deviations, weights = (np.concatenate(each) for each in zip(*folds, strict=True))
        found = [_spread(*each, weights) for each in zip(errors.T, deviations.T, strict=True)]
        self.estimator_, self.standardized_errors_ = fitted, errors / deviations
        self.factor_, self.added_variance_, self.error_df_ = np.array(found).T
        if errors.shape[1] == 1:
            self.standardized_errors_ = self.standardized_errors_[:, 0]
            self.factor_, self.added_variance_, self.error_df_ = map(float, found[0])
        for name in ("n_features_in_", "feature_names_in_"):
            # Those of an earlier fit do not stay.
            vars(self).pop(name, None)
            if hasattr(fitted, name):
                setattr(self, name, getattr(fitted, name))
        return self

    def _routed(self, known):
        """What the estimator's ``fit`` and the splitter's ``split`` are given."""
        if get_config()["enable_metadata_routing"]:
            routed = process_routing(self, "fit", **known)
            return routed.estimator.fit, routed.splitter.split
        groups = known.pop("groups", None)
        return known, {"groups": groups}

    def _predictive_distribution(self, X, **known):
        """See `predictive_distribution`."""
        check_is_fitted(self)
        found = predictive_distribution(self.estimator_, X, **known)
        std = np.sqrt(self.factor_ * found.std() ** 2 + self.added_variance_)
        return StudentT(found.mean(), std, self.error_df_)

    def predict(self, X: ArrayLike, return_std: bool = False, **known: Any) -> Floats | tuple[Floats, Floats]:
        """Mean of y, and its standard deviation.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Inputs.
        return_std : bool, default=False
            Whether the deviation is returned, noise included.
        **known : dict
            ``offset``, ``alpha`` or ``trials`` of the rows, where the regressor takes them.

        Returns
        -------
        mean : ndarray of shape (n_samples,) or (n_samples, n_outputs)
            That of the fit to all rows.
        std : ndarray of the same shape
            With ``return_std``.
        """
        check_is_fitted(self)
        if not return_std:
            return self.estimator_.predict(X, **known)
        found = self._predictive_distribution(X, **known)
        return found.mean(), found.std()

    def predict_quantiles(self, X: ArrayLike, q: ArrayLike, **known: Any) -> Floats:
        """Quantiles of y.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Inputs.
        q : float or array-like of shape (n_quantiles,)
            Probabilities, strictly between 0 and 1.
        **known : dict
            ``offset``, ``alpha`` or ``trials`` of the rows, where the regressor takes them.

        Returns
        -------
        quantiles : ndarray of shape (n_samples[, n_outputs][, n_quantiles])
            Without the last axis for a single ``q``.
        """
        return self._predictive_distribution(X, **known).quantile(q)

    def predict_interval(self, X: ArrayLike, coverage: float = 0.9, **known: Any) -> tuple[Floats, Floats]:
        """Central interval of y: both tails have the same probability.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Inputs.
        coverage : float, default=0.9
            Probability that y lies in the interval, strictly between 0 and 1.
        **known : dict
            ``offset``, ``alpha`` or ``trials`` of the rows, where the regressor takes them.

        Returns
        -------
        lower, upper : ndarray of shape (n_samples,) or (n_samples, n_outputs)
        """
        return self._predictive_distribution(X, **known).interval(coverage)

    def get_metadata_routing(self) -> MetadataRouter:
        """What the estimator's ``fit``, the splitter and the own ``score`` request (scikit-learn's metadata routing).

        Returns
        -------
        routing : MetadataRouter
        """
        to_fit, to_split = (MethodMapping().add(caller="fit", callee=callee) for callee in ("fit", "split"))
        router = MetadataRouter(owner=self).add_self_request(self)
        router.add(estimator=self.estimator, method_mapping=to_fit)
        return router.add(splitter=self.cv, method_mapping=to_split)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        inner = get_tags(self.estimator)
        tags.input_tags, tags.target_tags.multi_output = inner.input_tags, inner.target_tags.multi_output
        return tags


def _left_out(estimator, X, y, of_fit, train, test):
    """Errors and predicted deviations (B, T) of the rows ``test``, and their weights (B,)."""
    of_train, of_test = (_check_method_params(X, of_fit, rows) for rows in (train, test))
    prefix = _prefix(estimator)
    of_test = {name.removeprefix(prefix): value for name, value in of_test.items()}
    fitted = clone(estimator).fit(_safe_indexing(X, train), _safe_indexing(y, train), **of_train)
    known = {name: of_test[name] for name in _OF_PREDICTIONS if name in of_test}
    found = predictive_distribution(fitted, _safe_indexing(X, test), **known)
    mean, std = found.mean(), found.std()
    errors = found._targets(_safe_indexing(y, test), found._may_lack) - mean
    weights = np.asarray(of_test.get("sample_weight", np.ones(len(mean))), dtype=float)
    return errors.reshape(len(mean), -1), std.reshape(len(mean), -1), weights


def _prefix(estimator):
    """What the names of the last step's arguments begin with in the ``fit`` of a Pipeline, also inside a search."""
    if isinstance(estimator, Pipeline):
        name, last = estimator.steps[-1]
        return f"{name}__{_prefix(last)}"
    within = getattr(estimator, "estimator", None)
    return "" if within is None else _prefix(within)


def _spread(errors, deviations, weights):
    """The most probable factor and added variance, and degrees of freedom, of errors (B,) with these deviations."""
    seen = ~np.isnan(errors)
    squares, variances, weights = errors[seen] ** 2, deviations[seen] ** 2, weights[seen]
    if not weights.sum() > 0.0:
        raise ValueError(
            "cv leaves out no row whose target is known and whose sample_weight is positive, so no error is seen; give "
            "a splitter that does."
        )
    mean_square, count = np.average(squares, weights=weights), len(weights)
    if not mean_square > 0.0:
        return 1.0, 0.0, np.inf
    unit = mean_square / np.average(variances, weights=weights)

    def parts(x):
        factor, added, df = np.exp(x)
        return unit * factor, mean_square * added, df + _FEWEST_DF

    def loss(x):
        factor, added, df = parts(x)
        scale = np.sqrt((factor * variances + added) * (1.0 - 2.0 / df))
        fit = np.average(stats.t.logpdf(np.sqrt(squares) / scale, df) - np.log(scale), weights=weights)
        # Where the rows do not tell the two parts apart, the deviation goes on varying as it was predicted.
        return 0.5 * (np.log(factor) / _DEVIATION) ** 2 / count - fit

    found = min((optimize.minimize(loss, x, bounds=_BOUNDS) for x in _STARTS), key=lambda each: each.fun)
    factor, added, df = parts(found.x)
    return factor, added, df
