"""What prediction needs, and prediction."""
