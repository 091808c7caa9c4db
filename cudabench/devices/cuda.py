"""A GPU through PyCUDA: compile, allocate, launch, time. The only module that imports PyCUDA, and only when used."""

from __future__ import annotations

import ctypes
import re
import tempfile
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np

from cudabench.devices import probe
from cudabench.errors import CompilerError, DeviceError, OutOfMemory, UsageError
from cudabench.model import POISON, Launch, Resources, Source
from cudabench.toolchain.compiler import match_entries, name_queries, without_host_code
from cudabench.toolchain.source import parse

Work = Callable[[], None]

# Holds the stream until the host sets the flag, or for two seconds, lest a mistake hang the GPU; flag[1] then tells.
HOLD_SOURCE = """
extern "C" __global__ void hold_stream(volatile int *flag) {
    unsigned long long start, now;
    asm volatile("mov.u64 %0, %globaltimer;" : "=l"(start));
    while (flag[0] == 0) {
        asm volatile("mov.u64 %0, %globaltimer;" : "=l"(now));
        if (now - start > 2000000000ull) { flag[1] = 1; return; }
    }
}
"""

# The driver blocks the host after about a thousand queued launches; the host must not block while it holds the stream.
# More launches than this become a CUDA graph, which is queued as one.
PAGE_BYTES = 2 << 20  # of device memory: smaller allocations share one
MAX_HELD_LAUNCHES = 500

CAPTURE_THREAD_LOCAL = 1  # CUstreamCaptureMode


class Module:
    """A compiled source file. Keeps the module alive as long as its functions are in use."""

    def __init__(self, module: Any, entry_name: Callable[[str], str]) -> None:
        self._module = module
        self._entry_name = entry_name
        self._functions: dict[str, Any] = {}

    def function(self, name: str) -> Any:
        """Return PyCUDA's function for a kernel's name in the source."""
        if name not in self._functions:
            entry = self._entry_name(name)
            with translated(f"finding kernel '{name}'"):
                self._functions[name] = self._module.get_function(entry)
        return self._functions[name]

    def resources(self, name: str) -> Resources:
        """Return the registers, static shared bytes and local bytes of a kernel."""
        function = self.function(name)
        return Resources(function.num_regs, function.shared_size_bytes, function.local_size_bytes)

    def max_threads(self, name: str) -> int:
        """Return the largest block, in threads, that the kernel's registers and launch bounds allow."""
        return int(self.function(name).max_threads_per_block)


@contextmanager
def translated(doing: str) -> Iterator[None]:
    """Turn PyCUDA's errors into cudabench's, with what was being done."""
    import pycuda.driver as driver

    try:
        yield
    except driver.MemoryError as error:
        raise OutOfMemory(f"The GPU ran out of memory while {doing}; use a smaller --size.") from error
    except driver.Error as error:
        raise DeviceError(f"CUDA failed while {doing}: {_plain(str(error))}.") from error


def _plain(message: str) -> str:
    """Return PyCUDA's message without its call name: 'an illegal memory access was encountered'."""
    return message.split(": ", 1)[-1].split(" -- ")[0].strip().rstrip(".")


class CudaDevice:
    """One GPU with a context of its own. Use as a context manager."""

    def __init__(self, index: int = 0) -> None:
        import pycuda.driver as driver

        self._driver = driver
        with translated("starting"):
            driver.init()
            self.info = probe.gpu(index)
            device = driver.Device(index)
            self._context = device.make_context(driver.ctx_flags.SCHED_SPIN | driver.ctx_flags.MAP_HOST)
            self._streams = [driver.Stream()]
            self._stream = self._streams[0]
            self._start, self._stop = driver.Event(), driver.Event()
            self._flag = driver.pagelocked_zeros(2, np.int32, mem_flags=driver.host_alloc_flags.DEVICEMAP)
            self._flag_pointer = self._flag.base.get_device_pointer()
            self._flush_bytes = self.info.l2_bytes or 0
            self._flush = driver.mem_alloc(self._flush_bytes) if self._flush_bytes else None
        self._allocations: dict[int, Any] = {}
        self._hold_module = self.load(Source("hold.cu", HOLD_SOURCE), {})
        self._hold = self._hold_module.function("hold_stream")
        self._hold.prepare("P")
        self._nvml = _nvml_handle(self.info.uuid)

    def __enter__(self) -> CudaDevice:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._allocations.clear()
        self._context.pop()

    # Compile ----------------------------------------------------------------------------------------------------

    def load(self, source: Source, defines: Mapping[str, str], names: Sequence[str] = ()) -> Module:
        """Compile a source file with nvcc through PyCUDA, whose cache makes a second time cheap.

        `names` are the kernels that are wanted of a user's file: C++ names as in `compiler.compile_ptx`, of which
        templates are instantiated.
        Raises CompilerError with the file name and line that the user knows.
        """
        asked = [] if source.builtin else list(dict.fromkeys(names))
        # Behind the headers that nvcc includes by itself: -DT=float would end in their templates.
        head = "".join(f"#define {name} {value}\n" for name, value in defines.items()) + f'#line 1 "{source.name}"\n'
        tail = f"\n{name_queries(asked)}"
        try:
            module, cubin = self._compile(head + source.text + tail, source, source.folders, bool(asked))
        except CompilerError as refused:
            _check_names(str(refused), asked, source)
            module, cubin = self._compile_without_host(refused, head, tail, source, bool(asked))
        entries = sorted({match.decode() for match in re.findall(rb"\.text\.([A-Za-z_$][\w$]*)\0", cubin)})
        found = match_entries(asked, entries)

        def entry_name(name: str) -> str:
            if name in asked and name not in found:
                raise _no_such_name(name, source)
            return found.get(name, name)

        return Module(module, entry_name)

    def _compile(self, text: str, source: Source, folders: Sequence[str], cubin_too: bool) -> tuple[Any, bytes]:
        """Return PyCUDA's module and, on request, its cubin, in which a user's C++ kernels have their mangled names."""
        from pycuda import compiler

        settings: dict[str, Any] = {"options": ["-lineinfo"], "no_extern_c": True, "include_dirs": list(folders)}
        with warnings.catch_warnings(), translated(f"loading {source.name}"):
            warnings.simplefilter("ignore")  # compiler remarks arrive as Python warnings
            try:
                # The second time PyCUDA's cache answers.
                return compiler.SourceModule(text, **settings), compiler.compile(text, **settings) if cubin_too else b""
            except self._driver.CompileError as error:
                raise CompilerError(_diagnostics(error, source.name)) from error

    def _compile_without_host(
        self, refused: CompilerError, head: str, tail: str, source: Source, cubin_too: bool
    ) -> tuple[Any, bytes]:
        """Compile a file with host code once more where a header is nowhere: without that code, and the header empty.

        Raises the refusal where that does not help: then the kernels need it.
        """
        bare = without_host_code(source.text)
        last: CompilerError = refused
        with tempfile.TemporaryDirectory(prefix="cudabench-") as folder:
            while bare != source.text and not source.builtin:
                missing = re.search(r"fatal error: (\w[\w./+-]*): No such file", str(last))
                if missing is None or ".." in missing[1] or (stub := Path(folder, missing[1])).exists():
                    break
                stub.parent.mkdir(parents=True, exist_ok=True)
                stub.touch()
                try:
                    return self._compile(head + bare + tail, source, [*source.folders, folder], cubin_too)
                except CompilerError as again:
                    last = again
        raise refused

    def sm_clock_mhz(self) -> int | None:
        """Return the current SM clock, or None where NVML is not installed."""
        if self._nvml is None:
            return None
        import pynvml

        try:
            return int(pynvml.nvmlDeviceGetClockInfo(self._nvml, pynvml.NVML_CLOCK_SM))
        except pynvml.NVMLError:
            return None

    # Memory -----------------------------------------------------------------------------------------------------

    def free_bytes(self) -> int:
        """Return the free device memory."""
        return int(self._driver.mem_get_info()[0])

    def allocate(self, nbytes: int, *, own_page: bool = False) -> int:
        """Return the address of nbytes of device memory, on pages of their own on request; `release` frees it."""
        with translated(f"allocating {nbytes / 1e9:.2f} GB"):
            allocation = self._driver.mem_alloc(max(nbytes, PAGE_BYTES if own_page else 1))
        self._allocations[int(allocation)] = allocation
        return int(allocation)

    def release(self, pointer: int) -> None:
        """Free what `allocate` returned."""
        self._allocations.pop(pointer).free()

    def upload(self, pointer: int, array: np.ndarray) -> None:
        """Copy an array to the device."""
        with translated("copying to the GPU"):
            self._driver.memcpy_htod(pointer, np.ascontiguousarray(array))

    def download(self, pointer: int, array: np.ndarray) -> None:
        """Fill a contiguous array from the device."""
        with translated("copying from the GPU"):
            self._driver.memcpy_dtoh(array, pointer)

    def poison(self, pointer: int, nbytes: int) -> None:
        """Fill memory with 0xFF, so that an element that no thread writes cannot look right."""
        with translated("filling memory"):
            self._driver.memset_d8(pointer, POISON, nbytes)

    # Launch and time --------------------------------------------------------------------------------------------

    def bind(self, module: Module, launches: Sequence[Launch], pointers: Mapping[str, int]) -> Work:
        """Return a function that queues all launches of a kernel, prepared so that queueing is cheap."""
        calls = []
        for launch in launches:
            function = module.function(launch.function)
            if launch.shared_bytes > 48 * 1024:
                function.set_attribute(
                    self._driver.function_attribute.MAX_DYNAMIC_SHARED_SIZE_BYTES, launch.shared_bytes
                )
            arguments = [pointers[a] if isinstance(a, str) else a for a in launch.arguments]
            # Buffers and scalars may change from launch to launch, not their types.
            function.prepare(["P" if isinstance(a, str) else np.asarray(a).dtype for a in launch.arguments])
            calls.append((function, launch.grid, launch.block, arguments, launch.shared_bytes))

        def queue() -> None:
            for function, grid, block, arguments, shared in calls:
                function.prepared_async_call(grid, block, self._stream, *arguments, shared_size=shared)

        work, queued = queue, len(calls)
        if len(calls) > MAX_HELD_LAUNCHES:
            work, queued = self._graph(queue), 1
        work.launches = queued  # type: ignore[attr-defined]
        return work

    def _graph(self, queue: Work) -> Work:
        """Return one launch of a CUDA graph of all that `queue` queues: as fast as the GPU goes on, not as Python does.

        PyCUDA has no graphs, so the driver is asked itself. The graph lives as long as the context.
        """
        cuda = ctypes.CDLL("libcuda.so.1")
        graph, ready = ctypes.c_void_p(), ctypes.c_void_p()

        def stream() -> ctypes.c_void_p:
            return ctypes.c_void_p(self._stream.handle)

        def call(name: str, *arguments: Any) -> None:
            status = getattr(cuda, name)(*arguments)
            if status:
                raise DeviceError(f"CUDA failed while making a graph of the launches: {name} gave error {status}.")

        call("cuStreamBeginCapture_v2", stream(), ctypes.c_int(CAPTURE_THREAD_LOCAL))
        try:
            queue()
        finally:
            call("cuStreamEndCapture", stream(), ctypes.byref(graph))
        call("cuGraphInstantiateWithFlags", ctypes.byref(ready), graph, ctypes.c_ulonglong(0))
        call("cuGraphDestroy", graph)
        call("cuGraphUpload", ready, stream())
        return lambda: call("cuGraphLaunch", ready, stream())

    def use_stream(self, number: int) -> None:
        """Queue on another stream from now on; nothing may be under way."""
        while number >= len(self._streams):
            self._streams.append(self._driver.Stream())
        self._stream = self._streams[number]

    def copy(self, source: int, target: int, nbytes: int) -> Work:
        """Return a function that queues a device-to-device copy."""

        def work() -> None:
            self._driver.memcpy_dtod_async(target, source, nbytes, self._stream)

        work.launches = 1  # type: ignore[attr-defined]
        return work

    def run(self, work: Work, doing: str) -> None:
        """Run the work once, untimed, and wait for it. Raises DeviceError where a launch or the kernel itself fails."""
        with translated(doing):
            work()
            self._stream.synchronize()

    def alive(self) -> bool:
        """Tell whether the context still works; an illegal address ends it for good."""
        try:
            self._context.synchronize()
        except self._driver.Error:
            return False
        return True

    def sample(self, work: Work, cache: str, runs: int = 1, before: Work | None = None) -> float:
        """Return the seconds that one run of the work takes, as the mean of `runs` back to back.

        `before` is queued ahead of all and not timed.
        Cold: a memset of exactly the L2's size goes before (what nvbench does). A one-thread kernel then holds the
        stream until everything is queued, so that no launch gap lies between the events.
        """
        launches = getattr(work, "launches", 1) * runs
        held = launches <= MAX_HELD_LAUNCHES
        with translated("timing the kernel"):
            if before is not None:
                before()
            if cache == "cold" and self._flush is not None:
                self._driver.memset_d8_async(self._flush, 0, self._flush_bytes, self._stream)
            if held:
                self._flag[:] = 0
                self._hold.prepared_async_call((1, 1), (1, 1, 1), self._stream, self._flag_pointer)
            self._start.record(self._stream)
            try:
                for _ in range(runs):
                    work()
                self._stop.record(self._stream)
            finally:
                self._flag[0] = 1
            self._stop.synchronize()
            if held and self._flag[1]:
                raise DeviceError("The host took over two seconds to queue one sample; the machine is overloaded.")
            return float(self._stop.time_since(self._start)) * 1e-3 / runs


def _nvml_handle(uuid: str | None) -> Any:
    """Return NVML's handle of a GPU, or None where the package is not installed or does not start."""
    if uuid is None or not probe.nvml().usable:
        return None
    import pynvml

    try:
        pynvml.nvmlInit()
        return pynvml.nvmlDeviceGetHandleByUUID(uuid)
    except pynvml.NVMLError:
        return None


def _no_such_name(name: str, source: Source) -> UsageError:
    have = "; ".join(kernel.signature for kernel in parse(source.text, source.name).kernels) or "none"
    return UsageError(f"'{name}' names no kernel of {source.name}, or several: it has {have}.")


def _check_names(message: str, asked: Sequence[str], source: Source) -> None:
    """Raise UsageError where all that nvcc refused are the names of kernels, which are asked for behind the file."""
    places = re.findall(r"^(\S+):(\d+): error", message, re.M)
    if places and all(file == "cudabench-names" for file, _ in places):
        raise _no_such_name(asked[min(max(int(places[0][1]) - 2, 0), len(asked) - 1)], source)


def _diagnostics(error: Any, name: str) -> str:
    """Return nvcc's messages that speak of the source, without its command line and temporary files."""
    parts = [
        part.decode("utf-8", "replace") if isinstance(part, bytes) else part for part in (error.stdout, error.stderr)
    ]
    output = "\n".join(str(part) for part in parts if part)
    lines = [re.sub(r"\S*/?tmp\w*/kernel\.cu|\bkernel\.cu\b", name, line) for line in output.splitlines()]
    lines = [re.sub(r"^(\S+)\((\d+)\):", r"\1:\2:", line) for line in lines]  # as gcc writes it, and editors read it
    kept = [line for line in lines if line.strip() and not re.match(r"\d+ errors? detected in", line)]
    return f"nvcc cannot compile {name}:\n" + "\n".join(kept or ["it gave no message"])
