"""Compare cudabench's medians with those of NVIDIA's nvbench (package cuda-bench) on the same kernels, cold and hot.

    python benchmarks/against_nvbench.py [SIZE ...]

nvbench loads the cubin of the same source and defines, launches it through the driver API on its own stream, and
reports the median of its cold samples and the mean of its back-to-back batch; cudabench runs with --cache cold and hot.
The two tools take turns, in separate processes, and each line shows cudabench's time divided by nvbench's time.
"""

from __future__ import annotations

import ctypes
import json
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from cudabench import operations
from cudabench.plan import cases
from cudabench.records.plan import Case

SIZES = ["1024", "2048", "4096", "8192", "16384"]
KERNELS = ["smem-pad", "vector"]
ROUNDS = 2
# a call from nvbench to Python takes longer than a small kernel, so each call makes this many launches
BATCH = 20


def main(sizes: list[str]) -> None:
    """Print a table: kernel, size, and both tools' medians in microseconds."""
    print("kernel     size   round   cold: ours  nvbench  ratio    hot: ours  nvbench  ratio")
    for kernel in KERNELS:
        for size in sizes:
            for round_number in range(ROUNDS):
                theirs = {cache: nvbench(kernel, size, cache) for cache in ("cold", "hot")}
                ours = {cache: cudabench(kernel, size, cache) for cache in ("cold", "hot")}
                print(
                    f"{kernel:<9} {size:>6} {round_number:>5}    "
                    + "    ".join(
                        f"{ours[c] * 1e6:9.2f} {theirs[c] * 1e6:9.2f} {ours[c] / theirs[c]:7.4f}"
                        for c in ("cold", "hot")
                    ),
                    flush=True,
                )


def cudabench(kernel: str, size: str, cache: str) -> float:
    """Return the median in seconds of `cudabench transpose`."""
    words = ["transpose", "-k", kernel, "--size", size, size, "--cache", cache, "--no-cpu", "--json", "-", "-q"]
    ran = subprocess.run([sys.executable, "-m", "cudabench", *words], capture_output=True, text=True, check=True)
    return float(json.loads(ran.stdout)["results"][0]["time"]["median_s"])


def nvbench(kernel: str, size: str, mode: str) -> float:
    """Run nvbench in a separate process, and return its median of cold samples or its mean of a batch in seconds."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "r.json"
        words = [
            sys.executable,
            __file__,
            "--child",
            kernel,
            size,
            mode,
            "--json",
            str(path),
            "--stopping-criterion",
            "stdrel",
        ]
        ran = subprocess.run(words, capture_output=True, text=True, check=False)
        summaries = json.loads(path.read_text())["benchmarks"][0]["states"][0]["summaries"] if path.exists() else None
        if not summaries:
            sys.exit(f"nvbench failed:\n{ran.stdout}{ran.stderr}")
    values = {
        s["tag"]: float(s["data"][0]["value"]) for s in summaries if s.get("data") and s["data"][0]["name"] == "value"
    }
    if mode == "cold":
        return values.get("nv/cold/time/gpu/median", values["nv/cold/time/gpu/mean"])
    return values["nv/batch/time/gpu/mean"] / BATCH


def child(kernel: str, size: str, mode: str, words: list[str]) -> None:
    """Run one benchmark under nvbench."""
    import cuda.bench as bench

    operation = operations.get("transpose")
    (case,) = cases.build(operation, cases.Request(kernels=(kernel,), size=(int(size), int(size))))
    driver = ctypes.CDLL("libcuda.so.1")

    def ok(status: int) -> None:
        if status:
            raise RuntimeError(f"CUDA error {status}")

    def transpose(state: bench.State) -> None:
        nbytes = int(size) ** 2 * 4
        pointers = {}
        for name in ("in", "out"):
            pointers[name] = ctypes.c_uint64()
            ok(driver.cuMemAlloc_v2(ctypes.byref(pointers[name]), ctypes.c_size_t(nbytes)))
        host = (ctypes.c_char * nbytes).from_buffer(bytearray(operation.inputs(case.problem)["in"].tobytes()))
        ok(driver.cuMemcpyHtoD_v2(pointers["in"], host, ctypes.c_size_t(nbytes)))
        module, function = ctypes.c_void_p(), ctypes.c_void_p()
        ok(driver.cuModuleLoadData(ctypes.byref(module), cubin(case)))
        ok(driver.cuModuleGetFunction(ctypes.byref(function), module, case.function.encode()))
        # The addresses of the kernel's parameters (in, out, nx, ny) are prepared once, so that a launch takes little
        # time.
        values = [pointers["in"], pointers["out"], ctypes.c_int(int(size)), ctypes.c_int(int(size))]
        parameters = (ctypes.c_void_p * 4)(*(ctypes.addressof(value) for value in values))
        shape = [ctypes.c_uint(n) for n in (*case.grid, *case.block, 0)]
        state.add_global_memory_reads(nbytes)
        state.add_global_memory_writes(nbytes)

        launches = launcher()

        def times(count: int) -> Callable[[bench.Launch], None]:
            def launch(launched: bench.Launch) -> None:
                stream = ctypes.c_void_p(launched.get_stream().addressof())
                launches(driver.cuLaunchKernel, function, *shape, stream, parameters, count)

            return launch

        if mode == "cold":
            state.exec(times(1), batched=False)
        else:
            state.exec(times(BATCH))
        for pointer in pointers.values():
            driver.cuMemFree_v2(pointer)

    bench.register(transpose)
    bench.run_all_benchmarks([sys.argv[0], *words])


LAUNCHER = """
typedef int (*Launch)(void *, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned,
                      void *, void **, void **);
int launches(Launch call, void *f, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz,
             unsigned shared, void *stream, void **parameters, int count)
{
    int status = 0;
    while (count-- && !status)
        status = call(f, gx, gy, gz, bx, by, bz, shared, stream, parameters, 0);
    return status;
}
"""


def launcher() -> Any:
    """Return a C function that launches a kernel several times, since a launch from Python takes longer than a small
    kernel."""
    with tempfile.TemporaryDirectory() as folder:
        source, library = Path(folder) / "launches.c", Path(folder) / "launches.so"
        source.write_text(LAUNCHER)
        subprocess.run(["cc", "-O2", "-shared", "-fPIC", "-o", str(library), str(source)], check=True)
        return ctypes.CDLL(str(library)).launches


def cubin(case: Case) -> bytes:
    """Return the machine code of a case for this GPU, from the same source text and defines that cudabench compiles."""
    macros = "".join(f"#define {name} {value}\n" for name, value in case.defines.items())
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "kernel.cu"
        path.write_text(macros + case.source.text)
        target = Path(folder) / "kernel.cubin"
        folders = [f"-I{folder}" for folder in case.source.folders]
        subprocess.run(
            ["nvcc", "-cubin", "-arch=native", "-lineinfo", *folders, "-o", str(target), str(path)], check=True
        )
        return target.read_bytes()


if __name__ == "__main__":
    if sys.argv[1:2] == ["--child"]:
        child(sys.argv[2], sys.argv[3], sys.argv[4], sys.argv[5:])
    else:
        main(sys.argv[1:] or SIZES)
