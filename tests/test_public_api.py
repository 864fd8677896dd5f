"""The public interface: each name is on the page of the API, with a docstring of numpydoc's form and with types."""

import ast
import importlib
import inspect
import re
import typing
from pathlib import Path

import pytest

from skgp_natgrad import NGDSVGPClassifier, NGDSVGPRegressor, objectives
from skgp_natgrad._backend.device import DTYPES
from skgp_natgrad.svgp import BASES, INDUCING_INITS, MEAN_SOLVERS, OPTIMIZERS, PARAMETERIZATIONS, SOLVERS
from skgp_natgrad.training import schedules

DOC = Path(__file__).parents[1] / "doc"
PAGE = (DOC / "api.rst").read_text()
MODULES = ("", "inspection", "kernels", "likelihoods", "metrics", "model_selection", "objectives", "priors", "svgp")
# Those with a page of their own.
LISTED = sorted(set(re.findall(r"^   ([A-Za-z][\w.]*)$", PAGE, flags=re.MULTILINE)))
ESTIMATORS = (NGDSVGPRegressor, NGDSVGPClassifier)
# Records that functions return, whose examples show them.
RETURNED = {"svgp.Constants", "svgp.Model", "svgp.Posterior", "svgp.Report", "svgp.Result", "svgp.State"}
# Base classes that a page on extensions shows in use.
BASE_CLASSES = {
    "likelihoods.ClassLikelihood",
    "likelihoods.Likelihood",
    "likelihoods.LocationLikelihood",
    "likelihoods.RegressionLikelihood",
    "likelihoods.ScalarLikelihood",
    "likelihoods.TwoLatentLikelihood",
    "objectives.Objective",
}


def found(name):
    """The object of a name on the page."""
    module, _, attribute = f"skgp_natgrad.{name}".rpartition(".")
    return getattr(importlib.import_module(module), attribute)


def public_methods(cls):
    """Names and functions of a class's methods that the package defines."""
    for name, value in inspect.getmembers_static(cls):
        function = getattr(value, "fn", getattr(value, "__func__", value))
        owner = next(each for each in cls.__mro__ if name in vars(each))
        if inspect.isfunction(function) and not name.startswith("_") and owner.__module__.startswith("skgp_natgrad"):
            yield name, function


def callables():
    """All functions with a page, and all methods of the estimators, by their names."""
    return {name: found(name) for name in LISTED if inspect.isfunction(found(name))} | {
        f"{cls.__name__}.{name}": function for cls in ESTIMATORS for name, function in public_methods(cls)
    }


def sections(docstring):
    """The sections of a docstring of numpydoc's form, by name."""
    parts = re.split(r"^([A-Z][A-Za-z ]+)\n-{3,}\n", inspect.cleandoc(docstring), flags=re.MULTILINE)
    return dict(zip(parts[1::2], parts[2::2], strict=True))


def documented(docstring):
    """The names that the sections of parameters and attributes describe."""
    both = "\n".join(text for name, text in sections(docstring).items() if name in ("Parameters", "Attributes"))
    entries = re.findall(r"^(\*{0,2}\w[\w, *]*?)(?: : .*)?$", both, flags=re.MULTILINE)
    return {name.strip(" *") for entry in entries for name in entry.split(",")}


def arguments(function):
    """Parameters without self and cls."""
    given = inspect.signature(function).parameters.values()
    return [each for each in given if each.name not in ("self", "cls")]


@pytest.mark.parametrize("module", MODULES)
def test_the_page_has_every_public_name(module):
    names = importlib.import_module(f"skgp_natgrad.{module}".rstrip(".")).__all__
    for name in set(names) - {"__version__", *MODULES}:
        label = f"{module}.{name}".lstrip(".")
        described = f"``{label}``" in PAGE or f".. py:data:: {label}\n" in PAGE
        assert label in LISTED or described, f"doc/api.rst does not have {label}"


def test_every_name_on_the_page_is_public():
    for name in LISTED:
        module, _, attribute = f"skgp_natgrad.{name}".rpartition(".")
        assert attribute in importlib.import_module(module).__all__, name


@pytest.mark.parametrize("name", LISTED)
def test_every_name_has_a_running_example(name):
    assert found(name).__doc__
    # Doctests run them: what is not skipped there is what counts.
    examples = sections(found(name).__doc__).get("Examples", "")
    runs = [line for line in examples.splitlines() if ">>> " in line and "+SKIP" not in line]
    assert runs or name in RETURNED | BASE_CLASSES


def test_records_without_examples_are_returned_by_functions_with_one():
    returned = "\n".join(sections(function.__doc__).get("Returns", "") for function in callables().values())
    records = "\n".join(str(inspect.get_annotations(found(name))) for name in RETURNED)
    for name in RETURNED:
        assert re.search(rf"\b{name.split('.')[1]}\b", returned + records), name


def test_base_classes_without_examples_are_shown_in_use():
    pages = (DOC / "extending.rst").read_text()
    bases = {base for name in LISTED if inspect.isclass(found(name)) for base in found(name).__mro__[1:]}
    for name in BASE_CLASSES:
        assert found(name) in bases
        assert name.split(".")[1] in pages, name


@pytest.mark.parametrize("name", sorted(callables()))
def test_every_function_and_method_names_its_parameters(name):
    function = callables()[name]
    assert function.__doc__
    missing = {each.name for each in arguments(function)} - documented(function.__doc__)
    assert not missing
    if name.split(".")[0] in {cls.__name__ for cls in ESTIMATORS}:
        assert ">>> " in sections(function.__doc__).get("Examples", "")


@pytest.mark.parametrize("name", [each for each in LISTED if inspect.isclass(found(each))])
def test_every_class_names_its_parameters(name):
    cls = found(name)
    if name not in BASE_CLASSES and name not in ("Schedule", "kernels.Kernel"):
        assert not {each.name for each in arguments(cls)} - documented(cls.__doc__)


@pytest.mark.parametrize("cls", ESTIMATORS)
def test_every_fitted_property_is_among_the_attributes(cls):
    properties = {name for name, value in inspect.getmembers_static(cls) if isinstance(value, property)}
    names = {name for name in properties if name[-1] == "_" != name[0]}
    assert "feature_importances_" in names
    assert not names - documented(cls.__doc__)


@pytest.mark.parametrize("name", [each for each in LISTED if callable(found(each))])
def test_every_signature_has_types(name):
    function = found(name)
    methods = public_methods(function) if inspect.isclass(function) else ()
    for each in [function, *(method for _, method in methods if not overrides(function, method))]:
        names = [argument.name for argument in arguments(each) if argument.annotation is inspect.Parameter.empty]
        assert not names, f"{each.__qualname__}: {names}"
        assert inspect.isclass(each) or inspect.signature(each).return_annotation is not inspect.Signature.empty, each


def overrides(cls, method):
    """Whether a method's types are those of a class above."""
    owners = [each for each in cls.__mro__ if method.__name__ in vars(each)]
    return len(owners) > 1 and owners[0].__dict__[method.__name__] is method


@pytest.mark.parametrize("cls", ESTIMATORS)
def test_types_can_be_evaluated(cls):
    types_ = typing.get_type_hints(cls.__init__)
    assert set(cls().get_params()) == set(types_) - {"return"}
    for _, method in public_methods(cls):
        typing.get_type_hints(method)


@pytest.mark.parametrize(
    ("argument", "names"),
    [
        ("basis", BASES),
        ("inducing_init", ["auto", *INDUCING_INITS]),
        ("mean_solver", ["auto", *MEAN_SOLVERS]),
        ("objective", objectives.names()),
        ("optimizer", OPTIMIZERS),
        ("parameterization", PARAMETERIZATIONS),
        ("solver", ["auto", *SOLVERS]),
        ("gamma_schedule", schedules.names()),
        ("learning_rate", set(schedules.names()) - {"auto"}),
        ("dtype", DTYPES),
    ],
)
def test_types_list_the_names_that_there_are(argument, names):
    kind = typing.get_type_hints(NGDSVGPRegressor.__init__)[argument]
    literals = [kind] if typing.get_origin(kind) is typing.Literal else typing.get_args(kind)
    found = {name for each in literals if typing.get_origin(each) is typing.Literal for name in typing.get_args(each)}
    assert found == set(names)


@pytest.mark.parametrize("cls", ESTIMATORS)
def test_documented_defaults_are_those_of_the_table(cls):
    said = dict(re.findall(r"^(\w+) : .*, default=(.*)$", sections(cls.__doc__)["Parameters"], flags=re.MULTILINE))
    assert {name: ast.literal_eval(text) for name, text in said.items()} == cls().get_params()


def test_the_package_says_that_it_has_types():
    assert (Path(importlib.import_module("skgp_natgrad").__file__).parent / "py.typed").exists()
