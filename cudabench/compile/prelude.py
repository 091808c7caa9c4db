"""In-memory headers for NVRTC: parts of the C library that NVRTC lacks, and empty headers in place of host headers."""

from __future__ import annotations

import functools
import re
from collections.abc import Collection
from pathlib import Path

from cudabench.compile.stand_ins import read

PRELUDE = "cudabench_prelude.h"
_DEVICE_HEAP = read("device_heap.h")
# nvcc declares cudaMalloc and cudaFree for kernels, but they fail unless the program is linked with the device runtime.
# So they are replaced in device code; the #ifdef leaves host code unchanged.
DEVICE_HEAP_OF_NVCC = f"#ifdef __CUDA_ARCH__\n{_DEVICE_HEAP}#endif\n"
DEVICE_LAUNCH = read("device_launch.h")
# The functions of DEVICE_LAUNCH with bodies, so that machine code can be made without linking. The bodies are never
# executed.
DEVICE_LAUNCH_IN_CODE = re.sub(
    r"^__device__ (.+);$",
    r'inline __device__ __noinline__ \1 { asm volatile("trap;"); return {}; }',
    DEVICE_LAUNCH,
    flags=re.MULTILINE,
)
DOT_PRODUCTS = read("dot_products.h")
# Headers for host code. The stand-ins for these headers can be empty: kernels cannot use the headers' contents, or the
# prelude already contains the useful parts.
_HOST_ONLY = read("host_only.txt").split()
# Headers of the toolkit's libraries for host code. The real headers also include CUDA headers on which user files rely
# (see `library_header`).
LIBRARIES = (
    "cublas_v2.h", "cublas.h", "cublasLt.h", "cublasXt.h", "curand.h", "cusparse.h", "cusparse_v2.h", "cufft.h",
    "cufftXt.h", "cusolverDn.h", "cusolverSp.h", "cudnn.h", "nccl.h",
)  # fmt: skip
_LIBRARY_TYPES = {"cufft.h": read("cufft.h"), "cufftXt.h": read("cufft.h")}
# (pattern of names, the CUDA header that declares these names). A user's file may use such a name although the file
# includes only the header of a host library, which includes the CUDA header.
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
# Headers of thrust and cub that launch kernels from host code. Their headers for device code come with CUDA's own
# headers.
_LAUNCHING = read("launching.txt").split()
_COLLECTIVES = re.compile(r"\b(?:Block|Warp|Thread)[A-Z]\w*")
# Headers of the C++ standard library for which libcu++ has a version for device code, as <cuda/std/NAME>.
_FORWARDED = """
algorithm array bit concepts functional initializer_list iterator limits numeric ratio tuple type_traits utility"""


def library_header(name: str, words: Collection[str] = ()) -> str:
    """Return the stand-in text for a host library's header.

    The stand-in has the library's types that kernels use. It includes a CUDA header if the real header includes this
    CUDA header, and the CUDA header defines one of `words` (the words of the user's text).
    """
    brought = [header for pattern, header in _BROUGHT if any(map(pattern.fullmatch, words))]
    lines = "".join(f"#include <{header}>\n" for header in brought)
    return f"#pragma once\n{lines}{_LIBRARY_TYPES.get(name, '')}"


def libraries(words: Collection[str]) -> dict[str, str]:
    """Return the stand-in texts for all headers of the toolkit's host libraries, keyed by header name."""
    return {name: library_header(name, words) for name in LIBRARIES}


def collectives(source: str, folder: Path) -> str:
    """Return the stand-in for cub/cub.cuh: includes of the headers of those block and warp collectives that a source
    names.

    The real header also has device-wide algorithms, which only the host can launch. `folder`: where CUDA's headers are.
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
    """Return (name, text) of each in-memory header; `forward`: whether standard headers include libcu++'s."""
    hosts = (*_HOST_ONLY, *LIBRARIES, *_LAUNCHING)
    texts = dict.fromkeys(hosts, "// Nothing of this header is for device code.\n")
    texts |= {name: library_header(name) for name in _LIBRARY_TYPES}
    texts["cuda.h"] = read("cuda.h")
    texts["cudaTypedefs.h"] = '#include "cuda.h"\n'
    for name in _FORWARDED.split():
        texts[name] = f"#include <cuda/std/{name}>\nnamespace std {{ using namespace cuda::std; }}\n" if forward else ""
    texts[PRELUDE] = read("prelude.h") + _DEVICE_HEAP
    return tuple(texts.items())
