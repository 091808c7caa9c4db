"""What CUDA devices launch at most: the figures that the planner refuses by and the simulator too.

They are those of the CUDA C++ programming guide, technical specifications by compute capability; where capabilities
differ, the most that any card has, so that a kernel is refused only where no card takes it.
"""

from __future__ import annotations

MAX_THREADS_PER_BLOCK = 1024
MAX_BLOCK = (1024, 1024, 64)  # threads in x, y, z
MAX_GRID = (2**31 - 1, 65535, 65535)  # blocks in x, y, z
MAX_STATIC_SHARED = 48 * 1024  # bytes of arrays whose size the compiler knows
MAX_SHARED = 227 * 1024  # bytes of a block in all (compute capability 9.0 and 10.0)
MAX_CLUSTER = 16  # blocks, where a kernel may have more than the 8 that every card with clusters takes
MAX_REGISTERS = 255  # 4 bytes each, of a thread
