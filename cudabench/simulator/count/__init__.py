"""Counts of memory requests, sectors and wavefronts, as the hardware's counters would give them."""
