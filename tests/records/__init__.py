"""Tests of cudabench/records/."""
