"""Whole programs: their launches run in the simulator, checked and counted; their host code runs as it is."""
