"""Tests of the native engine, native/ and cudabench/simulator/native/."""
