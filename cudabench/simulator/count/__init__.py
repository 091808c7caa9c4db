"""Counts memory requests, sectors and wavefronts as the hardware counters of a GPU do."""
