"""A Slurm of several nodes on one host."""
