"""Shared fixtures: 64-bit JAX around each test that asks for it, and random problems."""

import collections
import contextlib
import functools
import gc
import importlib
import logging
import os
import re
import sys
import zlib
from pathlib import Path

from jaxlib.version import __version_info__ as jaxlib_version

# Before scipy is imported: scikit-learn's array API check is skipped without it.
os.environ.setdefault("SCIPY_ARRAY_API", "1")
# Before NumPy is imported: each worker has a core, on which two threads of BLAS wait for each other longer than such
# small matrices take.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
# Before jax is imported: programs run for a short time here. Not optimised, in one piece and by the older code
# generator, as most of the package's own are (`quick_jit`), they compile in a third of the time.
# XLA has one generator from jaxlib 0.11.1 on, and ends the process at a flag that it does not know.
os.environ.setdefault(
    "XLA_FLAGS",
    "--xla_backend_optimization_level=0 --xla_cpu_parallel_codegen_split_count=1"
    + (" --xla_cpu_use_fusion_emitters=false" if jaxlib_version < (0, 11) else ""),
)
os.environ.setdefault("JAX_TRACEBACK_IN_LOCATIONS_LIMIT", "0")  # of each operation, which costs a twentieth
# No folder of compiled programs: few are compiled in both workers, and to write one takes a fifth of the time in which
# it is compiled. A folder of the user's own (JAX_COMPILATION_CACHE_DIR) serves the next run, with all of them.
os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "0")
os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES", "-1")

import jax
import numpy as np
import pytest
from sklearn.gaussian_process.kernels import RBF, ConstantKernel, Matern

from skgp_natgrad import kernels, likelihoods
from skgp_natgrad._backend import notices, programs
from skgp_natgrad.choose import dense, search, turned
from skgp_natgrad.solve import left_out, noise_search
from skgp_natgrad.solve.system import prior_of, sums_of
from skgp_natgrad.start import choice, kernel_of_labels, points_or_neighbours, sizes
from skgp_natgrad.variational import gaussian
from skgp_natgrad.variational import model as model_parts
from skgp_natgrad.variational.bases import BASES
from skgp_natgrad.variational.points import Masks, Points

JITTER = 1e-8

# A trace makes many objects that live: looked through less often, a tenth of the time is gained.
gc.freeze()
gc.set_threshold(100_000, 50, 100)
_from_natural = jax.jit(gaussian.from_natural)


def pytest_addoption(parser):
    parser.addoption("--share", metavar="I/N", help="of the chosen tests only the I-th of N shares (from zero)")


@pytest.hookimpl(trylast=True)  # after -m and -k
def pytest_collection_modifyitems(config, items):
    """A share of the tests, the same in every process."""
    if config.option.share is None:
        return
    which, n_shares = map(int, config.option.share.split("/"))
    own = [zlib.crc32(item.nodeid.encode()) % n_shares == which for item in items]
    config.hook.pytest_deselected(items=[item for item, mine in zip(items, own, strict=True) if not mine])
    items[:] = [item for item, mine in zip(items, own, strict=True) if mine]


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config, log):
    """Each worker takes the files one after the other, so that it traces a program once; who is done takes over."""
    from xdist.scheduler import WorkStealingScheduling

    return WorkStealingScheduling(config, log)


@pytest.fixture(autouse=True)
def _first_lines_without_figures(monkeypatch):
    """So Python's filters know a kind of warning again, whatever was found."""
    given = notices.warnings.warn_explicit

    def checked(*arguments, **named):
        if sys._getframe(1).f_code.co_filename == notices.__file__:
            assert re.match(r"[^\d\n]+\n", arguments[0]), arguments[0]
        given(*arguments, **named)

    monkeypatch.setattr(notices.warnings, "warn_explicit", checked)


@pytest.fixture(autouse=True)
def _bounded_cache():
    """Tests of the numerics call programs where no computation of the package begins, which would drop them."""
    yield
    programs.drop_if_many()


# Files, and a test, that show how good the default kernel is, or where other processes fit too. Elsewhere a shorter
# search does: what it finds is fitted all the same.
_OF_THE_SEARCH = {"test_defaults", "test_evidence", "test_class_labels", "test_normal_scores", "test_processes"}
_OF_THE_SEARCH |= {"test_landed_accuracy", "test_turned", "test_how_it_works", "test_new_places_are_covered"}
_OF_THE_SEARCH |= {"test_default_kernel_starts_from_the_data", "test_small_tables", "test_rare_classes"}
_OF_THE_SEARCH |= {"test_the_default_kernel_is_chosen_from_rates", "test_the_whole_search"}
_OF_THE_SEARCH |= {"test_noise_is_not_interpolated_by_default", "test_rounded_targets_have_a_deviation_by_default"}
_OF_THE_SEARCH |= {"test_a_weak_signal_is_found_by_default", "test_a_weak_wave_along_one_column_is_found"}
_OF_THE_SEARCH |= {"test_neighbours_are_rows_of_all_processes", "test_what_is_left_open_is_chosen_for_all"}
_OF_THE_SEARCH |= {"test_a_weak_signal_of_many_columns_is_not_taken_for_short_lengthscales"}
_OF_THE_SEARCH |= {"test_a_grid_of_32_fits_by_steps_compiles_next_to_nothing_after_its_first"}
_OF_THE_SEARCH |= {"test_a_summary_says_what_was_compared_and_by_how_much_the_winner_is_ahead"}


@pytest.fixture(autouse=True)
def _short_search(request, monkeypatch):
    if _OF_THE_SEARCH.isdisjoint((request.node.path.stem, getattr(request.node, "originalname", None))):
        monkeypatch.setattr(search, "_OF_SMALL", search._Effort((1.0,)))
        monkeypatch.setattr(search, "_TRIED", 1)
        monkeypatch.setattr(dense, "_MORE_ROWS", 400)
        # With a kernel of one form, fits of tables of one shape share all their programs.
        kinds = (
            (choice, "OF_LABELS"),
            (kernel_of_labels, "OF_LABELS"),
            (choice, "OF_MEASUREMENTS"),
            (choice, "OF_STEPS"),
        )
        for module, name in kinds:
            monkeypatch.setattr(module, name, getattr(module, name)[:1])
        monkeypatch.setattr(search, "_FURTHER", ())
        monkeypatch.setattr(turned, "COLUMNS", (np.inf, 0))


@pytest.fixture
def x64():
    with jax.enable_x64(True):
        yield


@pytest.fixture
def rng():
    return np.random.default_rng(42)


EXAMPLES = Path(__file__).resolve().parents[1] / "examples"


def example(folder, name):
    """A script in a folder of examples as a module.

    Scripts import what they share from their folder, where another folder may have the same names.
    """
    home = str(EXAMPLES / folder)
    names = {path.stem for path in Path(home).glob("*.py")} & sys.modules.keys()
    of_others = {each: sys.modules.pop(each) for each in names if Path(sys.modules[each].__file__).parent != Path(home)}
    sys.path.insert(0, home)
    try:
        return importlib.import_module(name)
    finally:
        sys.path.remove(home)
        sys.modules.update(of_others)


campaign = functools.partial(example, "campaigns")


def random_gaussian(rng, n_latent, size):
    """A random q(v) with a well conditioned covariance."""
    root = rng.normal(size=(n_latent, size, size)) / np.sqrt(size)
    precision = np.eye(size) + root @ root.transpose(0, 2, 1)
    return _from_natural(rng.normal(size=(n_latent, size)), precision)


def few_points_and_neighbours(points, setattr=setattr):
    """So many inducing points of a model that predicts from neighbours, and up to 60 of others; ten neighbours."""
    for name in ("_AT_EVERY_ROW", "_MOST"):
        setattr(sizes, name, 60)
    for name, value in {"POINTS": points, "_NEIGHBOURS": 10}.items():
        setattr(points_or_neighbours, name, value)


def rough(rng, n_rows, noise=0.01):
    """Rows of a function that few inducing points do not explain."""
    X = rng.uniform(-2.0, 2.0, size=(n_rows, 2))
    return X, np.sin(8.0 * X[:, 0]) * X[:, 1] + np.cos(8.0 * X[:, 1]) + noise * rng.normal(size=n_rows)


def targets_for(likelihood, rng, n_targets, n_classes, n_rows):
    """Random targets (T, B) that the likelihood can observe."""
    if "classification" in likelihood.tasks:
        return rng.integers(0, n_classes, size=(n_targets, n_rows)).astype(float)
    f = 0.5 * rng.normal(size=(likelihood.n_latent(n_targets, 0), n_rows))
    return np.asarray(likelihood.value_and_bounds(n_targets)[0].sample(f, np.random.RandomState(7)))


def make_problem(likelihood, rng, n_inducing=6, n_mean_inducing=0, n_rows=25, n_targets=None, basis="orthogonal"):
    """Random parameters, q, batch and constants for a likelihood; call it inside ``x64``."""
    regression = "regression" in likelihood.tasks
    n_targets = n_targets or (2 if regression else 1)
    n_classes = 2 if likelihood.name == "bernoulli" else 3
    y = targets_for(likelihood, rng, n_targets, n_classes, n_rows)
    likelihood = likelihood.prepare(y, 0 if regression else n_classes)
    n_latent = likelihood.n_latent(n_targets, n_classes)
    kernel = ConstantKernel(1.3) * Matern(length_scale=[1.1, 0.7, 1.6], nu=2.5) + RBF(0.9)
    spec = (kernels.from_sklearn(kernel, 3).value,), likelihood.value_and_bounds(n_targets)[0]
    weights = BASES[basis].first_weights(n_latent, n_inducing, n_mean_inducing)
    parameters = model_parts.Parameters(
        *jax.tree.map(np.log, spec),
        Points(rng.normal(size=(n_inducing, 3)), rng.normal(size=(n_mean_inducing, 3))),
        jax.tree.map(lambda x: rng.normal(size=x.shape), weights),
    )
    batch = model_parts.Batch(
        rng.normal(size=(n_rows, 3)),
        y,
        rng.uniform(0.5, 2.0, size=n_rows),
        np.arange(n_mean_inducing),
    )
    constants = model_parts.Constants(
        log_bounds=tuple(
            jax.tree.map(lambda x, v=v: np.full(np.shape(x), v), parameters[:2]) for v in (-np.inf, np.inf)
        ),
        masks=Masks(np.ones(n_inducing), np.ones(n_mean_inducing)),
        prior_mean=np.zeros((n_latent, 1)),
        scale=1.0,
        weight=1.0,
        jitter=JITTER,
        train_points=1.0,
    )
    return parameters, random_gaussian(rng, n_latent, n_inducing), batch, constants


def all_likelihoods():
    """One object of every likelihood of the package, and of every option that selects a formula."""
    names = sorted({*likelihoods.names("regression"), *likelihoods.names("classification")})
    every = [likelihoods.by_name(name) for name in names]
    package = [each for each in every if type(each).__module__.startswith(likelihoods.__name__)]
    return [
        *package,
        likelihoods.Bernoulli("logit"),
        likelihoods.Binomial("logit"),
        likelihoods.Ordinal(bins="learned"),
    ]


@contextlib.contextmanager
def count_compilations():
    """Count XLA compilations by the name of the program, from JAX's own log."""
    counts = collections.Counter()

    class Handler(logging.Handler):
        def emit(self, record):
            found = re.match(r"Finished XLA compilation of jit\((\w+)\)", record.getMessage())
            if found:
                counts[found.group(1)] += 1

    logger, handler = logging.getLogger("jax"), Handler()
    logger.addHandler(handler)
    propagate, logger.propagate = logger.propagate, False
    try:
        with jax.log_compiles(True):
            yield counts
    finally:
        logger.removeHandler(handler)
        logger.propagate = propagate


def on_points(parameters, constants, table):
    """A model on inducing points, with the rows of a table that are left out."""
    prior = prior_of(parameters, constants.masks, constants.jitter)
    held = left_out.held_out_rows(parameters, constants, table, np.random.RandomState(0))
    return left_out.OnPoints.of(sums_of(parameters, prior, constants, table), parameters, prior, held)


def left_out_density(system, log_noise):
    """The leave-one-out density of the first target."""
    return noise_search.density_of(left_out.left_out_of(system, 0, log_noise), system.held, 0)[0]
