"""What it tells that a number is missing.

Donors give an incomplete row the distribution that y would have if the number were missing at random. The fit's own
incomplete rows, which it leaves out, show how far this is from the truth. For each set of missing columns: y is

    y  =  m + s (g(x) + c (u - m) / s),      u the mixture over donors, with mean m and deviation s,

where g is a Gaussian process of the columns that are there, and of m. Its amplitude and c are averaged by evidence over
a grid on which there is no process, too: so few rows, and numbers that are missing at random, change next to nothing.
For labels the process is added to the log odds (Laplace's approximation; Rasmussen and Williams, algorithm 3.1).
"""

from __future__ import annotations

import numpy as np
from scipy.linalg import cho_factor, cho_solve
from scipy.special import expit, log_expit, logit, softmax

from ..rows import donors, encoding, inputs

# Incomplete rows of a fit that are kept.
_KEPT_ROWS = 300
# Variances of a constant and of a function, in those of what they do not explain; none of both is as probable as all
# others together.
_VARIANCES = [(constant, varying) for constant in (0.0, 1.0, 100.0) for varying in (0.0, 0.1, 1.0, 10.0)]
_PRIOR = np.log(np.r_[0.5, np.full(len(_VARIANCES) - 1, 0.5 / (len(_VARIANCES) - 1))])
# The prior of c^2 counts as four rows that are spread as the mixture says.
_SHAPE = 2.0
_OF_PROCESS = "weight", "slope", "root"
_LEAST_P = 1e-6
_NEWTON_STEPS, _SMALL = 50, 1e-8


def is_of_latent(estimator):
    """Whether y is one latent function plus noise, so that both are moved."""
    return not hasattr(estimator, "classes_") and estimator.likelihood_.additive_noise


def of_fit(estimator, previous, X, y, sample_weight, known):
    """Set what the incomplete rows of a fit tell, as ``_selection``; one that continues a ``previous`` one keeps it."""
    if previous is not None:
        return
    estimator._selection = []
    pool = getattr(estimator, "_donors", None)
    if pool is None or not (hasattr(estimator, "classes_") or is_of_latent(estimator)):
        return
    rows = encoding.further_rows(estimator, inputs.dense(estimator, X))
    lacks = donors.lacking(rows)
    used = lacks.any(1) & (inputs.weights(sample_weight, rows) > 0.0)
    if hasattr(estimator, "classes_"):
        columns = np.asarray(y)[:, None]
    else:
        columns = inputs.targets(y, estimator.missing_targets == "ignore").reshape(len(rows), -1)
        used &= ~np.isnan(columns).any(1)
    used = donors.some(np.flatnonzero(used), _KEPT_ROWS)
    if not len(used):
        return
    known = {name: np.asarray(each)[used] if np.ndim(each) else each for name, each in known.items()}
    rows, lacks, columns = rows[used], lacks[used], columns[used]
    found = (_of_labels if hasattr(estimator, "classes_") else _of_numbers)(estimator, rows, columns, known)
    patterns, which = np.unique(lacks, axis=0, return_inverse=True)
    for k, pattern in enumerate(patterns):
        some = which.ravel() == k
        estimator._selection.append({"lacks": pattern, "rows": rows[some]} | {n: e[some] for n, e in found.items()})
    if hasattr(estimator, "classes_"):
        for each in estimator._selection:
            each |= _of_pattern(estimator, each)


def has_seen(estimator, lacks):
    """Whether the fit had rows that lack the same as each of these: (N,), of (N, E)."""
    found = np.zeros(len(lacks), bool)
    for each in getattr(estimator, "_selection", ()):
        found |= (lacks == each["lacks"]).all(1)
    return found


def moves(estimator, lacks):
    """Whether the fit had rows that lack the same as some of these (N, E)."""
    return bool(has_seen(estimator, lacks).any())


def _each_pattern(estimator, rows):
    """For each set of missing columns that the fit had: what is kept of it, and which rows (N, E) are so."""
    lacks = np.isnan(rows)
    for each in estimator._selection:
        of_pattern = np.flatnonzero((lacks == each["lacks"]).all(1))
        if len(of_pattern):
            yield each, of_pattern


def _features(estimator, each, rows, beside, beside_rows):
    """The columns that are there, and others: of the rows that are kept, and of rows, which stay within their range."""
    others = ~(each["lacks"] | estimator.encoding_.says_where)
    pool = estimator.encoding_.filled(estimator._donors)[:, others]
    found = []
    for table, further in ((each["rows"], beside), (rows, beside_rows)):
        Z = (estimator.encoding_.filled(table)[:, others] - pool.mean(0)) / _width(pool)
        found.append(np.hstack([Z, further]))
    return found[0], np.clip(found[1], found[0].min(0), found[0].max(0))


def _width(columns):
    found = columns.std(0)
    return np.where(found > 0.0, found, 1.0)


def _kernels(A, B):
    """For each of the variances, the covariances of a constant, and of a linear function and a smooth one."""
    p = A.shape[1]
    square = np.maximum(np.square(A).sum(1)[:, None] + np.square(B).sum(1) - 2.0 * A @ B.T, 0.0)
    varying = A @ B.T / p + np.exp(-0.5 * square / p)
    return (constant + ratio * varying for constant, ratio in _VARIANCES)


def _own_variances(A):
    """The variances (N,) at rows that go with `_kernels`."""
    varying = 1.0 + np.square(A).sum(1) / A.shape[1]
    return (constant + ratio * varying for constant, ratio in _VARIANCES)


# -- numbers ------------------------------------------------------------------------------


def _of_numbers(estimator, rows, y, known):
    offset = inputs.known("offset", known.pop("offset", None), *y.shape)
    found = estimator.predict(rows.view(encoding.Encoded), return_std=True, **known)
    mean, std = (each.reshape(len(each), -1) for each in found)
    return {"mean": mean, "std": std, "z": (y - mean - (0.0 if offset is None else offset)) / std}


def shift(estimator, rows, mean, std):
    """What is added to the mixture, times a factor, at rows (N, E): (N, T) each; from its moments (N, T)."""
    added, factor = np.zeros_like(mean), np.ones_like(mean)
    for each, of_pattern in _each_pattern(estimator, rows):
        for t in range(mean.shape[1]):
            # In deviations of the mixture: means that hardly differ tell nothing.
            centre, width = each["mean"][:, t].mean(), each["std"][:, t].mean()
            beside = [(values[:, [t]] - centre) / width for values in (each["mean"], mean[of_pattern])]
            Z, at = _features(estimator, each, rows[of_pattern], *beside)
            g, c = _process(Z, each["z"][:, t], at)
            added[of_pattern, t] = (1.0 - c) * mean[of_pattern, t] + std[of_pattern, t] * g
            factor[of_pattern, t] = c
    finite = np.isfinite(std) & np.isfinite(added)
    return np.where(finite, added, 0.0), np.where(finite, factor, 1.0)


def _process(Z, z, at):
    """Mean and deviation of a standardised y at some rows, from those that were seen."""
    evidence, means, variances = [], [], []
    shape = _SHAPE + 0.5 * len(z)
    for K, k, own in zip(_kernels(Z, Z), _kernels(at, Z), _own_variances(at), strict=True):
        factor = cho_factor(np.eye(len(z)) + K, lower=True)
        solved = cho_solve(factor, z)
        rest = _SHAPE + 0.5 * z @ solved
        evidence.append(-np.log(np.diag(factor[0])).sum() - shape * np.log(rest))
        means.append(k @ solved)
        variances.append(rest / shape * (1.0 + np.maximum(own - (k * cho_solve(factor, k.T).T).sum(1), 0.0)))
    weight, means = softmax(_PRIOR + evidence), np.stack(means)
    mean = weight @ means
    return mean, np.sqrt(weight @ (np.stack(variances) + np.square(means - mean)))


# -- labels -------------------------------------------------------------------------------


def _of_labels(estimator, rows, y, known):
    p = estimator.predict_proba(rows.view(encoding.Encoded))
    return {"p": p, "is": y == estimator.classes_}


def _of_pattern(estimator, each):
    """The process of each class (the second of two) on the grid: its weights, gradients and roots of curvatures."""
    classes = range(each["p"].shape[1]) if each["p"].shape[1] > 2 else [1]
    beside = _beside(each["p"])
    Z, _ = _features(estimator, each, each["rows"], beside, beside)
    found = [_laplace(Z, _odds(each["p"][:, c]), each["is"][:, c]) for c in classes]
    return {name: np.stack([one[i] for one in found]) for i, name in enumerate(_OF_PROCESS)}


def _odds(p):
    return logit(np.clip(p, _LEAST_P, 1.0 - _LEAST_P))


def _beside(p):
    return _odds(p[:, 1:] if p.shape[1] == 2 else p)


def _laplace(Z, odds, is_class):
    sign = np.where(is_class, 1.0, -1.0)
    evidence, slopes, roots = [], [], []
    for K in _kernels(Z, Z):
        f, a = np.zeros(len(odds)), np.zeros(len(odds))
        for _ in range(_NEWTON_STEPS):
            p = expit(odds + f)
            root = np.sqrt(p * (1.0 - p))
            factor = _of_curvature(root, K)
            b = root**2 * f + (is_class - p)
            a = b - root * cho_solve(factor, root * (K @ b))
            before, f = f, K @ a
            if np.abs(f - before).max() < _SMALL:
                break
        p = expit(odds + f)
        evidence.append(log_expit(sign * (odds + f)).sum() - 0.5 * a @ f - np.log(np.diag(factor[0])).sum())
        slopes.append(is_class - p)
        roots.append(np.sqrt(p * (1.0 - p)))
    return softmax(_PRIOR + evidence), np.stack(slopes), np.stack(roots)


def _of_curvature(root, K):
    """The Cholesky factor of I + W^1/2 K W^1/2."""
    return cho_factor(np.eye(len(K)) + root[:, None] * K * root, lower=True)


def recalibrated(estimator, rows, p):
    """Probabilities (N, C) of the mixture as those of rows (N, E)."""
    found = p.copy()
    for each, of_pattern in _each_pattern(estimator, rows):
        Z, at = _features(estimator, each, rows[of_pattern], _beside(each["p"]), _beside(p[of_pattern]))
        processes = list(zip(_kernels(Z, Z), _kernels(at, Z), _own_variances(at), strict=True))
        classes = range(p.shape[1]) if p.shape[1] > 2 else [1]
        of_class = np.zeros((len(of_pattern), len(classes)))
        for j, c in enumerate(classes):
            of_process = zip(processes, *(each[name][j] for name in _OF_PROCESS), strict=True)
            for (K, k, own), weight, slope, root in of_process:
                scaled = k * root
                explained = (scaled * cho_solve(_of_curvature(root, K), scaled.T).T).sum(1)
                var = np.maximum(own - explained, 0.0)
                odds = (_odds(p[of_pattern, c]) + k @ slope) / np.sqrt(1.0 + np.pi / 8.0 * var)
                of_class[:, j] += weight * expit(odds)
        if p.shape[1] == 2:
            found[of_pattern] = np.column_stack([1.0 - of_class[:, 0], of_class[:, 0]])
        else:
            found[of_pattern] = of_class / of_class.sum(1, keepdims=True)
    return found
