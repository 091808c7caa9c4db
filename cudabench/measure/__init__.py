"""Runs cases and returns their results: on a GPU, which a separate process uses, or in the simulator."""
