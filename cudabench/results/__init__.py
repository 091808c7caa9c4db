"""What follows from results: comparisons, statistics, warnings, thresholds. It compiles and measures nothing."""
