"""The mean on all points, solved for."""
