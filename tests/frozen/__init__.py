"""Frozen copies of what users rely on: results files, the Python API, printed text, machine code, counts, and times.

`python -m tests.frozen` compares them with this checkout, and writes new ones.
"""
