"""A SIMT interpreter of PTX in NumPy; other packages call it through `simulator.api`. This file imports no module of
the package, so that a measurement on a GPU loads only the few modules that it needs."""
