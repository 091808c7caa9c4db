"""Measures the ceilings of a card (its highest rates and its latencies) with microbenchmarks, and writes the ceilings
to a file.

Only `api` and `cli` import this package.
"""
