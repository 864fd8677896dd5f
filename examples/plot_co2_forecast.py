"""
Forecast with a composite kernel
================================

A Gaussian process extrapolates what its kernel says goes on. The kernel of Rasmussen and Williams (2006, section
5.4.3) for the carbon dioxide above Mauna Loa is a sum: a long trend, a season that slowly changes its shape,
irregularities over years, and noise. Beside it stands its first term alone, which takes the season for noise.
"""

# %%
# The series
# ----------
#
# The measurements need a download. This series is simulated in their likeness: a quadratic trend of about the
# published concentrations (316 ppm in 1959, 339 in 1980, 370 in 2000), a season of about 6 ppm with its peak in May,
# and a draw of the irregularities and the noise, with the constants that the book prints for the fitted kernel, in
# ppm and years.

import matplotlib.pyplot as plt
import numpy as np
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import RBF, ExpSineSquared, RationalQuadratic, WhiteKernel

from skgp_natgrad import NGDSVGPRegressor
from skgp_natgrad.inspection import PredictiveDisplay
from skgp_natgrad.likelihoods import Gaussian
from skgp_natgrad.metrics import interval_coverage

month = np.arange(1959, 2004, 1 / 12)[:, None]
year, phase = month[:, 0] - 1980, 2 * np.pi * month[:, 0]
trend = 338.8 + 1.27 * year + 0.0105 * year**2
season = (2.7 + 0.01 * year) * np.sin(phase - 0.6) + 0.8 * np.sin(2 * phase - 2.6)
published = 0.66**2 * RationalQuadratic(length_scale=1.2, alpha=0.78) + 0.18**2 * RBF(0.133) + WhiteKernel(0.19**2)
ppm = trend + season + GaussianProcessRegressor(published).sample_y(month, random_state=0)[:, 0]
known, future = month[:, 0] < 1996, month[:, 0] >= 1996
print(f"the season spans {np.ptp(season[-12:]):.1f} ppm, with its peak in month {1 + np.argmax(season[-12:])}")

# %%
# Two kernels
# -----------
#
# ``normalize_X=False`` and ``normalize_y="center"`` leave X in years and y in ppm, so that initial values can be
# given in these units: the likelihood, too, starts at a noise of 0.2 ppm. The shape of the irregularities is fixed:
# 37 years say little of it. All other numbers are those of the largest evidence.

smooth = 50.0**2 * RBF(50.0)
periodic = ExpSineSquared(1.0, periodicity=1.0, periodicity_bounds="fixed")
irregular = RationalQuadratic(length_scale=1.0, alpha=1.0, alpha_bounds="fixed")
kernels = {
    "trend alone": (smooth, Gaussian(4.0)),
    "composite": (smooth + 2.0**2 * RBF(100.0) * periodic + 0.5**2 * irregular, Gaussian(0.04)),
}
figure, axes = plt.subplots(2, 1, figsize=(7.5, 7.5), sharex=True, sharey=True, layout="constrained")
for (name, (kernel, likelihood)), ax in zip(kernels.items(), axes, strict=True):
    model = NGDSVGPRegressor(kernel, likelihood=likelihood, normalize_X=False, normalize_y="center", random_state=0)
    model.fit(month[known], ppm[known])
    error = np.sqrt(np.mean((model.predict(month[future]) - ppm[future]) ** 2))
    lower, upper = model.predict_interval(month[future], coverage=0.95)
    density = model.predict_log_density(month[future], ppm[future]).mean()
    print(
        f"{name:12s} eight years ahead: RMSE {error:.2f} ppm, log density {density:.2f}; 95 % intervals hold "
        f"{100 * interval_coverage(ppm[future], lower, upper):.0f} %, width {upper[0] - lower[0]:.1f} ppm at first, "
        f"{upper[-1] - lower[-1]:.1f} at last"
    )
    grid = np.linspace(1988, 2004, 500)[:, None]
    PredictiveDisplay(grid[:, 0], model.predict(grid), {0.95: model.predict_interval(grid, coverage=0.95)}).plot(ax=ax)
    ax.plot(month[known], ppm[known], ".", color="0.3", markersize=4, label="known")
    ax.plot(month[future], ppm[future], "x", color="black", markersize=4, label="what came")
    ax.axvline(1996, color="black", linewidth=0.8)
    ax.set(title=f"{name}: RMSE {error:.1f} ppm", ylabel="ppm", xlim=(1988, 2004), ylim=(343, 386))
    ax.set_xlabel("year" if name == "composite" else "")
    ax.legend(loc="upper left", ncols=2, fontsize=9)
print(model.summary())
plt.show()
