"""Tests of cudabench/userkernel/."""
