"""One model, fitted by several processes on one or more hosts, each with its own rows.

    python fit.py --rows parts/{rank}.npy --coordinator host0:12345 --processes 2 --rank 0

Every process runs this same program. Each file holds a table whose last column is y; it is mapped into memory and read
where rows are needed. Without ``--coordinator`` JAX asks the environment, which it knows under SLURM and Open MPI.
``--demo N`` makes N rows in each process instead of reading them. See ``local.sh``, ``slurm.sh`` and
``kubernetes.yaml`` beside this file.
"""

import argparse

import jax
import joblib
import numpy as np

from skgp_natgrad import NGDSVGPRegressor


def parse_arguments():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--rows", default="parts/{rank}.npy", help="file of a process; {rank} stands for its number")
    p.add_argument("--demo", type=int, metavar="N")
    p.add_argument("--coordinator", help="address and port of the process of rank 0")
    p.add_argument("--processes", type=int)
    p.add_argument("--rank", type=int)
    p.add_argument("--n-inducing", type=int, default=500)
    p.add_argument("--max-iter", type=int, default=1000)
    p.add_argument("--checkpoint", default="fit.npz", help="written and read by the process of rank 0")
    p.add_argument("--model", default="model.joblib")
    return p.parse_args()


def rows(args, rank):
    """X and y of this process."""
    if args.demo is None:
        table = np.load(args.rows.format(rank=rank), mmap_mode="r")
        return table[:, :-1], table[:, -1]
    rng = np.random.default_rng(rank)
    X = rng.normal(size=(args.demo, 3))
    return X, np.sin(X).sum(axis=1) + 0.1 * rng.normal(size=args.demo)


def main():
    args = parse_arguments()
    # Before anything computes. A process that is gone is noticed within the minute.
    jax.distributed.initialize(args.coordinator, args.processes, args.rank, heartbeat_timeout_seconds=60)
    rank = jax.process_index()
    X, y = rows(args, rank)
    model = NGDSVGPRegressor(
        n_inducing=args.n_inducing,
        max_iter=args.max_iter,
        solver="ngd",
        random_state=0,
        n_devices="all",
        checkpoint=args.checkpoint,
        verbose=1,
    )
    model.fit(X, y)
    print(f"process {rank}: R2 on its own rows {model.score(X, y):.3f}", flush=True)
    if rank == 0:
        # All processes have the same model.
        joblib.dump(model.set_params(n_devices=None), args.model)


if __name__ == "__main__":
    main()
