"""Gaussian processes of rows and their nearest neighbours, for tables that inducing points do not explain.

For many thousand rows the inducing points may not explain most of the prior variance, while the nearest rows determine
a row almost completely. `Nearest` finds them, and `conditional` has the exact moments of a row given them (Vecchia
1988; Datta, Banerjee, Finley and Gelfand 2016). If each row has all others as neighbours, it is the exact process.
"""

from __future__ import annotations

from .conditional import moments
from .nearest import Nearest
from .process import Neighbours
from .rates import rates

__all__ = ["Nearest", "Neighbours", "moments", "rates"]
