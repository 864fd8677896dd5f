"""Training on the host: batches, the loop, schedules, the test of convergence, checkpoints."""
