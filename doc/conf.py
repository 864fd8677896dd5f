"""Configuration of the documentation."""

from __future__ import annotations

import importlib.util
import logging
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

# Pages of the gallery that need a package: where it is absent, they are shown without having been run.
PACKAGES = {"plot_conformal_intervals": "mapie", "plot_shap_values": "shap"}
absent = [script for script, package in PACKAGES.items() if importlib.util.find_spec(package) is None]

extensions = [
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
    "sphinx.ext.doctest",
    "sphinx.ext.intersphinx",
    "sphinx.ext.mathjax",
    "sphinx-mathjax-offline",
    "numpydoc",
    "sphinx_gallery.gen_gallery",
]
exclude_patterns = ["_build", "_templates", "auto_examples/*.rst.new"]
templates_path = ["_templates"]
html_theme = "pydata_sphinx_theme"
html_title = "skgp_natgrad"
html_static_path = ["_static"]
html_css_files = ["pages.css"]
html_show_sourcelink = False
html_theme_options = {
    "header_links_before_dropdown": 5,
    "navigation_with_keys": False,
    "show_toc_level": 2,
    "show_prev_next": False,
    "footer_end": [],
}
# Pages without pages below them have nothing to list.
html_sidebars = {"*": [], "api": ["sidebar-nav-bs"]}
autosummary_generate = True
# Signatures name the parameters; their types are in the docstrings' own words.
autodoc_typehints = "none"
# Examples of docstrings, which carry no directive, are run with the tests.
doctest_test_doctest_blocks = ""
numpydoc_show_class_members = False
# The gallery is read from the first hour to the papers' ideas; what is not in this list comes last.
_READING_ORDER = [
    "quickstart",
    "large_table",
    "inducing_points",
    "tuning_by_density",
    "digits_probabilities",
    "known_noise",
    "varying_noise",
    "robust_regression",
    "counts_with_exposure",
    "proportions",
    "ordered_grades",
    "additive_kernels",
    "co2_forecast",
    "streaming",
    "bayesian_optimization",
    "serving_and_monitoring",
    "conformal_intervals",
    "shap_values",
    "scikit_learn_regression",
    "scikit_learn_classification",
    "natural_gradients",
    "mean_points",
    "variational_optimization",
    "training_loop",
]


class ReadingOrder:
    """sphinx-gallery's key by which the examples of a folder are sorted."""

    def __init__(self, folder):
        self.folder = folder

    def __repr__(self):
        return "ReadingOrder"

    def __call__(self, filename):
        name = filename.removeprefix("plot_").removesuffix(".py")
        return _READING_ORDER.index(name) if name in _READING_ORDER else len(_READING_ORDER), filename


sphinx_gallery_conf = {
    "within_subsection_order": ReadingOrder,
    "examples_dirs": "../examples",
    "gallery_dirs": "auto_examples",
    "filename_pattern": f"^(?!.*({'|'.join(absent)})).*plot_" if absent else "plot_",
    "ignore_pattern": r"^(_|tables|figures)",
    "download_all_examples": False,
}
# The inherited docstrings of score() refer to pages of scikit-learn's own guide.
suppress_warnings = ["config.cache", "ref.ref"]

intersphinx_mapping = {
    "python": ("https://docs.python.org/3", None),
    "numpy": ("https://numpy.org/doc/stable", None),
    "scipy": ("https://docs.scipy.org/doc/scipy", None),
    "sklearn": ("https://scikit-learn.org/stable", None),
    "jax": ("https://docs.jax.dev/en/latest", None),
    "optax": ("https://optax.readthedocs.io/en/latest", None),
}
intersphinx_timeout = 10
# Every reference must lead somewhere. What these inventories resolve is not asked for, since without a network
# there are none; the package's own targets all are.
nitpicky = True
nitpick_ignore_regex = [("py:.*", r"(jax|numpy|optax|scipy|sklearn)\..*")]
# Without a network the pages are built without these links, and that is no mistake in them.
logging.getLogger("sphinx.sphinx.ext.intersphinx").addFilter(
    lambda record: "failed to reach any of the inventories" not in str(record.msg)
)
