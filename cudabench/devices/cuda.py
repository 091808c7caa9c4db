"""Uses a GPU through PyCUDA. Only this module imports PyCUDA, and only when one of its functions is called."""

from __future__ import annotations

import ctypes
import os
import re
import threading
import warnings
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache, partial
from pathlib import Path
from typing import Any

import numpy as np

from cudabench.compile import compiler, nvcc, toolkit
from cudabench.compile import cubin as cubins
from cudabench.compile.record import Compiled, Resources
from cudabench.devices import driver_objects, nvml, peers, probe, protocol
from cudabench.devices.constants import check_constant, constant_symbols
from cudabench.devices.driver_objects import CudaArray, SurfaceObject, TextureObject, objects_of
from cudabench.devices.protocol import OVER_BUFFERS, Work
from cudabench.errors import DeviceError, DeviceUnusable, OutOfMemory
from cudabench.records.launch import ByValue, Launch, Rows, Source, Surface, TensorMap
from cudabench.records.plan import Operation, Peer, Problem

# The source of cudabench's own kernels.
PROTOCOL_SOURCE = Source("protocol.cu", Path(__file__).with_name("protocol.cu").read_text("utf-8"))
DIGEST_THREADS = 256
DIGEST_BLOCKS_PER_SM = 8  # with DIGEST_THREADS threads each, these are as many blocks as an SM can run at once
SCRUB_THREADS = 256
THREADS_PER_SM = 2048  # the maximum number of threads that are resident on an SM of any compute capability
LINE_BYTES = 128  # bytes of a cache line of the L2
PERSISTING_L2_CACHE_SIZE = 6  # CUlimit
HOST_PAGE_BYTES = 4096
PAGE_BYTES = 2 << 20  # bytes of a page of device memory; smaller allocations share a page
# While the stream is blocked, the host queues all launches of a sample. After about a thousand launches the driver
# stops the host, which then can never unblock the stream. So a sample with more launches than this number becomes a
# CUDA graph, which is queued as a single launch.
MAX_QUEUED_LAUNCHES = 500


class Module:
    """A compiled source file, loaded on the GPU. The loaded module lives as long as this object."""

    def __init__(self, module: Any, compiled: Compiled, text: str) -> None:
        self.compiled = compiled
        self.variables: Sequence[protocol.Variable] = _variables(module, compiled.cubin, text)
        self.ptx = _ptx(compiled)
        self._module = module
        self._functions: dict[str, Any] = {}

    def function(self, name: str) -> Any:
        """Return PyCUDA's function for a kernel's name in the source."""
        if name not in self._functions:
            with cuda_errors(f"finding kernel '{name}'"):
                self._functions[name] = self._module.get_function(self.compiled.entry(name))
        return self._functions[name]

    def images(self, names: Sequence[str]) -> list[tuple[bytes, list[str]]]:
        """Return a list of one pair: the cubin, and the mangled names of the kernels `names`; empty without a cubin."""
        cubin = self.compiled.cubin
        return [(cubin, [self.compiled.entry(name) for name in dict.fromkeys(names)])] if cubin else []

    def resources(self, name: str) -> Resources:
        """Return the resources that a kernel needs, from the driver, which does not report spills and barriers."""
        function = self.function(name)
        with cuda_errors(f"reading the resources of kernel '{name}'"):
            return Resources(
                registers=function.num_regs,
                shared_bytes=function.shared_size_bytes,
                local_bytes=function.local_size_bytes,
                constant_bytes=function.const_size_bytes,
                max_threads=function.max_threads_per_block,
            )

    def set_constant(self, name: str, content: bytes) -> None:
        """Write a `__constant__` variable. A variable that no kernel reads is not in the module, and is ignored.

        Raises UsageError if `content` does not have the variable's size.
        """
        import pycuda.driver as driver

        for symbol in constant_symbols(name):
            try:
                pointer, size = self._module.get_global(symbol)
            except driver.LogicError:
                continue
            check_constant(name, content, size)
            with cuda_errors(f"setting {name}"):
                driver.memcpy_htod(pointer, content)
            return


def _ptx(compiled: Compiled) -> str:
    return compiled.ptx or (cubins.ptx(compiled.cubin) if compiled.cubin else "")


def _variables(module: Any, cubin: bytes | None, text: str) -> tuple[protocol.Variable, ...]:
    """Return the variables of a module that the module's kernels can write."""
    variables = []
    for variable in cubins.variables(cubin) if cubin else ():
        with cuda_errors(f"finding variable '{variable.name}'"):
            pointer, nbytes = module.get_global(variable.symbol)
        line = cubins.declared_at(text, variable.name)
        variables.append(protocol.Variable(variable.name, line, int(pointer), int(nbytes)))
    return tuple(variables)


@dataclass(frozen=True, eq=False)
class QueuedWork:
    """A `Work`: calling it queues launches on the stream.

    `doing`: the work in words, for error messages. `launches`: how many launches one call queues. `surfaces`: the
    surfaces of these launches. The caller copies buffers to the surfaces' CUDA arrays before the work, and then back.
    """

    queue: Work
    doing: str
    launches: int = 1
    surfaces: Sequence[SurfaceObject] = ()

    def __call__(self) -> None:
        """Queue the work."""
        with cuda_errors(self.doing):
            self.queue()


@contextmanager
def cuda_errors(doing: str, no_memory: str = "use smaller arrays") -> Iterator[None]:
    """Turn PyCUDA's errors into cudabench's. `doing`: what failed; `no_memory`: what to do if memory is not enough."""
    import pycuda.driver as driver

    try:
        yield
    except driver.MemoryError as error:
        raise OutOfMemory(f"The GPU ran out of memory while {doing}; {no_memory}.") from error
    except driver.Error as error:
        raise DeviceError(f"CUDA failed while {doing}: {_reason(str(error))}.") from error


def _reason(message: str) -> str:
    """Return PyCUDA's message without the name of the call and without an empty log of the driver, such as 'an illegal
    memory access was encountered'."""
    reason = "".join(filter(str.isprintable, message.split(": ", 1)[-1].split(" -- ")[0]))
    return reason.strip().removesuffix(" -").rstrip(".")


_compiling = ThreadPoolExecutor(1, "compiling")


_patch_lock = threading.Lock()  # a thread holds this lock while it replaces a function of PyCUDA
# For each cubin: a function that loads the cubin through PyCUDA's SourceModule, which finds it in PyCUDA's own cache.
_sources: dict[bytes, Callable[[], Any]] = {}


@lru_cache(maxsize=8)
def _compile_in_background(
    source: Source, arch: str, defines: tuple[tuple[str, str], ...], names: tuple[str, ...]
) -> Future[Compiled]:
    return _compiling.submit(
        compiler.compile_cubin, source.text, source.name, arch=arch, defines=dict(defines),
        include_dirs=source.folders, names=names, std=source.std, build=partial(_pycuda_cubin, name=source.name),
    )  # fmt: skip


def _pycuda_cubin(text: str, folders: Sequence[str], options: Sequence[str], architecture: str, name: str) -> bytes:
    """Compile a source text with PyCUDA and return the cubin.

    PyCUDA starts nvcc, here through `nvcc.run`, which limits its time and memory. Raises Refused for an error in the
    source, and CompilerStopped if nvcc exceeds a limit.
    """
    from pycuda import compiler as pycuda

    settings = {
        "nvcc": toolkit.nvcc() or "nvcc", "options": ["-lineinfo", *options], "arch": architecture,
        "no_extern_c": True, "include_dirs": list(folders),
    }  # fmt: skip
    code: bytes = _run_pycuda(partial(pycuda.compile, text, **settings), name)
    # If the text has #include, PyCUDA runs nvcc's preprocessor for each look-up in its cache, which is slow.
    if "#include" not in text:
        _sources[code] = partial(_run_pycuda, partial(pycuda.SourceModule, text, **settings), name)
    return code


def _run_pycuda(call: Callable[[], Any], name: str) -> Any:
    """Make a call of PyCUDA that starts nvcc, and return its value. Raises the same errors as `_pycuda_cubin`."""
    from pycuda import compiler as pycuda
    from pycuda import driver

    status = 0

    def run(command: Sequence[str], cwd: str | None = None, error_on_nonzero: bool = True) -> tuple[int, Any, Any]:
        nonlocal status
        process = nvcc.run(command, name, cwd)
        status = process.returncode
        return status, process.stdout.encode(), process.stderr.encode()

    with _patch_lock, warnings.catch_warnings():
        warnings.simplefilter("ignore")  # PyCUDA reports the compiler's remarks as Python warnings
        original, pycuda.call_capture_output = pycuda.call_capture_output, run
        try:
            return call()
        except driver.CompileError as error:
            outputs = [
                output.decode("utf-8", "replace") if isinstance(output, bytes) else str(output or "")
                for output in (error.stdout, error.stderr)
            ]
            log = re.sub(r"\S*/?tmp\w*/kernel\.cu|\bkernel\.cu\b", lambda _: name, "\n".join(outputs))
            raise nvcc.refusal(log.strip() or f"nvcc fatal : {error.msg}", status, name) from error
        finally:
            pycuda.call_capture_output = original


class CudaDevice:
    """A context manager: a GPU with a new CUDA context or, if `primary`, the primary context, which libraries use."""

    page_bytes = PAGE_BYTES

    def __init__(self, index: int = 0, *, primary: bool = False) -> None:
        import pycuda.driver as driver

        self._driver = driver
        repair = "end other processes on it, which nvidia-smi lists"
        with cuda_errors("starting", repair):
            driver.init()
            self.info = probe.gpu(index)
            self.begin(PROTOCOL_SOURCE, {})  # start to compile; the context is created at the same time
            device = driver.Device(index)
            flags = driver.ctx_flags.SCHED_SPIN | driver.ctx_flags.MAP_HOST
            if primary:  # libraries use the primary context too; its flags can be set only before it is active
                ctypes.CDLL("libcuda.so.1").cuDevicePrimaryCtxSetFlags_v2(
                    ctypes.c_int(index), ctypes.c_uint(int(flags))
                )
                self._context = device.retain_primary_context()
                self._context.push()
            else:
                self._context = device.make_context(flags)
            self._streams = [driver.Stream()]
            self._stream = self._streams[0]
            self._start, self._stop = driver.Event(), driver.Event()
            self._flag = driver.pagelocked_zeros(
                HOST_PAGE_BYTES // 4, np.int32, mem_flags=driver.host_alloc_flags.DEVICEMAP
            )
            self._flag_pointer = self._flag.base.get_device_pointer()
            self._flush_bytes = self.info.l2_bytes or 0
            # This memory is overwritten before every cold sample. It is allocated only for cold samples, because in
            # memory that is not overwritten, a kernel could keep results.
            self._flush: Any = None
        self._cuda = ctypes.CDLL("libcuda.so.1")
        self._allocations: dict[int, Any] = {}
        # The CUDA arrays of surfaces. Each array is kept while a bound launch uses it.
        self._arrays: weakref.WeakValueDictionary[Surface, CudaArray] = weakref.WeakValueDictionary()
        self._called: list[peers.Call] = []  # library calls that have already run once on every stream
        protocol_module = self.load(PROTOCOL_SOURCE, {})
        self._blocking, self._digest, self._demote, self._scrub = (
            protocol_module.function(name).prepare(types)
            for name, types in (("block_stream", "P"), ("digest", "PQQP"), ("demote", "PQ"), ("scrub", ""))
        )
        self._key = int.from_bytes(os.urandom(8), "little")
        with cuda_errors("starting", repair):
            self._most_shared = device.get_attribute(driver.device_attribute.MAX_SHARED_MEMORY_PER_BLOCK_OPTIN)
            self._scrub.set_attribute(driver.function_attribute.MAX_DYNAMIC_SHARED_SIZE_BYTES, self._most_shared)
            self._sum = driver.mem_alloc(PAGE_BYTES)  # use a whole page, so that it contains no array of a kernel
        # Reserve no part of the L2 for persisting lines. Cards without this feature refuse the call, without harm.
        self._cuda.cuCtxSetLimit(PERSISTING_L2_CACHE_SIZE, ctypes.c_size_t(0))
        self._board = nvml.board(self.info.uuid)

    def __enter__(self) -> CudaDevice:
        return self

    def __exit__(self, *_: object) -> None:
        self._allocations.clear()
        self._context.pop()

    # Compile ----------------------------------------------------------------------------------------------------

    def begin(self, source: Source, defines: Mapping[str, str], names: Sequence[str] = ()) -> Future[Compiled]:
        """Start to compile a source file on another thread, and return the future result.

        The compiler is nvcc through PyCUDA, which caches the results, or NVRTC if nvcc is missing. `names`: the
        requested kernels of a user's file, as C++ names for `compiler.compile_ptx`; templates among them are
        instantiated. The errors are those of `compiler.compile_cubin`.
        """
        arch = "sm_" + self.info.compute_capability.replace(".", "")
        return _compile_in_background(source, arch, tuple(defines.items()), () if source.builtin else tuple(names))

    def load(
        self, source: Source, defines: Mapping[str, str], names: Sequence[str] = (), *, clusters: bool = False
    ) -> Module:
        """Compile a source file and load it. `clusters`: whether a launch sets a cluster size, which PyCUDA cannot do;
        then the driver loads the module."""
        compiled = self.begin(source, defines, names).result()
        ptx = _ptx(compiled)
        if (clusters or driver_objects.needs_driver_launch(ptx)) and compiled.cubin:
            return Module(driver_objects.Module(self._cuda, compiled.cubin, ptx), compiled, source.text)
        return Module(self._load_cubin(compiled, source.name), compiled, source.text)

    def _load_cubin(self, compiled: Compiled, name: str) -> Any:
        """Load machine code and return PyCUDA's module, from PyCUDA's own cache if it has the source."""
        with cuda_errors(f"loading {name}"):
            try:
                if source_module := _sources.get(compiled.cubin or b""):
                    return source_module()
                return self._driver.module_from_buffer(compiled.cubin)
            except self._driver.Error as error:
                if compiled.backend == "nvcc":
                    raise
                version = ".".join(map(str, compiled.version))
                raise DeviceError(
                    f"The driver does not load {name} as NVRTC {version} compiles it ({_reason(str(error))}): update "
                    "the driver, or install the NVRTC of its CUDA version."
                ) from error

    def peer(self, peer: Peer, operation: Operation, problem: Problem) -> peers.Call:
        """Return a library's call for the problem. Raises DeviceUnusable if the library is not installed."""
        if self.info.kind == "simulated":
            raise DeviceUnusable(
                "A library runs only on a GPU, but this driver simulates one: install NVIDIA's driver."
            )
        arch = "sm_" + self.info.compute_capability.replace(".", "")
        room = peers.LibraryContext(self.info.index or 0, arch, self._workspace)
        return peers.load(peer, operation, problem, room)

    def _workspace(self, nbytes: int) -> int:
        """Allocate device memory for a library. Raises DeviceError, not OutOfMemory, if the memory is not enough, so
        that only the library's result fails."""
        try:
            return self.allocate(nbytes)
        except OutOfMemory as error:
            raise DeviceError(
                f"The library's {nbytes / 1e9:.2f} GB of workspace do not fit next to the arrays: use smaller arrays."
            ) from error

    def sm_clock_mhz(self) -> int | None:
        """Return the current clock of the multiprocessors in MHz, or None without NVML."""
        clock = None if self._board is None else self._board.query("nvmlDeviceGetClockInfo", "NVML_CLOCK_SM")
        return None if clock is None else int(clock)

    def other_processes(self) -> list[str]:
        """Return the other processes that compute on this GPU, as 'python3 (process 4711)'; empty without NVML."""
        return self._board.other_processes() if self._board else []

    # Memory -----------------------------------------------------------------------------------------------------

    @cuda_errors("reading the free memory")
    def free_bytes(self) -> int:
        """Return how many bytes of device memory are free, less the bytes that a flush of the L2 will need."""
        flush_bytes = self._flush_bytes if self._flush is None else 0
        return max(0, int(self._driver.mem_get_info()[0]) - flush_bytes)

    def allocate(self, nbytes: int, *, own_page: bool = False) -> int:
        """Allocate device memory and return its address; `release` frees it. `own_page`: whether the pages may hold no
        other allocation."""
        with cuda_errors(f"allocating {nbytes / 1e9:.2f} GB"):
            size = -(-max(nbytes, 1) // PAGE_BYTES) * PAGE_BYTES if own_page else max(nbytes, 1)
            allocation = self._driver.mem_alloc(size)
        self._allocations[int(allocation)] = allocation
        return int(allocation)

    @cuda_errors("freeing memory")
    def release(self, pointer: int) -> None:
        """Free an address that `allocate` returned."""
        self._allocations.pop(pointer).free()

    @cuda_errors("copying to the GPU")
    def upload(self, pointer: int, array: np.ndarray) -> None:
        """Copy an array to the device."""
        self._driver.memcpy_htod(pointer, np.ascontiguousarray(array))

    @cuda_errors("copying from the GPU")
    def download(self, pointer: int, array: np.ndarray) -> None:
        """Fill a contiguous NumPy array with a copy of device memory."""
        self._driver.memcpy_dtoh(array, pointer)

    def pinned(self, nbytes: int) -> np.ndarray:
        """Return an array (uint8) of page-locked host memory."""
        with cuda_errors(f"allocating {nbytes / 1e9:.2f} GB of page-locked memory"):
            return np.asarray(self._driver.pagelocked_empty(nbytes, np.uint8))

    def fill(self, pointer: int, nbytes: int, byte: int) -> Work:
        """Return a `Work` that fills device memory with a byte."""
        return QueuedWork(
            lambda: nbytes and self._driver.memset_d8_async(pointer, byte, nbytes, self._stream), "filling memory"
        )

    def digest(self, pointer: int, nbytes: int) -> int:
        """Return a 64-bit digest (hash) of device memory, which a kernel computes after all queued work."""
        total = np.zeros(1, np.uint64)
        with cuda_errors("hashing the output"):
            self._driver.memset_d8_async(self._sum, 0, 8, self._stream)
            blocks = max(1, min(-(-nbytes // (16 * DIGEST_THREADS)), DIGEST_BLOCKS_PER_SM * (self.info.sm_count or 1)))
            self._digest.prepared_async_call(
                (blocks, 1), (DIGEST_THREADS, 1, 1), self._stream, pointer, nbytes, self._key, self._sum
            )
            self._driver.memcpy_dtoh_async(total, self._sum, self._stream)
            self._stream.synchronize()
        return int(total[0])

    def scrub(self, local_bytes: int) -> Work:
        """Return a `Work` that overwrites the shared memory and the registers of every SM, and `local_bytes` of local
        memory of each thread that can be resident. So a kernel cannot find values that an earlier launch left."""
        local = None
        if local_bytes:
            words = str(-(-local_bytes // 4))
            module = self.load(PROTOCOL_SOURCE, {"LOCAL_WORDS": words})
            local = module.function("scrub_local").prepare("")
        blocks = (self.info.sm_count or 1) * THREADS_PER_SM // SCRUB_THREADS

        def work() -> None:
            if local is not None:
                local.prepared_async_call((blocks, 1), (SCRUB_THREADS, 1, 1), self._stream)
            self._scrub.prepared_async_call(
                (self.info.sm_count or 1, 1), (SCRUB_THREADS, 1, 1), self._stream, shared_size=self._most_shared
            )

        return QueuedWork(work, "overwriting shared memory")

    def demote(self, pointer: int, nbytes: int) -> Work:
        """Return a `Work` that gives the L2 lines of a part of device memory the normal eviction priority again."""
        blocks, block = (max(1, -(-nbytes // (LINE_BYTES * DIGEST_THREADS))), 1), (DIGEST_THREADS, 1, 1)
        return QueuedWork(
            lambda: self._demote.prepared_async_call(blocks, block, self._stream, pointer, nbytes),
            "resetting the L2 cache",
        )

    # Launch and time --------------------------------------------------------------------------------------------

    @cuda_errors("preparing the launches")
    def bind(self, module: protocol.Module, launches: Sequence[Launch], pointers: Mapping[str, int]) -> Work:
        """Return a `Work` that queues all launches of a kernel, or the call of a library. As much as possible is
        prepared now, so that queueing is fast. `pointers`: the addresses of the buffers by name."""
        if isinstance(module, peers.Call):
            return self._bound_call(module, pointers)
        views = dict.fromkeys(a for launch in launches for a in launch.arguments if isinstance(a, OVER_BUFFERS))
        objects = objects_of(self._cuda, views, pointers, self._arrays)
        values: dict[Any, Any] = {argument: view.handle for argument, view in objects.items()}
        for argument in views:
            if isinstance(argument, TensorMap):
                content = driver_objects.encode_tensor_map(self._cuda, argument, pointers[argument.buffer])
                values[argument] = self._upload_bytes(np.frombuffer(content, np.uint8)) if argument.pointer else content
            elif isinstance(argument, Rows):
                pitches = np.arange(argument.count, dtype=np.uint64) * np.uint64(argument.pitch)
                values[argument] = self._upload_bytes((np.uint64(pointers[argument.buffer]) + pitches).view(np.uint8))
        calls = []
        for launch in launches:
            function = module.function(launch.function)
            if launch.shared_bytes > 48 * 1024:
                function.set_attribute(
                    self._driver.function_attribute.MAX_DYNAMIC_SHARED_SIZE_BYTES, launch.shared_bytes
                )
            arguments = [
                pointers[a]
                if isinstance(a, str)
                else a.pointing(pointers)
                if isinstance(a, ByValue)
                else values[a]
                if isinstance(a, OVER_BUFFERS)
                else a
                for a in launch.arguments
            ]
            # One call of `prepare` is enough for all launches of a function, because the types of its arguments do not
            # change.
            function.prepare(driver_objects.argument_types(launch.arguments))
            options: dict[str, Any] = {"shared_size": launch.shared_bytes}
            if launch.cluster:
                options["cluster"] = launch.cluster
            calls.append((function, launch.grid, launch.block, arguments, options))

        def queue() -> None:
            for function, grid, block, arguments, options in calls:
                function.prepared_async_call(grid, block, self._stream, *arguments, **options)

        doing = "launching the kernel"
        graph = len(calls) > MAX_QUEUED_LAUNCHES
        bound = (
            QueuedWork(driver_objects.graph(self._cuda, lambda: self._stream.handle, queue), doing)
            if graph
            else QueuedWork(queue, doing, len(calls))
        )
        if not objects:
            return bound
        unfilled = [texture for texture in objects.values() if isinstance(texture, TextureObject)]

        # The default argument keeps a reference to the objects, so the objects live as long as this function.
        def filled(keep_alive: Any = objects) -> None:
            # The textures are filled at the first launch, not earlier, because the buffers get their inputs after the
            # binding.
            while unfilled:
                unfilled.pop().copy_from_buffer(self._stream.handle)
            bound()

        surfaces = [surface for surface in objects.values() if isinstance(surface, SurfaceObject)]
        return QueuedWork(filled, doing, bound.launches, list(dict.fromkeys(surfaces)))

    def _upload_bytes(self, content: np.ndarray) -> int:
        """Copy bytes to device memory and return the address; the memory is freed with this device object."""
        pointer = self.allocate(content.nbytes)
        self.upload(pointer, content)
        return pointer

    def _bound_call(self, call: peers.Call, pointers: Mapping[str, int]) -> Work:
        """Return a `Work` that queues a library's call.

        The call is made once on every stream now, because libraries initialise themselves at the first call, and that
        must not happen while the stream is blocked for timing.
        """
        queue = call.bind(pointers)
        if all(call is not called for called in self._called):
            self._called.append(call)
            for number in range(call.streams):
                self.use_stream(number)
                with cuda_errors(f"calling {call.version}"):
                    queue(self._stream.handle)
                    self._stream.synchronize()
            self.use_stream(0)
        # If this call waits for the device, it would wait forever on a blocked stream. With this many launches `sample`
        # does not block the stream.
        launches = MAX_QUEUED_LAUNCHES + 1 if call.waits else 1
        return QueuedWork(lambda: queue(self._stream.handle), f"calling {call.version}", launches)

    @cuda_errors("making a stream")
    def use_stream(self, number: int) -> None:
        """Use stream `number` from now on, and create it if needed. All queued work must have ended."""
        while number >= len(self._streams):
            self._streams.append(self._driver.Stream())
        self._stream = self._streams[number]

    def copy(self, source: int, target: int, nbytes: int) -> Work:
        """Return a `Work` that copies device memory to device memory."""
        return QueuedWork(
            lambda: self._driver.memcpy_dtod_async(target, source, nbytes, self._stream), "copying on the GPU"
        )

    @contextmanager
    def _copied_to_surfaces(self, works: Sequence[Work]) -> Iterator[None]:
        """Context: at its start queue copies of buffers to the CUDA arrays of all surfaces of `works`, and at its end
        queue the copies back."""
        surfaces = dict.fromkeys(surface for work in works if isinstance(work, QueuedWork) for surface in work.surfaces)
        for surface in surfaces:
            surface.copy_from_buffer(self._stream.handle)
        yield
        for surface in surfaces:
            surface.copy_to_buffer(self._stream.handle)

    def run(self, work: Work, doing: str) -> None:
        """Run the work once, without timing, and wait for it. Raises DeviceError if a launch or the kernel fails."""
        with cuda_errors(doing):
            with self._copied_to_surfaces([work]):
                work()
                self._stream.synchronize()
            self._stream.synchronize()

    def alive(self) -> bool:
        """Return whether the CUDA context still works; a kernel's access to an illegal address destroys it."""
        try:
            self._context.synchronize()
        except self._driver.Error:
            return False
        return True

    def sample(self, works: Sequence[Work], cache: str, before: Sequence[Work] = ()) -> float:
        """Run the works back to back, and return their total time in seconds divided by their number.

        `before` is queued first and not timed; copies between surfaces and buffers are not timed either. If `cache` is
        'cold', persisting L2 lines are reset, and a memset of exactly the L2's size runs before the works (as in
        nvbench). A one-thread kernel then blocks the stream until everything is queued, so that the GPU does not wait
        for the host between the two events.
        """
        launches = sum(work.launches if isinstance(work, QueuedWork) else 1 for work in works)
        blocked = launches <= MAX_QUEUED_LAUNCHES
        with cuda_errors("timing the kernel"):
            for work in before:
                work()
            with self._copied_to_surfaces(works):
                self._driver.memset_d8_async(self._sum, 0, PAGE_BYTES, self._stream)
                if cache == "cold" and self._flush_bytes:
                    if self._flush is None:
                        self._flush = self._driver.mem_alloc(self._flush_bytes)
                    self._cuda.cuCtxResetPersistingL2Cache()
                    self._driver.memset_d8_async(self._flush, 0, self._flush_bytes, self._stream)
                if blocked:
                    self._flag[:] = 0
                    self._blocking.prepared_async_call((1, 1), (1, 1, 1), self._stream, self._flag_pointer)
                try:
                    self._start.record(self._stream)
                    for work in works:
                        work()
                    self._stop.record(self._stream)
                finally:
                    self._flag[0] = 1
                self._stop.synchronize()
            if blocked and self._flag[1]:
                raise DeviceError("The host took over two seconds to queue one sample; the machine is overloaded.")
            return float(self._stop.time_since(self._start)) * 1e-3 / len(works)
