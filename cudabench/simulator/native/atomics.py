"""Atomic operations in the native engine."""
