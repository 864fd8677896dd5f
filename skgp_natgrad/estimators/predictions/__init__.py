"""What fitted estimators predict."""
