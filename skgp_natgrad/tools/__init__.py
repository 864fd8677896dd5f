"""Tools beside the estimators: a model for services without JAX, trusted classes, programs kept on disk."""
