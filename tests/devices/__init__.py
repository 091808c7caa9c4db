"""Tests of cudabench/devices/."""
