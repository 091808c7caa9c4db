"""A SIMT interpreter of PTX in NumPy; other packages call it through `simulator.api`. This file imports no module,
because a measurement on a GPU needs only a few of the package's modules."""
