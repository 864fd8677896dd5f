"""The scope in which the package computes: 64-bit numbers on the chosen device.

Nothing at import starts JAX's backend, and no setting of JAX outlives a call.
"""

from __future__ import annotations

import contextlib

import jax

DEVICES = ("auto", "cpu", "gpu")
DTYPES = ("float64",)


@contextlib.contextmanager
def computation(device="auto", required=True):
    """Context manager: 64-bit JAX on ``device``, for this thread alone.

    With ``required=False`` a device that is not there means JAX's default: a
    model fitted on a GPU predicts on a machine without one.

    Raises
    ------
    RuntimeError
        If ``device="gpu"`` and JAX sees none.
    """
    with jax.enable_x64(True):
        try:
            found = None if device == "auto" else jax.devices(device)[0]
        except RuntimeError as error:
            found = None
            if required:
                present = ", ".join(sorted({d.platform for d in jax.devices()}))
                raise RuntimeError(
                    f'device={device!r}: JAX has no such device here (it has {present}). Use device="auto", or '
                    "install the GPU extra: pip install skgp_natgrad[gpu]."
                ) from error
        with contextlib.nullcontext() if found is None else jax.default_device(found):
            yield
