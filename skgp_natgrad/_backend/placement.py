"""The placement of arrays: on one device, or rows divided over several devices and everything else on each of them.

Training is data-parallel. Rows are divided over the devices of a mesh with one axis; parameters, q and every other
array are on all devices. XLA then computes whitened rows on the devices that hold the rows, and adds sums over rows
(gradients, Gram matrices) over the devices (Xu et al. 2021, "GSPMD"). The code is the same as for one device.

What runs where in a fit in one step: the search for kernels and hyperparameters, which reads some thousand rows, and
the distribution of errors are the host's on every machine (`Placement.is_host`), and so are the search for neighbours,
for the noise and factorisations of the inducing points. All else that grows with the table is XLA's on the device: sums
over rows, the exact process, predictions from neighbours and from points, and the means of labels. On one CPU BLAS and
LAPACK do it faster (`on_one_cpu`); `SWITCH` in the environment shows the device's way there.
"""

from __future__ import annotations

import contextlib
import contextvars
import os

import jax
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

_AXIS = "rows"
# With 1 in this variable of the environment a CPU computes in the way of other devices, by XLA alone.
SWITCH = "SKGP_NATGRAD_XLA"


class Placement:
    """The devices that a computation uses; with one device nothing is different from JAX's own ways.

    Parameters
    ----------
    devices : sequence of jax.Device, default=()
        Two or more share the rows; with fewer arrays go where JAX puts them.
    is_host : bool, default=False
        Whether the computation is the host's on every machine.
    """

    def __init__(self, devices=(), is_host=False):
        self.mesh = Mesh(np.array(devices), (_AXIS,)) if len(devices) > 1 else None
        self.is_host = is_host

    @property
    def n_devices(self):
        """Number of this process's devices that share its rows."""
        return 1 if self.mesh is None else self.mesh.size // self.n_processes

    @property
    def n_processes(self):
        """Number of processes, each with rows of its own, which share everything else."""
        return 1 if self.mesh is None else len({device.process_index for device in self.mesh.devices.flat})

    def rounded_up(self, n_rows):
        """The least multiple of the number of devices that is at least ``n_rows``."""
        return -(-n_rows // self.n_devices) * self.n_devices

    def block_size(self, n_rows, size):
        """Number of rows of a block: ``size`` for each device, or in all where there are no more."""
        return self.rounded_up(size if n_rows <= size else size * self.n_devices)

    def replicated(self, tree, now=False):
        """A tree of arrays on every device; with one device as it is, for JAX to send with a call, or sent ``now``."""
        if self.mesh is None:
            return jax.device_put(tree) if now else tree
        return jax.tree.map(lambda x: self._sent(x, self._sharding()), tree)

    def rows(self, tree, axes, now=False):
        """A tree of arrays divided over the devices by rows; with one device as in `replicated`.

        Parameters
        ----------
        tree : tree of arrays
            Their numbers of rows are multiples of `n_devices`, and the same in all processes.
        axes : tree of int or None
            The axis of the rows, counted from the last (-1), of each array; None for arrays without rows.
        now : bool, default=False

        Returns
        -------
        tree : tree of arrays
        """
        if self.mesh is None:
            return jax.device_put(tree) if now else tree
        return jax.tree.map(lambda axis, x: self._sent(x, self._sharding(axis, x)), axes, tree, is_leaf=_is_none)

    def _sent(self, x, sharding):
        if x is None or self.n_processes == 1:
            return jax.device_put(x, sharding)
        # Of what is divided each process has its part, in its order; of all else it has the whole.
        return jax.make_array_from_process_local_data(sharding, np.asarray(x))

    def _sharding(self, axis=None, array=None):
        if axis is None or array is None:
            return NamedSharding(self.mesh, PartitionSpec())
        dimensions = [None] * np.ndim(array)
        dimensions[axis] = _AXIS
        return NamedSharding(self.mesh, PartitionSpec(*dimensions))


def _is_none(x):
    return x is None


ONE_DEVICE = Placement()
_current = contextvars.ContextVar("placement", default=ONE_DEVICE)


def current():
    """The placement of the `device.computation` that this thread is in."""
    return _current.get()


def on_cpu():
    """Whether the arrays of this computation are a CPU's."""
    return _platform() == "cpu"


def _platform():
    device = jax.config.jax_default_device or jax.local_devices()[0]
    return getattr(device, "platform", device)


def on_each(mesh, function, axes, axes_found):
    """A function of arrays, of which each device has its own rows along these axes; None where all have the whole."""
    if mesh is None:
        return function

    def specification(axis):
        return PartitionSpec() if axis is None else PartitionSpec(*[None] * axis, _AXIS)

    own, found = (tuple(map(specification, each)) for each in (axes, axes_found))
    return jax.shard_map(function, mesh=mesh, in_specs=own, out_specs=found, check_vma=False)


def is_forced():
    """Whether `SWITCH` asks for the way of other devices."""
    return os.environ.get(SWITCH, "0") not in ("", "0")


def on_one_cpu():
    """Whether BLAS and LAPACK serve this computation: its arrays are in the memory of one CPU."""
    here = current()
    return here.mesh is None and on_cpu() and (here.is_host or not is_forced())


def described():
    """Where arrays are, as text: "cpu", "gpu", or on how many of these the rows are."""
    mesh = current().mesh
    if mesh is not None:
        return f"{mesh.size} devices, {mesh.devices.flat[0].platform}"
    return _platform() if on_one_cpu() or not on_cpu() else f"{_platform()}, by XLA"


def using(placement):
    """Context manager: `current` is ``placement``."""
    return during(_current, placement)


@contextlib.contextmanager
def during(variable, value):
    """Context manager: a `contextvars.ContextVar` has this value."""
    token = variable.set(value)
    try:
        yield value
    finally:
        variable.reset(token)


def fetched(tree):
    """The tree with arrays that are on several devices in NumPy: one device may go on with them."""
    return jax.tree.map(lambda x: np.asarray(x) if _is_spread(x) else x, tree)


def _is_spread(x):
    return isinstance(x, jax.Array) and len(x.sharding.device_set) > 1
