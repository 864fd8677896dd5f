"""The parts of the docstrings that both estimators share."""

from __future__ import annotations

import inspect
import re
from typing import TypeVar

_Class = TypeVar("_Class", bound=type)

# The arguments in the order in which they are documented.
GROUPS = {
    "model": (
        "kernel",
        "likelihood",
        "objective",
        "hyperparameter_prior",
        "n_restarts_optimizer",
        "class_weight",
        "calibrate",
        "normalize_X",
        "normalize_y",
        "mean_function",
        "missing_targets",
    ),
    "points": ("n_inducing", "n_mean_inducing", "basis", "inducing_init", "train_inducing_points"),
    "training": (
        "solver",
        "parameterization",
        "gamma_schedule",
        "optimizer",
        "learning_rate",
        "mean_solver",
        "mean_columns",
        "batch_size",
        "max_iter",
        "tol",
        "n_iter_no_change",
        "warm_start",
        "random_state",
    ),
    "numerics": ("jitter", "device", "n_devices", "dtype"),
    "monitoring": ("verbose", "callback", "checkpoint", "checkpoint_every"),
}

PARAMETERS = r"""
kernel : sklearn.gaussian_process kernel, list of kernels or None, default=None
    Prior covariance of the latent functions: ConstantKernel, RBF, Matern,
    RationalQuadratic, ExpSineSquared, DotProduct,
    :class:`~skgp_natgrad.kernels.Laplacian`, their sums, products and
    powers, each on some columns (:class:`skgp_natgrad.kernels.Columns`), or a
    class added by :func:`skgp_natgrad.kernels.register`. Its
    hyperparameters are initial values in the units of the standardised X, but
    periods and fixed lengthscales are in those of X; their bounds hold. No
    WhiteKernel: the likelihood models the noise. One kernel serves all latent functions; a
    list holds one for each: one per column of y, or one per class for
    "softmax" and "robust_max"; for a likelihood with two latent functions f
    and g, first those of f and then those of g.
    None chooses one from the data, with one lengthscale per column: Matern
    5/2, Matern 1/2, Matern 1/2 plus RBF, Matern 5/2 plus a linear function
    (plus a periodic one, of up to three columns and a y with a season), or (with 2 to 64
    columns) :class:`~skgp_natgrad.kernels.Laplacian`, each at the maximum of the log marginal
    likelihood of some hundreds of rows, compared by the density of rows outside these.
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
    their bounds; one is taken where its log marginal likelihood is clearly
    larger. "auto" tries long and short lengthscales, and the periods that y
    shows along the columns of a periodic kernel; by steps, of such a kernel
    alone. A number adds so many random starts, as in scikit-learn; 0 adds none.
normalize_X : bool, "quantile" or "auto", default="auto"
    True standardises the columns of X; a constant column is left as it is.
    "quantile" maps each column to normal scores by a monotone function, linear
    beyond the training data, which suits columns with long tails. "auto" chooses
    between the two together with the kernel, and of 48 columns or more also
    takes one number for all of them, as suits the pixels of images; it is True
    if ``kernel`` is given. A column
    whose values span at most four units of rounding of its type counts as
    constant, whether X is standardised or not.
n_inducing : int, "auto", None or "all", default="auto"
    Number of inducing points (the papers' \|beta\|), M: they carry mean and
    covariance, at a cost of order M^2 per row. Fewer are used if X has fewer
    distinct rows; a UserWarning says so. "auto" is 100 for a solver of many
    steps, and with ``solver="evidence"`` as many random rows as half a
    minute allows on two cores: for Gaussian noise all rows of a table of up
    to 5000, for class labels of up to 2800. Where so few leave some of the
    prior variance unexplained, there are further points for the means alone: all
    rows of up to 45,000 for Gaussian noise (with 2000 inducing points then), and for
    class labels, of some 25,000, those rows whose labels the inducing points leave
    open. All these are fewer where memory is short: a
    number gives the same model on every machine. None and
    "all" put a point at every distinct row, where it stays: the full
    variational Gaussian process, of order N^3 per iteration.
n_mean_inducing : int or "auto", default="auto"
    Number of further points for the mean alone (the papers' \|gamma\|), at a
    linear cost; with ``basis="solve"`` they carry mean and covariance. Zero is
    the coupled basis. "auto" is zero for a solver of many steps, with anything
    else than "auto" for ``n_inducing``, and with given points; otherwise it is
    what ``n_inducing="auto"`` says. For class labels ``solver="evidence"`` puts them
    at rows whose labels the inducing points leave open.
basis : {"orthogonal", "hybrid", "decoupled", "solve"}, default="orthogonal"
    How the mean-only points enter [2]_; without them all but "decoupled" are the
    coupled basis. "orthogonal" removes from their part what the inducing
    points explain; "hybrid" does not. In "decoupled" the mean rests on
    the mean-only points and a copy of the inducing points, and the covariance
    on the inducing points; it has no natural parameters and needs another
    solver than "ngd". "solve" [6]_ gives the further points a covariance of
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
    with ``solver="evidence"`` "random", or "greedy_variance" for a number of points that is given.
train_inducing_points : bool, default=True
    Whether the inducing and mean-only points move while training, with the
    hyperparameters; False keeps them where they start. ``optimizer=None`` keeps
    everything. Points do not move with ``solver="evidence"``.
solver : {"auto", "evidence", "ngd", "adam", "gd", "lbfgs"}, default="auto"
    "evidence": hyperparameters at the maximum of the exact log marginal
    likelihood of up to 1000 random rows (a given ``kernel`` starts at its values
    and keeps its bounds), then one natural gradient step of size one on all rows,
    which for a Gaussian likelihood ends at the best q [1]_. The noise, and the
    scale of kernel and noise together, have the largest density of rows that are
    each predicted from all others. For class labels without parameters
    ("bernoulli", "softmax") a few such steps of the covariance, which all latent
    functions share, alternate with the best means, and the kernel's scale has the
    largest density of held-out labels. For "poisson" Newton's method finds q, and
    the hyperparameters have the largest bound of up to 2000 random rows. "auto"
    is "evidence" for these likelihoods as long as no argument of the points or of
    iterative training is set (``objective``, ``n_inducing`` to
    ``n_iter_no_change``, ``warm_start``, ``dtype``; but for
    ``n_mean_inducing=0``, ``train_inducing_points`` and, for class labels,
    ``n_mean_inducing`` with or without ``n_inducing``), and "ngd" otherwise, for
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
    mean-only weights, and with ``solver="adam"`` of q. None keeps
    hyperparameters and positions at their initial values, and trains only q
    and the mean-only weights. An ``optax.GradientTransformation``, such as
    ``optax.adamw(0.01)``, has its own step sizes; it updates one flat vector
    of all these.
learning_rate : float, schedule, callable or name, default=0.02
    Step size of ``optimizer`` and of ``solver="gd"``; not used by "lbfgs".
    A number decays to zero along a cosine over ``max_iter`` iterations;
    ``Constant(0.02)`` does not decay. :class:`~skgp_natgrad.LineSearch` is
    for ``solver`` "adam" and "gd" on the full batch.
mean_solver : {"auto", "adam", "natural", "diagonal", "exact"}, default="auto"
    How the mean-only weights are found. "auto" is "adam" for a solver of
    many steps; in one step they have their best values. "adam": by ``optimizer``, in
    coordinates scaled by their conditional prior variance. "natural": by
    natural gradient steps (eq. 15a of [2]_) of at most size
    ``gamma_schedule``. "diagonal": the same with the diagonal of the metric
    (eq. 16). "exact": training uses the inducing points alone; then the
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
    Continue from the previous fit's solution, in its scaling of X and y.
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
jitter : float or "auto", default="auto"
    Added to the diagonal of the inducing points' covariance, relative to
    its mean; raised if the factorisation needs more. "auto" is 1e-8, and
    1e-10 for a regression that is solved in one step: what jitter adds is
    unexplained, which matters where there is hardly any noise.
device : {"auto", "cpu", "gpu"}, default="auto"
    Where to compute; "auto" is JAX's default, a GPU where there is one.
    Solutions in one step (``solver="evidence"``, which "auto" is with
    nothing set) then still stay on the CPU, unless ``n_devices`` is given:
    only there their means rest on all rows.
n_devices : int, "all" or None, default=None
    Devices of this kind that share the rows, in training, in closed form
    for Gaussian noise, in the mean solver "exact" and in predictions: each
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
verbose : int, default=0
    1 shows a progress bar (extra "progress") or a line now and then, 2 a
    line every 20 iterations. With ``solver="evidence"`` there is one line, at
    the end.
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
    deletes its file. A write that fails is warned of, and the fit goes on. Not
    for ``solver="lbfgs"``; without effect on "evidence", which has no
    iterations.
checkpoint_every : float, default=5.0
    Smallest number of seconds between two writes of ``checkpoint``; at least
    twenty times as long as the last write took.
"""

ATTRIBUTES = r"""
likelihood_ : likelihood
    The likelihood with the trained parameters; the parameters of "gaussian"
    and "student_t" are on the scale of the standardised y.
elbo_ : float
    The bound, or the value of another ``objective``, at the solution, in
    nats, for y on the scale of ``likelihood_``; with priors on hyperparameters it
    includes ``log_prior_``. It is evaluated exactly on the
    full batch, and is the average of the last estimates with minibatches.
    With ``mean_solver="exact"`` it is evaluated on all rows. After a later
    call of ``partial_fit`` it is conditional on the rows of earlier calls.
log_prior_ : float
    The log density of the hyperparameters under ``hyperparameter_prior``, which
    ``elbo_`` includes, with "predictive" times its ``kl_weight``; zero without.
kernel_ : sklearn.gaussian_process kernel or list of kernels
    The kernel with the trained hyperparameters, in the units in which
    ``kernel`` has them; a list where ``kernel`` is one.
inducing_points_ : ndarray of shape (M, n_features)
    In the units of X.
mean_inducing_points_ : ndarray of shape (G, n_features)
    In the units of X; for ``basis="decoupled"`` the mean's copy of the
    inducing points comes last. With ``basis="solve"`` they carry a
    covariance too.
elbo_curve_ : ndarray of shape (n_iter,)
    The bound before each iteration (with "lbfgs" and "evidence" after it); with minibatches
    an unbiased estimate.
n_iter_ : int
    Number of iterations.
step_sizes_ : ndarray of shape (n_iter,)
    The step size of q that each iteration finally used, after a line search
    or halving. Zero where q stayed, and throughout with "lbfgs".
n_rejected_steps_ : int
    Number of iterations in which a step was changed: the step of q was
    shortened, to keep the covariance positive definite or because it lowered
    the bound of its own batch; the optimizer's step was skipped because a
    gradient was not finite; the iteration was undone, because the bound of
    the full batch had fallen, or because the bound of some minibatch among
    the same twenty iterations was not finite; or the line search found no
    larger bound.
n_clipped_steps_ : int
    Number of these in which the shortened step ignored the negative
    curvature of a likelihood that is not log-concave.
jitter_ : float
    The value added to the covariance's diagonal.
plan_ : str
    The solver, kernel, scaling and sizes that were used, in one paragraph.
feature_importances_ : ndarray of shape (n_features,)
    Relevance of each column, summing to one: mean squared derivatives of the latent functions.
n_features_in_ : int
    Number of columns of X.
feature_names_in_ : ndarray of shape (n_features,)
    Names of the columns of X, if they are all strings.
"""

REFERENCES = r"""
.. [1] H. Salimbeni, S. Eleftheriadis, J. Hensman (2018). "Natural Gradients
   in Practice: Non-Conjugate Variational Inference in Gaussian Process
   Models." AISTATS.
.. [2] H. Salimbeni, C.-A. Cheng, B. Boots, M. Deisenroth (2018).
   "Orthogonally Decoupled Variational Gaussian Processes." NeurIPS.
.. [3] D. Burt, C. Rasmussen, M. van der Wilk (2020). "Convergence of Sparse
   Variational Inference in Gaussian Process Regression." JMLR.
.. [4] M. Titsias (2025). "New Bounds for Sparse Variational Gaussian
   Processes." ICML.
.. [5] M. Jankowiak, G. Pleiss, J. Gardner (2020). "Parametric Gaussian
   Process Regressors." ICML.
.. [6] J. Shi, M. Titsias, A. Mnih (2020). "Sparse Orthogonal Variational
   Inference for Gaussian Processes." AISTATS.
"""

_ATTRIBUTES_IN_ORDER = (
    "classes_",
    "calibration_",
    "error_df_",
    "mean_function_",
    "kernel_",
    "likelihood_",
    "inducing_points_",
    "mean_inducing_points_",
    "elbo_",
    "elbo_curve_",
    "log_prior_",
    "n_iter_",
    "step_sizes_",
    "n_rejected_steps_",
    "n_clipped_steps_",
    "jitter_",
    "plan_",
    "feature_importances_",
    "n_features_in_",
    "feature_names_in_",
)


def documented(cls: _Class) -> _Class:
    """Insert the shared arguments, attributes and references into a class's docstring, in one order."""
    if cls.__doc__ is None:
        # Python runs without docstrings (-OO).
        return cls
    start, own = _sections(inspect.cleandoc(cls.__doc__))
    names = [name for group in GROUPS.values() for name in group]
    parameters = _merged(PARAMETERS, own.pop("Parameters"), names)
    attributes = _merged(ATTRIBUTES, own.pop("Attributes", ""), _ATTRIBUTES_IN_ORDER)
    groups = ", ".join(f"{group} (from ``{members[0]}``)" for group, members in GROUPS.items())
    start = f"{start}\nThe parameters stand in groups: {groups}.\n"
    sections = {"Parameters": parameters, "Attributes": attributes, "References": REFERENCES.strip("\n"), **own}
    cls.__doc__ = start + "".join(f"\n{name}\n{'-' * len(name)}\n{text}\n" for name, text in sections.items())
    return cls


def _sections(docstring):
    """The text before the first section, and the sections by name."""
    start, *rest = re.split(r"^([A-Z][a-z]+)\n-{3,}\n", docstring, flags=re.MULTILINE)
    return start.rstrip("\n") + "\n", {name: text.strip("\n") for name, text in zip(rest[::2], rest[1::2], strict=True)}


def _merged(shared, own, names):
    """The entries of two texts in the order of ``names``, and then those that have no place in it."""
    entries = _entries(shared) | _entries(own)
    return "\n".join(entries[name] for name in dict.fromkeys([*names, *entries]) if name in entries)


def _entries(text):
    """The entries of a section by their names."""
    parts = re.split(r"^(?=\w+ : )", text.strip("\n") + "\n", flags=re.MULTILINE)
    return {part.split(" : ")[0]: part.rstrip("\n") for part in parts if part.strip()}
