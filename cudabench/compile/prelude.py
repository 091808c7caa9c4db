"""Headers in memory for what NVRTC lacks of the C library, and empty ones for what only a host needs."""

from __future__ import annotations

import functools
import re
from collections.abc import Collection
from pathlib import Path

from cudabench.compile.stand_ins import read

PRELUDE = "cudabench_prelude.h"
_DEVICE_HEAP = read("device_heap.h")
# nvcc has them too, and they fail unless the program is linked with the device's runtime.
DEVICE_HEAP_OF_NVCC = f"#ifdef __CUDA_ARCH__\n{_DEVICE_HEAP}#endif\n"
DEVICE_LAUNCH = read("device_launch.h")
# The same with bodies, of which those that are called are in the machine code: none is ever executed.
DEVICE_LAUNCH_IN_CODE = re.sub(
    r"^__device__ (.+);$",
    r'inline __device__ __noinline__ \1 { asm volatile("trap;"); return {}; }',
    DEVICE_LAUNCH,
    flags=re.MULTILINE,
)
DOT_PRODUCTS = read("dot_products.h")
# Headers of which a kernel can use nothing, or nothing that the prelude does not have.
_HOST_ONLY = """
cuda_runtime.h cuda_runtime_api.h cuda_device_runtime_api.h device_launch_parameters.h device_functions.h
device_atomic_functions.h builtin_types.h driver_types.h vector_functions.h math_functions.h host_defines.h
cuda_profiler_api.h nvToolsExt.h omp.h
stdio.h cstdio stdlib.h cstdlib string.h cstring assert.h cassert time.h ctime stddef.h stdbool.h
stdint.h limits.h float.h math.h cstdint climits cfloat cmath cstddef errno.h cerrno signal.h unistd.h getopt.h fcntl.h
sys/time.h sys/types.h sys/stat.h sys/mman.h
iostream fstream sstream iomanip ostream istream string string_view vector map set unordered_map unordered_set
list deque queue stack memory chrono random thread mutex atomic condition_variable future stdexcept exception
execution span charconv codecvt compare coroutine numbers ranges source_location barrier latch semaphore shared_mutex
typeindex valarray version system_error cfenv csetjmp csignal cwchar cwctype wchar.h dirent.h pthread.h sched.h
malloc.h dlfcn.h libgen.h sys/resource.h sys/wait.h
alloca.h stdnoreturn.h stdalign.h stdatomic.h complex.h tgmath.h ctype.h cctype locale.h clocale uchar.h cuchar setjmp.h
iso646.h memory.h strings.h sys/param.h sys/ioctl.h sys/socket.h sys/sysinfo.h sys/timeb.h sys/utsname.h sys/file.h
windows.h direct.h io.h conio.h process.h expected generator mdspan memory_resource print scoped_allocator stacktrace
stop_token syncstream
cstdarg stdarg.h filesystem optional variant any regex new typeinfo cinttypes inttypes.h locale bitset iosfwd complex"""
# Headers of the toolkit's libraries for the host; they bring types of CUDA's own (`library_header`).
LIBRARIES = (
    "cublas_v2.h", "cublas.h", "cublasLt.h", "cublasXt.h", "curand.h", "cusparse.h", "cusparse_v2.h", "cufft.h",
    "cufftXt.h", "cusolverDn.h", "cusolverSp.h", "cudnn.h", "nccl.h",
)  # fmt: skip
_LIBRARY_TYPES = {"cufft.h": read("cufft.h"), "cufftXt.h": read("cufft.h")}
# The header of CUDA's own that has a name, for names that files get through a library's header.
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
# Headers of thrust and cub that launch kernels from the host. Those for device code are in CUDA's own folder.
_LAUNCHING_THRUST = """
adjacent_difference advance allocate_unique async/copy async/for_each async/reduce async/scan async/sort
async/transform binary_search copy count device_allocator device_delete device_free device_malloc
device_malloc_allocator device_new device_ptr device_reference device_vector equal event execution_policy extrema
fill find for_each future gather generate host_vector inner_product logical memory merge mismatch partition
per_device_resource reduce remove replace reverse scan scatter sequence set_operations shuffle sort swap_ranges
system_error system/cuda/execution_policy system/cuda/vector system/cpp/execution_policy system/omp/execution_policy
tabulate transform transform_reduce transform_scan uninitialized_copy uninitialized_fill unique universal_allocator
universal_ptr universal_vector zip_function"""
_LAUNCHING_CUB = """
adjacent_difference copy for histogram memcpy merge merge_sort partition radix_sort reduce run_length_encode scan
segmented_radix_sort segmented_reduce segmented_sort select spmv topk transform"""
_LAUNCHING = (
    *(f"thrust/{name}.h" for name in _LAUNCHING_THRUST.split()),
    *(f"cub/device/device_{name}.cuh" for name in _LAUNCHING_CUB.split()),
    "cub/util_allocator.cuh",
    "cub/grid/grid_barrier.cuh",
)
_COLLECTIVES = re.compile(r"\b(?:Block|Warp|Thread)[A-Z]\w*")
# Headers whose device half CUDA's own library has under another name.
_FORWARDED = """
algorithm array bit concepts functional initializer_list iterator limits numeric ratio tuple type_traits utility"""


def library_header(name: str, words: Collection[str] = ()) -> str:
    """Return what stands for a library's header: the types that kernels use of it, and the headers of CUDA's own that
    it would bring and that have one of these words."""
    brought = [header for pattern, header in _BROUGHT if any(map(pattern.fullmatch, words))]
    lines = "".join(f"#include <{one}>\n" for one in brought)
    return f"#pragma once\n{lines}{_LIBRARY_TYPES.get(name, '')}"


def libraries(words: Collection[str]) -> dict[str, str]:
    """Return what stands for the headers of the toolkit's libraries for the host, for a text of these words."""
    return {name: library_header(name, words) for name in LIBRARIES}


def collectives(source: str, folder: Path) -> str:
    """Return what stands for cub/cub.cuh: the headers of the block's and the warp's collectives that a source names.

    The real one has the device's too, which launch kernels from the host. `folder` has CUDA's own headers.
    """
    found = []
    for name in sorted(set(_COLLECTIVES.findall(source))):
        snake = re.sub(r"(?<!^)(?=[A-Z])", "_", name).lower()
        header = f"cub/{snake.partition('_')[0]}/{snake}.cuh"
        if (folder / "cccl" / header).is_file() or (folder / header).is_file():
            found.append(f"#include <{header}>\n")
    return "".join(found) + "#include <cub/util_ptx.cuh>\n"


@functools.lru_cache(maxsize=2)
def headers(*, forward: bool) -> tuple[tuple[str, str], ...]:
    """Return the in-memory headers by name; `forward` where CUDA's own may stand for the standard library's."""
    hosts = (*_HOST_ONLY.split(), *LIBRARIES, *_LAUNCHING)
    texts = dict.fromkeys(hosts, "// Nothing of this header is for device code.\n")
    texts |= {name: library_header(name) for name in _LIBRARY_TYPES}
    texts["cuda.h"] = read("cuda.h")
    texts["cudaTypedefs.h"] = '#include "cuda.h"\n'
    for name in _FORWARDED.split():
        texts[name] = f"#include <cuda/std/{name}>\nnamespace std {{ using namespace cuda::std; }}\n" if forward else ""
    texts[PRELUDE] = read("prelude.h") + _DEVICE_HEAP
    return tuple(texts.items())
