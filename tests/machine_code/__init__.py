"""Compares the results of a kernel's machine code, as cudabench/simulator/machine_code runs it, with its PTX and with a
GPU."""
