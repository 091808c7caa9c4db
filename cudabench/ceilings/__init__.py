"""`cudabench ceilings`: what a card can do at most, measured one thing at a time.

`chapter` describes each microbenchmark of `kernels_cu/ceilings.cu`, `code` reads its machine code, `theory` says what
clocks and units allow; `gpu` measures on a device and `simulated` runs the same kernels without one; `worker` is the
process that owns the GPU, `run` keeps the results file.
"""
