"""The posterior in the form for prediction, and prediction."""
