"""Fits killed at random moments go on from their checkpoint, to the same bits.

    python examples/benchmarks/kill.py --runs 20

Each run fits the same table in a child process, which is sent SIGKILL at a random moment between the
first iteration and the end of the fit (a child that ends before does not count), and lets another one
complete. Its predictions, bound and number of iterations are compared, bit by bit, with those of a fit
that nothing interrupted. Checkpoints are written at every chunk of iterations, so that many of the kills
fall into a write. JAX_COMPILATION_CACHE_DIR spares the children most of their compilation. The exit
status is zero if all runs agree.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
from sklearn.datasets import make_friedman1

from skgp_natgrad import NGDSVGPRegressor
from skgp_natgrad.training import checkpoint

MODEL = {"n_inducing": 20, "n_mean_inducing": 20, "batch_size": 256, "tol": 0.0, "random_state": 0}


def parse_arguments(argv=None):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=20)
    parser.add_argument("--kills", type=int, default=1, help="of each run")
    parser.add_argument("--rows", type=int, default=3000)
    parser.add_argument("--max-iter", type=int, default=2000)
    parser.add_argument("--seconds-between", type=float, default=0.0, help="two writes of the checkpoint, at least")
    parser.add_argument("--seed", type=int, default=0, help="of the moments")
    parser.add_argument("--child", nargs=2, type=Path, metavar=("CHECKPOINT", "RESULT"), help=argparse.SUPPRESS)
    return parser.parse_args(argv)


def fit(args):
    """What a child does: fit, say when the first iterations are done, and save the result."""
    place, result = args.child
    if not args.seconds_between:
        checkpoint._TIMES_LAST_WRITE = 0.0
    X, y = make_friedman1(args.rows, noise=1.0, random_state=0)
    model = NGDSVGPRegressor(**MODEL, max_iter=args.max_iter, checkpoint=place, callback=Announcement())
    model.set_params(checkpoint_every=args.seconds_between)
    model.fit(X, y)
    print("fitted", flush=True)
    mean, std = model.predict(X, return_std=True)
    np.savez(result, mean=mean, std=std, curve=model.elbo_curve_, elbo=model.elbo_, n_iter=model.n_iter_)


class Announcement:
    """Prints the first iteration that it sees."""

    def __init__(self):
        self.made = False

    def __call__(self, n_iter, model):
        if not self.made:
            print(n_iter, flush=True)
        self.made = True


def start(args, checkpoint, result):
    """Start a child; return it and the first iteration that it reached."""
    same = ("rows", "max_iter", "seconds_between")
    options = [word for name in same for word in (f"--{name.replace('_', '-')}", str(getattr(args, name)))]
    command = [sys.executable, "-W", "ignore", __file__, *options, "--child", checkpoint, result]
    child = subprocess.Popen(list(map(str, command)), stdout=subprocess.PIPE, text=True)
    return child, int(child.stdout.readline() or -1)


def one_run(args, folder, seconds, rng):
    """Kill children at random moments, then let one complete; return its result and what was seen."""
    checkpoint, result = folder / "fit.npz", folder / "result.npz"
    seen = {"kills": 0, "files": 0, "half_written": 0, "resumed_at": []}
    while seen["kills"] < args.kills:
        child, _ = start(args, checkpoint, result)
        time.sleep(rng.uniform(0.0, seconds))
        seen["kills"] += child.poll() is None
        child.kill()
        child.wait()
        seen["files"] += checkpoint.exists()
        seen["half_written"] += any(folder.glob(".skgp_natgrad-*.part"))
    child, first = start(args, checkpoint, result)
    seen["resumed_at"].append(first)
    if child.wait():
        raise SystemExit(f"the child that was to complete ended with status {child.returncode}")
    return np.load(result), seen


def differences(result, reference):
    return [name for name in reference.files if not np.array_equal(result[name], reference[name])]


def main(argv=None):
    args = parse_arguments(argv)
    if args.child:
        return fit(args)
    rng = np.random.default_rng(args.seed)
    with tempfile.TemporaryDirectory() as place:
        whole = Path(place) / "whole.npz"
        child, _ = start(args, Path(place) / "fit.npz", whole)
        began = time.perf_counter()
        child.stdout.readline()
        seconds = time.perf_counter() - began
        if child.wait():
            raise SystemExit("the fit that nothing interrupts failed")
        reference = np.load(whole)
        print(f"uninterrupted: {int(reference['n_iter'])} iterations, {seconds:.1f} s from the first chunk", flush=True)
        totals, n_same = {"kills": 0, "files": 0, "half_written": 0, "resumed_at": []}, 0
        for number in range(args.runs):
            folder = Path(place) / str(number)
            folder.mkdir()
            result, seen = one_run(args, folder, seconds, rng)
            wrong = differences(result, reference)
            n_same += not wrong
            totals = {name: totals[name] + seen[name] for name in totals}
            print(f"run {number}: {seen}, {'differs in ' + ', '.join(wrong) if wrong else 'same bits'}", flush=True)
    print(
        f"{n_same} of {args.runs} runs the same to the bit; {totals['kills']} children killed while they ran, "
        f"{totals['files']} of which left a checkpoint and {totals['half_written']} a half-written file beside it"
    )
    return sys.exit(n_same < args.runs)


if __name__ == "__main__":
    main()
