"""Runs whole programs: the simulator runs, checks and counts their kernels; their host code runs as usual."""
