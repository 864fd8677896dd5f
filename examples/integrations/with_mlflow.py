"""MLflow: a run with its arguments, its scores and the model, in a folder of this machine."""

import os
import tempfile
from pathlib import Path

import mlflow
import numpy as np
from sklearn.datasets import load_diabetes
from sklearn.gaussian_process.kernels import RBF

from skgp_natgrad import NGDSVGPRegressor, trusted_types
from skgp_natgrad.metrics import nlpd_scorer

X, y = load_diabetes(return_X_y=True, as_frame=True)
folder = Path(tempfile.mkdtemp())
os.chdir(folder)

# %% The recipe
mlflow.set_tracking_uri(f"sqlite:///{folder / 'runs.db'}")
mlflow.create_experiment("diabetes", artifact_location=(folder / "artifacts").as_uri())
mlflow.set_experiment("diabetes")
with mlflow.start_run() as run:
    reg = NGDSVGPRegressor(1.0 * RBF(3.0), random_state=0).fit(X[:300], y[:300])
    mlflow.log_params(reg.get_params())
    mlflow.log_metrics({"log_density": nlpd_scorer(reg, X[300:], y[300:]), "r2": reg.score(X[300:], y[300:])})
    logged = mlflow.sklearn.log_model(
        reg, name="model", input_example=X[:2], serialization_format="skops", skops_trusted_types=trusted_types()
    )

# %% What it shows
loaded = mlflow.sklearn.load_model(logged.model_uri)
served = mlflow.pyfunc.load_model(logged.model_uri)
metrics = mlflow.get_run(run.info.run_id).data.metrics
print("logged:", {name: round(value, 3) for name, value in metrics.items()})
assert np.array_equal(loaded.predict(X, return_std=True), reg.predict(X, return_std=True))
assert np.array_equal(served.predict(X), reg.predict(X))
