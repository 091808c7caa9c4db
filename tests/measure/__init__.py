"""Tests of cudabench/measure/."""
