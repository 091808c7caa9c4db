"""The records of cudabench: plans and launches, their results, and the file that holds the results.

All rooms but `system` and `cards` may import it; it computes nothing.
"""
