"""Devices that run kernels: `probe` finds what the machine has, `cuda` runs kernels on a GPU, `sim` in the simulator.

Only `cuda` imports PyCUDA. `cuda` and `sim` are imported when they are needed.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal

from cudabench.devices import probe
from cudabench.errors import DeviceUnusable, UsageError

DEFAULT_SIMULATED = "sm_90"


@dataclass(frozen=True)
class Choice:
    """The device that a run uses: the index of a GPU, or the architecture to simulate. `note` is printed before the
    run."""

    kind: Literal["cuda", "sim"]
    index: int = 0
    architecture: str = DEFAULT_SIMULATED
    note: str | None = None

    @property
    def name(self) -> str:
        """The device as an argument of `--device`, such as 'cuda:0' or 'sim:sm_90'."""
        return f"cuda:{self.index}" if self.kind == "cuda" else f"sim:{self.architecture}"


def choose(text: str) -> Choice:
    """Return the device for the text of `--device`.

    `auto` is the first GPU or, without an NVIDIA driver, the simulator. With a driver, but without PyCUDA or a compiler
    (nvcc or NVRTC), `auto` fails: cudabench does not simulate silently. Raises UsageError for a text that is not a
    device, and DeviceUnusable, with what to do, for a device that cannot be used here.
    """
    match = re.fullmatch(r"(auto|cuda|sim)(?::(\w+))?", text)
    if not match or (match[1] == "auto" and match[2]):
        raise UsageError(f"'{text}' is not a device: use auto, all, cuda, cuda:N, sim or sim:sm_90.")
    kind, detail = match[1], match[2]
    if kind == "sim":
        return _simulator(detail or DEFAULT_SIMULATED, note=None)
    if kind == "auto" and not probe.driver().usable:
        return _simulator(
            DEFAULT_SIMULATED, note=f"No GPU is used: {probe.driver().problem}, so the simulator runs the kernels."
        )
    if detail is not None and not re.fullmatch(r"\d{1,9}", detail, re.ASCII):
        raise UsageError(f"'{text}' is not a device: the GPU's number is missing, as in cuda:0.")
    return _gpu(int(detail or 0))


def choose_all(text: str) -> tuple[Choice, ...]:
    """Return the devices for the text of `--device`: every GPU of the machine for `all`, else that of `choose`."""
    if text != "all":
        return (choose(text),)
    first = _gpu(0)
    return (first, *(Choice("cuda", index=index) for index in range(1, probe.driver().device_count)))


def simulates(text: str) -> bool:
    """Return whether the text of `--device` means the simulator; this does not check that the simulator can run."""
    return text.startswith("sim") or (text == "auto" and not probe.driver().usable)


def usable_gpu(text: str) -> int | None:
    """Return the number of the GPU that the text of `--device` names; None for `auto` and `cuda`, which name none.

    Raises UsageError for a text that is not a GPU, and DeviceUnusable for a GPU that the driver does not have.
    """
    match = re.fullmatch(r"auto|cuda(?::(\d{1,9}))?", text, re.ASCII)
    if match is None:
        raise UsageError(f"'{text}' is not a device: use auto, cuda, cuda:N, sim or sim:sm_90.")
    _check_driver(int(match[1] or 0))
    return int(match[1]) if match[1] else None


def _simulator(architecture: str, note: str | None) -> Choice:
    if not re.fullmatch(r"sm_\d{2,3}[af]?", architecture):
        raise UsageError(f"'{architecture}' is not an architecture: use one like sm_80, sm_90 or sm_120.")
    part = probe.nvrtc()
    if not part.usable:
        raise DeviceUnusable(f"The simulator cannot compile kernels: {part.problem}; {part.repair}.")
    from cudabench.compile import compiler

    known = compiler.supported_architectures("nvrtc")
    if architecture.rstrip("af") not in {name.rstrip("af") for name in known}:
        raise UsageError(f"NVRTC {part.version} does not compile for {architecture}: use one of {', '.join(known)}.")
    return Choice("sim", architecture=architecture, note=note)


def _check_driver(index: int) -> None:
    """Raise DeviceUnusable if the machine has no driver, or no GPU with this number."""
    driver = probe.driver()
    if not driver.usable:
        raise DeviceUnusable(f"A GPU cannot be used: {driver.problem}; {driver.repair}, or simulate with --device sim.")
    if index >= driver.device_count:
        gpus = "cuda:0" if driver.device_count == 1 else f"cuda:0 to cuda:{driver.device_count - 1}"
        raise DeviceUnusable(f"GPU cuda:{index} does not exist: this machine has {gpus}; 'cudabench info' lists them.")


def _gpu(index: int) -> Choice:
    _check_driver(index)
    for part in (probe.pycuda(), probe.gpu_compiler()):
        if not part.usable:
            raise DeviceUnusable(f"There is a GPU, but {part.problem}; {part.repair}, or simulate with --device sim.")
    # NVRTC may lack the GPU's architecture, because the GPU is newer or older than NVRTC.
    if part.name == "NVRTC":
        from cudabench.compile import compiler

        gpu, supported = probe.gpu(index), compiler.supported_architectures("nvrtc")
        if supported and "sm_" + gpu.compute_capability.replace(".", "") not in supported:
            raise DeviceUnusable(
                f"NVRTC {part.version} does not compile for cuda:{index} ({gpu.name}, compute capability "
                f"{gpu.compute_capability}), only for {supported[0]} to {supported[-1]}: install a newer CUDA toolkit."
            )
    return Choice("cuda", index=index)
