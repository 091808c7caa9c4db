"""Tests of cudabench/explain/."""
