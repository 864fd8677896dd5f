"""The package's version, for modules that cannot import the package itself."""

__version__ = "0.1.0"
