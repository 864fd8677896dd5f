"""polars: data frames in, and pipelines whose steps pass data frames on."""

import numpy as np
import polars as pl
from sklearn.gaussian_process.kernels import RBF
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from skgp_natgrad import NGDSVGPRegressor, kernels

rng = np.random.default_rng(0)
frame = pl.DataFrame({"area": rng.uniform(20, 150, 120), "distance": rng.gamma(2.0, 3.0, 120)})
rent = 12 + 40 / frame["area"].sqrt() - 0.3 * frame["distance"] + rng.normal(0.0, 0.3, 120)

# %% The recipe
kernel = 1.0 * kernels.Columns(RBF(), ["area"]) + 1.0 * kernels.Columns(RBF(), ["distance"])
model = make_pipeline(StandardScaler(), NGDSVGPRegressor(kernel, random_state=0)).set_output(transform="polars")
model.fit(frame, rent)

# %% What it shows
reg = model[-1]
print("columns:", reg.feature_names_in_.tolist())
print(f"relevance: {dict(zip(reg.feature_names_in_, reg.feature_importances_.round(2).tolist(), strict=True))}")
from_numpy = NGDSVGPRegressor(1.0 * RBF(), random_state=0).fit(frame.to_numpy(), rent.to_numpy())
from_polars = NGDSVGPRegressor(1.0 * RBF(), random_state=0).fit(frame, rent)
assert reg.feature_names_in_.tolist() == frame.columns
assert np.array_equal(from_polars.predict(frame), from_numpy.predict(frame.to_numpy()))
try:
    from_polars.predict(frame.select("distance", "area"))
except ValueError as error:
    print("columns in another order:", str(error).splitlines()[0])
else:
    raise AssertionError("columns in another order were accepted")
