"""Runs a kernel's machine code to count what a GPU executes. It does not look for hazards."""
