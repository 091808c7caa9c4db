"""Compares what a kernel's machine code does, run by cudabench/simulator/machine_code, with PTX's results and a card."""
