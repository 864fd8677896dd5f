"""The best q of all rows, solved for."""
