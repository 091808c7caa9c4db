"""Tests of cudabench/source/."""
