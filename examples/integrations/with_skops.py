"""skops: files that run no code when they are loaded, and a model card."""

import tempfile
from pathlib import Path

import numpy as np
import skops.io
from sklearn.datasets import load_diabetes
from sklearn.gaussian_process.kernels import RBF
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from skops import card

from skgp_natgrad import NGDSVGPRegressor, trusted_types

X, y = load_diabetes(return_X_y=True, as_frame=True)
path = Path(tempfile.mkdtemp()) / "model.skops"

# %% The recipe
reg = NGDSVGPRegressor(1.0 * RBF(3.0), random_state=0)
model = make_pipeline(StandardScaler(), reg).fit(X, y)
skops.io.dump(model, path)
loaded = skops.io.load(path, trusted=trusted_types())

model_card = card.Card(loaded).add_metrics(R2=loaded.score(X, y))

# %% What it shows
unknown = set(skops.io.get_untrusted_types(file=path))
text = model_card.render()
print(f"skops alone would not trust {sorted(unknown)}")
print(f"the card has {len(text.splitlines())} lines")
assert unknown <= set(trusted_types())
assert np.array_equal(loaded.predict(X), model.predict(X))
assert "NGDSVGPRegressor" in text
