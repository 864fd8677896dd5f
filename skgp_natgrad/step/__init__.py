"""The compiled training step."""
