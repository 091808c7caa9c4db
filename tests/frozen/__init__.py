"""What users rely on, as it was: results files, the Python API, printed text, machine code, counts, and times.

`python -m tests.frozen` compares it with the checkout as it is, and writes it anew.
"""
