"""Tests of cudabench/plan/."""
