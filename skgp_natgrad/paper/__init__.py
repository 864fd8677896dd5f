"""The papers' further bases and parameterizations, plugged in as anyone can plug in their own.

Salimbeni, Eleftheriadis and Hensman (2018); Salimbeni, Cheng, Boots and Deisenroth (2018); Shi, Titsias and Mnih
(2020).
"""

from ..variational.bases import BASES
from ..variational.parameterizations import PARAMETERIZATIONS
from .coordinates import COORDINATES
from .decoupled import DECOUPLED
from .hybrid import HYBRID
from .solve import SOLVE

BASES.update(hybrid=HYBRID, decoupled=DECOUPLED, solve=SOLVE)
PARAMETERIZATIONS.update(COORDINATES)
