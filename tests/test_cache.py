"""Compiled programs on disk: a second process compiles nothing."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import skgp_natgrad
from skgp_natgrad.tools import cache

FIT = """
import json, sys
import jax, joblib, numpy as np
import skgp_natgrad

jax.jit(lambda x: x + 1)(1.0)  # JAX runs before the call, with a cache in another folder
counts = {"hits": 0, "misses": 0}

def count(event, **_):
    name = event.rpartition("cache_")[2]
    if name in counts:
        counts[name] += 1

jax.monitoring.register_event_listener(count)
skgp_natgrad.enable_compilation_cache(sys.argv[1])
X = np.linspace(0, 5, 40)[:, None]
model = skgp_natgrad.NGDSVGPRegressor(n_inducing=5, max_iter=20, random_state=0).fit(X, np.sin(X[:, 0]))
model.predict(X, return_std=True)
print(json.dumps(counts))
worker, = joblib.Parallel(n_jobs=2)([joblib.delayed(lambda: __import__("jax").config.jax_compilation_cache_dir)()])
assert worker == sys.argv[1], worker
"""


@pytest.mark.slow
def test_a_second_process_compiles_nothing(tmp_path):
    """The programs are there whatever JAX's own variables say, and nowhere else."""
    other, folder = tmp_path / "other", tmp_path / "new" / "cache"
    environment = {name: value for name, value in os.environ.items() if not name.startswith("JAX_")}
    environment |= {"JAX_COMPILATION_CACHE_DIR": str(other), "JAX_PLATFORMS": "cpu"}
    environment["PYTHONPATH"] = str(Path(skgp_natgrad.__file__).parents[1])

    def counts():
        command = [sys.executable, "-W", "ignore", "-c", FIT, folder]
        return subprocess.run(command, check=True, env=environment, cwd=tmp_path, capture_output=True, text=True).stdout

    first, second = (dict(re.findall(r'"(hits|misses)": (\d+)', counts())) for _ in range(2))
    # A program may be asked for twice in a process.
    assert int(first["misses"]) > 5
    assert int(second["hits"]) == int(first["hits"]) + int(first["misses"])
    assert second["misses"] == "0"
    kept = [path.name for path in folder.iterdir()]
    for program in ("_chunk", "_of_rows"):
        assert any(name.startswith(f"jit_{program}-") for name in kept)
    assert not [path for path in other.glob("*") if path.name.startswith("jit__chunk")]


def test_the_default_folder_is_that_of_the_users_caches(monkeypatch, tmp_path):
    monkeypatch.setenv("HOME", str(tmp_path))
    for value in ("", "relative"):
        monkeypatch.setenv("XDG_CACHE_HOME", value)
        assert cache._writable(cache._default_folder()) == tmp_path / ".cache" / "skgp_natgrad"
    monkeypatch.delenv("XDG_CACHE_HOME")
    assert cache._writable(cache._default_folder()) == tmp_path / ".cache" / "skgp_natgrad"
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "x"))
    folder = cache._writable(cache._default_folder())
    assert folder == tmp_path / "x" / "skgp_natgrad"
    if os.name == "posix":
        assert folder.stat().st_mode & 0o077 == 0


def test_a_folder_that_cannot_be_written_to_is_refused(tmp_path):
    import jax

    before = dict(jax.config.values)
    (tmp_path / "file").touch()
    for path in (tmp_path / "file", tmp_path / "file" / "below", "/dev/null/x"):
        with pytest.raises(ValueError, match=rf"path='{re.escape(str(path))}'.*name a folder that can be written to"):
            skgp_natgrad.enable_compilation_cache(path)
    for path in (3, "", b""):
        with pytest.raises(ValueError, match=rf"path={re.escape(repr(path))} must be the path of a folder, or None"):
            skgp_natgrad.enable_compilation_cache(path)
    assert dict(jax.config.values) == before
