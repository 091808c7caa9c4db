"""The records that flow through cudabench: what is planned and launched, what came of it, and the file that holds it.

Any room but `system` and `cards` may import it; it computes nothing.
"""
