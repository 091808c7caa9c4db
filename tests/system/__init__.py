"""Tests of cudabench/system/."""
