"""Tests of cudabench/views/."""
