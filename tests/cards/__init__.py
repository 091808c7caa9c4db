"""Tests of cudabench/cards/."""
