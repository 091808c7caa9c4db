"""A CUDA driver whose GPU is the simulator: `build` makes it, `environment` has processes load it."""
