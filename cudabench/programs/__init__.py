"""Runs whole programs: the simulator runs, checks and counts the kernels; the host code runs on the CPU as usual."""
