"""Tests of the documents, the package and what CI runs."""
