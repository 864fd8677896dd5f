"""The numerical foundation: linear algebra, devices, threads, memory; and the package's version."""

__version__ = "0.1.0"
