"""Explains the performance of a kernel: its memory accesses, its limits (lower bounds on its time), and advice."""
