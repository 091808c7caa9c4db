"""The records (dataclasses) of cudabench: plans, launches, results, and the results file.

All packages except `system` and `cards` may import this package. It computes nothing.
"""
