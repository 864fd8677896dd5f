"""
Mixed columns: a kernel for each kind
=====================================

A table with numbers and categories, as it is. ``kernels.Columns`` gives each column a kernel of its own, by its name;
sums of such kernels are additive functions, which few rows suffice to learn.
"""

# %%
# A table of rents
# ----------------
#
# The rent depends on the area and the distance, and each district adds its own level.

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from sklearn.ensemble import HistGradientBoostingRegressor
from sklearn.gaussian_process.kernels import RBF

from skgp_natgrad import NGDSVGPRegressor, kernels

rng = np.random.default_rng(0)
N = 400
districts = np.array(["centre", "east", "harbour", "north", "south", "west"])
levels = dict(zip(districts, (6.0, -1.0, 3.0, 0.0, -2.0, 1.0), strict=True))
frame = pd.DataFrame(
    {
        "area": rng.uniform(20, 150, N),
        "distance": rng.gamma(2.0, 3.0, N),
        "district": pd.Categorical(rng.choice(districts, N)),
    }
)
rent = 12 + 40 / np.sqrt(frame.area) - 4 * np.tanh(frame.distance / 5) + frame.district.map(levels).astype(float)
rent = (rent + 0.5 * rng.normal(size=N)).to_numpy()
train, test = np.arange(N) < 150, np.arange(N) >= 150

# %%
# Three models of the same frame
# ------------------------------

additive = (
    1.0 * kernels.Columns(RBF(), "area")
    + 1.0 * kernels.Columns(RBF(), "distance")
    + 1.0 * kernels.Columns(RBF(), "district")
)
models = {
    "additive": NGDSVGPRegressor(additive, random_state=0),
    "nothing set": NGDSVGPRegressor(random_state=0),
    "trees": HistGradientBoostingRegressor(random_state=0),
}
for name, model in models.items():
    model.fit(frame[train], rent[train])
    error = rent[test] - model.predict(frame[test])
    print(f"{name:12s} RMSE {np.sqrt(np.mean(error**2)):.3f} (noise 0.5), {train.sum()} rows of training")

# %%
# What each column does
# ---------------------
#
# The other columns are held at one value; the band is the 95 % interval of a rent.

figure, axes = plt.subplots(1, 2, figsize=(11, 4.2), sharey=True, layout="constrained")
model = models["additive"]
for ax, column in zip(axes, ("area", "distance"), strict=True):
    grid = pd.DataFrame({"area": 70.0, "distance": 5.0, "district": "north"}, index=range(200))
    grid[column] = np.linspace(*frame[column].quantile([0.01, 0.99]), 200)
    mean, std = model.predict(grid, return_std=True)
    ax.fill_between(grid[column], mean - 1.96 * std, mean + 1.96 * std, color="tab:blue", alpha=0.2, label="95 %")
    ax.plot(grid[column], mean, color="tab:blue", linewidth=2, label="predicted, north")
    at = {"area": 70.0, "distance": 5.0} | {column: grid[column]}
    ax.plot(
        grid[column],
        12 + 40 / np.sqrt(at["area"]) - 4 * np.tanh(at["distance"] / 5),
        color="black",
        linestyle="--",
        linewidth=1,
        label="truth",
    )
    ax.set(xlabel=column, ylabel="rent" if column == "area" else "")
axes[0].legend()
plt.show()
