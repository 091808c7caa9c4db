"""Counts of memory requests, sectors and wavefronts, equal to those of the hardware's counters."""
