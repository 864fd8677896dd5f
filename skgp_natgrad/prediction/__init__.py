"""Predictions, and the posterior in the form that they use."""
