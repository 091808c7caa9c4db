"""From what is asked for to launches: kernels, blocks, grids, arguments, and what no device launches."""
