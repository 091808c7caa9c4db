"""What a machine has, part by part."""

from __future__ import annotations

from collections.abc import Sequence

from cudabench.devices.probe import Part
from cudabench.records.results import DeviceInfo
from cudabench.views import console
from cudabench.views.table import device_line

PURPOSE = {
    "driver": "runs kernels on a GPU",
    "nvcc": "compiles for the GPU, host code too",
    "PyCUDA": "launches on the GPU",
    "NVML": "watches clocks while timing (optional)",
    "NVRTC": "compiles for the simulator, and for the GPU without nvcc",
}


def show(parts: Sequence[Part], gpus: Sequence[DeviceInfo]) -> None:
    """Print the parts, the GPUs and what follows from them."""
    from rich.table import Table
    from rich.text import Text

    out = console.out()
    table = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False, header_style="bold")
    for heading in ("part", "for", "state"):
        table.add_column(heading, no_wrap=heading != "state", overflow="fold")
    for part in parts:
        state = (
            Text(part.version or "", style="green")
            if part.usable
            else Text(f"{part.problem}; {part.repair}", style="yellow")
        )
        table.add_row(part.name, PURPOSE[part.name], state)
    out.print(table)
    out.print()
    for gpu in gpus:
        out.print(device_line(gpu))
    usable = {part.name: part.usable for part in parts}
    if gpus and usable["PyCUDA"] and (usable["nvcc"] or usable["NVRTC"]):
        out.print("Kernels run on the GPU: cudabench transpose")
    elif gpus:
        out.print("The GPU cannot be used until PyCUDA and a compiler, nvcc or NVRTC, are there.")
    if usable["NVRTC"]:
        out.print("Kernels run in the simulator: cudabench transpose --device sim")
