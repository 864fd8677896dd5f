"""BLAS with one thread while the threads of others need its cores.

XLA calls SciPy's BLAS for factorisations and triangular solves, and uses its own
threads for everything else. NumPy's wheels hold another BLAS than SciPy's. The threads of OpenBLAS keep
spinning for some ten milliseconds after each call, on the cores that those of XLA or of the other BLAS then need.
"""

from __future__ import annotations

import contextlib
import functools
import queue
import threading
from pathlib import Path

import scipy
import scipy.linalg.cython_blas
import threadpoolctl

# Matrices with more rows are worth several threads, even if these spin; and what `in_place` saves.
LARGEST_OF_ONE_THREAD = 1024


@functools.cache
def _libraries(of_scipy):
    """The BLAS libraries of this process that SciPy has for itself, or the others."""
    found = threadpoolctl.ThreadpoolController().select(user_api="blas")
    paths = [one["filepath"] for one in found.info()]
    # Wheels hold them in ``scipy.libs`` or ``scipy/.dylibs``; elsewhere both call one library.
    own = str(Path(scipy.__file__).parent)
    return found.select(filepath=[path for path in paths if path.startswith(own) == of_scipy])


class _Holds:
    """Keeps libraries at one thread as long as any caller in the process holds them.

    A thread of its own sets the numbers of threads, and the same thread restores them:
    callers may come and go in any order, and threadpoolctl lets only the thread that
    has set a number, while it is alive, set another one.
    """

    def __init__(self):
        self._lock, self._n_holders = threading.Lock(), {True: 0, False: 0}
        self._keeper, self._requests = None, None

    @contextlib.contextmanager
    def of(self, *groups):
        """Context manager: SciPy's own libraries (True), the others (False) have one thread."""
        groups = [(of_scipy, _libraries(of_scipy)) for of_scipy in groups]
        self._add(groups, 1)
        try:
            yield
        finally:
            self._add(groups, -1)

    def _add(self, groups, change):
        """Return once each library has the number of threads that its holders want."""
        with self._lock:
            try:
                self._count(groups, change).wait()
            except BaseException:
                if change > 0:
                    self._count(groups, -change)
                raise

    def _count(self, groups, change):
        """Ask the keeper for what the holders want now; returns the event of its answer."""
        # A forked process has no threads.
        if self._keeper is None or not self._keeper.is_alive():
            self._n_holders, self._requests = {True: 0, False: 0}, queue.SimpleQueue()
            self._keeper = threading.Thread(target=_keep, args=(self._requests,), daemon=True)
            self._keeper.start()
        for of_scipy, _ in groups:
            self._n_holders[of_scipy] += change
        done, is_last = threading.Event(), not any(self._n_holders.values())
        self._keeper = None if is_last else self._keeper
        self._requests.put(([(each, self._n_holders[each[0]] > 0) for each in groups], done, is_last))
        return done


def _keep(requests):
    """Hold and release groups of libraries as requested, until the last one is released."""
    held, is_last = {}, False
    while not is_last:
        wanted, done, is_last = requests.get()
        try:
            for (of_scipy, libraries), is_wanted in wanted:
                if is_wanted and of_scipy not in held:
                    held[of_scipy] = libraries.limit(limits=1)
                elif not is_wanted and of_scipy in held:
                    held.pop(of_scipy).restore_original_limits()
        finally:
            done.set()


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
