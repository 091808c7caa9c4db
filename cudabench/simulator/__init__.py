"""A NumPy SIMT interpreter of PTX; other packages call `simulator.api`. Importing this package alone loads no module,
because measurements on a GPU need only a few of them."""
