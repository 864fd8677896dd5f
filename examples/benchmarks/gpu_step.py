"""A training step on a GPU, at the size of figure 2c of the orthogonal paper: milliseconds, and where they go.

    python examples/benchmarks/gpu_step.py --peer-python /path/to/peers/bin/python --rst
    python examples/benchmarks/gpu_step.py --device cpu --n-rows 5000 --n-inducing 60 --n-mean-inducing 90

The table is made up, with as many rows and columns as 3droad: 1500 points, 3500 of the mean alone, batches of
1024 rows. Ours, its floor and GPyTorch's natural gradients (coupled) and orthogonal strategy take turns on the same
device, as in ``step_time.py``. Then one chunk of our steps is recorded by JAX's profiler: the share of products
(cuBLAS and XLA's own), of factorisations and triangular solves (cuSOLVER and cuBLAS), and of all else.

Where JAX sees no GPU, the script says what it would run and ends. ``--device cpu`` is for trying it: there a product
may go on in other threads after the profiler has seen its end.
"""

from __future__ import annotations

import json
import os

import numpy as np
import step_time
from _common import chosen, contest_parser, machine, number, placed, run_alone, say, show, where, written

# As XLA and NVIDIA's libraries name them; the first that is found in a name counts.
PARTS = {
    "factorisations and triangular solves": (
        "cholesky",
        "potrf",
        "getrf",
        "triangular_solve",
        "trsm",
        "trtri",
        "cusolver",
    ),
    "products": ("gemm", "gemv", "dot", "matmul", "cutlass", "xmma", "cublas", "ynn_fusion"),
}
# One process each on the same device: none may take all of its memory.
SHARED = {"XLA_PYTHON_CLIENT_PREALLOCATE": "false"}
HIDDEN = {"JAX_PLATFORMS": "cpu", "CUDA_VISIBLE_DEVICES": ""}


def parse_arguments(argv=None):
    p = contest_parser(__doc__, "gpu_step.jsonl")
    p.add_argument("--device", choices=["gpu", "cpu"], default="gpu")
    p.add_argument("--n-rows", type=int, default=434_874)
    p.add_argument("--n-columns", type=int, default=3)
    p.add_argument("--n-inducing", type=int, default=1500)
    p.add_argument("--n-mean-inducing", type=int, default=3500)
    p.add_argument("--batch-size", type=int, default=1024)
    p.add_argument("--dtypes", nargs="+", choices=["float64", "float32"], default=["float64", "float32"])
    p.add_argument("--rounds", type=int, default=10)
    p.add_argument("--blocks", type=int, default=1, help="of 20 iterations, for each contender and round")
    p.set_defaults(before=None)  # `step_time.contenders` asks
    return p.parse_args(argv)


def contenders(args):
    """Those of ``step_time.py`` that have a GPU version, told the device."""
    return placed(step_time.contenders(args), args.device)


def has_gpu():
    """Whether JAX sees one."""
    import jax

    try:
        return bool(jax.devices("gpu"))
    except RuntimeError:
        return False


def plan(wanted, args):
    """What would be run, as text."""
    yield f"{args.n_rows} rows of {args.n_columns} columns; {args.rounds} rounds, {args.blocks} x 20 iterations each:"
    for name, one in wanted.items():
        yield f"  {name}: {one.library}, {one.target} {json.dumps(one.settings)}"
    yield "then a profile of: " + ", ".join(name for name in wanted if name.startswith("ours"))


def data(args):
    """A random table, and random rows of it as points: their place has no part in the cost."""
    rng = np.random.default_rng(args.seed)
    X = rng.normal(size=(args.n_rows, args.n_columns))
    y = np.sin(2.0 * X).sum(1) + 0.1 * rng.normal(size=len(X))
    rows = rng.permutation(len(X))[: args.n_inducing + args.n_mean_inducing]
    return {"X": X, "y": y, "Z": X[rows[: args.n_inducing]], "Z_mean": X[rows[args.n_inducing :]]}


def parts(milliseconds):
    """Milliseconds by part, from those by name."""
    total = dict.fromkeys((*PARTS, "all else"), 0.0)
    for name, value in milliseconds.items():
        part = next((part for part, words in PARTS.items() if any(word in name.lower() for word in words)), "all else")
        total[part] += value
    return total


def profiles(wanted, path, args):
    """Of ours, one after the other."""
    for name, one in wanted.items():
        if name.startswith("ours"):
            events = run_alone(f"{name}, profile", one._replace(target="ours:profile"), "profile", path, args)
            if events is not None:
                yield {"contender": name, **events["profiled"][0]}


def show_profiles(found, rst):
    """The device's milliseconds a step by part."""
    header = ["contender", *(f"{part}, ms" for part in (*PARTS, "all else")), "share of the first two"]
    rows = []
    for one in found:
        values = list(parts(one["milliseconds"]).values())
        share = sum(values[:-1]) / max(sum(values), 1e-12)
        rows.append([one["contender"], *(number(value, ".2f") for value in values), f"{share:.2f}"])
    show(header, rows, rst, [f"{where(found)} Device: {found[0]['kind']}."])


def main(argv=None):
    args = parse_arguments(argv)
    os.environ.update(HIDDEN if args.device == "cpu" else SHARED)
    if args.device == "gpu" and not has_gpu():
        say("JAX sees no GPU here (pip install jax[cuda] where there is one). What would be run:")
        print("\n".join(plan(chosen(contenders(args), args), args)))
        return
    wanted = chosen(contenders(args), args)
    common = {"device": args.device, "n_rows": args.n_rows} | machine()
    with written(**data(args)) as path:
        times = [one | common for one in step_time.alternating(wanted, path, args)]
        keep(times, args)
        step_time.table(times, args.rst)
        found = [one | common for one in profiles(wanted, path, args)]
    keep(found, args)
    if found:
        show_profiles(found, args.rst)


def keep(records, args):
    """Add them to the file."""
    with args.output.open("a") as file:
        file.writelines(json.dumps(one) + "\n" for one in records)


if __name__ == "__main__":
    main()
