"""Tests of cudabench/simulator/."""
