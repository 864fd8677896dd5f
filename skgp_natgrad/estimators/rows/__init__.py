"""X, y, weights and what else is known of rows: checked, encoded and scaled."""
