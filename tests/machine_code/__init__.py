"""Compares what a kernel's machine code does, as cudabench/simulator/machine_code runs it, with PTX and a card."""
