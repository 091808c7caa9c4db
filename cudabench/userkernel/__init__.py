"""Runs a user's own kernel without host code: arguments and expected results come from the command line."""
