"""Finds what this machine has: driver, GPUs, nvcc, PyCUDA, NVRTC; without importing PyCUDA or creating a context."""

from __future__ import annotations

import ctypes
import os
import platform
import re
import shutil
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING
from uuid import UUID

from cudabench.errors import DeviceUnusable, NotEnoughMemory
from cudabench.system import native

if TYPE_CHECKING:
    from cudabench.records.results import DeviceInfo

# The numbers of device attributes, from CUdevice_attribute in cuda.h.
ATTRIBUTES = {
    "clock_khz": 13, "sm_count": 16, "memory_clock_khz": 36, "memory_bus_bits": 37, "l2_bytes": 38, "major": 75,
    "minor": 76,
}  # fmt: skip
NO_DEVICE = 100  # CUDA_ERROR_NO_DEVICE, a CUresult
SIMULATED = "simulated_start"  # only the simulated driver of the tests has a function of this name


@dataclass(frozen=True)
class Component:
    """A piece of software that a run may need. If it is usable, it has a version, else a `problem` and a `repair`."""

    name: str
    version: str | None = None
    problem: str | None = None
    repair: str | None = None
    device_count: int = 0

    @property
    def usable(self) -> bool:
        """Whether the component can be used."""
        return self.problem is None


@cache
def libcuda() -> ctypes.CDLL | None:
    """Return the driver's library, or None if it is not installed."""
    for name in ("nvcuda.dll",) if os.name == "nt" else ("libcuda.so.1", "libcuda.so"):
        try:
            return ctypes.CDLL(name)
        except OSError:
            continue
    return None


@cache
def driver() -> Component:
    """Return the NVIDIA driver, its version and the number of its GPUs."""
    library = libcuda()
    install = "install NVIDIA's driver"
    if library is None:
        return Component("driver", problem="this machine lacks an NVIDIA driver", repair=install)
    count, version = ctypes.c_int(), ctypes.c_int()
    if not (status := library.cuInit(0)):
        library.cuDeviceGetCount(ctypes.byref(count))
        library.cuDriverGetVersion(ctypes.byref(version))
    if not count.value:
        problem = "finds no GPU" if status in (0, NO_DEVICE) else f"does not start (error {status})"
        return Component("driver", problem=f"the NVIDIA driver {problem}", repair="check with nvidia-smi")
    cuda = f"CUDA {version.value // 1000}.{version.value % 1000 // 10}"
    kernel_module = _match_in("/proc/driver/nvidia/version", r"\s(\d{3}\.\d+(?:\.\d+)?)\s")
    return Component("driver", version=f"{kernel_module} ({cuda})" if kernel_module else cuda, device_count=count.value)


def _match_in(path: str, pattern: str) -> str | None:
    """Return the first group of a pattern's first match in a system file, or None."""
    try:
        match = re.search(pattern, Path(path).read_text(), re.MULTILINE)
    except OSError:
        return None
    return match[1].strip() if match else None


@cache
def gpu(index: int) -> DeviceInfo:
    """Return the description of a GPU. Its peak bandwidth is 2 * memory clock * bus width, in GB/s.

    The factor is 2 because memory transfers data on both edges of its clock; nvbench and BabelStream do the same.
    """
    from cudabench.records.results import DeviceInfo

    library = libcuda()
    if library is None:
        raise RuntimeError("gpu() needs a driver; call driver() first")
    device = ctypes.c_int()
    library.cuDeviceGet(ctypes.byref(device), index)
    attributes, value = {}, ctypes.c_int()
    for attribute, number in ATTRIBUTES.items():
        library.cuDeviceGetAttribute(ctypes.byref(value), number, device)
        attributes[attribute] = value.value
    name = ctypes.create_string_buffer(256)
    library.cuDeviceGetName(name, 256, device)
    uuid = ctypes.create_string_buffer(16)
    library.cuDeviceGetUuid(uuid, device)
    memory = ctypes.c_size_t()
    library.cuDeviceTotalMem_v2(ctypes.byref(memory), device)
    memory_khz, bus_bits = attributes["memory_clock_khz"], attributes["memory_bus_bits"]
    return DeviceInfo(
        name=name.value.decode(),
        kind="simulated" if hasattr(library, SIMULATED) else "cuda",
        compute_capability=f"{attributes['major']}.{attributes['minor']}",
        sm_count=attributes["sm_count"],
        l2_bytes=attributes["l2_bytes"],
        # Integrated GPUs do not report a memory clock, so their peak is unknown.
        peak_gbps=2 * memory_khz * 1e3 * bus_bits / 8 / 1e9 if memory_khz and bus_bits else None,
        clocks={"sm_mhz": attributes["clock_khz"] // 1000, "memory_mhz": memory_khz // 1000},
        driver=driver().version,
        uuid=f"GPU-{UUID(bytes=uuid.raw)}",
        memory_bytes=memory.value,
        index=index,
    )


def pci_address(index: int) -> str | None:
    """Return a GPU's PCI address, such as 0000:17:00.0, or None."""
    library, device, address = libcuda(), ctypes.c_int(), ctypes.create_string_buffer(32)
    if library is None or library.cuDeviceGet(ctypes.byref(device), index):
        return None
    failed = library.cuDeviceGetPCIBusId(address, len(address), device)
    return None if failed else address.value.decode()


@cache
def nvcc() -> Component:
    """Return NVIDIA's compiler nvcc, which PyCUDA calls; it works only with a host compiler."""
    from cudabench.compile import toolkit

    path = toolkit.nvcc()
    repair = "install the CUDA toolkit and put its bin folder on PATH, or run cudabench setup-gpu --nvcc"
    if path is None and shutil.which("nvcc"):
        return Component("nvcc", problem="nvcc lacks a host compiler", repair="install g++")
    if path is None:
        return Component("nvcc", problem="nvcc is not on PATH", repair=repair)
    try:
        answer = subprocess.run([path, "--version"], capture_output=True, text=True, timeout=30, check=True).stdout
    except (OSError, subprocess.SubprocessError) as error:
        return Component("nvcc", problem=f"nvcc does not run ({error})", repair=repair)
    match = re.search(r"release [\d.]+, V([\d.]+)", answer)
    return Component("nvcc", version=match[1] if match else "unknown")


def pycuda() -> Component:
    """Return PyCUDA, which runs kernels on a GPU."""
    return _package("PyCUDA", "pycuda", "pycuda", "cudabench setup-gpu")


def nvml() -> Component:
    """Return the Python package of NVIDIA's management library, which reads clocks during measurements."""
    return _package("NVML", "pynvml", "nvidia-ml-py", "pip install nvidia-ml-py")


def _package(name: str, module: str, distribution: str, repair: str) -> Component:
    if find_spec(module) is None:
        return Component(name, problem=f"{name} is not installed", repair=f"install it with {repair}")
    from importlib import metadata  # imported here because the import is slow

    try:
        return Component(name, version=metadata.version(distribution))
    except metadata.PackageNotFoundError:
        return Component(name, version="unknown")


def nvrtc() -> Component:
    """Return NVIDIA's run-time compiler NVRTC. The simulator needs it, and a GPU needs it if there is no nvcc."""
    from cudabench.compile import compiler

    try:
        version = compiler.nvrtc_version()
    except NotEnoughMemory as error:
        return Component(
            "NVRTC", problem=str(error).partition(" (")[0], repair="raise the limit that 'ulimit -v' shows"
        )
    if version is None:
        return Component(
            "NVRTC",
            problem="NVIDIA's run-time compiler NVRTC is not installed",
            repair="install it with pip install nvidia-cuda-nvrtc",
        )
    return Component("NVRTC", version=".".join(str(number) for number in version))


def engine() -> Component:
    """Return the simulator's native engine (C++); without it, the simulator executes kernels with NumPy."""
    lack = native.unavailable()
    library = None if lack else native.library()
    if library is None:
        problem, repair = (lack.problem, lack.repair) if lack else ("it was not built", "run cudabench again")
        return Component("engine", problem=f"NumPy, not the native one: {problem}", repair=repair)
    library.cudabench_native_version.restype = ctypes.c_char_p
    return Component("engine", version=f"native ({library.cudabench_native_version().decode().strip()})")


def runtime() -> Component:
    """Return cudabench's own CUDA runtime, with which `cudabench exec` links programs."""
    try:
        native.runtimes(at_need=False)
    except native.NotYetBuilt:
        return Component("runtime", version="of CUDA 12 and 13, built at its first use")
    except native.NotBuilt as lack:
        return Component("runtime", problem=f"programs have no CUDA runtime: {lack.problem}", repair=lack.repair)
    return Component("runtime", version="of CUDA 12 and 13")


def cupti() -> Component:
    """Return CUPTI, which records the launches of `cudabench exec` on a GPU."""
    from cudabench.compile import toolkit

    try:
        return Component("CUPTI", version=Path(toolkit.cupti()).resolve().name.rpartition(".so.")[2])
    except DeviceUnusable:
        return Component(
            "CUPTI", problem="CUPTI is not installed, so exec cannot list launches", repair=toolkit.CUPTI_INSTALL
        )


def gpu_compiler() -> Component:
    """Return the compiler for a GPU: nvcc or, without nvcc, NVRTC. The component has a problem if both are missing."""
    from cudabench.compile import compiler

    if compiler.gpu_backend() == "nvcc":
        return nvcc()
    run_time = nvrtc()
    if run_time.usable or nvcc().usable:
        return run_time
    return Component(
        "compiler", problem=f"{nvcc().problem} and {run_time.problem}", repair=f"{run_time.repair}, or {nvcc().repair}"
    )


@cache
def host() -> Mapping[str, object]:
    """Return the description of the host for the results file: its name, system, CPU and Python version."""
    return {
        "name": platform.node(),
        "system": f"{platform.system()} {platform.release()}",
        "machine": platform.machine(),
        "cpu": _match_in("/proc/cpuinfo", r"^model name\s*:\s*(.+)$") or platform.processor(),
        "cpu_count": os.cpu_count(),
        "python": platform.python_version(),
    }
