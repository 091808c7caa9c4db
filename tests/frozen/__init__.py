"""Frozen copies of what users rely on: results files, the Python API, printed text, machine code, counts, and times.

`python -m tests.frozen compare` compares the copies with this checkout; `write` writes new copies.
"""
