"""A kernel on some of the columns of X: the scikit-learn class and the JAX kernel."""

from __future__ import annotations

import numbers
from collections.abc import Sequence
from typing import ClassVar

import numpy as np
from sklearn.base import clone
from sklearn.gaussian_process import kernels as sklearn_kernels

from .._backend.types import ArrayLike, Floats
from .base import Inputs, Kernel
from .linear_transform import LinearTransform, combinations
from .of_kernel import OfKernel

# Largest number of column names listed in a message.
_LISTED_NAMES = 10


class Columns(OfKernel):
    r"""A kernel on some of the columns of X.

    .. math::

        k(x, z) = k_{\mathrm{kernel}}(x_S, z_S), \qquad S = \mathrm{columns}

    where :math:`x_S` holds the selected columns of the row x. Sums of such
    kernels are additive models, one term for each group of columns; products
    let one column modulate the effect of others.

    It is a kernel of scikit-learn: it can be used in sums, products and powers,
    and, with positions, in scikit-learn's own
    :class:`~sklearn.gaussian_process.GaussianProcessRegressor`.

    Parameters
    ----------
    kernel : sklearn.gaussian_process.kernels.Kernel
        The kernel for the selected columns. One lengthscale per column means
        one for each selected column, in the order of ``columns``; the positions of
        `Columns` inside `Columns` also count the selected columns.
    columns : int, str, or sequence of these
        The selected columns, each once: by position (negative ones count from the
        end), or by name if X is a data frame (of pandas or Polars).
        Scikit-learn's estimators pass arrays to their kernels, without names.

    Examples
    --------
    An additive function of four columns, and a kernel that says which column
    belongs to which term:

    >>> import numpy as np
    >>> from sklearn.gaussian_process.kernels import RBF
    >>> from skgp_natgrad import NGDSVGPRegressor
    >>> from skgp_natgrad.kernels import Columns
    >>> rng = np.random.default_rng(0)
    >>> X = rng.uniform(-2, 2, size=(300, 4))
    >>> y = np.sin(2 * X[:, 0]) + X[:, 1] * X[:, 3] + 0.1 * rng.normal(size=300)
    >>> kernel = 1.0 * Columns(RBF(), 0) + 1.0 * Columns(RBF([1.0, 1.0]), [1, 3])
    >>> reg = NGDSVGPRegressor(kernel, n_inducing=40, tol=0.02, random_state=0).fit(X[:200], y[:200])
    >>> bool(reg.score(X[200:], y[200:]) > 0.95)
    True

    Its value is that of the kernel on the selected columns:

    >>> kernel = Columns(RBF([1.0, 2.0]), [1, -1])
    >>> kernel
    Columns(RBF(length_scale=[1, 2]), [1, -1])
    >>> bool(np.all(kernel(X) == RBF([1.0, 2.0])(X[:, [1, 3]])))
    True
    """

    def __init__(self, kernel: sklearn_kernels.Kernel, columns: int | str | Sequence[int | str]) -> None:
        self.kernel = kernel
        self.columns = columns

    def __eq__(self, other: object) -> bool:
        if type(self) is not type(other):
            return False
        return self.kernel == other.kernel and _listed(self.columns) == _listed(other.columns)

    def __call__(
        self, X: ArrayLike, Y: ArrayLike | None = None, eval_gradient: bool = False
    ) -> Floats | tuple[Floats, Floats]:
        """Return the covariances of the rows of ``X`` and ``Y``.

        Parameters
        ----------
        X : array-like or data frame of shape (N, D)
        Y : array-like or data frame of shape (M, D), default=None
            If None, it is ``X``.
        eval_gradient : bool, default=False
            Whether to return the gradient as well; only without ``Y``.

        Returns
        -------
        K : ndarray of shape (N, M)
        gradient : ndarray of shape (N, N, n_dims)
            Derivatives of K in ``theta``. Only with ``eval_gradient``.
        """
        names = _names(X)
        if _names(Y) not in (None, names):
            raise ValueError(
                f"Y has the columns {_names(Y)}, and X has {names}; give both the same columns in the same order."
            )
        kernel = by_position(self, names)
        return kernel.kernel(kernel._selected(X), None if Y is None else kernel._selected(Y), eval_gradient)

    def diag(self, X: ArrayLike) -> Floats:
        """Return the variances (N,) at the rows of ``X`` (N, D)."""
        kernel = by_position(self, _names(X))
        return kernel.kernel.diag(kernel._selected(X))

    def is_stationary(self) -> bool:
        """Return whether ``kernel`` is stationary."""
        return self.kernel.is_stationary()

    @property
    def requires_vector_input(self):
        """Whether ``kernel`` is defined on rows of numbers."""
        return self.kernel.requires_vector_input

    def __repr__(self):
        return f"{type(self).__name__}({self.kernel!r}, {self.columns!r})"

    def _selected(self, X):
        """The selected columns of ``X``, as an array."""
        X = np.atleast_2d(X)
        selected = X[:, positions(self.columns, Inputs.of_table(X.shape[1]))]
        # A data frame with columns of text beside the selected ones becomes an array of objects.
        return selected.astype(float) if self.requires_vector_input else selected


class SelectedColumns(Kernel):
    """The JAX kernel of `Columns`; its columns are positions from zero on, part of the structure."""

    kernel: Kernel
    columns: tuple
    static: ClassVar[tuple] = ("columns",)

    def __call__(self, X, Z):
        return self.kernel(self._selected(X), self._selected(Z))

    def diag(self, X):
        return self.kernel.diag(self._selected(X))

    def _selected(self, X):
        return X[:, np.array(self.columns)]

    @classmethod
    def structure(cls, kernel, inputs):
        """Return the positions of the columns, and these columns as the `Inputs` of the kernel inside."""
        if not isinstance(kernel.kernel, sklearn_kernels.Kernel):
            raise TypeError(
                f"kernel contains {kernel!r}, whose kernel={kernel.kernel!r} must be a kernel of "
                "sklearn.gaussian_process.kernels (an object, not a class or a name)."
            )
        selected = positions(kernel.columns, inputs)
        return {"columns": selected}, _inside(kernel.columns, selected, inputs)


def positions(columns, inputs):
    """Return the positions of columns that are given by position or name: a tuple of ints from zero on.

    Parameters
    ----------
    columns : int, str, or sequence of these
    inputs : Inputs
        The columns to select from.

    Raises
    ------
    ValueError
        If a column does not exist or is selected twice, or if there are none.
    """
    given = f"kernel contains Columns with columns={columns!r}"
    found = tuple(_position(column, inputs, given) for column in _listed(columns))
    if not found:
        raise ValueError(f"{given}, which selects nothing; give at least one column, or leave the term out.")
    twice = next((column for column in found if found.count(column) > 1), None)
    if twice is not None:
        raise ValueError(f"{given}, which selects column {twice} of {inputs.n_columns} more than once; give it once.")
    return found


def _listed(columns):
    """The elements of ``columns`` as a list; a single position, a name, or a non-sequence becomes its only element."""
    if hasattr(columns, "tolist"):
        columns = columns.tolist()
    return list(columns) if isinstance(columns, Sequence) and not isinstance(columns, str) else [columns]


def _position(column, inputs, given):
    """The position of one column, counted from zero."""
    if isinstance(column, str):
        return _position_of_name(column, inputs, given)
    if not isinstance(column, numbers.Integral) or isinstance(column, bool):
        raise ValueError(
            f"{given}: {column!r} is neither a position nor a name; give integers or strings, such as "
            "list(range(start, stop)) for a slice and np.flatnonzero(mask) for a mask."
        )
    n = inputs.n_columns
    if not -n <= column < n:
        raise ValueError(
            f"{given}: there is no column {column} in {inputs.description}; give positions from {-n} to {n - 1}."
        )
    return int(column) % n


def _position_of_name(name, inputs, given):
    if inputs.names is None:
        raise ValueError(
            f"{given}, but X has no column names: it is not a data frame, or its names are not strings; give "
            "positions, or pass a data frame to an estimator of skgp_natgrad."
        )
    same = inputs.names.count(name)
    if same != 1:
        listed = ", ".join(map(repr, inputs.names[:_LISTED_NAMES]))
        more = ", ..." if len(inputs.names) > _LISTED_NAMES else ""
        raise ValueError(
            f"{given}: {same or 'no'} columns are named {name!r} in {inputs.description}, whose names are "
            f"{listed}{more}; give a name that occurs once, or a position."
        )
    return inputs.names.index(name)


def _inside(columns, selected, inputs):
    """The `Inputs` of the kernel in `Columns`: the selected columns."""
    names = None if inputs.names is None else tuple(inputs.names[i] for i in selected)
    return Inputs(len(selected), names, f"the {len(selected)} columns that Columns selects by columns={columns!r}")


def by_position(kernel, feature_names):
    """Return the kernel expression with `Columns` that select by position, for tables that are plain arrays.

    Parameters
    ----------
    kernel : sklearn.gaussian_process.kernels.Kernel
    feature_names : sequence of str or None
        Names of the columns of X.

    Returns
    -------
    kernel : sklearn.gaussian_process.kernels.Kernel
        A copy; or the kernel itself, if it selects no columns by name or X has no names.

    Raises
    ------
    ValueError
        If a column does not exist.
    """
    if feature_names is None or not _selects_by_name(kernel):
        return kernel
    kernel = clone(kernel)
    names = tuple(feature_names)
    _replace_names(kernel, Inputs.of_table(len(names), names))
    return kernel


def on_blocks(kernel, blocks):
    """Return the kernel expression on a table that has several columns in place of each: a copy.

    Parameters
    ----------
    kernel : sklearn.gaussian_process.kernels.Kernel
        Its `Columns` select by position.
    blocks : list of ndarray of int
        For each column, the positions of those in its place. They get its lengthscale.

    Returns
    -------
    kernel : sklearn.gaussian_process.kernels.Kernel
    """
    kernel = clone(kernel) if isinstance(kernel, sklearn_kernels.Kernel) else kernel
    _spread(kernel, blocks)
    return kernel


def _spread(kernel, blocks):
    if isinstance(kernel, Columns):
        chosen = [blocks[k] for k in positions(kernel.columns, Inputs.of_table(len(blocks)))]
        kernel.columns = np.concatenate(chosen).tolist()
        ends = np.cumsum([len(block) for block in chosen])
        blocks = np.split(np.arange(ends[-1]), ends[:-1])
    owner = np.argsort(np.concatenate(blocks))
    owner = np.repeat(np.arange(len(blocks)), [len(block) for block in blocks])[owner]
    if isinstance(kernel, LinearTransform):
        if np.ndim(kernel.matrix) == 2 and len(kernel.matrix) == len(blocks):
            kernel.matrix = np.asarray(kernel.matrix, dtype=float)[owner]
        return
    for part in _parts(kernel):
        _spread(part, blocks)
    for each in [] if _parts(kernel) else getattr(kernel, "hyperparameters", ()):
        # One value for each column, or a pair of bounds for each; one pair is for all.
        for name, n_axes in ((each.name, 1), (f"{each.name}_bounds", 2)):
            value = np.asarray(getattr(kernel, name))
            if value.ndim == n_axes and len(value) == len(blocks):
                setattr(kernel, name, value[owner])


def _selects_by_name(kernel):
    if isinstance(kernel, Columns) and any(isinstance(column, str) for column in _listed(kernel.columns)):
        return True
    return any(map(_selects_by_name, _parts(kernel)))


def _replace_names(kernel, inputs):
    if isinstance(kernel, Columns):
        selected = positions(kernel.columns, inputs)
        inputs = _inside(kernel.columns, selected, inputs)
        kernel.columns = list(selected)
    if isinstance(kernel, LinearTransform):
        inputs = combinations(kernel)
    for part in _parts(kernel):
        _replace_names(part, inputs)


def _parts(kernel):
    """The kernels of which a kernel is made; none if it is not a kernel."""
    if not isinstance(kernel, sklearn_kernels.Kernel):
        return []
    return [part for part in kernel.get_params(deep=False).values() if isinstance(part, sklearn_kernels.Kernel)]


def _names(table):
    """The names of a data frame's columns; None if it is not a data frame."""
    names = getattr(table, "columns", None)
    return None if names is None else tuple(names)
