"""Tests of cudabench/fleet/."""
