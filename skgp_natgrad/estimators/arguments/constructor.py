"""The rows of the table of arguments, and what is made from them: constructors and docstrings.

scikit-learn reads an estimator's arguments from the signature of its constructor, and type checkers from the rows,
which they know as fields of a dataclass. A user's subclass may have a constructor of its own, with fewer arguments or
others: by scikit-learn's conventions it calls the constructor of its base, which stores them all.
"""

from __future__ import annotations

import functools
import inspect
import operator
import re
from collections.abc import Callable
from inspect import Parameter, Signature
from types import SimpleNamespace
from typing import Any, NamedTuple, TypeVar, dataclass_transform

from . import checks

_Class = TypeVar("_Class", bound=type)

# Arguments of other estimators' constructors, and where to give here what they hold.
_ELSEWHERE = {
    "inducing_points": "Give them as inducing_init.",
    "lengthscale": "It is the kernel's, as in kernel=1.0 * RBF(2.0).",
    "length_scale": "It is the kernel's, as in kernel=1.0 * RBF(2.0).",
    "alpha": "Known variances of the noise are given to fit of a regressor, as in fit(X, y, alpha=...); its initial "
    "value is the likelihood's, as in likelihood=Gaussian(0.1).",
    "seed": "Did you mean 'random_state'?",
    "noise": "It is the likelihood's, as in likelihood=Gaussian(0.1).",
}
_FEWER_WITHOUT_NAMES = " Only kernel may be given without its name."


class Row(NamedTuple):
    """A row of the table; see `argument`."""

    default: Any
    check: Callable | None
    limits: dict
    needs: tuple
    asks_for_steps: bool
    kind: Any
    type: Any = None
    written_type: str = ""

    def read(self, name, value):
        """Return what ``value`` stands for; raise ValueError if it is not allowed."""
        return value if self.check is None else self.check(name, value, self.type, **self.limits)


def argument(
    *,
    default: Any,
    check: Callable[..., Any] | None = checks.of_type,
    needs: tuple[Callable[..., str | None], ...] = (),
    asks_for_steps: bool = False,
    kw_only: bool = True,
    **limits: float,
) -> Any:
    """Return a row of the table: an argument, whose name and type stand on its left.

    Parameters
    ----------
    default : object
    check : callable or None
        Is called with the name, the value and the type, and returns what the value stands for, or raises ValueError.
        By default it is the type that says which values are allowed; None leaves the check to the place of use.
    needs : tuple of callable
        What the argument needs to have an effect: functions of `inert`.
    asks_for_steps : bool
        Whether ``solver="auto"`` trains by steps where it is set, although one step would use it.
    kw_only : bool
    **limits : float
        ``least``, the smallest number that is allowed, or ``above``, below which none is.
    """
    kind = Parameter.KEYWORD_ONLY if kw_only else Parameter.POSITIONAL_OR_KEYWORD
    return Row(default, check, limits, needs, asks_for_steps, kind)


@dataclass_transform(eq_default=False, kw_only_default=True, field_specifiers=(argument,))
def arguments(cls: _Class) -> _Class:
    """Make the constructor of a class from its rows and those of its bases; its own follow the first group."""
    types, written = inspect.get_annotations(cls, eval_str=True), inspect.get_annotations(cls)
    own = {
        name: row._replace(type=types[name], written_type=written[name])
        for name, row in vars(cls).items()
        if isinstance(row, Row)
    }
    for name in own:
        # An instance without a value has no attribute, as in any other class.
        delattr(cls, name)
    cls._groups = [base for base in cls.__bases__ if hasattr(base, "_arguments")]
    first, *others = [base._arguments for base in cls._groups] or [{}]
    cls._arguments = functools.reduce(operator.or_, [first, own, *others, own])
    cls.__init__ = _constructor(cls._arguments)
    return cls


def _constructor(table):
    itself = Parameter("self", Parameter.POSITIONAL_OR_KEYWORD)
    each = [Parameter(name, row.kind, default=row.default, annotation=row.written_type) for name, row in table.items()]
    shape = Signature([itself, *each], return_annotation="None")

    def __init__(self, *given, **options):
        try:
            bound = shape.bind(self, *given, **options)
        except TypeError as error:
            unknown = next((name for name in options if name not in table), "")
            hint = _hint(unknown, table) if unknown else _FEWER_WITHOUT_NAMES * (len(given) > 1)
            raise TypeError(f"{type(self).__name__}.__init__() {error}.{hint}") from None
        bound.apply_defaults()
        for name in table:
            setattr(self, name, bound.arguments[name])

    __init__.__signature__ = shape
    __init__.__annotations__ = {name: row.type for name, row in table.items()} | {"return": None}
    return __init__


def _hint(unknown, table):
    """What may have been meant by an argument that is not in the table."""
    return f" {_ELSEWHERE[unknown]}" if unknown in _ELSEWHERE else checks.alike(unknown, list(table))


def values(estimator):
    """The values of all arguments by name, those of a subclass as well."""
    return {name: getattr(estimator, name) for name in estimator._arguments} | estimator.get_params(deep=False)


def read(estimator):
    """What the arguments' values stand for, by name; raise ValueError for the first value that is not allowed."""
    rows = estimator._arguments.items()
    return SimpleNamespace(**{name: row.read(name, getattr(estimator, name)) for name, row in rows})


def is_default(estimator, name):
    """Whether an argument has its default, under whatever name."""
    row = estimator._arguments[name]
    value, default = (row.read(name, each) for each in (getattr(estimator, name), row.default))
    return value is default or repr(value) == repr(default)


def check_nested(estimator, params):
    """Refuse nested parameters, as of `set_params`, of a value that has none."""
    for key in params:
        name, nested, _ = key.partition("__")
        value = params.get(name, getattr(estimator, name, None))
        if nested and name in estimator._get_param_names() and not hasattr(value, "set_params"):
            raise ValueError(
                f"{key} cannot be set: {name}={value!r} has no parameters of its own. Pass an object, "
                "such as kernel=RBF(), likelihood=StudentT(), objective=Predictive(), gamma_schedule=LogLinear()."
            )


_PACKAGE = __name__.partition(".")[0]


def documented(cls: _Class) -> _Class:
    """Insert the sections of its bases into a class's docstring; arguments stand in the order of the constructor."""
    if cls.__doc__ is None:
        # Python runs without docstrings (-OO).
        return cls
    bases = [base for base in cls.__mro__[1:] if base.__module__.startswith(_PACKAGE) and vars(base).get("__doc__")]
    (start, own), *above = map(_sections, [cls, *bases])
    of_all = [own, *(sections for _, sections in above)]
    parameters = _entries("Parameters", of_all)
    groups = {base.__name__.lower(): next(iter(base._arguments)) for base in cls._groups}
    shared = {
        "Parameters": "\n".join(parameters[name] for name in cls._arguments),
        "Attributes": "\n".join(_entries("Attributes", of_all).values()),
        "References": next(sections["References"] for sections in of_all if "References" in sections),
    }
    told = ", ".join(f"{name} (from ``{first}``)" for name, first in groups.items())
    start = f"{start}\nThe parameters stand in groups: {told}.\n"
    texts = shared | {name: text for name, text in own.items() if name not in shared}
    cls.__doc__ = start + "".join(f"\n{name}\n{'-' * len(name)}\n{text}\n" for name, text in texts.items())
    return cls


def _sections(cls):
    """The text before the first section of a class's docstring, and the sections by name."""
    start, *rest = re.split(r"^([A-Z][a-z]+)\n-{3,}\n", inspect.cleandoc(cls.__doc__), flags=re.MULTILINE)
    return start.rstrip("\n") + "\n", {name: text.strip("\n") for name, text in zip(rest[::2], rest[1::2], strict=True)}


def _entries(section, of_classes):
    """The entries of a section by their names, from the first class that has each."""
    text = "\n".join(sections[section] for sections in of_classes if section in sections)
    found = {}
    for entry in re.findall(r"^\w+ : .*\n(?:[ \n].*\n?)*", text + "\n", flags=re.MULTILINE):
        found.setdefault(entry.split(" : ")[0], entry.rstrip("\n"))
    return found
