"""Turns requests into launches: kernels, blocks, grids, arguments; and refuses launches that no device can run."""
