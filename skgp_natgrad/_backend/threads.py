"""Threads: independent parts of a computation in parallel, and one thread for BLAS while others need the cores.

XLA calls SciPy's BLAS for factorisations and triangular solves, and uses its own threads for everything else. NumPy's
and SciPy's wheels each contain a BLAS. The threads of OpenBLAS keep spinning for some ten milliseconds after each call,
on cores that XLA or the other BLAS then needs.
"""

from __future__ import annotations

import contextlib
import contextvars
import functools
import os
import queue
import threading
from concurrent import futures
from pathlib import Path

import joblib
import scipy
import scipy.linalg.cython_blas
import threadpoolctl

from . import device


def for_each(function, items):
    """Return ``[function(item) for item in items]``, computed in threads, one for each core.

    Each thread computes in the scope of `device.computation` that the caller is in, with BLAS on one
    thread: the results are the same bits with one core and with many. Within an outer loop of
    joblib's over cores there is one thread.
    """
    items = list(items)
    # To count the cores takes as long as to find the neighbours of a row.
    n_threads = min(len(items), device.n_cores()) if len(items) > 1 else 1
    with single_threaded(0):
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


# Matrices with more rows are worth several threads, even if these spin; and what `in_place` saves.
LARGEST_OF_ONE_THREAD = 1024


@functools.cache
def _libraries(of_scipy):
    """The BLAS libraries of this process that SciPy has for itself, or the others."""
    found = threadpoolctl.ThreadpoolController().select(user_api="blas")
    paths = [one["filepath"] for one in found.info()]
    # Wheels hold them in ``scipy.libs`` or ``scipy/.dylibs``; elsewhere both call one library.
    own = Path(scipy.__file__).resolve().parent
    folders = f"{own}{os.sep}", f"{own}.libs{os.sep}"
    return found.select(filepath=[path for path in paths if path.startswith(folders) == of_scipy])


class _Holds:
    """Keeps libraries at one thread as long as any caller in the process holds them.

    One dedicated thread sets and restores the numbers of threads. Callers may enter and leave in any order, but
    threadpoolctl lets only the thread that has set a number change it, as long as this thread is alive.
    """

    def __init__(self):
        self._lock, self._holders = threading.Lock(), {}
        self._keeper, self._requests = None, None

    @contextlib.contextmanager
    def of(self, *groups):
        """Context manager: SciPy's own libraries (True), the others (False) have one thread."""
        holder = object()
        try:
            self._holders[holder] = groups
            self._tell()
            yield
        finally:
            self._holders.pop(holder, None)
            self._tell()

    def _tell(self):
        """Return once each library has the number of threads that all holders together want.

        What they want is told as a whole: if an interrupt prevents it, the next call makes up for it.
        """
        with self._lock:
            wanted = {of_scipy for groups in list(self._holders.values()) for of_scipy in groups}
            # A forked process has no threads.
            if self._keeper is None or not self._keeper.is_alive():
                if not wanted:
                    return
                self._requests = queue.SimpleQueue()
                self._keeper = threading.Thread(target=_keep, args=(self._requests,), daemon=True)
                self._keeper.start()
            keeper, answer = self._keeper, futures.Future()
            self._keeper = keeper if wanted else None
            self._requests.put((wanted, answer))
            answer.result()
            if not wanted:
                # While it lives no other thread can set a number.
                keeper.join()


def _keep(requests):
    """Set and restore the numbers of threads of groups as requested, until none is wanted."""
    before, wanted = {}, {True, False}
    while wanted:
        wanted, answer = requests.get()
        try:
            for of_scipy in wanted - set(before):
                libraries = _libraries(of_scipy).lib_controllers
                before[of_scipy] = libraries, [each.num_threads for each in libraries]
                _set(libraries, [1] * len(libraries))
            for of_scipy in set(before) - wanted:
                _set(*before.pop(of_scipy))
        except BaseException as error:
            answer.set_exception(error)
        else:
            answer.set_result(None)


def _set(libraries, numbers):
    for library, n in zip(libraries, numbers, strict=True):
        library.set_num_threads(n)


_holds = _Holds()


@contextlib.contextmanager
def single_threaded(n_rows):
    """Context manager: BLAS has one thread, unless matrices of ``n_rows`` rows are worth several threads.

    The number of threads applies to the whole process; if several threads are inside the context,
    it is restored when the last one leaves.
    """
    with contextlib.nullcontext() if n_rows > LARGEST_OF_ONE_THREAD else _holds.of(True, False):
        yield


def scipy_single_threaded():
    """Context manager: SciPy's BLAS has one thread, where NumPy has another BLAS, whose number of threads stays.

    For searches by SciPy whose loss is one of products by NumPy: sums of vectors need no threads.
    """
    return _holds.of(True)
