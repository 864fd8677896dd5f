"""Compiled programs, kept on disk for later processes."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

import jax
from jax.experimental.compilation_cache import compilation_cache


def enable_compilation_cache(path: str | os.PathLike[str] | None = None) -> Path:
    """Keep compiled programs in a folder, where later processes find them.

    The first fit of each structure compiles for some seconds. With this call at
    the top of a program, that happens once per machine and not once per process.

    Parameters
    ----------
    path : str or path-like, default=None
        The folder, which is created if it does not exist. None is
        ``skgp_natgrad`` in the user's cache folder: that of the variable
        ``XDG_CACHE_HOME``, or ``~/.cache``.

    Returns
    -------
    path : pathlib.Path
        The folder. Its contents may be deleted at any time.

    Raises
    ------
    ValueError
        If nothing can be written there.

    Notes
    -----
    This sets JAX's own cache, ``jax_compilation_cache_dir`` and the limits below
    which nothing is kept, for the whole process: programs of other packages are kept as well.
    It also sets the corresponding environment variables, so that the workers of ``n_jobs``
    share the folder. That is why it is not done at import.

    JAX runs the programs that it finds in the folder: use a folder that others cannot write
    to. The folder's size is not limited unless ``jax_compilation_cache_max_size`` is set.

    Examples
    --------
    >>> import tempfile
    >>> import skgp_natgrad
    >>> folder = skgp_natgrad.enable_compilation_cache(tempfile.mkdtemp())
    >>> folder.is_dir()
    True
    """
    folder = _writable(_default_folder() if path is None else path)
    # JAX opens its cache once: a cache that is already open would stay in use.
    compilation_cache.reset_cache()
    jax.config.update("jax_enable_compilation_cache", True)
    jax.config.update("jax_compilation_cache_dir", str(folder))
    # By default JAX keeps only programs that took a second or more to compile; few of ours do.
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.0)
    jax.config.update("jax_persistent_cache_min_entry_size_bytes", -1)
    # For child processes, such as joblib's workers.
    os.environ["JAX_COMPILATION_CACHE_DIR"] = str(folder)
    os.environ["JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS"] = "0"
    os.environ["JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES"] = "-1"
    return folder


def _default_folder():
    # By the XDG specification an empty or relative value is ignored.
    caches = Path(os.environ.get("XDG_CACHE_HOME", ""))
    return (caches if caches.is_absolute() else Path("~/.cache")) / "skgp_natgrad"


def _writable(path):
    """The folder ``path``, made where it is missing, once a file could be written there."""
    if not isinstance(path, (str, os.PathLike)) or not os.fspath(path):
        raise ValueError(f"path={path!r} must be the path of a folder, or None for the folder of the user's caches.")
    try:
        folder = Path(os.fsdecode(path)).expanduser().absolute()
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            return folder
    except (OSError, RuntimeError) as error:
        raise ValueError(
            f"path={str(path)!r}: compiled programs cannot be stored there ({error}); "
            "name a folder that can be written to."
        ) from error
