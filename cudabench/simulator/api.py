"""The public interface of the simulator: run a CUDA kernel without a GPU, check it, and count its instructions.

>>> program = load(ptx_text)
>>> report = run(program, "saxpy", grid=4096, block=256, arguments=[2.0, x, y, n])
"""

from __future__ import annotations

from cudabench.simulator.check.unwritten import Unwritten
from cudabench.simulator.errors import (
    BudgetExceeded,
    KernelAssert,
    KernelTrap,
    LaunchError,
    PtxError,
    UnsupportedKernel,
)
from cudabench.simulator.heap import HEAP_BYTES, Leak
from cudabench.simulator.launch import DEFAULT_BUDGET, run
from cudabench.simulator.memory import AddressSpace
from cudabench.simulator.native.launch import THREADS
from cudabench.simulator.program.arguments import Placed, Rows, Struct
from cudabench.simulator.program.code import Unsupported
from cudabench.simulator.program.program import Kernel, Program, load
from cudabench.simulator.report import (
    Access,
    Branch,
    Code,
    Contended,
    Executed,
    Footprint,
    Hazard,
    Imbalance,
    Lines,
    Report,
    Touch,
    merge,
    scaled,
    summed,
)
from cudabench.simulator.tensor_maps import TensorMap
from cudabench.simulator.textures import Texture

__all__ = [
    "DEFAULT_BUDGET", "HEAP_BYTES", "THREADS", "Access", "AddressSpace", "Branch", "BudgetExceeded", "Code",
    "Contended", "Executed", "Footprint", "Hazard", "Imbalance", "Kernel", "KernelAssert", "KernelTrap", "LaunchError",
    "Leak", "Lines", "Placed", "Program", "PtxError", "Report", "Rows", "Struct", "TensorMap", "Texture", "Touch",
    "Unsupported", "UnsupportedKernel", "Unwritten", "load", "merge", "run", "scaled", "summed",
]  # fmt: skip
