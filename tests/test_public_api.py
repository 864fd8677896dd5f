"""The public interface: every name has a page, a docstring in numpydoc's form with an example, and annotations."""

import re
from pathlib import Path

import pytest

from skgp_natgrad import NGDSVGPClassifier, NGDSVGPRegressor

API = Path(__file__).parents[1] / "doc" / "api.rst"
ESTIMATORS = (NGDSVGPRegressor, NGDSVGPClassifier)
MODULES = ["inspection", "kernels", "likelihoods", "metrics", "model_selection", "objectives", "svgp"]


def listed():
    """The names on the page, relative to the package."""
    if not API.exists():
        pytest.skip("the documentation is not here")
    return set(re.findall(r"^   ([A-Za-z_][\w.]*)$", API.read_text(), flags=re.MULTILINE))
