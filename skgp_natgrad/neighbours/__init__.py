"""Gaussian processes of rows and their nearest neighbours, for tables that inducing points do not explain.

For more than some tens of thousands of rows a thousand inducing points do not explain most of the prior variance, while
the nearest rows determine a row almost completely. `Nearest` finds them, `conditional` has the exact moments of a row
given them (Vecchia 1988; Datta, Banerjee, Finley and Gelfand 2016), and `vecchia` adds inducing points for what all
rows share (Gyger, Furrer and Sigrist 2025). If each row has all others as neighbours, it is the exact process.
"""

from __future__ import annotations

from .conditional import moments
from .nearest import Nearest, earlier
from .process import Neighbours
from .rates import rates

__all__ = ["Nearest", "Neighbours", "earlier", "moments", "rates"]
