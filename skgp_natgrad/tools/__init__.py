"""Tools beside the estimators: a fitted model for services without JAX."""
