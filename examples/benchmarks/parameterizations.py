"""How nearly the six parameterizations of q agree, after so many iterations of a Bernoulli fit on pima.

    python examples/benchmarks/parameterizations.py --max-iter 200 800 3000

All rows are one batch, and X is standardised: the six fits differ in the path of q alone. What is printed are the
bounds per row, their range, and the largest range of a predicted probability.
"""

from __future__ import annotations

import argparse
import os
import warnings
from pathlib import Path
from typing import get_args, get_type_hints

import numpy as np
from accuracy import DEFAULT_DATA, load
from sklearn.exceptions import ConvergenceWarning
from sklearn.gaussian_process.kernels import RBF, ConstantKernel

from skgp_natgrad import NGDSVGPClassifier


def main():
    """Fit and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data-dir", type=Path, default=Path(os.environ.get("SKGP_DATA", DEFAULT_DATA)))
    parser.add_argument("--max-iter", type=int, nargs="+", default=[200, 800, 3000])
    parser.add_argument("--n-inducing", type=int, default=50)
    arguments = parser.parse_args()
    warnings.simplefilter("ignore", ConvergenceWarning)
    X, y, _ = load(arguments.data_dir, "pima")
    names = get_args(get_type_hints(NGDSVGPClassifier.__init__)["parameterization"])
    for max_iter in arguments.max_iter:
        bounds, probabilities = [], []
        for name in names:
            options = {"solver": "ngd", "tol": 0.0, "batch_size": len(X), "calibrate": False, "random_state": 0}
            kernel = ConstantKernel(1.0) * RBF(np.ones(X.shape[1]))
            model = NGDSVGPClassifier(kernel, parameterization=name, n_inducing=arguments.n_inducing, **options)
            model.set_params(max_iter=max_iter).fit(X, y)
            bounds.append(model.elbo_ / len(X))
            probabilities.append(model.predict_proba(X)[:, 1])
        print(f"{max_iter} iterations:", *(f"{name} {bound:.6f}" for name, bound in zip(names, bounds, strict=True)))
        spread = np.ptp(probabilities, axis=0).max()
        print(f"    range of the bound {np.ptp(bounds):.1e}, of a probability {spread:.1e}", flush=True)


if __name__ == "__main__":
    main()
