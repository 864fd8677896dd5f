"""Where training starts."""
