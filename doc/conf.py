"""Configuration of the documentation."""

from __future__ import annotations

import os
import sys
from pathlib import Path

os.environ.setdefault("MPLBACKEND", "Agg")
sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import skgp_natgrad

project = "skgp_natgrad"
author = "the skgp_natgrad developers"
copyright = "2026, the skgp_natgrad developers"
release = version = skgp_natgrad.__version__

extensions = [
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
    "sphinx.ext.doctest",
    "sphinx.ext.mathjax",
    "numpydoc",
    "sphinx_gallery.gen_gallery",
]
exclude_patterns = ["_build", "auto_examples/*.rst.new"]
html_theme = "alabaster"
autosummary_generate = True
numpydoc_show_class_members = False
sphinx_gallery_conf = {
    "examples_dirs": "../examples",
    "gallery_dirs": "auto_examples",
    "filename_pattern": r"plot_",
    "ignore_pattern": r"^(_|natural_gradients_|orthogonal_)",
    "download_all_examples": False,
}
# The inherited docstrings of score() refer to pages of scikit-learn's own guide.
suppress_warnings = ["config.cache", "ref.ref"]
