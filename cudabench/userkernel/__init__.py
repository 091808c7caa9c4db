"""A user's own kernel as an operation: arguments and expectations from the command line, without host code."""
