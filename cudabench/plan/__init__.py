"""Turns requests into launches (kernels, blocks, grids, arguments), and raises errors for impossible launches."""
