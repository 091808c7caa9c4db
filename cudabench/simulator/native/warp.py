"""Warp-wide instructions in the native engine."""
