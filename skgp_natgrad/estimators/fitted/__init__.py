"""What a fit leaves: attributes, warnings, a summary, a saved model."""
