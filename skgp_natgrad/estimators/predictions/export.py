"""The method `export`: the one place from which an estimator calls one of the tools around it."""

from __future__ import annotations

import os


class Exportable:
    """The method `export`, of every estimator."""

    def export(self, path: str | os.PathLike[str], return_std: bool = True) -> None:
        """Write the fitted model for programs that predict by NumPy alone, without this package and JAX.

        Beside the file, ``skgp_predictor.py`` is written: a module whose ``load(path)`` returns a model with `predict`
        and, of classifiers, ``predict_proba``. It takes complete tables, also with categories, and predicts the same
        numbers up to rounding. Of a data frame it refuses other columns, or another order, than those of the fit.
        Where rows are predicted from neighbors, the file holds the rows of the fit.

        Parameters
        ----------
        path : str or path
            The file to write, usually with the ending .npz. Its folder must exist.
        return_std : bool, default=True
            Whether a regressor's file holds what its standard deviation needs: 8 M\\ :sup:`2` / 2 bytes for M inducing
            points. Probabilities of classes need it, too.

        Raises
        ------
        ValueError
            If the model has a part that the module does not predict: correlated outputs, a mean function, a kernel of
            your own, or a likelihood other than "gaussian", "student_t", "bernoulli" and "softmax".

        Examples
        --------
        >>> import tempfile, sys
        >>> import numpy as np
        >>> from sklearn.gaussian_process.kernels import RBF
        >>> from skgp_natgrad import NGDSVGPRegressor
        >>> X = np.linspace(0, 10, 100)[:, None]
        >>> reg = NGDSVGPRegressor(1.0 * RBF(), n_inducing=12, random_state=0).fit(X, np.sin(X[:, 0]))
        >>> folder = tempfile.TemporaryDirectory()
        >>> reg.export(f"{folder.name}/sine.npz")

        In the other program, with both files in its folder:

        >>> sys.path.insert(0, folder.name)
        >>> from skgp_predictor import load
        >>> model = load(f"{folder.name}/sine.npz")
        >>> mean, std = model.predict(X, return_std=True)
        >>> bool(np.allclose(mean, reg.predict(X), atol=1e-10))
        True
        >>> sys.path.remove(folder.name)
        >>> folder.cleanup()
        """
        from ...tools.export import write

        write(self, path, return_std)
