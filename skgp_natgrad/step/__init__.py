"""One training step, compiled."""
