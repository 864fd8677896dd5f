"""The progress display of ``verbose``: a bar where rich is installed, otherwise a line now and then."""

from __future__ import annotations

import contextlib
import time

from ...svgp import STEPS_PER_CALL

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
        return _summary(monitor, weight) + speed(monitor)

    if bar is None:
        yield lambda monitor, state: _print_line(title, verbose, max_iter, monitor, summary)
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


def _summary(monitor, weight):
    report = monitor.report
    return f"ELBO per row {report.elbo[-STEPS_PER_CALL:].mean() / weight:.4f}, gamma {report.gamma[-1]:.3g}"


def _print_line(title, verbose, max_iter, monitor, summary):
    n_iter, text = monitor.n_iter, summary(monitor)
    if verbose > 1 or n_iter % (_CALLS_PER_LINE * STEPS_PER_CALL) == 0 or n_iter >= max_iter:
        print(f"[{title}] iteration {n_iter}: {text}")
