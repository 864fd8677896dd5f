"""BLAS with one thread while XLA trains on the CPU.

XLA calls SciPy's BLAS for factorisations and triangular solves, and has threads of
its own for all else. The threads of OpenBLAS spin for some milliseconds after each
call, on the cores that XLA's then want.
"""

from __future__ import annotations

import contextlib
import functools
import threading

import scipy.linalg.cython_blas  # noqa: F401 (loads the BLAS that XLA calls)
import threadpoolctl

# Matrices of more rows are worth several threads, however long these spin.
_LARGEST = 1024


class _Hold:
    """Keeps BLAS at one thread as long as anybody in the process asks for it.

    What the first asks is done by a thread of its own, and undone by the same: those
    who ask may come and go in any order, and threadpoolctl lets only the thread that
    has set a number, while it lives, set another.
    """

    def __init__(self):
        self._lock, self._n_holders = threading.Lock(), 0
        self._thread, self._released = None, None

    def acquire(self):
        """Return when BLAS has one thread."""
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
        """Return when BLAS has its own number again, if nobody else holds it."""
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
    """Context manager: BLAS has one thread, if the matrices of so many rows that it is called for gain nothing by more.

    The number is that of the process; where several threads are within, it is given
    back with the last.
    """
    if n_rows > _LARGEST:
        yield
        return
    _hold.acquire()
    try:
        yield
    finally:
        _hold.release()
