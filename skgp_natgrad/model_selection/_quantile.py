"""A quantile of y as the prediction of a regressor, for programs that read ``predict`` alone."""

from __future__ import annotations

from numbers import Real
from typing import Any, Self

from sklearn import get_config
from sklearn.base import BaseEstimator, MetaEstimatorMixin, RegressorMixin, clone
from sklearn.frozen import FrozenEstimator
from sklearn.metrics import d2_pinball_score
from sklearn.utils import get_tags
from sklearn.utils.metadata_routing import UNUSED, MetadataRouter, MethodMapping, process_routing
from sklearn.utils.validation import check_is_fitted

from .._backend.types import ArrayLike, Floats


class PredictedQuantile(MetaEstimatorMixin, RegressorMixin, BaseEstimator):
    """A regressor whose ``predict`` is a quantile of y: for conformalized quantile regression.

    Parameters
    ----------
    regressor : estimator
        With ``predict_quantiles``, such as :class:`~skgp_natgrad.NGDSVGPRegressor`. A fitted one inside scikit-learn's
        :class:`~sklearn.frozen.FrozenEstimator` is used as it is, so that several quantiles share one fit.
    quantile : float, default=0.5
        Between zero and one.

    Attributes
    ----------
    regressor_ : estimator
        The fitted regressor.
    n_features_in_, feature_names_in_ : object
        As in scikit-learn.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn.frozen import FrozenEstimator
    >>> from skgp_natgrad import NGDSVGPRegressor
    >>> from skgp_natgrad.model_selection import PredictedQuantile
    >>> X = np.linspace(0, 10, 100)[:, None]
    >>> y = np.sin(X[:, 0]) + 0.1 * np.random.default_rng(0).normal(size=100)
    >>> reg = FrozenEstimator(NGDSVGPRegressor(random_state=0).fit(X, y))
    >>> low, high = (PredictedQuantile(reg, quantile).fit(X, y).predict(X) for quantile in (0.05, 0.95))
    >>> bool(0.8 < np.mean((low <= y) & (y <= high)) <= 1.0)
    True
    """

    # The weights of a fit are the regressor's.
    __metadata_request__fit = {"sample_weight": UNUSED}

    def __init__(self, regressor: Any, quantile: float = 0.5) -> None:
        self.regressor = regressor
        self.quantile = quantile

    def fit(self, X: ArrayLike, y: ArrayLike, sample_weight: ArrayLike | None = None, **known: Any) -> Self:
        """Fit a copy of the regressor.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Inputs.
        y : array-like of shape (n_samples,) or (n_samples, n_outputs)
            Targets.
        sample_weight : array-like of shape (n_samples,), default=None
            Weight of each row.
        **known : dict
            Other arguments of the regressor's ``fit``; with scikit-learn's metadata routing, those that it requests.

        Returns
        -------
        self : object
        """
        if not (isinstance(self.quantile, Real) and 0.0 < self.quantile < 1.0):
            raise ValueError(f"quantile={self.quantile!r} must be a number between 0 and 1.")
        known |= {} if sample_weight is None else {"sample_weight": sample_weight}
        # A frozen regressor takes anything, and ignores it.
        if get_config()["enable_metadata_routing"] and not isinstance(self.regressor, FrozenEstimator):
            known = process_routing(self, "fit", **known).regressor.fit
        self.regressor_ = clone(self.regressor).fit(X, y, **known)
        for name in ("n_features_in_", "feature_names_in_"):
            # Those of an earlier fit do not stay.
            vars(self).pop(name, None)
            if hasattr(self.regressor_, name):
                setattr(self, name, getattr(self.regressor_, name))
        return self

    def predict(self, X: ArrayLike, **known: Any) -> Floats:
        """The quantile of y at each row.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Inputs.
        **known : dict
            Other arguments of the regressor's ``predict_quantiles``.

        Returns
        -------
        y_quantile : ndarray of shape (n_samples,) or (n_samples, n_outputs)
        """
        check_is_fitted(self)
        return self.regressor_.predict_quantiles(X, self.quantile, **known)

    def score(self, X: ArrayLike, y: ArrayLike, sample_weight: ArrayLike | None = None) -> float:
        """The share of the pinball loss of a constant that the quantile takes away, as scikit-learn's d2_pinball_score.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Inputs.
        y : array-like of shape (n_samples,)
            Targets.
        sample_weight : array-like of shape (n_samples,), default=None

        Returns
        -------
        score : float
        """
        return float(d2_pinball_score(y, self.predict(X), sample_weight=sample_weight, alpha=self.quantile))

    def get_metadata_routing(self) -> MetadataRouter:
        """What the regressor's ``fit`` and the own ``score`` request (scikit-learn's metadata routing).

        Returns
        -------
        routing : MetadataRouter
        """
        mapping = MethodMapping().add(caller="fit", callee="fit")
        router = MetadataRouter(owner=self).add_self_request(self)
        return router.add(regressor=self.regressor, method_mapping=mapping)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        of_regressor = get_tags(self.regressor)
        tags.input_tags, tags.target_tags.multi_output = of_regressor.input_tags, of_regressor.target_tags.multi_output
        return tags
