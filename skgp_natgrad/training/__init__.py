"""The host's side of training."""
