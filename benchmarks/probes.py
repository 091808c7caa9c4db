"""Measure single requests under Nsight Compute: a warp's atomics in shared memory, and asynchronous copies.

    python benchmarks/probes.py measure --seconds 60 -o probes.json     # GPU, nvcc and ncu
    python benchmarks/probes.py table probes.json                       # anywhere: the simulator's rule beside it

Each launch is one block of one warp (`crowd`: eight) that makes one request. An atomic is an operation on the words of
shared memory that `places` names, by the lanes of `mask`. In an asynchronous copy each lane copies 16 (or 4) bytes, of
which `sizes` are read and the rest is filled with zeros. NVIDIA does not document the cost of either; these
measurements show it.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "benchmarks")]

from ncu import launches, number  # noqa: E402

SOURCE = r"""
#define ATOMIC(NAME, T, STATEMENT)                                                                                    \
    extern "C" __global__ void NAME(const int *places, unsigned mask, long long *found) {                             \
        __shared__ T s[2048];                                                                                         \
        int lane = threadIdx.x % 32;                                                                                  \
        T v = (T)(float)(lane + 1), *p = s + places[lane];                                                            \
        for (int i = threadIdx.x; i < 2048; i += blockDim.x) s[i] = (T)0.0f;                                          \
        __syncthreads();                                                                                              \
        if (mask >> lane & 1) { STATEMENT; }                                                                          \
        (void)v, (void)found;                                                                                         \
    }
ATOMIC(count, int, atomicAdd(p, 1))
ATOMIC(add, int, atomicAdd(p, v))
ATOMIC(add_old, int, found[lane] = atomicAdd(p, v))
ATOMIC(maximum, int, atomicMax(p, v))
ATOMIC(bits, int, atomicOr(p, v))
ATOMIC(wrap, unsigned, atomicInc(p, v))
ATOMIC(exchange, int, found[lane] = atomicExch(p, v))
ATOMIC(swap_fails, int, found[lane] = atomicCAS(p, -1, v))
ATOMIC(swap_one, int, found[lane] = atomicCAS(p, 0, v))
ATOMIC(add_float, float, atomicAdd(p, v))
ATOMIC(add_float_old, float, found[lane] = (long long)atomicAdd(p, v))
ATOMIC(add_64, unsigned long long, atomicAdd(p, v))
ATOMIC(maximum_64, long long, atomicMax(p, v))
ATOMIC(exchange_64, unsigned long long, found[lane] = atomicExch(p, v))
ATOMIC(swap_64, unsigned long long, found[lane] = atomicCAS(p, 5ull, v))
ATOMIC(add_double, double, atomicAdd(p, v))

#define COPY(NAME, CACHE, BYTES)                                                                                      \
    extern "C" __global__ void NAME(const char *from, const int *offsets, const int *sizes, int *out) {               \
        __shared__ __align__(16) char s[4096];                                                                        \
        int lane = threadIdx.x;                                                                                       \
        unsigned to = (unsigned)__cvta_generic_to_shared(s + lane * BYTES);                                           \
        asm volatile("cp.async." CACHE ".shared.global [%0], [%1], %2, %3;" ::"r"(to), "l"(from + offsets[lane]),     \
                     "n"(BYTES), "r"(sizes[lane]) : "memory");                                                        \
        asm volatile("cp.async.commit_group;\ncp.async.wait_group 0;" ::: "memory");                                  \
        __syncthreads();                                                                                              \
        out[lane] = s[lane * BYTES];                                                                                  \
    }
COPY(copy_past, "cg", 16)
COPY(copy_through, "ca", 16)
COPY(copy_word, "ca", 4)
"""
ATOMICS = (
    "swap_fails", "exchange", "add", "swap_one", "count", "add_old", "add_float", "maximum", "add_64", "swap_64",
    "add_double", "exchange_64", "maximum_64", "bits", "wrap", "add_float_old",
)  # fmt: skip
COPIES = {"copy_past": 16, "copy_through": 16, "copy_word": 4}
COUNTERS = {
    "atomic": "l1tex__data_pipe_lsu_wavefronts_mem_shared_op_atom.sum",
    "load": "l1tex__data_pipe_lsu_wavefronts_mem_shared_op_ld.sum",
    "store": "l1tex__data_pipe_lsu_wavefronts_mem_shared_op_st.sum",
    "instructions": "smsp__inst_executed.sum",
    "sectors": "l1tex__t_sectors_pipe_lsu_mem_global_op_ld.sum",
}
FULL = 0xFFFFFFFF
BYTES = 1 << 16  # bytes of the array from which copies read


class Probe(NamedTuple):
    """One launch: the kernel, the name of its access pattern, and the places and sizes of the lanes' accesses."""

    kernel: str
    pattern: str
    places: tuple[int, ...]  # indices of words in shared memory, or offsets in bytes from the start of the array
    mask: int = FULL
    sizes: tuple[int, ...] = ()
    threads: int = 32


def patterns() -> list[tuple[str, tuple[int, ...], int]]:
    """Return the patterns as (name, word that each lane accesses, mask of the active lanes), the most informative
    patterns first."""
    rng = np.random.default_rng(1)
    lanes = range(32)
    found = [(f"one word, {k} lanes", (0,) * 32, (1 << k) - 1) for k in (32, 1, 2, 8, 16)]
    found += [(f"lane % {d}", tuple(i % d for i in lanes), FULL) for d in (32, 4, 16, 2, 8)]
    found += [(f"stride {d}", tuple(i * d for i in lanes), FULL) for d in (2, 32, 8)]
    found += [("halves in one bank", tuple(i // 16 * 32 for i in lanes), FULL)]
    found += [(f"lane / {d}", tuple(i // d for i in lanes), FULL) for d in (2, 8)]
    for words in (8, 32, 256, 1024):
        found += [(f"random of {words}", tuple(rng.integers(0, words, 32).tolist()), FULL)]
    for words in (16, 256):
        mask = int(rng.integers(1, 1 << 32))
        found += [(f"random of {words}, some lanes", tuple(rng.integers(0, words, 32).tolist()), mask)]
    return found


def copies() -> list[tuple[str, tuple[int, ...], tuple[int, ...]]]:
    """Return the patterns of copies as (name, each lane's address in units of the copied size, for each lane 1 if it
    reads memory, else 0)."""
    lanes = range(32)
    rows = tuple(i // 8 * 64 + i % 8 for i in lanes)
    line = tuple(lanes)
    everything, nothing = (1,) * 32, (0,) * 32
    return [
        ("neighbours", line, everything), ("neighbours, none read", line, nothing),
        ("four rows", rows, everything), ("four rows, none read", rows, nothing),
        ("one place, none read", (0,) * 32, nothing),
        ("first 16 read", line, tuple(int(i < 16) for i in lanes)),
        ("last 16 read", line, tuple(int(i >= 16) for i in lanes)),
        ("every second read", line, tuple(i % 2 for i in lanes)),
        ("first 18 read", line, tuple(int(i < 18) for i in lanes)),
        ("lane 0 read", line, tuple(int(i == 0) for i in lanes)),
        ("lane 0 not read", line, tuple(int(i != 0) for i in lanes)),
        ("rows, 5 of 8 read", rows, tuple(int(i % 8 < 5) for i in lanes)),
        ("rows, two of four read", rows, tuple(int(i < 16) for i in lanes)),
        ("far away, none read", tuple(i + 2048 for i in lanes), nothing),
    ]  # fmt: skip


def probes() -> list[Probe]:
    """Return all launches, those whose cost is least known first."""
    found = [
        Probe(kernel, name, tuple(i * size for i in units), FULL, tuple(r * size for r in read))
        for kernel, size in COPIES.items()
        for name, units, read in copies()
    ]
    for group in (ATOMICS[:4], ATOMICS[4:10], ATOMICS[10:]):
        found += [Probe(kernel, *pattern) for pattern in patterns() for kernel in group]
        found += [Probe(kernel, "crowd", (0,) * 32, FULL, (), 256) for kernel in group]
    return found


def launch(seconds: float, log: Path) -> None:
    """Make the launches one after the other, under ncu, until the time is over."""
    import pycuda.autoinit  # noqa: F401
    import pycuda.driver as cuda
    from pycuda.compiler import SourceModule

    module = SourceModule(SOURCE, no_extern_c=True)
    began = time.monotonic()
    array, old, offsets, sizes = (cuda.mem_alloc(n) for n in (BYTES, 8192, 128, 128))
    with log.open("w") as out:
        for number, probe in enumerate(probes()):
            if time.monotonic() - began > seconds:
                break
            cuda.memcpy_htod(offsets, np.array(probe.places, np.int32))
            function = module.get_function(probe.kernel)
            if probe.kernel in COPIES:
                cuda.memcpy_htod(sizes, np.array(probe.sizes, np.int32))
                function(array, offsets, sizes, old, block=(32, 1, 1), grid=(1, 1))
            else:
                function(offsets, np.uint32(probe.mask), old, block=(probe.threads, 1, 1), grid=(1, 1))
            cuda.Context.synchronize()
            print(number, file=out, flush=True)


def measure(seconds: float, to: Path) -> None:
    """Make the launches under ncu, and write the counters of each launch."""
    log = to.with_suffix(".log")
    child = [sys.executable, __file__, "launch", "--seconds", str(seconds), "-o", str(log)]
    if not (rows := launches(COUNTERS.values(), child)):
        sys.exit(1)
    every = probes()
    content: list[dict[str, Any]] = []
    for probe, row in zip(every, rows, strict=False):
        if probe.kernel not in (row.get("Kernel Name") or ""):
            sys.exit(f"ncu saw {row.get('Kernel Name')} where {probe.kernel} was launched.")
        counted = {key: round(number(row.get(name))) for key, name in COUNTERS.items()}
        content.append({**probe._asdict(), **counted})
    to.write_text("[\n" + ",\n".join(json.dumps(record) for record in content) + "\n]\n")
    print(f"{len(content)} of {len(every)} launches: {to}")


def table(content: list[dict[str, Any]]) -> None:
    """Print the counters, one row for each launch."""
    for record in content:
        print(
            f"{record['kernel']:14} {record['pattern']:26} atom {record['atomic']:5} ld {record['load']:5} "
            f"st {record['store']:5} inst {record['instructions']:6} sectors {record['sectors']:4}"
        )


def main() -> None:
    """Measure or print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("measure", "launch", "table"))
    parser.add_argument("file", nargs="?", type=Path)
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("-o", "--output", type=Path, default=Path("probes.json"))
    given = parser.parse_args()
    if given.what == "measure":
        measure(given.seconds, given.output.resolve())
    elif given.what == "launch":
        launch(given.seconds, given.output)
    else:
        table(json.loads(given.file.read_text()))


if __name__ == "__main__":
    main()
