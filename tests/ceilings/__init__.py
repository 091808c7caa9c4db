"""Tests of cudabench/ceilings/."""
