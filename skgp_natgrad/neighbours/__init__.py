"""Gaussian processes of rows and their nearest neighbours, for tables that inducing points do not explain.

Past some tens of thousands of rows a thousand inducing points leave most of a table unexplained, and the nearest rows
tell nearly all of a row. `Nearest` finds them, `conditional` has the exact moments of a row given them (Vecchia 1988;
Datta, Banerjee, Finley and Gelfand 2016), and `vecchia` adds inducing points for what all rows share (Gyger, Furrer and
Sigrist 2025). Where each row has all others for neighbours, all of it is the exact process.
"""

from __future__ import annotations

from .conditional import moments
from .nearest import Nearest, earlier
from .process import Neighbours
from .rates import rates

__all__ = ["Nearest", "Neighbours", "earlier", "moments", "rates"]
