"""Communication between processes that fit one model together, each with its own part of the rows.

JAX connects them (``jax.distributed.initialize``). They share a fit only if it uses all devices. Other fits, such as
those of a search that divides its candidates over the processes, never wait for each other.
"""

from __future__ import annotations

import contextlib
import contextvars
import pickle

import jax
import numpy as np
from jax.experimental import multihost_utils

from .rows import filled_up


def count():
    """Number of processes that JAX has connected."""
    return jax.process_count() if jax.distributed.is_initialized() else 1


def index():
    """Number of this process; the first one, 0, writes files and shows progress."""
    return jax.process_index() if jax.distributed.is_initialized() else 0


def sharing(n_devices):
    """Number of processes that a fit on so many devices has in common."""
    return count() if isinstance(n_devices, str) and n_devices == "all" else 1


def is_first(n_devices):
    """Whether this process writes files and shows progress for a fit on so many devices."""
    return sharing(n_devices) == 1 or index() == 0


class Parted(RuntimeError):
    """Another process cannot go on with a common fit, or does not answer."""


def exchanged(value):
    """The values of all processes in their order, in each of them; every process must call it.

    Raises
    ------
    Parted
        If another process has met an error instead (see `telling`), or does not answer.
    """
    with explained(count()):
        found = _exchanged((value, None))
    for i, (_, error) in enumerate(found):
        if error is not None:
            raise Parted(f"Process {i} of {len(found)} failed, and all processes stop: {error}")
    return [value for value, _ in found]


def _exchanged(message):
    content = np.frombuffer(pickle.dumps(message), np.uint8)
    sizes = multihost_utils.process_allgather(np.array(len(content), np.int32))
    contents = multihost_utils.process_allgather(filled_up(content, int(sizes.max()), value=0))
    # Written by this program in another process a moment ago: no file, and nobody else's.
    return [pickle.loads(each[:size].tobytes()) for each, size in zip(contents, sizes, strict=True)]


# Whether the other processes wait for this one in `exchanged`.
_are_listening = contextvars.ContextVar("are_listening", default=False)


@contextlib.contextmanager
def telling(n_processes):
    """Context manager around the preparation of a common fit: an error in one process is told to all others.

    One process alone may have a row that is refused, and the others would wait for it.
    """
    token = _are_listening.set(n_processes > 1)
    try:
        yield
    except Parted:
        raise
    except Exception as error:
        if _are_listening.get():
            _exchanged((None, f"{type(error).__name__}: {error}"))
        raise
    finally:
        _are_listening.reset(token)


def begin():
    """Training begins: from now on the processes wait for each other in compiled programs."""
    _are_listening.set(False)


def of_first(value):
    """The value of the first process, in each of them."""
    return exchanged(value if index() == 0 else None)[0]


def tree_of_first(tree):
    """The tree with the arrays of the first process, in NumPy."""
    leaves, structure = jax.tree.flatten(tree)
    return structure.unflatten(of_first([np.asarray(leaf) for leaf in leaves]))


def agree(random_state):
    """Give a random state the content of the first process's; return it."""
    random_state.set_state(of_first(random_state.get_state(legacy=False)))
    return random_state


@contextlib.contextmanager
def explained(n_processes):
    """Context manager: a failure of the connection says what has happened, and what to do."""
    try:
        yield
    except (jax.errors.JaxRuntimeError, ValueError) as error:
        # Of a call that waits for the others JAX makes a ValueError.
        is_lost = isinstance(error, jax.errors.JaxRuntimeError) or "Gloo" in str(error)
        if n_processes == 1 or not is_lost or "RESOURCE_EXHAUSTED" in str(error):
            raise
        first_line = str(error).partition("\n")[0]
        raise Parted(
            f"Process {index()} of {n_processes} lost the connection to another process, which has ended or does not "
            f"answer ({first_line}); see that process's output for the reason. Training needs the rows of all "
            "processes. Start all of them again: a fit with checkpoint continues from its file."
        ) from error
