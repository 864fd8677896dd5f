"""Training by steps beside GPflow's: equal points, minibatches, kernels, step sizes and numbers of iterations.

    NPROC=1 python examples/benchmarks/equal_iterations.py --peer-python /path/to/peers/bin/python --rst

One regression and one class set. Both libraries train 300 points, which start at centres of k-means, by natural
gradient steps of 0.1 and by Adam's of ``--learning-rate`` with a cosine decay to zero, under the sum of a Matern 5/2
and an RBF kernel with a lengthscale for each column. One contender works at a time. The seconds are those of training,
compilation and the placing of our points included (GPflow's cost it nothing), without those in which a model is scored.
An iteration of GPflow has two gradients of the loss, the second one after the natural gradient step, and one of ours
has one: ``--times 2`` compares at equal numbers of gradients.
"""

from __future__ import annotations

from _common import Results, chosen, contest_parser, machine, number, prepared, run_alone, show, where
from time_to_accuracy import ours, peer, summary

# The data sets, their tasks and likelihoods, numbers of iterations, and GPflow's natural gradient steps. For labels its
# steps of 0.1, which ours reach after twenty smaller ones, end in an error: a value is NaN.
TABLES = {"kin40k": ("regression", "gaussian", 2000, 0.1), "magic": ("classification", "bernoulli", 1500, 0.01)}


def parse_arguments(argv=None):
    p = contest_parser(__doc__, "equal_iterations.jsonl")
    p.add_argument("--datasets", nargs="+", choices=TABLES, default=list(TABLES))
    p.add_argument("--n-inducing", type=int, default=300)
    p.add_argument("--n-mean-inducing", type=int, default=0)
    p.add_argument("--batch-size", type=int, default=1024)
    p.add_argument("--max-iter", type=int, help="at most")
    p.add_argument("--learning-rate", type=float, default=0.05)
    p.add_argument("--times", type=int, default=1, help="so many iterations of ours for each one of GPflow")
    p.add_argument("--n-scores", type=int, default=3)
    return p.parse_args(argv)


def contenders(dataset, args):
    """Both by name."""
    task, likelihood, max_iter, gamma = TABLES[dataset]
    own = ours(args, args.times * max_iter, args.learning_rate, kernel="paper")
    arguments = own.settings["arguments"] | {"likelihood": likelihood}
    own = own._replace(settings=own.settings | {"task": task, "ard": True, "arguments": arguments})
    return {
        "ours": own,
        "gpflow": peer("gpflow", args, max_iter, task=task, gamma=gamma, learning_rate=args.learning_rate),
    }


def results(args):
    """Run what is missing; returns the records."""
    file, found = Results(args.output), []
    for dataset in args.datasets:
        for name, contender in chosen(contenders(dataset, args), args).items():
            key = {"dataset": dataset, "contender": name, "settings": contender.settings, "seed": args.seed}
            if file.find(key) is None and not args.only_print:
                with prepared(dataset, args, args.n_inducing) as data:
                    events = run_alone(f"{dataset} {name}", contender, "curve", data, args)
                if events is not None:
                    file.add(key | summary(events) | machine())
            found.append(file.find(key))
    return [record for record in found if record is not None]


def main():
    """Print the table."""
    args = parse_arguments()
    records = results(args)
    rows = [
        [
            record["dataset"],
            f"{record['contender']} {record['version'] or ''}".strip(),
            str(record["iterations"][-1]),
            number(record["rmse"][-1], ".4f"),
            number(record["log_density"][-1], ".4f"),
            number(record["seconds"][-1], ".0f"),
        ]
        for record in records
    ]
    header = ["data", "library", "iterations", "RMSE or share of wrong labels", "log density", "seconds"]
    show(header, rows, args.rst, [where(records)])


if __name__ == "__main__":
    main()
