"""Comparisons, statistics, warnings and thresholds, computed from results. This room compiles and measures nothing."""
