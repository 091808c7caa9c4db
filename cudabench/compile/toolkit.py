"""Finds NVIDIA's compilers and headers on this machine.

cuda-pathfinder searches NVIDIA's wheels, conda, CUDA_PATH and CUDA_HOME, and the usual system folders, in this order.
"""

from __future__ import annotations

import functools
import os
import re
import shutil
import sys
from pathlib import Path

from cudabench.errors import NO_MEMORY, DeviceUnusable, NotEnoughMemory

CURAND = re.compile(r'^[ \t]*#[ \t]*include[ \t]*[<"](curand_\w+\.h)[>"]', re.M)
CURAND_WHEEL = "nvidia-curand"
CUPTI_INSTALL = "install the CUDA toolkit, or pip install nvidia-cuda-cupti (for CUDA 12: nvidia-cuda-cupti-cu12)"


def nvrtc() -> str:
    """Return the path of NVRTC's library. Raises DeviceUnusable if it is not installed or cannot be loaded."""
    from cuda import pathfinder

    try:
        path: str | None = pathfinder.load_nvidia_dynamic_lib("nvrtc").abs_path
    except (RuntimeError, OSError, MemoryError) as error:  # cuda-pathfinder's errors are RuntimeErrors
        raise unloadable(str(error)) from None
    if path is None:
        raise unloadable("")
    return path


def unloadable(why: str) -> DeviceUnusable:
    """Return the error for an NVRTC that cannot be loaded; `why`: the loader's message."""
    if any(sign in why for sign in NO_MEMORY):
        return NotEnoughMemory(
            "NVRTC cannot be loaded, because this process may take too little memory (it needs 1 GB of address space): "
            "raise the limit that 'ulimit -v' shows."
        )
    reason = f" ({' '.join(why.split())})" if why and "\n" not in why.strip() else ""
    return DeviceUnusable(
        f"No CUDA compiler can be loaded{reason}: install NVRTC with `pip install nvidia-cuda-nvrtc`."
    )


def cupti() -> str:
    """Return the path of CUPTI, which records a program's launches. Raises DeviceUnusable if it is not installed."""
    from cuda import pathfinder

    try:
        path: str | None = pathfinder.load_nvidia_dynamic_lib("cupti").abs_path
    except (RuntimeError, OSError):
        path = None
    if path is None:
        raise DeviceUnusable(
            f"CUPTI, which records a program's launches, is not installed: {CUPTI_INSTALL}, or add --device sim."
        )
    return path


@functools.lru_cache(maxsize=1)
def nvcc() -> str | None:
    """Return the path of nvcc: on PATH, else in a wheel or a toolkit; None if nvcc or its host compiler is missing."""
    path = shutil.which("nvcc")
    if path is None:
        from cuda import pathfinder

        path = pathfinder.find_nvidia_binary_utility("nvcc")
    return path if path and host_compiler() else None


def host_compiler() -> str | None:
    """Return the name or path of the C++ compiler that nvcc calls for preprocessing and host code, or None."""
    return os.environ.get("NVCC_CCBIN") or shutil.which("cl" if sys.platform == "win32" else "gcc")


def headers() -> Path | None:
    """Return the folder of CUDA's headers in a wheel or a toolkit, or None.

    The first complete folder is returned: one that also has CCCL's headers, for cooperative groups and CUB. If there is
    none, the first folder with cuda_fp16.h is returned; wheels of other packages contain only some headers.
    """
    compiler = shutil.which("nvcc")
    beside = str(Path(compiler).resolve().parent.parent / "include") if compiler else None
    places = [_headers_of("cudart"), beside, *_in_toolkits()]
    folders = [Path(place) for place in places if place and (Path(place) / "cuda_fp16.h").is_file()]
    whole = (folder for folder in folders if any((folder / sub / "nv" / "target").is_file() for sub in ("", "cccl")))
    return next(whole, folders[0] if folders else None)


def _headers_of(library: str) -> str | None:
    """Return the folder of a library's headers as cuda-pathfinder finds it, or None.

    The search starts a process, which can time out on a busy machine; then the result is None.
    """
    from cuda import pathfinder

    try:
        folder: str | None = pathfinder.find_nvidia_header_directory(library)
    except (RuntimeError, OSError):
        return None
    return folder


def _in_toolkits() -> list[str]:
    roots = (os.environ.get("CUDA_HOME"), "/usr/local/cuda")
    return [os.path.join(root, "include") for root in roots if root]


def device_library_headers(*texts: str) -> list[Path]:
    """Return the folder of cuRAND's headers in a list, if the texts include them and they are installed; else [].

    cuRAND is the only library for kernels whose headers neither NVRTC nor the wheel of CUDA's headers contains. These
    headers are in cuRAND's own wheel and in toolkits.
    """
    if not any(CURAND.search(text) for text in texts):
        return []
    places = [_headers_of("curand"), headers(), *_in_toolkits()]
    folders = (Path(place) for place in places if place and (Path(place) / "curand_kernel.h").is_file())
    return list(folders)[:1]
