"""Prints the parts of a machine that cudabench needs."""

from __future__ import annotations

from collections.abc import Sequence

from cudabench.devices.probe import Component
from cudabench.records.results import DeviceInfo
from cudabench.views import console
from cudabench.views.table import device_line
from cudabench.views.tables import Head, grid

PURPOSE = {
    "driver": "runs kernels on a GPU",
    "nvcc": "compiles for the GPU, host code too",
    "PyCUDA": "launches on the GPU",
    "NVML": "watches clocks while timing (optional)",
    "NVRTC": "compiles for the simulator, and for the GPU without nvcc",
    "engine": "executes in the simulator, the native one faster",
    "runtime": "serves whole programs, which cudabench exec runs in the simulator",
    "CUPTI": "times the launches of whole programs on a GPU",
}


def show_machine(parts: Sequence[Component], gpus: Sequence[DeviceInfo]) -> None:
    """Print the parts with their state, the GPUs, and the next command to type."""
    from rich.text import Text

    out = console.out()
    heads = [Head("part"), Head("for"), Head("state", wrap=True)]
    states = (
        Text(part.version or "", "green") if part.usable else Text(f"{part.problem}; {part.repair}", "yellow")
        for part in parts
    )
    out.print(grid(heads, [(part.name, PURPOSE[part.name], state) for part, state in zip(parts, states, strict=True)]))
    out.print()
    for gpu in gpus:
        out.print(device_line(gpu))
    usable = {part.name: part.usable for part in parts}
    if gpus and usable["PyCUDA"] and (usable["nvcc"] or usable["NVRTC"]):
        out.print("Kernels run on the GPU: cudabench transpose")
    elif gpus:
        out.print("The GPU cannot be used until PyCUDA and a compiler, nvcc or NVRTC, are installed.")
    if usable["NVRTC"]:
        out.print("Kernels run in the simulator: cudabench transpose --device sim")
