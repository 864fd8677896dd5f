"""scikit-learn's side."""
