"""The numerical foundation: linear algebra, devices, threads, memory."""
