"""Explains a kernel: its accesses, its limits, and repairs."""
