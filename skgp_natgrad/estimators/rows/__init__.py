"""Checks, encodings and scales of X, y, weights and the other known values of rows."""
