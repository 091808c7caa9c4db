"""Comparisons, statistics, warnings and thresholds, computed from results. Nothing here compiles or measures."""
