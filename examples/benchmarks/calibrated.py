"""Intervals for new groups and for later times: a fit with nothing set, and calibrated by left-out rows.

    python examples/benchmarks/calibrated.py --draws 10
    python examples/benchmarks/calibrated.py --draws 4 --cases shapes --data-dir /path/to/data

*panels*: fifty groups of eight rows. y is a wave in x, an effect and a slope in x of the row's group, and noise; X
has x and two columns of the group, one of which matters. Rows of forty other groups are predicted. *series*: 300
values of an autoregressive series of correlation .95, and 200 futures of the next thirty. *shapes*: heating of
buildings (the data set energy), three of whose twelve shapes are left out, others in each of four draws. *calibrated*
searches for kernel and hyperparameters in each fold; *same hyperparameters* takes those of the fit alone, which have
seen all rows. A line shows the means over the draws: the share of y inside the 90 % interval, the mean width of this
interval, the log density, and seconds; of the coverage also the least and the largest of all draws, and that of each
third of the rows.
"""

from __future__ import annotations

import os
import time
import warnings
from pathlib import Path

import numpy as np
from _common import parser
from accuracy import DEFAULT_DATA, load
from defaults import keep, key_of, provenance, records_of
from sklearn.base import clone
from sklearn.model_selection import GroupKFold, TimeSeriesSplit

from skgp_natgrad import NGDSVGPRegressor, predictive_distribution
from skgp_natgrad.model_selection import CalibratedRegressorCV

# Standard deviations of a group's effect and of its slope, and of the noise.
_EFFECT, _SLOPE, _NOISE = 1.0, 0.5, 0.3
_CORRELATION, _HORIZON = 0.95, 30
_SHOWN = "covered", "width", "density", "seconds"


def panel(seed, n_groups=50, n_new=40, n_rows=8):
    """X, y and the groups of the fit, and X and y of new groups."""
    rng = np.random.default_rng(seed)
    n_all = n_groups + n_new
    columns, effect, slope = (
        rng.normal(size=(n_all, 2)),
        _EFFECT * rng.normal(size=n_all),
        _SLOPE * rng.normal(size=n_all),
    )
    group, x = np.repeat(np.arange(n_all), n_rows), rng.uniform(-2.0, 2.0, n_all * n_rows)
    y = np.sin(2.0 * x) + 0.5 * columns[group, 0] + effect[group] + slope[group] * x + _NOISE * rng.normal(size=len(x))
    X, known = np.column_stack([x, columns[group]]), group < n_groups
    return X[known], y[known], group[known], X[~known], y[~known]


def series(seed, n_rows=300, n_futures=200):
    """Times and values of the fit, and times and values (horizon, n_futures) of what may follow."""
    rng = np.random.default_rng(seed)
    noise = rng.normal(size=n_rows + 100)
    values = [noise[0]]
    for each in noise[1:]:
        values.append(_CORRELATION * values[-1] + each)
    futures, last = [], np.full(n_futures, values[-1])
    for _ in range(_HORIZON):
        last = _CORRELATION * last + rng.normal(size=n_futures)
        futures.append(last)
    times = np.arange(n_rows + _HORIZON, dtype=float)[:, None]
    return times[:n_rows], np.array(values[-n_rows:]), times[n_rows:], np.array(futures)


def of_panel(seed, _):
    """Rows of the fit, what leaves some of them out, the groups, and new rows with their targets (N, 1)."""
    X, y, group, X_new, y_new = panel(seed)
    return (X, y), GroupKFold(5), {"groups": group}, (X_new, y_new[:, None])


def of_series(seed, _):
    """The same of a series."""
    X, y, later, futures = series(seed)
    return (X, y), TimeSeriesSplit(8, test_size=_HORIZON), {}, (later, futures)


def of_shapes(seed, data_dir):
    """The same of shapes of buildings, whose first five columns are the shape; y is standardised."""
    X, y, _ = load(data_dir, "energy")
    group = np.unique(X[:, :5], axis=0, return_inverse=True)[1].ravel()
    train, test = list(GroupKFold(4).split(X, y, group))[seed]
    y = (y - y[train].mean()) / y[train].std()
    return (X[train], y[train]), GroupKFold(9), {"groups": group[train]}, (X[test], y[test][:, None])


CASES = {"panels": of_panel, "series": of_series, "shapes": of_shapes}


def judged(model, X, y):
    """Coverage, width and log density of targets (N, n), and the coverage of each third of the rows."""
    found = predictive_distribution(model, X)
    lower, upper = found.interval(0.9)
    inside = ((lower <= y.T) & (upper >= y.T)).mean(0)
    thirds = [float(each.mean()) for each in np.array_split(inside, 3)]
    density = np.mean([found.log_density(column).mean() for column in y.T])
    return {
        "covered": float(inside.mean()),
        "width": float(np.mean(upper - lower)),
        "density": float(density),
        "thirds": thirds,
    }


CONTENDERS = "alone", "calibrated", "same hyperparameters"


def contender(name, alone, cv):
    """A model that is not fitted; ``alone`` is, unless it is the one."""
    if name == "alone":
        return alone
    if name == "same hyperparameters":
        found = {"kernel": alone.kernel_, "likelihood": alone.likelihood_, "optimizer": None}
        alone = clone(alone).set_params(**found)
    return CalibratedRegressorCV(alone, cv=cv)


def run(seed, case, data_dir):
    """The records of one draw."""
    rows, cv, known, new = CASES[case](seed, data_dir)
    alone = NGDSVGPRegressor(random_state=seed)
    for name in CONTENDERS:
        model, given = contender(name, alone, cv), {} if name == "alone" else known
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            start = time.process_time()
            model.fit(*rows, **given)
            seconds = time.process_time() - start
            yield {"dataset": case, "contender": name, "split": seed, **judged(model, *new), "seconds": seconds}


def main(argv=None):
    p = parser(__doc__, "calibrated.jsonl")
    p.add_argument("--draws", type=int, default=10)
    p.add_argument("--cases", nargs="+", choices=list(CASES), default=["panels", "series"])
    p.add_argument("--data-dir", type=Path, default=Path(os.environ.get("SKGP_DATA", DEFAULT_DATA)))
    args = p.parse_args(argv)
    done = {key_of(record) for record in records_of(args.output)}
    for case in [] if args.only_print else args.cases:
        for seed in range(args.draws):
            if (case, CONTENDERS[-1], seed) not in done:
                for record in run(seed, case, args.data_dir):
                    keep(record | provenance(), args.output)
    for case in args.cases:
        for name in CONTENDERS:
            records = [each for each in records_of(args.output) if key_of(each)[:2] == (case, name)]
            means = [f"{key} {np.mean([record[key] for record in records]):.3f}" for key in _SHOWN]
            covered = [record["covered"] for record in records]
            thirds = np.mean([record["thirds"] for record in records], axis=0).round(3)
            means += [f"from {min(covered):.2f} to {max(covered):.2f}", f"thirds {thirds.tolist()}"]
            print(f"{case}, {name} ({len(records)} draws): {', '.join(means)}")


if __name__ == "__main__":
    main()
