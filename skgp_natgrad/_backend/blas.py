"""Limits BLAS to one thread while other threads need the cores.

XLA calls SciPy's BLAS for factorisations and triangular solves, and uses its own
threads for everything else. NumPy's and SciPy's wheels each contain a BLAS. The threads of OpenBLAS keep spinning for
some ten milliseconds after each call, on cores that XLA or the other BLAS then needs.
"""

from __future__ import annotations

import contextlib
import functools
import os
import queue
import threading
from concurrent import futures
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
