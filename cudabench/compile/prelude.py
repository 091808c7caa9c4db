"""In-memory headers for parts of the C library that NVRTC lacks, and empty ones for the host's headers."""

from __future__ import annotations

import functools
import re
from collections.abc import Collection
from pathlib import Path

from cudabench.compile.stand_ins import read

PRELUDE = "cudabench_prelude.h"
_DEVICE_HEAP = read("device_heap.h")
# nvcc has these functions, but they fail unless the program is linked with the device's runtime.
DEVICE_HEAP_OF_NVCC = f"#ifdef __CUDA_ARCH__\n{_DEVICE_HEAP}#endif\n"
DEVICE_LAUNCH = read("device_launch.h")
# The same with bodies; called functions are in the machine code, but are never executed.
DEVICE_LAUNCH_IN_CODE = re.sub(
    r"^__device__ (.+);$",
    r'inline __device__ __noinline__ \1 { asm volatile("trap;"); return {}; }',
    DEVICE_LAUNCH,
    flags=re.MULTILINE,
)
DOT_PRODUCTS = read("dot_products.h")
# Headers that kernels cannot use, or whose useful parts the prelude has.
_HOST_ONLY = read("host_only.txt").split()
# Headers of the toolkit's host libraries; they include CUDA's own types (`library_header`).
LIBRARIES = (
    "cublas_v2.h", "cublas.h", "cublasLt.h", "cublasXt.h", "curand.h", "cusparse.h", "cusparse_v2.h", "cufft.h",
    "cufftXt.h", "cusolverDn.h", "cusolverSp.h", "cudnn.h", "nccl.h",
)  # fmt: skip
_LIBRARY_TYPES = {"cufft.h": read("cufft.h"), "cufftXt.h": read("cufft.h")}
# CUDA's own header for each name that files get through a library's header.
_BROUGHT = (
    (re.compile(r"_*half2?(_raw)?|__\w*half\w*|_*h2?(add|sub|mul|div|fma|exp|log|sqrt|max|min)2?"), "cuda_fp16.h"),
    (re.compile(r"\w*(bfloat16|bf16)\w*"), "cuda_bf16.h"),
    (re.compile(r"__nv_fp8\w*"), "cuda_fp8.h"),
    (re.compile(r"cu(Float|Double)?Complex|cuC[a-z]+f?|make_cu\w+"), "cuComplex.h"),
    (re.compile(r"nvcuda|wmma"), "mma.h"),
    (re.compile(r"cooperative_groups|cg"), "cooperative_groups.h"),
    (re.compile(r"CUDART_\w+"), "math_constants.h"),
    (re.compile(r"cub"), "cub/cub.cuh"),
)
# Headers of thrust and cub that launch kernels from the host. Those for device code are in CUDA's folder.
_LAUNCHING = read("launching.txt").split()
_COLLECTIVES = re.compile(r"\b(?:Block|Warp|Thread)[A-Z]\w*")
# Headers whose device part CUDA's own library has under another name.
_FORWARDED = """
algorithm array bit concepts functional initializer_list iterator limits numeric ratio tuple type_traits utility"""


def library_header(name: str, words: Collection[str] = ()) -> str:
    """Return the stand-in for a library's header: the types that kernels use, and CUDA's own headers that it would
    include and that define one of `words`."""
    brought = [header for pattern, header in _BROUGHT if any(map(pattern.fullmatch, words))]
    lines = "".join(f"#include <{header}>\n" for header in brought)
    return f"#pragma once\n{lines}{_LIBRARY_TYPES.get(name, '')}"


def libraries(words: Collection[str]) -> dict[str, str]:
    """Return the stand-ins for the headers of the toolkit's host libraries, for a text with these words."""
    return {name: library_header(name, words) for name in LIBRARIES}


def collectives(source: str, folder: Path) -> str:
    """Return the stand-in for cub/cub.cuh: the headers of the block and warp collectives that a source names.

    The real header also has device-wide algorithms, which the host launches. `folder` has CUDA's own headers.
    """
    lines = []
    for name in sorted(set(_COLLECTIVES.findall(source))):
        snake = re.sub(r"(?<!^)(?=[A-Z])", "_", name).lower()
        header = f"cub/{snake.partition('_')[0]}/{snake}.cuh"
        if (folder / "cccl" / header).is_file() or (folder / header).is_file():
            lines.append(f"#include <{header}>\n")
    return "".join(lines) + "#include <cub/util_ptx.cuh>\n"


@functools.lru_cache(maxsize=2)
def headers(*, forward: bool) -> tuple[tuple[str, str], ...]:
    """Return the in-memory headers by name; `forward`: CUDA's own library may replace the standard library."""
    hosts = (*_HOST_ONLY, *LIBRARIES, *_LAUNCHING)
    texts = dict.fromkeys(hosts, "// Nothing of this header is for device code.\n")
    texts |= {name: library_header(name) for name in _LIBRARY_TYPES}
    texts["cuda.h"] = read("cuda.h")
    texts["cudaTypedefs.h"] = '#include "cuda.h"\n'
    for name in _FORWARDED.split():
        texts[name] = f"#include <cuda/std/{name}>\nnamespace std {{ using namespace cuda::std; }}\n" if forward else ""
    texts[PRELUDE] = read("prelude.h") + _DEVICE_HEAP
    return tuple(texts.items())
