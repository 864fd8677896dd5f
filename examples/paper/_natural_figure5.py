"""Figure 5 of the natural gradient paper: where ordinary gradients fail.

    python examples/paper/figures.py natural5 [--quick]

The naval data with a Gaussian, a beta and an ordinal likelihood: the test
log-likelihood of NGD+Adam, and of Adam at several rates. Minibatches of 256 rows,
5000 iterations, one split; the natural gradient goes log-linearly from 1e-4 to
0.1 in 40 steps. The table has the estimator with nothing set, too, whose target is
standardised. The target is standardised, scaled to [0, 1] (and kept 1e-6 from
its ends, where a beta density has no logarithm) or to the levels 0 to 50.
"""

import _common as common
import _natural as natural
import _pictures as pictures

LIKELIHOODS = ("gaussian", "beta", "ordinal")
STEM = "natural5"


def parse(argv=None):
    p = natural.add_arguments(common.parser(__doc__, ("naval",), ("ngd+adam", "adam", natural.OURS)))
    p.add_argument("--likelihoods", nargs="+", choices=LIKELIHOODS, default=list(LIKELIHOODS))
    p.add_argument("--rates", nargs="+", type=float, default=[0.1, 0.01, 0.001], help="of Adam alone")
    p.add_argument("--adam-rate", type=float, default=0.01, help="of Adam beside the natural gradient")
    args = p.parse_args(argv)
    args.max_iter = args.max_iter or (300 if args.quick else 5000)
    if args.quick:
        args.max_rows = args.max_rows or 3000
    return args


def cells(args):
    made = {name: natural.settings(args, likelihood=name) for name in args.likelihoods}
    for name in args.likelihoods:
        for seed in args.seeds:
            for method in [each for each in args.methods if each != natural.OURS]:
                for rate in [args.adam_rate] if method == "ngd+adam" else args.rates:
                    chosen = natural.method_settings(method, True, rate, natural.SCHEDULE | {"n_steps": 40})
                    yield common.cell(STEM, "naval", method, seed, **made[name], **chosen)
    yield from natural.ours(STEM, "naval", args)


def panels(records, args):
    found = {}
    for record in [each for each in records if "curve" in each]:
        rate = record["settings"]["learning_rate"]
        adam = record["method"] == "adam"
        style = pictures.DASHES[args.rates.index(rate) % len(pictures.DASHES)] if adam else "-"
        line = (f"{natural.NAMES[record['method']]} {rate:g}", pictures.COLOURS[record["method"]], style, record)
        found.setdefault(record["settings"]["likelihood"], []).append(line)
    return found


def main(argv=None):
    args = parse(argv)
    records, failures = natural.run(list(cells(args)), args, STEM)
    title = "Figure 5: naval, mean test log-likelihood in the units of the scaled target"
    columns = {"log_density": 4, "elbo_per_row": 4, "rejected_steps": 0, "seconds": 1}
    natural.show_table(title, records, columns, args)
    lines = panels(records, args)
    if lines:
        natural.plot_scores(lines, args, STEM, "Figure 5: naval", "iteration")
    return 1 if failures else 0
