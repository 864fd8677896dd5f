"""The results of a fit: attributes, warnings, a summary, a saved model."""
