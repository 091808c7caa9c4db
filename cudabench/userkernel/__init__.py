"""A kernel of the user's own as an operation: arguments and expectations from the command line, no host code."""
