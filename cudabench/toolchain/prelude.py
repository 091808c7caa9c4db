"""Headers in memory for what NVRTC lacks of the C library, and empty ones for what only a host needs."""

from __future__ import annotations

import functools
import re
from collections.abc import Iterable
from pathlib import Path

# nvcc includes cuda_runtime.h, and by it parts of the C library, in front of every file. Kernels rely on it.
PRELUDE = "cudabench_prelude.h"
_INTEGERS = "".join(
    f"typedef {sign}{base} {'u' if sign else ''}int{infix}{bits}_t;\n"
    for bits, base in (
        (8, "char"),
        (16, "short"),
        (32, "int"),
        (64, "long long"),
    )  # 64: as CUDA's own headers under NVRTC
    for infix in ("", "_least", "_fast")
    for sign in ("", "unsigned ")
).replace("typedef char", "typedef signed char")
_LIMITS = """
#define CHAR_BIT 8
#define SCHAR_MIN (-128)
#define SCHAR_MAX 127
#define UCHAR_MAX 255
#define CHAR_MIN SCHAR_MIN
#define CHAR_MAX SCHAR_MAX
#define SHRT_MIN (-32768)
#define SHRT_MAX 32767
#define USHRT_MAX 65535
#define INT_MIN (-2147483647 - 1)
#define INT_MAX 2147483647
#define UINT_MAX 4294967295u
#define LLONG_MIN (-9223372036854775807ll - 1)
#define LLONG_MAX 9223372036854775807ll
#define ULLONG_MAX 18446744073709551615ull
#define LONG_MIN ((long)LLONG_MIN)
#define LONG_MAX ((long)LLONG_MAX)
#define ULONG_MAX ((unsigned long)ULLONG_MAX)
"""
_FLOATS = """
#define FLT_RADIX 2
#define FLT_MANT_DIG 24
#define FLT_DIG 6
#define FLT_MIN_EXP (-125)
#define FLT_MAX_EXP 128
#define FLT_EPSILON 1.19209289550781250e-07f
#define FLT_MIN 1.17549435082228751e-38f
#define FLT_MAX 3.40282346638528860e+38f
#define DBL_MANT_DIG 53
#define DBL_DIG 15
#define DBL_MIN_EXP (-1021)
#define DBL_MAX_EXP 1024
#define DBL_EPSILON 2.22044604925031308e-16
#define DBL_MIN 2.22507385850720138e-308
#define DBL_MAX 1.79769313486231571e+308
"""
_FIXED = "".join(
    f"#define INT{bits}_MAX {most}{'ll' if bits == 64 else ''}\n"
    f"#define INT{bits}_MIN (-{most}{'ll' if bits == 64 else ''} - 1)\n"
    f"#define UINT{bits}_MAX {2 * most + 1}{'ull' if bits == 64 else 'u' if bits == 32 else ''}\n"
    for bits, most in ((8, 2**7 - 1), (16, 2**15 - 1), (32, 2**31 - 1), (64, 2**63 - 1))
)
_MATHS = """
#define M_E 2.7182818284590452354
#define M_LOG2E 1.4426950408889634074
#define M_LOG10E 0.43429448190325182765
#define M_LN2 0.69314718055994530942
#define M_LN10 2.30258509299404568402
#define M_PI 3.14159265358979323846
#define M_PI_2 1.57079632679489661923
#define M_PI_4 0.78539816339744830962
#define M_1_PI 0.31830988618379067154
#define M_2_PI 0.63661977236758134308
#define M_2_SQRTPI 1.12837916709551257390
#define M_SQRT2 1.41421356237309504880
#define M_SQRT1_2 0.70710678118654752440
#define INFINITY __int_as_float(0x7f800000)
#define HUGE_VALF INFINITY
#define HUGE_VAL __longlong_as_double(0x7ff0000000000000ll)
#define NAN __int_as_float(0x7fffffff)
"""
_STANDARD_MATHS = """
abs fabs sqrt cbrt hypot exp exp2 expm1 log log2 log10 log1p pow sin cos tan asin acos atan atan2 sinh cosh tanh asinh
acosh atanh erf erfc tgamma lgamma ceil floor trunc round rint nearbyint fmod remainder fma fmin fmax fdim copysign
ldexp frexp modf isnan isinf isfinite signbit"""
_TYPES = """typedef unsigned int uint;
typedef unsigned short ushort;
typedef unsigned long ulong;
typedef unsigned char u_char;
typedef unsigned short u_short;
typedef unsigned int u_int;
typedef unsigned long u_long;
typedef unsigned char u_int8_t;
typedef unsigned short u_int16_t;
typedef unsigned int u_int32_t;
typedef unsigned long u_int64_t;
typedef long ssize_t;
typedef long long intmax_t;
typedef unsigned long long uintmax_t;
typedef long long time_t;
typedef long off_t;
typedef long long intptr_t;
typedef unsigned long long uintptr_t;
"""
# GNU's word that silences warnings, which C headers write in front of types.
_EXTENSION = "#define __extension__\n"
# What cuda_device_runtime_api.h has for kernels that are launched before the one in front of them has ended.
_DEPENDENT_LAUNCH = """#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900
static __device__ __forceinline__ void cudaTriggerProgrammaticLaunchCompletion() {
    asm volatile("griddepcontrol.launch_dependents;");
}
static __device__ __forceinline__ void cudaGridDependencySynchronize() {
    asm volatile("griddepcontrol.wait;" ::: "memory");
}
#endif
"""

# What cuda_device_runtime_api.h has for kernels that take memory: the heap of malloc, as the real ones. Macros, so that
# the call of malloc is on the user's line.
_DEVICE_HEAP = """template <typename T>
static __host__ __device__ __forceinline__ cudaError_t cudabench_given(T **memory, void *given) {
    *memory = static_cast<T *>(given);
    return given == nullptr ? cudaErrorMemoryAllocation : cudaSuccess;
}
static __host__ __device__ __forceinline__ cudaError_t cudabench_freed(int) { return cudaSuccess; }
#define cudaMalloc(memory, ...) cudabench_given(memory, malloc(__VA_ARGS__))
#define cudaFree(...) cudabench_freed((free(__VA_ARGS__), 0))
"""
# nvcc has them too, and they fail unless the program is linked with the device's runtime.
DEVICE_HEAP_OF_NVCC = f"#ifdef __CUDA_ARCH__\n{_DEVICE_HEAP}#endif\n"

# What a kernel that launches kernels calls of that header: the simulator refuses each where it is reached.
DEVICE_LAUNCH = """extern "C" {
__device__ void *cudaGetParameterBufferV2(void *function, dim3 grid, dim3 block, unsigned int shared);
__device__ cudaError_t cudaLaunchDeviceV2(void *buffer, cudaStream_t stream);
__device__ cudaError_t cudaDeviceSynchronize();
__device__ cudaError_t cudaGetLastError();
__device__ cudaError_t cudaPeekAtLastError();
__device__ const char *cudaGetErrorString(cudaError_t error);
__device__ const char *cudaGetErrorName(cudaError_t error);
__device__ cudaError_t cudaGetDevice(int *device);
__device__ cudaError_t cudaGetDeviceCount(int *count);
__device__ cudaError_t cudaDeviceGetAttribute(int *value, cudaDeviceAttr attribute, int device);
__device__ cudaError_t cudaStreamCreateWithFlags(cudaStream_t *stream, unsigned int flags);
__device__ cudaError_t cudaStreamDestroy(cudaStream_t stream);
__device__ cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned int flags);
__device__ cudaError_t cudaEventCreateWithFlags(cudaEvent_t *event, unsigned int flags);
__device__ cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream);
__device__ cudaError_t cudaEventDestroy(cudaEvent_t event);
__device__ cudaError_t cudaMemcpyAsync(void *to, const void *from, size_t bytes, cudaMemcpyKind, cudaStream_t = 0);
__device__ cudaError_t cudaMemsetAsync(void *to, int value, size_t bytes, cudaStream_t stream = 0);
}
"""
# The same with bodies, of which those that are called are in the machine code: none is ever executed.
DEVICE_LAUNCH_IN_CODE = re.sub(
    r"^__device__ (.+);$",
    r'inline __device__ __noinline__ \1 { asm volatile("trap;"); return {}; }',
    DEVICE_LAUNCH,
    flags=re.MULTILINE,
)

# The products of bytes and of halves, which NVRTC 13 refuses without optimisation for what is older than sm_100.
DOT_PRODUCTS = "".join(
    f"""static __device__ __forceinline__ {number} cudabench_{name}({number} a, {number} b, {number} c) {{
    asm("{instruction}.{form}.{form} %0, %1, %2, %0;" : "+r"(c) : "r"(a), "r"(b));
    return c;
}}
static __device__ __forceinline__ {number} cudabench_{name}({left} a, {right} b, {number} c) {{
    return cudabench_{name}(reinterpret_cast<{number} &>(a), reinterpret_cast<{number} &>(b), c);
}}
"""
    for name, instruction, wide in (
        ("dp4a", "dp4a", "char4"),
        ("dp2a_lo", "dp2a.lo", "short2"),
        ("dp2a_hi", "dp2a.hi", "short2"),
    )
    for number, form, left, right in (("int", "s32", wide, "char4"), ("unsigned", "u32", "u" + wide, "uchar4"))
) + "".join(f"#define __{name} cudabench_{name}\n" for name in ("dp4a", "dp2a_lo", "dp2a_hi"))

# What cuda.h has for kernels.
_DRIVER = """#pragma once
typedef struct __align__(128) CUtensorMap_st { unsigned long long opaque[16]; } CUtensorMap;
typedef unsigned long long CUdeviceptr;
typedef unsigned long long CUtexObject;
typedef unsigned long long CUsurfObject;
typedef struct CUstream_st *CUstream;
typedef struct CUctx_st *CUcontext;
typedef struct CUfunc_st *CUfunction;
typedef struct CUmod_st *CUmodule;
typedef struct CUevent_st *CUevent;
typedef int CUdevice;
"""
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
# Headers of the toolkit's libraries for the host; they bring types of CUDA's own (`headers_with`).
LIBRARIES = (
    "cublas_v2.h", "cublas.h", "cublasLt.h", "cublasXt.h", "curand.h", "cusparse.h", "cusparse_v2.h", "cufft.h",
    "cufftXt.h", "cusolverDn.h", "cusolverSp.h", "cudnn.h", "nccl.h",
)  # fmt: skip
# What kernels use of such a header (cuFFT API reference, cuFFT types).
_CUFFT = """#include <cuComplex.h>
typedef float cufftReal;
typedef double cufftDoubleReal;
typedef cuComplex cufftComplex;
typedef cuDoubleComplex cufftDoubleComplex;
"""
_LIBRARY_TYPES = {"cufft.h": _CUFFT, "cufftXt.h": _CUFFT}
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


def library_header(name: str, brought: Iterable[str] = ()) -> str:
    """Return what stands for a library's header: the types that kernels use of it, and headers of CUDA's own."""
    lines = "".join(f"#include <{one}>\n" for one in brought)
    return f"#pragma once\n{lines}{_LIBRARY_TYPES.get(name, '')}"


def headers_with(names: Iterable[str]) -> list[str]:
    """Return the headers of CUDA's own that have one of these names, of those that a library's header would bring."""
    names = list(names)
    return [header for pattern, header in _BROUGHT if any(map(pattern.fullmatch, names))]


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
    texts["cuda.h"] = _DRIVER
    texts["cudaTypedefs.h"] = '#include "cuda.h"\n'
    for name in _FORWARDED.split():
        texts[name] = f"#include <cuda/std/{name}>\nnamespace std {{ using namespace cuda::std; }}\n" if forward else ""
    members = [
        *_STANDARD_MATHS.split(),
        *re.findall(r"(\w+_t);", _INTEGERS),
        *("size_t", "ptrdiff_t", "intptr_t", "uintptr_t", "intmax_t", "uintmax_t", "time_t"),
        "printf",
        "memcpy",
        "memset",
    ]
    standard = "namespace std {\n" + "".join(f"using ::{member};\n" for member in members) + "}\n"
    # Each macro guarded, so that a file may define its own.
    macros = re.sub(r"^(#define (\w+).*)$", r"#ifndef \2\n\1\n#endif", _FIXED + _LIMITS + _FLOATS + _MATHS, flags=re.M)
    texts[PRELUDE] = _INTEGERS + _TYPES + _EXTENSION + macros + standard + _DEPENDENT_LAUNCH + _DEVICE_HEAP
    return tuple(texts.items())
