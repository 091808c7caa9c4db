"""Runs a kernel's machine code, lane by lane, to count what a GPU executes. It finds no faults and names nothing."""
