"""Tests of cudabench/operations/."""
