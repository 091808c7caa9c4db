"""The tests; conftest.py has the shared fixtures."""
