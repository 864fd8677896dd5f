"""Gives the warnings of a fit: in a search, or to clones of one estimator, each kind once."""

from __future__ import annotations

import threading

from . import constructor

# The kinds of warnings given in each of the last searches; since version 1.9 scikit-learn tells a fit its search.
_told, _MOST_SEARCHES = {}, 100
_telling = threading.Lock()


def tell(estimator, notices, of_table=False):
    """Give those of the warnings whose kind no other fit of the same search has given in this process.

    Parameters
    ----------
    estimator : NGDSVGPRegressor or NGDSVGPClassifier
    notices : list of Notice
    of_table : bool, default=False
        Whether they say something of the rows, which arguments do not change: then no other clone of the same estimator
        has given it either.
    """
    for notice in notices:
        if _is_new(notice.kind, estimator, constructor.family_of(estimator) if of_table else None):
            notice.give()


def _is_new(kind, estimator, family):
    around = getattr(estimator, "_parent_callback_ctx", None)
    if around is not None and not _is_refit(around):
        family = around.root_uuid
    if family is None:
        return True
    with _telling:
        told = _told.setdefault((family, type(estimator)), set())
        is_new = kind not in told
        told.add(kind)
        while len(_told) > _MOST_SEARCHES:
            del _told[next(iter(_told))]
    return is_new


def _is_refit(context):
    """Whether a context of scikit-learn is that of the model which a search returns: its last fit, to all rows.

    Within another search it is the model that this one returns.
    """
    names = set()
    while context is not None:
        # A pipeline's own context takes the place of the task of the search, and keeps its name.
        names |= {context.task_name, context.source_task_name or ""}
        context = context.parent
    return "search" not in names and any(name.startswith("refit") for name in names)
