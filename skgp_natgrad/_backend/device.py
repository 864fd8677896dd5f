"""The context in which the package computes: 64-bit numbers on the chosen device.

Nothing at import starts JAX's backend, and no setting of JAX outlives a call.
"""

from __future__ import annotations

import contextlib
import contextvars
import functools
import multiprocessing
import os

import jax
import joblib
import numpy as np

from . import placement, processes, programs

# The CPU, if JAX was not told to leave it out.
HOST = "host"
DTYPES = ("float64", "float32")
# The settings of JAX under which the package is written. All but the first two are JAX's defaults: a host program that
# has others, to find mistakes of its own, gets the same bits. Steps that give no number are undone by the package.
_SETTINGS = {
    "enable_x64": True,
    # By default GPUs keep only ten bits of single precision in products.
    "default_matmul_precision": "float32",
    "numpy_rank_promotion": "allow",
    "numpy_dtype_promotion": "standard",
    "transfer_guard": "allow",
    "disable_jit": False,
    "debug_nans": False,
    "debug_infs": False,
    "check_tracer_leaks": False,
}

# How the `computation` that this thread is in was entered.
_OUTSIDE = contextlib.nullcontext
_scope = contextvars.ContextVar("scope", default=_OUTSIDE)


@contextlib.contextmanager
def computation(device="auto", n_devices=None, required=True, in_fork=False):
    """Context manager: 64-bit JAX on ``device``, for this thread alone; it yields the `Placement` of arrays.

    With ``required=False`` devices that are not there mean those that are: a
    model fitted on a GPU predicts on a machine without one. With ``in_fork=True`` NumPy alone is to
    compute, and a forked process may.

    Parameters
    ----------
    device : str
    n_devices : int, "all" or None
        Devices that share the rows; None is JAX's way, one device.

    Raises
    ------
    RuntimeError
        If ``device="gpu"`` and JAX sees none, or if this process was forked from one that has computed.
    ValueError
        If there are fewer devices than ``n_devices``.
    """
    with contextlib.ExitStack() as stack:
        for setting, value in _SETTINGS.items():
            stack.enter_context(getattr(jax, setting)(value))
        if not in_fork:
            refuse_forked()
            if _scope.get() is _OUTSIDE:
                programs.drop_if_many()
        if not in_fork or device != "auto":
            _watch_forks()
        _start_backend()
        if device != "auto":
            stack.enter_context(_on(_devices(device, required)))
        several = () if n_devices is None or in_fork else _several(device, n_devices, required)
        again = functools.partial(computation, device, n_devices, required, in_fork)
        stack.enter_context(placement.during(_scope, again))
        yield stack.enter_context(placement.using(placement.Placement(several, device == HOST)))


def _on(found):
    """Context manager: arrays are on the first of these devices; nothing where they would be, as by "auto"."""
    at = jax.config.jax_default_device or jax.local_devices()[0]
    # To JAX's cache of programs another context is another program.
    is_default = found is None or getattr(at, "platform", at) == found[0].platform
    return contextlib.nullcontext() if is_default else jax.default_device(found[0])


def _devices(device, required):
    """This process's devices of a kind; None where there are none and none is required."""
    try:
        return jax.local_devices(backend={"auto": None, HOST: "cpu"}.get(device, device))
    except RuntimeError as error:
        if not required or device == HOST:
            return None
        present = ", ".join(sorted({d.platform for d in jax.devices()}))
        raise RuntimeError(
            f'device={device!r}: JAX has no such device here (it has {present}). Use device="auto", or '
            'install JAX for it: pip install "jax[cuda]".'
        ) from error


def _several(device, n_devices, required):
    """The devices that share the rows."""
    found = _devices(device, required) or jax.local_devices()
    if required and processes.sharing(n_devices) > 1:
        processes.begin()
        return _of_all_processes(found[0].platform)
    n_wanted = len(found) if n_devices == "all" else n_devices
    if required and n_wanted > len(found):
        more = f" (a CPU counts as several with XLA_FLAGS=--xla_force_host_platform_device_count={n_wanted})"
        raise ValueError(
            f"n_devices={n_devices!r}, but JAX has {len(found)} of this kind here: {', '.join(map(str, found))}. Lower "
            f'it, or use n_devices="all"{more if found[0].platform == "cpu" else ""}.'
        )
    return found[:n_wanted]


def current_scope():
    """A function that returns the context manager of the present `computation`, for another thread to enter."""
    return _scope.get()


def _of_all_processes(platform):
    """The devices of all processes, the same number of each."""
    found = jax.devices(platform)
    counts = np.bincount([each.process_index for each in found], minlength=processes.count())
    if counts.min() < counts.max():
        raise ValueError(
            f'n_devices="all": the processes have {counts.tolist()} devices of this kind, and must have as many each; '
            "local_device_ids of jax.distributed.initialize chooses those of a process."
        )
    return found


# XLA's newer code generator for the CPU takes up to twice as long to compile; its programs compute exponentials
# in a quarter of the time.
_QUICK = {"xla_cpu_use_fusion_emitters": False}
# Without LLVM's optimisation a program compiles in a third of the time, and its loops run many times as long. Products
# and factorisations are calls of libraries: few of the small programs' seconds are their own.
_ONCE = {"xla_backend_optimization_level": 0} | _QUICK
# Numbers in all arguments of such a program, at most.
_FEW_NUMBERS = 1_000_000
# Most rows of whose covariances a program is not worth optimising, if it runs some fifty times, or once; and most that
# are not worth all of it.
_FEW_ROWS, FEW_ROWS_OF_ONCE, _SOME_ROWS = 256, 1024, 512
# Where the CPU has vectors of 512 bits, XLA takes half of them by default, and exponentials and roots twice the time.
# Elsewhere the same instructions are made with and without it. Sums in programs of training have another order by it.
_WIDE = {"xla_cpu_prefer_vector_width": 512}


def quick_jit(function, **options):
    """``jax.jit`` for programs that run for a short time in all: compiled sooner, and slower.

    What it returns is not for use within another compiled function.
    """
    return _one_of((_QUICK,), lambda *arguments: 0, function, options)


def wide_jit(function, **options):
    """``jax.jit`` for programs that compute many covariances: faster where the CPU has wide vectors.

    What it returns is not for use within another compiled function.
    """
    return _one_of((_WIDE,), lambda *arguments: 0, function, options)


def once_jit(function, **options):
    """``jax.jit`` for programs that run once or a few times in a fit: compiled soonest, if their arguments are small.

    What it returns is not for use within another compiled function.
    """

    def is_large(*arguments):
        return sum(np.size(leaf) for leaf in jax.tree.leaves(arguments)) > _FEW_NUMBERS

    return _one_of((_ONCE, _QUICK), is_large, function, options)


def sized_jit(function, few_rows=_FEW_ROWS):
    """``jax.jit`` for a function of a tree and matrices: of few rows compiled soonest, of many it runs fast.

    ``few_rows`` is for programs that run some fifty times in a fit; for one that runs a few times see
    `FEW_ROWS_OF_ONCE`.
    """

    def size(tree, X, *arguments):
        return 0 if len(X) <= few_rows else 1 if len(X) <= _SOME_ROWS else 2

    return _one_of((_ONCE, _QUICK, _WIDE), size, function, {})


def _one_of(kinds, choose, function, options):
    """What `jax.jit` returns with the compiler's options of the kind at the position that its arguments ``choose``."""

    @functools.cache
    def compiled(kind):
        # When it is called: to ask for the compiler's options starts JAX's backend.
        return jax.jit(function, compiler_options=_supported(*kinds[kind].items()), **options)

    @functools.wraps(function)
    def call(*arguments):
        return compiled(choose(*arguments))(*arguments)

    # As of what `jax.jit` returns: what would be compiled, to be looked at.
    call.lower = lambda *arguments: compiled(choose(*arguments)).lower(*arguments)
    return call


@functools.cache
def _supported(*items):
    """Those of the compiler's options that this version of XLA has."""
    return dict(filter(_is_supported, items)) or None


@functools.cache
def _is_supported(item):
    try:
        jax.jit(lambda: 0, compiler_options=dict([item]))()
    except jax.errors.JaxRuntimeError:
        return False
    return True


_forked = False


def _after_fork():
    global _forked
    _forked = True


def refuse_forked():
    """JAX's threads do not exist in a forked child, where a computation would wait for them forever."""
    if _forked:
        raise RuntimeError(
            "This process was forked from one in which skgp_natgrad had already computed, and JAX cannot compute in "
            "such a child. Start it by another method, such as multiprocessing.get_context('spawn') or joblib, or fork "
            "before the first fit."
        )


@functools.cache
def _watch_forks():
    """From now on, as JAX's backend starts, children are told that they were forked; once a process."""
    if hasattr(os, "register_at_fork"):
        os.register_at_fork(after_in_child=_after_fork)


@functools.cache
def _start_backend():
    """Start JAX's backend, once per process; in a worker of joblib or Dask with the threads that it may use.

    With ``n_jobs`` joblib gives each of its worker processes a share of the cores, in
    OMP_NUM_THREADS and its like; Dask gives a core to each thread of its workers. XLA
    reads none of these: its pools are as wide as the CPUs that the process may use, or
    as NPROC, which it reads when the backend starts. So NPROC is set to this share, and removed again, because
    processes that are started later would inherit it. If NPROC is set already, or the backend runs already, nothing
    changes.
    """
    share = _share_of_cores()
    if share is None:
        return
    _watch_forks()
    os.environ["NPROC"] = share
    try:
        jax.devices()
    finally:
        os.environ.pop("NPROC", None)


def n_cores():
    """The cores that this thread may use: one within a loop of joblib's over threads."""
    share = _share_of_cores()
    if share is not None:
        return int(share)
    backend, _ = joblib.parallel.get_active_backend()
    return 1 if backend.nesting_level else joblib.cpu_count()


def _share_of_cores():
    """The threads that joblib or Dask allows this process, as text; None where it is none of their workers."""
    process = multiprocessing.current_process()
    in_worker = "loky" in type(process).__module__ or process.name.startswith("Dask Worker")
    share = os.environ.get("OMP_NUM_THREADS", "")
    return share if in_worker and "NPROC" not in os.environ and share.isdigit() else None
