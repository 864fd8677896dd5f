"""The papers' further bases, parameterizations and mean solvers, plugged in as anyone can plug in their own.

Salimbeni, Eleftheriadis and Hensman (2018); Salimbeni, Cheng, Boots and Deisenroth (2018); Shi, Titsias and Mnih
(2020).
"""

from ..step.algorithm import NATURAL_MEAN_SOLVERS
from ..variational.bases import BASES
from ..variational.parameterizations import PARAMETERIZATIONS
from .coordinates import COORDINATES
from .decoupled import DECOUPLED
from .hybrid import HYBRID
from .mean_steps import MEAN_STEPS
from .solve import SOLVE

BASES.update(hybrid=HYBRID, decoupled=DECOUPLED, solve=SOLVE)
PARAMETERIZATIONS.update(COORDINATES)
NATURAL_MEAN_SOLVERS.update(MEAN_STEPS)
