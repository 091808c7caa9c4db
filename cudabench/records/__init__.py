"""The records that flow through cudabench: what is planned, launched and found."""
