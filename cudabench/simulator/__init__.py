"""A NumPy SIMT interpreter of PTX; `simulator.api` is what other rooms call. Importing the room alone loads no module:
what measures on a GPU needs only a few of them."""
