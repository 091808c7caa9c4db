"""Checks for errors of a kernel: races, accesses out of bounds, reads of unwritten memory, barriers and deadlocks."""
