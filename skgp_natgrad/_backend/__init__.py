"""What the numerics stand on: linear algebra, devices, threads, memory."""
