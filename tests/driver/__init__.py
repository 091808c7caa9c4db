"""A CUDA driver whose GPU is the simulator: `build` compiles it, and `python -m tests.driver` runs tests with it."""
