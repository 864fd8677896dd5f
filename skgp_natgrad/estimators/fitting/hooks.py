"""scikit-learn's callbacks, which it has since version 1.9: one task for each chunk of iterations."""

from __future__ import annotations

import functools

try:
    from sklearn.callback import CallbackSupportMixin, with_callbacks
except ImportError:

    class CallbackSupportMixin:
        """Stands for scikit-learn's before version 1.9, which has no callbacks."""

    def with_callbacks(method):
        """Leave a method as it is, one call deeper as with scikit-learn's."""

        @functools.wraps(method)
        def called(*arguments, **options):
            return method(*arguments, **options)

        return called


# What scikit-learn sets on an estimator while it fits, and removes afterwards.
_WHILE_FITTING = ("_callback_fit_ctx", "_skl_callbacks_to_teardown")


class Hooks:
    """The tasks of one fit, of which scikit-learn's callbacks are told.

    Parameters
    ----------
    estimator : NGDSVGPRegressor or NGDSVGPClassifier
        To which the callbacks were given.
    X, y : object
        As given to ``fit``.
    **metadata : object
        As given to ``fit``, of what a score may need; None where nothing was.
    """

    def __init__(self, estimator, X, y, **metadata):
        metadata = {name: value for name, value in metadata.items() if value is not None}
        self.estimator, self.given = estimator, {"X": X, "y": y, "metadata": metadata or None}
        self.root = self.task = None

    def start(self, plan):
        """Begin the fit as a whole, and its first task, if there are callbacks or an estimator around this one."""
        if not any(hasattr(self.estimator, name) for name in ("_skl_callbacks", "_parent_callback_ctx")):
            return
        self.root = self.estimator._init_callback_context(max_subtasks=plan.route.n_chunks(plan.settings))
        self.root.call_on_fit_task_begin(estimator=self.estimator, **self.given)
        self.begin()

    def begin(self):
        """Begin the next task."""
        if self.root is not None:
            self.task = self.root.subcontext(task_name="iterations")
            self.task.call_on_fit_task_begin(estimator=self.estimator, **self.given)

    def end(self, model):
        """End the task; return whether a callback wants training to end.

        Parameters
        ----------
        model : callable
            Returns the estimator as it is fitted now; called if a callback asks for it.
        """
        return self.task is not None and self._end(self.task, model)

    def finish(self, learner):
        """End the fit as a whole, whose result is the fitted ``learner``."""
        if self.root is not None:
            self._end(self.root, lambda: learner)

    def _end(self, task, model):
        return task.call_on_fit_task_end(
            estimator=self.estimator, reconstruction_attributes=lambda: vars(model()), **self.given
        )

    def while_fitting(self):
        """The attributes that scikit-learn removes after the fit."""
        return {name: value for name, value in vars(self.estimator).items() if name in _WHILE_FITTING}
