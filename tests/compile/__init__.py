"""Tests of cudabench/compile/."""
