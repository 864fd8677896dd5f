"""What happens during a fit: preparation, calls between chunks, warm starts and streams."""
