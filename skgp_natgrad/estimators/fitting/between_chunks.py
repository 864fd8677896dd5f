"""Functions called between chunks of iterations, in one list: progress, the user's, scikit-learn's, the checkpoint."""

from __future__ import annotations

import contextlib
import copy
import functools
import time

import numpy as np

from ... import svgp
from ..._backend import processes
from ...svgp import STEPS_PER_CALL
from ..fitted import attributes


@contextlib.contextmanager
def of(estimator, fit, constants, hooks):
    """Context manager: the callbacks of a fit, in the order in which they are called."""
    title = type(estimator).__name__
    verbose = estimator.verbose if fit.plan.route.trains and processes.is_first(fit.plan.n_devices) else 0
    models = _Models(estimator, fit, constants)
    hooks.start(fit.plan)
    with show(title, verbose, fit.plan.settings.max_iter, fit.weight) as told:
        asked = list(_asked(estimator, hooks, models))
        n_processes = processes.sharing(fit.plan.n_devices)
        if n_processes > 1:
            asked = [_of_all_processes(asked, n_processes)]
        try:
            yield [callback for callback in (told, *asked, fit.checkpoint) if callback is not None]
        except OSError as error:
            # A file of rows cannot be read.
            if fit.checkpoint is not None:
                error.add_note("The checkpoint is kept: once the file is restored, the same call goes on from there.")
            raise


def _of_all_processes(callbacks, n_processes):
    """A callback that ends training in all processes if one of them wants to, or if one's callback raises."""

    def callback(monitor, state):
        with processes.telling(n_processes):
            stops = [bool(each(monitor, state)) for each in callbacks]
            return any(processes.exchanged(any(stops)))

    return callback


class _Models:
    """Fitted copies of the estimator during training; callbacks at the same iteration share one."""

    def __init__(self, estimator, fit, constants):
        self.estimator, self.fit, self.constants = estimator, fit, constants
        self._n_iter, self._model = None, None

    def at(self, monitor, state):
        """The estimator as if training had ended here."""
        if self._n_iter != monitor.n_iter:
            result = svgp.interim(state, self.constants, monitor.report, self.fit.plan)
            model = copy.copy(self.estimator)
            attributes.store(model, self.fit, result, is_interim=True)
            self._n_iter, self._model = monitor.n_iter, model
        return self._model


def _asked(estimator, hooks, models):
    """The user's callback, and what ends a task of scikit-learn's and starts the next, where there are such."""

    def users(monitor, state):
        found = estimator.callback(monitor.n_iter, models.at(monitor, state))
        # Comparisons of NumPy's numbers return NumPy's own booleans.
        return isinstance(found, (bool, np.bool_)) and bool(found)

    def of_scikit_learn(monitor, state):
        stops = hooks.end(lambda: models.at(monitor, state))
        if monitor.running and not stops:
            hooks.begin()
        return stops

    if estimator.callback is not None:
        yield users
    if hooks.root is not None:
        yield of_scikit_learn


def after_one_step(estimator, fit, hooks, *laps):
    """Show one line and call the callbacks once, if the fit has no iterations between which to do so.

    ``laps`` are the times at the start, after the choice and after the solution.
    """
    if fit.plan.route.trains and not fit.plan.untrained:
        return
    if estimator.verbose and processes.is_first(fit.plan.n_devices):
        title, elbo = type(estimator).__name__, estimator.elbo_ / fit.weight
        choice, solution, rest = np.diff([*laps, time.perf_counter()])
        took = f"{choice:.3g} s for the choice of kernel and sizes, {solution:.3g} s for the solution, {rest:.3g} s for"
        print(f"[{title}] ELBO per row {elbo:.4f}: {estimator.plan_} It took {took} the rest.")
    if estimator.callback is not None:
        estimator.callback(estimator.n_iter_, copy.copy(estimator))
    hooks.end(lambda: estimator)


# The progress display of ``verbose``: a bar where rich is installed, otherwise a line now and then.

# Chunks of iterations for each line, with verbose=1.
_CALLS_PER_LINE = 5


@contextlib.contextmanager
def show(title, verbose, max_iter, weight):
    """Context manager: the callback that shows progress, or None if nothing is shown.

    Parameters
    ----------
    title : str
        Start of each line.
    verbose : int
        0 shows nothing, 1 a bar or a line now and then, 2 a line at every call.
    max_iter : int
        Number of iterations at which the bar is full.
    weight : float
        Sum of the rows' weights; the ELBO is shown per unit of weight.
    """
    if not verbose:
        yield None
        return
    bar, speed = _bar() if verbose == 1 else None, _Speed(max_iter)

    def summary(monitor):
        report = monitor.report
        bound = report.elbo[-STEPS_PER_CALL:].mean() / weight
        return f"ELBO per row {bound:.4f}, gamma {report.gamma[-1]:.3g}{speed(monitor)}"

    def line(monitor, state):
        n_iter, text = monitor.n_iter, summary(monitor)
        if verbose > 1 or n_iter % (_CALLS_PER_LINE * STEPS_PER_CALL) == 0 or n_iter >= max_iter:
            print(f"[{title}] iteration {n_iter}: {text}")

    if bar is None:
        yield line
        return
    with bar:
        task = bar.add_task(title, total=max_iter, summary="")
        yield lambda monitor, state: bar.update(task, completed=monitor.n_iter, summary=summary(monitor))


class _Speed:
    """Says how many rows a second are learned from since the first call, and how long the rest takes at most."""

    def __init__(self, max_iter):
        self._max_iter, self._first = max_iter, None

    def __call__(self, monitor):
        batches = monitor.batches
        now = time.perf_counter(), monitor.n_iter, batches.reader.waited
        if batches.full or self._first is None or now[1] <= self._first[1]:
            # The first iterations were compiled.
            self._first = now
            return ""
        seconds, n_iter, waited = (at - first for at, first in zip(now, self._first, strict=True))
        left = (self._max_iter - now[1]) * seconds / n_iter
        text = f", {n_iter * batches.size / seconds:.3g} rows a second, at most {left:.0f} s left"
        return text + (f", {waited / seconds:.1%} of the time waiting for rows" if now[2] else "")


def _bar():
    """A progress bar of rich, or None."""
    try:
        from rich import progress
    except ImportError:
        return None
    return progress.Progress(
        progress.TextColumn("{task.description}"),
        progress.BarColumn(),
        progress.MofNCompleteColumn(),
        progress.TextColumn("{task.fields[summary]}"),
        progress.TimeRemainingColumn(),
    )


# scikit-learn's callbacks, which it has since version 1.9: one task for each chunk of iterations.

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
