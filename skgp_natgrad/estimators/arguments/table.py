"""The table of arguments: a row for each, with its type, its default, its check, and what it needs to have an effect.

The constructors, the checks of values, the warnings of arguments without effect, the choice of ``solver="auto"``
and the estimators' docstrings are derived from these rows; `constructor.argument` says
what a row holds. Arguments that only one estimator has, or whose default or meaning differs, have their rows there.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal, TypeAlias

import optax
from sklearn.gaussian_process.kernels import Kernel

from ..._backend.types import ArrayLike, Device, Devices, Seed
from ...likelihoods import Likelihood
from ...objectives import Objective
from ...priors import Prior
from ...svgp import BASES, PARAMETERIZATIONS
from ...training.schedules import Schedule
from . import checks, inert
from .constructor import argument, arguments

Steps: TypeAlias = (
    float | Schedule | Callable[[int], float] | Literal["constant", "linear", "log_linear", "cosine", "line_search"]
)


@arguments
class Model:
    """What is fitted.

    Parameters
    ----------
    kernel : sklearn.gaussian_process kernel, list of kernels or None, default=None
        Prior covariance of the latent functions: ConstantKernel, RBF, Matern,
        RationalQuadratic, ExpSineSquared, DotProduct,
        :class:`~skgp_natgrad.kernels.Laplacian`, their sums, products and
        powers, each on some columns (:class:`skgp_natgrad.kernels.Columns`) or on
        linear combinations of them
        (:class:`~skgp_natgrad.kernels.LinearTransform`), or a class added by
        :func:`skgp_natgrad.kernels.register`. Its
        hyperparameters are initial values in the units of the standardised X, but
        periods and fixed lengthscales are in those of X; their bounds hold. A
        WhiteKernel that is added to it is read as the Gaussian noise of
        ``likelihood="gaussian"``. One kernel serves all latent functions; a
        list holds one for each: one per column of y, or one per class for
        "softmax" and "robust_max"; for a likelihood with two latent functions f
        and g, first those of f and then those of g.
        None chooses one from the data, with one lengthscale per column: Matern
        5/2, or the sum of Matern 1/2, Matern 3/2, RBF and a linear function (or
        Matern 5/2 plus a linear and a periodic function, of up to three columns
        and a y with a season). Each is at the maximum of the log
        marginal likelihood of some hundreds of rows, or of the density of rows
        given their neighbours in a large table, and
        compared by the density of other rows. Class labels have a sum of Matern
        5/2, Matern 1/2, RBF and (with 2 to 64 columns)
        :class:`~skgp_natgrad.kernels.Laplacian`, whose shares other labels tell;
        with few inducing points there is one sum, of Matern 5/2 and RBF.
    objective : {"elbo", "tightened", "predictive"} or object, default="elbo"
        What training maximises. "elbo": the evidence lower bound. "tightened": a
        bound that is never looser, at the same cost, for Gaussian noise only [4]_.
        "predictive": the log density of each row's own prediction, minus the
        KL divergence, for calibrated predictions where the model is
        wrong [5]_; an object :class:`~skgp_natgrad.objectives.Predictive` holds
        the weight of the divergence, tunable as ``objective__kl_weight``.
    hyperparameter_prior : "weak", prior, dict of str to prior, or None, default=None
        Priors on the trained hyperparameters: objects of :mod:`skgp_natgrad.priors`,
        whose log density training adds to the objective (MAP). A dict has them by
        name: "kernel__k2__length_scale" is one, as in ``set_params``, and
        "length_scale" all whose names end so. A prior alone is for each of them, and
        "weak" is ``LogNormal(sigma=3)``, around the initial values. They are in
        the units of the standardised X. ``solver="evidence"`` then keeps what has a prior at its
        most probable value; class labels are trained by "ngd".
    n_restarts_optimizer : int or "auto", default="auto"
        Further starts of the search for a given kernel's hyperparameters, within
        their bounds; one is taken if its log marginal likelihood is clearly
        larger. "auto" tries long and short lengthscales, and the periods that y
        shows along the columns of a periodic kernel; training by steps tries them
        for such a kernel alone. A number adds this many random starts, as in
        scikit-learn; 0 adds none.
    normalize_X : bool, "quantile", "common" or "auto", default="auto"
        True standardises the columns of X; a constant column is left as it is.
        "quantile" maps each column to normal scores by a monotone function, linear
        beyond the training data, which suits columns with long tails. "common"
        centres the columns and divides all of them by one number, which suits the
        pixels of images. "auto" chooses between True and "quantile" together with the
        kernel, and with 48 columns or more also tries "common"; it is True if
        ``kernel`` is given, or what :class:`~skgp_natgrad.kernels.Normalized` says,
        which ``kernel_`` is where another scaling than True was chosen. A column
        whose values span at most four units of rounding of its type counts as
        constant, whether X is standardised or not.
    categorical_features : "from_dtype", array-like of str, int or bool, or None, default="from_dtype"
        Columns of X that hold categories: names, positions or a mask, as in scikit-learn. "from_dtype": columns of a
        data frame (pandas, polars, pyarrow) whose type is that of categories, strings or objects that are strings;
        none of an array. Each level becomes a column of zeros and ones, all of a category in one unit. A
        level that the fit has not seen is as far from each known one as these are from each other, and a
        warning names it once; missing values are a level of their own. None: all columns are numbers.
    max_categories : int or None, default=500
        Most levels of a column; the rarest of more levels are one level together, and a warning says how many.
    missing_inputs : {"auto", "allow", "error"}, default="auto"
        Whether X may have missing numbers. "auto": in data frames; "allow": in arrays as well. A row that lacks some is
        left out of the fit, and predicted as a mixture over the values that similar rows of the fit have there; what
        the left-out rows show of y beyond that moves the mixture. If less than a quarter of the rows is complete, all
        of them are used, filled in by the mean of their column, beside columns of zeros and ones that say where.
    """

    kernel: Kernel | Sequence[Kernel] | None = argument(default=None, check=None, kw_only=False)
    likelihood: str | Likelihood = argument(default="gaussian", check=None)
    objective: Literal["elbo", "tightened", "predictive"] | Objective = argument(
        default="elbo", check=checks.objective, asks_for_steps=True
    )
    hyperparameter_prior: Literal["weak"] | Prior | Mapping[str, Prior] | None = argument(
        default=None, check=checks.hyperparameter_prior
    )
    n_restarts_optimizer: int | Literal["auto"] = argument(default="auto", least=0, needs=(inert.kernel_search,))
    calibrate: bool | Literal["auto"] = argument(default="auto")
    normalize_X: bool | Literal["auto", "quantile", "common"] = argument(default="auto")
    normalize_y: bool | Literal["center"] = argument(default=True)
    categorical_features: ArrayLike | Literal["from_dtype"] | None = argument(default="from_dtype", check=None)
    max_categories: int | None = argument(default=500, least=2)
    missing_inputs: Literal["auto", "allow", "error"] = argument(default="auto")


@arguments
class Points:
    r"""The points that define the process, and where they are.

    Parameters
    ----------
    n_inducing : int, "auto", None or "all", default="auto"
        Number of inducing points (the papers' \|beta\|), M: they carry mean and
        covariance, at a cost of order M^2 per row. Fewer are used if X has fewer
        distinct rows; a UserWarning says so. "auto" is 100 for a solver of many
        steps and for counts. For Gaussian noise and class labels
        ``solver="evidence"`` takes as many random rows as half a minute allows on
        two cores: all rows of a table of up to 5000 with Gaussian noise, of up to
        2800 with class labels. In larger regressions at most 3000, and 1000 or 2000 rows do
        if they leave no more than a hundredth of the noise unexplained. If the points leave some of
        the prior variance unexplained, the means of class labels get additional points,
        up to some 25,000 rows whose labels the inducing points do not predict well. A
        regression whose rows are predicted from neighbors has 500 points. There are
        fewer of all these if memory is short: a number gives the same model on every
        machine. None and "all" put a point at every distinct row, where it stays: the full
        variational Gaussian process, of order N^3 per iteration.
    n_mean_inducing : int or "auto", default="auto"
        Number of further points for the mean alone (the papers' \|gamma\|), at a
        linear cost; with ``basis="solve"`` they carry mean and covariance. Zero is
        the coupled basis. With Gaussian noise ``solver="evidence"`` takes zero or the number of rows: the
        mean is then that of the exact process under these hyperparameters, if rows that are left
        out are predicted better so, beside at most 2000 inducing points. For class labels it puts them at rows
        whose labels the inducing points do not predict well. "auto" is zero but for class labels with
        "auto" for ``n_inducing``: then it is what that says.
    basis : {"orthogonal", "hybrid", "decoupled", "solve"}, default="orthogonal"
        How the mean-only points enter [2]_; without them all but "decoupled" are the
        coupled basis: for it leave "orthogonal" and give ``n_mean_inducing=0``.
        "orthogonal" removes from their part what the inducing points explain;
        "hybrid" does not. In "decoupled" the mean uses the mean-only points and a copy
        of the inducing points, and the covariance uses the inducing points; it has no
        natural parameters and needs another solver than "ngd". "solve" [6]_ gives the further points a covariance of
        their own, separate from that of the inducing points, and trains both by
        natural gradients; its bound and its cost lie between those of the coupled
        basis on the inducing points and of the coupled basis on all points.
    inducing_init : {"auto", "greedy_variance", "k-means", "random"} or array, default="auto"
        Where the points start: by greedy conditional variance [3]_, at the
        centres of clusters (trained mean-only points then at random rows), at random
        rows, or at the given points of shape (n_points, n_features) in the units
        of X: the inducing points, or, if there are ``n_inducing +
        n_mean_inducing``, both sets. With ``mean_solver="exact"`` it applies to
        the inducing points only. "auto" is "k-means" where training moves the points, and
        with ``solver="evidence"`` "random", or "greedy_variance" if you give the number of points.
    train_inducing_points : bool, default=True
        Whether the inducing and mean-only points move while training, with the
        hyperparameters; False keeps them where they start. ``optimizer=None`` keeps
        everything. Points do not move with ``solver="evidence"``.
    """

    n_inducing: int | Literal["auto", "all"] | None = argument(default="auto", least=1, asks_for_steps=True)
    n_mean_inducing: int | Literal["auto"] = argument(default="auto", least=0, asks_for_steps=True)
    basis: Literal["orthogonal", "hybrid", "decoupled", "solve"] = argument(
        default="orthogonal", check=checks.among(BASES), asks_for_steps=True, needs=(inert.mean_basis,)
    )
    inducing_init: Literal["auto", "greedy_variance", "k-means", "random"] | ArrayLike = argument(
        default="auto", check=None, asks_for_steps=True, needs=(inert.places,)
    )
    train_inducing_points: bool = argument(default=True)


@arguments
class Training:
    """How the best model is found.

    Parameters
    ----------
    solver : {"auto", "evidence", "ngd", "adam", "gd", "lbfgs"}, default="auto"
        "evidence": hyperparameters at the maximum of the exact log marginal
        likelihood of up to 1000 random rows (a given ``kernel`` starts at its values
        and keeps its bounds), or, in large tables, at those that predict rows best
        from their neighbours, then one natural gradient step of size one on all rows,
        which for a Gaussian likelihood ends at the best q [1]_. The noise, and the
        scale of kernel and noise together, have the largest density of rows that are
        each predicted from all others. For class labels without parameters
        ("bernoulli", "softmax") a few such steps of the covariance, which all latent
        functions share, alternate with the best means, and the kernel's scale has the
        largest density of held-out labels. For "poisson" Newton's method finds q, and
        the hyperparameters have the largest bound of up to 2000 random rows. "auto"
        is "evidence" for these likelihoods as long as no argument of the points or of
        iterative training is set (``objective``, ``n_inducing`` to
        ``n_iter_no_change``, ``dtype``; except ``optimizer=None``,
        ``n_inducing`` itself, ``n_mean_inducing=0``, ``train_inducing_points`` and, for class
        labels, any ``n_mean_inducing``), and "ngd" otherwise, for
        a list of kernels for classes, and for ``partial_fit``. "ngd": natural
        gradient steps on the variational distribution q, and steps of ``optimizer``
        on everything else. "adam": ``optimizer`` updates q too. "gd": gradient ascent
        on everything. "lbfgs": L-BFGS on everything, for a table of at most
        ``batch_size`` rows; with a Gaussian likelihood q is kept at its optimum (the
        collapsed bound), with others the parameterization must end in sqrt or log.
    parameterization : str, default="natural"
        The coordinates of q in which a step is straight [1]_: "natural",
        "natural_sqrt", "natural_log", "mean_var", "mean_var_sqrt" or
        "mean_var_log".
    gamma_schedule : float, schedule, callable or name, default="auto"
        Step size of the natural gradient, in (0, 1], for ``solver="ngd"``.
        "auto" adapts it while training (:class:`~skgp_natgrad.Auto`). Otherwise
        a number for every iteration, an object such as
        :class:`~skgp_natgrad.LogLinear`, tunable as
        ``gamma_schedule__final``, any function of the iteration, or one of
        "constant", "linear", "log_linear", "cosine" and "line_search" for a schedule
        with its defaults; :class:`~skgp_natgrad.LineSearch` needs the full batch.
    optimizer : {"adam", "amsgrad", "nadam", "adabelief", "yogi", "rmsprop"}, optax object or None, default="adam"
        Optimizer of the hyperparameters, the positions of all points and the
        mean-only weights, and with ``solver="adam"`` of q. None means, as in
        scikit-learn, that the hyperparameters of a given ``kernel`` and of
        ``likelihood`` are kept: the solution in one step is found for them without
        a search, where ``solver`` "auto" chooses one step. With ``kernel_`` and
        ``likelihood_`` of an earlier fit, and its other arguments, the same data
        give the same predictions. A solver of steps then trains only q and the
        mean-only weights, and keeps the positions of points. An ``optax.GradientTransformation``, such as
        ``optax.adamw(0.01)``, has its own step sizes; it updates one flat vector
        of all these.
    learning_rate : float, schedule, callable or name, default=0.05
        Step size of ``optimizer`` and of ``solver="gd"``; not used by "lbfgs".
        A number decays to zero along a cosine over ``max_iter`` iterations;
        ``Constant(0.02)`` does not decay. With ``n_mean_inducing`` points and
        ``mean_solver="adam"``, 0.02 predicts better. :class:`~skgp_natgrad.LineSearch` is
        for ``solver`` "adam" and "gd" on the full batch.
    mean_solver : {"auto", "adam", "natural", "diagonal", "exact"}, default="auto"
        How the mean-only weights are found. "auto" is "adam" for a solver of
        many steps; in one step they have their best values. "adam": by ``optimizer``, in
        coordinates scaled by their conditional prior variance. "natural": by
        natural gradient steps (eq. 15a of [2]_) of at most size
        ``gamma_schedule``. "diagonal": the same with the diagonal of the metric
        (eq. 16). With little noise the steps of both are short, and a warning says if
        the mean has not converged. "exact": training uses the inducing points alone; then the
        mean-only points are placed at random rows, and a linear system gives the
        mean on all points. The likelihood's parameters are estimated anew from
        leave-one-out predictions. The last three need
        ``basis="orthogonal"``; "natural" and "diagonal" need ``solver="ngd"``.
    mean_columns : int or "auto", default="auto"
        Columns of the mean-only points' covariance that are drawn for each
        minibatch, to estimate the mean's part of the divergence without bias.
        "auto" is all of them, but at most ``batch_size``. The full batch, and
        the mean solvers "natural" and "diagonal", use all.
    batch_size : int, "auto" or None, default="auto"
        Number of rows in a minibatch. A table with at most this many rows is used
        whole. "auto" is 1024; None uses every table whole.
    max_iter : int or "auto", default="auto"
        Largest number of iterations. "auto" is 1000.
    tol : float, default=1e-3
        Training stops when the ELBO, averaged over ``n_iter_no_change``
        iterations, has risen by less than ``tol`` nats per row since the
        average before. On minibatches the rise must be below ``tol`` by two
        standard errors, so that noise does not stop a fit.
    n_iter_no_change : int, default=50
        Number of iterations in each of the two averages.
    warm_start : bool, default=False
        Continue from the previous fit's solution, in its scaling of X and y. A fit in
        one step starts its search at the hyperparameters of the previous one, keeps the scaling of X, and is
        otherwise a new one; a default kernel keeps its form.
        Hyperparameters that are fixed, or whose initial values have changed since
        the previous fit, start at these values; the others continue from their
        trained values, within their bounds. The structure of the model cannot
        change: the points and their numbers, the basis, the form of kernel and
        likelihood, the normalisation. A ValueError names an argument that has
        changed.
    random_state : int, RandomState instance or None, default=None
        Draws the rows from which kernel and hyperparameters are chosen, minibatches
        and their columns, and random points; for large tables also the candidates
        for the points, and the rows for leave-one-out predictions.
    """

    solver: Literal["auto", "evidence", "ngd", "adam", "gd", "lbfgs"] = argument(default="auto")
    parameterization: Literal["natural", "natural_sqrt", "natural_log", "mean_var", "mean_var_sqrt", "mean_var_log"] = (
        argument(default="natural", check=checks.among(PARAMETERIZATIONS), needs=(inert.steps, inert.coordinates))
    )
    gamma_schedule: Steps | Literal["auto"] = argument(
        default="auto", check=None, needs=(inert.steps, inert.natural_steps)
    )
    optimizer: (
        Literal["adam", "amsgrad", "nadam", "adabelief", "yogi", "rmsprop"] | optax.GradientTransformation | None
    ) = argument(default="adam", needs=(inert.optimizer,))
    learning_rate: Steps = argument(default=0.05, check=None, needs=(inert.steps, inert.rate))
    mean_solver: Literal["auto", "adam", "natural", "diagonal", "exact"] = argument(
        default="auto", needs=(inert.steps, inert.mean_steps)
    )
    mean_columns: int | Literal["auto"] = argument(default="auto", least=1, needs=(inert.steps, inert.mean_points))
    batch_size: int | Literal["auto"] | None = argument(default="auto", least=1, needs=(inert.steps,))
    max_iter: int | Literal["auto"] = argument(default="auto", least=1, needs=(inert.steps,))
    tol: float = argument(default=1e-3, least=0.0, needs=(inert.steps,))
    n_iter_no_change: int = argument(default=50, least=1, needs=(inert.steps,))
    warm_start: bool = argument(default=False)
    random_state: Seed = argument(default=None, check=checks.seed)


@arguments
class Numerics:
    """Where, and in which precision, is computed.

    Parameters
    ----------
    jitter : float or "auto", default="auto"
        Added to the diagonal of the inducing points' covariance, relative to
        its mean; raised if the factorisation needs more. "auto" is 1e-8, and
        1e-10 for a regression that is solved in one step: jitter counts as
        unexplained variance, which matters if there is hardly any noise. An exact
        process, with a point at every row, needs none: there it has no effect, and
        ``jitter_`` is zero.
    device : {"auto", "cpu", "gpu"}, default="auto"
        Where to compute; "auto" is JAX's default, a GPU where there is one, but
        for solutions in one step (``solver="evidence"``, which "auto" is with
        nothing set) of up to 2000 rows, which take a CPU less time. The search
        for the hyperparameters of such a solution is the CPU's everywhere.
        ``summary()`` says where the rows were fitted.
    n_devices : int, "all" or None, default=None
        Devices of this kind that share the rows, in training, in closed form
        for Gaussian noise, in the mean solver "exact" and in predictions, also
        from neighbors: each
        computes with its part of every batch, and sums are added up. Results are
        those of one device up to rounding. None is one device. A CPU counts as
        several only if JAX is told so. With ``jax.distributed``, "all" also
        means the devices of all processes, each of which fits its own part of
        the rows, and None and an integer mean those of this process alone; see
        the documentation's page on several devices.
    dtype : {"float64", "float32"}, default="float64"
        Precision, while training, of the arrays that grow with the batch: with
        "float32" the covariances of rows and points, and products with them, are
        in single precision. Everything that involves only the points, the mean
        solver "exact", and predictions are computed in double precision; the
        jitter is at least 1e-6, and X should be standardised. "float32" is faster
        on hardware that is faster in single precision; the documentation's page
        of benchmarks shows its cost in accuracy.
    """

    jitter: float | Literal["auto"] = argument(default="auto", above=0.0)
    device: Device = argument(default="auto")
    n_devices: Devices = argument(default=None, least=1)
    dtype: Literal["float64", "float32"] | type = argument(default="float64", check=checks.dtype, needs=(inert.steps,))


@arguments
class Monitoring:
    """What a fit reports and keeps; the result does not depend on it.

    Parameters
    ----------
    verbose : int, default=0
        1 shows a progress bar (extra "progress") or a line now and then, 2 a
        line every 20 iterations. With ``solver="evidence"`` there is one line, at
        the end, which also says what the time went into.
    callback : callable or None, default=None
        Called as ``callback(n_iter, model)`` after every 20 iterations (after
        every iteration of L-BFGS or a line search, once with "evidence"); ``model`` is a fitted copy of
        the estimator at that iteration. If it returns True, training ends there.
        A fitted estimator is saved (pickle, joblib, skops) without it, since other
        programs may not have the function; copies keep it.
    checkpoint : str, os.PathLike or None, default=None
        Where the state of the fit is kept while training. After an interrupted
        fit, ``fit`` with the same data and arguments continues from there, to the
        same bits. A folder (one that exists, or a name that ends in a separator)
        holds a file for each fit, named by the digest of data and arguments: for
        searches, cross-validation and fits at the same time. A file is for one
        fit; ``fit`` with other data or arguments raises an error. A completed fit
        deletes its file. A write that fails gives a warning, and the fit goes on. Not
        for ``solver="lbfgs"``; without effect on "evidence", which has no
        iterations.
    checkpoint_every : float, default=5.0
        Smallest number of seconds between two writes of ``checkpoint``; at least
        twenty times as long as the last write took.
    """

    verbose: bool | int = argument(default=0, least=0)
    callback: Callable[[int, Any], Any] | None = argument(default=None)
    checkpoint: str | os.PathLike[str] | None = argument(default=None, check=None, needs=(inert.iterations,))
    checkpoint_every: float = argument(default=5.0, least=0.0, needs=(inert.iterations,))
