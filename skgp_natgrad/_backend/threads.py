"""Independent parts of a computation in parallel, each on one core."""

from __future__ import annotations

import contextvars
import functools

import joblib

from . import blas, device


def for_each(function, items):
    """Return ``[function(item) for item in items]``, computed in threads, one for each core.

    Each thread computes in the scope of `device.computation` that the caller is in, with BLAS on one
    thread: the results are the same bits with one core and with many. Within an outer loop of
    joblib's over cores there is one thread.
    """
    items = list(items)
    n_threads = min(len(items), device.n_cores())
    with blas.single_threaded(0):
        if n_threads < 2:
            return [function(item) for item in items]
        scope = device.current_scope()
        # A context can be entered by one thread at a time, and each thread needs that of the caller.
        calls = [(contextvars.copy_context(), functools.partial(_within, scope, function, item)) for item in items]
        parallel = joblib.Parallel(n_jobs=n_threads, backend="threading")
        outcomes = parallel(joblib.delayed(context.run)(call) for context, call in calls)
    # Not before all have ended: a process that exits while XLA compiles is aborted.
    for _, error in outcomes:
        if error is not None:
            raise error
    return [value for value, _ in outcomes]


def _within(scope, function, item):
    """The value, or the error."""
    with scope():
        try:
            return function(item), None
        except Exception as error:
            return None, error
