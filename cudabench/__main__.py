"""`python -m cudabench`."""

from cudabench.cli import main

main()
