"""Measures the ceilings of a card (its highest rates, its latencies) with microbenchmarks, and writes them to a file.

Only `api` and `cli` import this package.
"""
