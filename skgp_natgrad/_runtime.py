"""The scope in which the package computes: 64-bit numbers on the chosen device.

Nothing at import starts JAX's backend, and no setting of JAX outlives a call.
"""

from __future__ import annotations

import contextlib

import jax

DEVICES = ("auto", "cpu", "gpu")
DTYPES = ("float64",)


@contextlib.contextmanager
def computation(device="auto"):
    """Context manager: 64-bit JAX on ``device``, for this thread alone.

    Raises
    ------
    RuntimeError
        If ``device="gpu"`` and JAX sees none.
    """
    with jax.enable_x64(True):
        if device == "auto":
            yield
            return
        try:
            found = jax.devices(device)[0]
        except RuntimeError as error:
            raise RuntimeError(
                f"device={device!r}: JAX has no such device here (it has "
                f'{", ".join(sorted({d.platform for d in jax.devices()}))}). Use device="auto", or install '
                "the GPU extra: pip install skgp_natgrad[gpu]."
            ) from error
        with jax.default_device(found):
            yield
