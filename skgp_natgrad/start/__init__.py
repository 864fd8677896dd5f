"""The state at which training starts."""
