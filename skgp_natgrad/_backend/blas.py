"""BLAS with one thread while XLA trains on the CPU.

XLA calls SciPy's BLAS for factorisations and triangular solves, and uses its own
threads for everything else. The threads of OpenBLAS keep spinning for some
milliseconds after each call, on the cores that XLA's threads then need.
"""

from __future__ import annotations

import contextlib
import functools
import threading

import scipy.linalg.cython_blas  # noqa: F401 (loads the BLAS that XLA calls)
import threadpoolctl

# Matrices with more rows are worth several threads, even if these spin; and what `in_place` saves.
LARGEST_OF_ONE_THREAD = 1024


class _Hold:
    """Keeps BLAS at one thread as long as any caller in the process holds it.

    A thread of its own sets the number of threads, and the same thread restores it:
    callers may come and go in any order, and threadpoolctl lets only the thread that
    has set a number, while it is alive, set another one.
    """

    def __init__(self):
        self._lock, self._n_holders = threading.Lock(), 0
        self._thread, self._released = None, None

    def acquire(self):
        """Return once BLAS has one thread."""
        with self._lock:
            if self._n_holders == 0:
                held, self._released = threading.Event(), threading.Event()
                self._thread = threading.Thread(target=_keep, args=(held, self._released), daemon=True)
                try:
                    self._thread.start()
                    held.wait()
                except BaseException:
                    self._released.set()
                    raise
            self._n_holders += 1

    def release(self):
        """Return once BLAS has its original number of threads, if no other caller holds it."""
        with self._lock:
            self._n_holders -= 1
            if self._n_holders == 0:
                self._released.set()
                self._thread.join()


def _keep(held, released):
    try:
        with _libraries().limit(limits=1):
            held.set()
            released.wait()
    finally:
        held.set()


@functools.cache
def _libraries():
    """The BLAS libraries of this process."""
    return threadpoolctl.ThreadpoolController().select(user_api="blas")


_hold = _Hold()


@contextlib.contextmanager
def single_threaded(n_rows):
    """Context manager: BLAS has one thread, unless matrices of ``n_rows`` rows are worth several threads.

    The number of threads applies to the whole process; if several threads are inside the context,
    it is restored when the last one leaves.
    """
    if n_rows > LARGEST_OF_ONE_THREAD:
        yield
        return
    _hold.acquire()
    try:
        yield
    finally:
        _hold.release()
