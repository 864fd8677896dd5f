"""Which estimators are clones of one another, as the folds of a cross-validation are.

A search tells its fits that they belong together, a cross-validation does not: but what it fits are clones of one
estimator. Other processes get the clones by pickle.
"""

from __future__ import annotations

import uuid
import weakref

_KEY = "_family"
# By each clone, and by an estimator that is no clone, what its clones have in common.
_families, _of_clones = weakref.WeakKeyDictionary(), weakref.WeakKeyDictionary()


class ClonesMixin:
    """An estimator whose clones are known to be clones of it."""

    def __sklearn_clone__(self):
        found = super().__sklearn_clone__()
        _families[found] = _families.get(self) or _of_clones.setdefault(self, uuid.uuid4().hex)
        return found

    def __copy__(self):
        found = type(self).__new__(type(self))
        vars(found).update(vars(self))
        # `fit` trains a copy.
        if self in _families:
            _families[found] = _families[self]
        return found

    def __getstate__(self):
        state = super().__getstate__()
        # A fitted model is saved for itself.
        if self not in _families or self.__sklearn_is_fitted__():
            return state
        return {**state, _KEY: _families[self]}

    def __setstate__(self, state):
        if _KEY in state:
            _families[self] = state.pop(_KEY)
        super().__setstate__(state)


def family_of(estimator):
    """What the clones of one estimator have in common; None for an estimator that is no clone."""
    return _families.get(estimator)
