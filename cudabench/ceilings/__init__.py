"""Measures the ceilings of a card by microbenchmarks, into a file of ceilings. Only `api` and `cli` import it."""
