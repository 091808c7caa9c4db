"""Calls PyTorch: its own functions, and expressions that torch.compile compiles, on the operation's arrays.

PyTorch uses the GPU's primary context, as this process does, so its tensors can be views of the kernels' arrays.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from cudabench.devices.peers import STREAMS, Call, LibraryContext, Queue
from cudabench.errors import DeviceError, DeviceUnusable
from cudabench.records.plan import Buffer, Operation, Peer, Problem


def load(peer: Peer, operation: Operation, problem: Problem, context: LibraryContext) -> Call:
    """Return a call on tensors over the operation's arrays."""
    torch = _imported()
    device = torch.device("cuda", context.index)
    call = CALLS[operation.name](torch, problem)
    if peer.name.endswith("-compiled"):
        call = torch.compile(call, dynamic=False)

    def bind(addresses: Mapping[str, int]) -> Queue:
        buffers = [buffer for buffer in operation.buffers(problem) if buffer.role != "scratch"]
        tensors = [tensor(torch, device, buffer, addresses[buffer.name], problem.dtype) for buffer in buffers]
        streams: dict[int, Any] = {}

        def queue(stream: int) -> None:
            if stream not in streams:
                streams[stream] = torch.cuda.ExternalStream(stream, device=device)
            try:
                with torch.cuda.stream(streams[stream]), torch.no_grad():
                    call(*tensors)
            except RuntimeError as error:
                raise DeviceError(f"PyTorch failed: {str(error).strip().splitlines()[0]}") from error

        return queue

    return Call(f"PyTorch {torch.__version__}", bind, waits=peer.name in WAITS.get(operation.name, ()), streams=STREAMS)


def _imported() -> Any:
    os.environ.setdefault("TORCHINDUCTOR_COMPILE_THREADS", "1")  # let TorchInductor compile without child processes
    try:
        import torch
    except (ImportError, OSError) as error:
        why = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise DeviceUnusable(f"PyTorch cannot be imported ({why}): `pip install torch` has it.") from None
    if not torch.cuda.is_available():
        raise DeviceUnusable(f"PyTorch {torch.__version__} does not see the GPU: install a build for CUDA.")
    return torch


class _Array:
    """An array in device memory, with the attribute by which PyTorch makes a tensor of it."""

    def __init__(self, buffer: Buffer, address: int) -> None:
        self.__cuda_array_interface__ = {
            "shape": buffer.shape,
            "typestr": np.dtype(buffer.dtype).str,
            "data": (address, False),
            "strides": None,
            "version": 3,
        }


def tensor(torch: Any, device: Any, buffer: Buffer, address: int, dtype: str) -> Any:
    """Return a tensor that is a view of an array, without a copy. bfloat16, which NumPy lacks, is stored as int16."""
    if dtype == "bfloat16":
        return torch.as_tensor(_Array(replace(buffer, dtype="int16"), address), device=device).view(torch.bfloat16)
    return torch.as_tensor(_Array(buffer, address), device=device)


# Each function returns the library call for a problem. The arguments of the call are tensors of the operation's arrays,
# in the operation's order, without the scratch arrays. The call fills the outputs.


def distance(torch: Any, problem: Problem) -> Callable[..., Any]:
    """Return the call that computes out = |a - b|."""
    if problem.dtype == "int32":
        return lambda a, b, out: out.copy_((a.to(torch.int64) - b).square().sum().to(torch.float64).sqrt())
    return lambda a, b, out: out.copy_(torch.linalg.vector_norm(a - b))


def grayscale(torch: Any, problem: Problem) -> Callable[..., Any]:
    """Return the call that computes the weighted sum of a pixel's channels; the weights are whole hundredths."""

    def grey(rgb: Any, out: Any) -> Any:
        wide = rgb.to(torch.int32)
        return out.copy_((wide[..., 0] * 21 + wide[..., 1] * 72 + wide[..., 2] * 7 + 50) // 100)

    return grey


def blur(torch: Any, problem: Problem) -> Callable[..., Any]:
    """Return the call that computes the mean over the neighbours inside the picture."""
    reach = problem.options.get("radius", 1)

    def mean(source: Any, *outputs: Any) -> Any:
        channels = source[None, None] if source.dim() == 2 else source.permute(2, 0, 1)[None]
        blurred = torch.nn.functional.avg_pool2d(channels, 2 * reach + 1, 1, reach, count_include_pad=False)[0]
        return outputs[-1].copy_(blurred[0] if source.dim() == 2 else blurred.permute(1, 2, 0))

    return mean


CALLS: Mapping[str, Callable[[Any, Problem], Callable[..., Any]]] = {
    "transpose": lambda torch, problem: lambda source, out: out.copy_(source.t()),
    "matmul": lambda torch, problem: lambda a, b, c: torch.mm(a, b, out=c),
    # Each row of the matrix ends with padding, which is not multiplied.
    "matvec": lambda torch, problem: lambda a, x, y: torch.mv(a[:, : problem.size["cols"]], x, out=y),
    "distance": distance,
    "solve": lambda torch, problem: lambda a, b, x: torch.linalg.solve(a, b, out=x),
    "grayscale": grayscale,
    "blur": blur,
    "vecadd": lambda torch, problem: lambda a, b, c: torch.add(a, b, out=c),
}
# The peers whose call returns only after the device has finished, by operation.
WAITS = {"solve": ("torch",)}
