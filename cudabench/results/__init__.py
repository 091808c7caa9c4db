"""What came of a run: the results file, statistics, comparison, thresholds, exports."""
