"""The ceilings of a card, measured: microbenchmarks in, a file of ceilings out. Only `api` and `cli` import it."""
