"""Tests of cudabench/results/."""
