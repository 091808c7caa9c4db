"""The records (dataclasses) of cudabench: plans and launches, their results, and the file that holds the results.

All packages except `system` and `cards` may import it. It computes nothing.
"""
