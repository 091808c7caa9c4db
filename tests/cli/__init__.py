"""Tests of cudabench/cli/."""
