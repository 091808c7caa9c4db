"""Reasons: what a kernel's accesses are, what holds it, and what would help."""
