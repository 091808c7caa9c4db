"""Modules by the driver itself: PyCUDA has no launch for kernels that synchronise their grid or take tensor maps."""

from __future__ import annotations

import ctypes
import re
from collections.abc import Callable, Sequence
from ctypes import c_int, c_size_t, c_uint, c_uint64, c_void_p
from typing import Any

import numpy as np

from cudabench.errors import DeviceError
from cudabench.records.launch import ByValue, Rows, Surface, TensorMap, Texture

# cuda.h: CUfunction_attribute, CUresult
MAX_THREADS, SHARED_BYTES, CONSTANT_BYTES, LOCAL_BYTES, REGISTERS = range(5)
LARGE_CLUSTERS = 14  # CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED
PORTABLE_CLUSTER = 8  # blocks; more only where a kernel is allowed to
COOPERATIVE_LAUNCH_TOO_LARGE = 720
CAPTURE_THREAD_LOCAL = 1  # CUstreamCaptureMode
OF_COOPERATION, OF_A_CLUSTER = 2, 4  # CUlaunchAttributeID
_FUNCTION = re.compile(r"^\s*(?:\.(?:visible|extern|weak)\s+)*\.(entry|func)\b", re.M)


def packing(arguments: Sequence[Any]) -> list[Any]:
    """Return the types of arguments as PyCUDA's `prepare` takes them; a struct is put where its alignment wants it,
    which the module struct, by which PyCUDA packs, does not do for bytes."""
    types: list[Any] = []
    offset = 0
    for argument in arguments:
        match argument:
            case ByValue():
                gap, width = -offset % argument.align, len(argument.content)
                types.append(f"{gap}x{width}s" if gap else f"{width}s")
                offset += gap + width
            case TensorMap(pointer=False):
                types.append("map")  # its kernels are launched by the driver itself, which knows where it belongs
            case _:
                address = isinstance(argument, (str, Rows, Surface, Texture, TensorMap))
                kind = np.dtype(np.uint64) if address else np.asarray(argument).dtype
                types.append("P" if address else kind)
                offset += -offset % kind.itemsize + kind.itemsize
    return types


def wants_the_driver(ptx: str) -> bool:
    """Tell whether kernels need what PyCUDA has not: a cooperative launch, a large cluster, the place of a tensor map
    among the arguments, whose alignment differs between CUDA's headers."""
    maps = re.search(r"\.param\s+\.align\s+(64|128)\s+\.b8\s+\w+\[128\]", ptx)
    return "%envreg2" in ptx or ".reqnctapercluster" in ptx or maps is not None


def synchronises_grid(ptx: str, entry: str) -> bool:
    """Tell whether a kernel needs a cooperative launch: it, or a function that it may call, reads %envreg2, where
    cooperative groups find the grid's barrier."""
    if "%envreg2" not in ptx:
        return False
    starts = [match.start() for match in _FUNCTION.finditer(ptx)]
    parts = [ptx[start:end] for start, end in zip(starts, [*starts[1:], len(ptx)], strict=True)]
    own = next((part for part in parts if re.match(rf"\s*[.\w\s]*\.entry\s+{re.escape(entry)}\b", part)), "")
    called = [part for part in parts if re.match(r"\s*[.\w\s]*\.func\b", part)]
    return "%envreg2" in own or ("call" in own and any("%envreg2" in part for part in called))


class Attribute(ctypes.Structure):
    """CUlaunchAttribute; its value is a union of 64 bytes, of which numbers are all that is in use here."""

    _fields_ = [("id", c_int), ("pad", c_int), ("value", c_uint * 16)]


class Configuration(ctypes.Structure):
    """CUlaunchConfig."""

    _fields_ = [
        ("sides", c_uint * 6), ("shared_bytes", c_uint), ("stream", c_void_p),
        ("attributes", ctypes.POINTER(Attribute)), ("count", c_uint),
    ]  # fmt: skip


class Function:
    """A kernel, with those of PyCUDA's methods that are in use here."""

    def __init__(self, driver: ctypes.CDLL, function: c_void_p, name: str, cooperative: bool) -> None:
        self._driver, self._function, self._name = driver, function, name
        self._cooperative = cooperative
        self._launch = driver.cuLaunchCooperativeKernel if cooperative else driver.cuLaunchKernel
        self._extra = () if cooperative else (None,)
        self._types: list[np.dtype[Any]] = []
        self.num_regs, self.shared_size_bytes = self._attribute(REGISTERS), self._attribute(SHARED_BYTES)
        self.local_size_bytes, self.const_size_bytes = self._attribute(LOCAL_BYTES), self._attribute(CONSTANT_BYTES)
        self.max_threads_per_block = self._attribute(MAX_THREADS)

    def _attribute(self, number: int) -> int:
        found = c_int()
        check(self._driver, self._driver.cuFuncGetAttribute(ctypes.byref(found), number, self._function), self._name)
        return found.value

    def set_attribute(self, attribute: int, value: int) -> None:
        """Set a CUfunction_attribute."""
        check(self._driver, self._driver.cuFuncSetAttribute(self._function, int(attribute), value), self._name)

    def prepare(self, types: Sequence[Any]) -> Function:
        """Set the types of the arguments: NumPy dtypes, or as text 'P' for an address and any other for bytes."""
        self._types = [np.dtype(np.uint64) if isinstance(type_, str) else np.dtype(type_) for type_ in types]
        return self

    def prepared_async_call(
        self,
        grid: Sequence[int],
        block: Sequence[int],
        stream: Any,
        *arguments: Any,
        shared_size: int = 0,
        cluster: Sequence[int] | None = None,
    ) -> None:
        """Queue a launch on a stream of PyCUDA's; cluster: the blocks of a cluster, where the kernel does not say."""
        held = [
            np.frombuffer(value, np.uint8) if isinstance(value, bytes) else np.array(value, type_)
            for value, type_ in zip(arguments, self._types, strict=True)
        ]
        places = (c_void_p * max(1, len(held)))(*(array.ctypes.data for array in held))
        sides = [c_uint(side) for side in (*(*grid, 1, 1)[:3], *(*block, 1, 1)[:3])]
        if cluster is None:
            status = self._launch(
                self._function, *sides, c_uint(shared_size), c_void_p(stream.handle), places, *self._extra
            )
        else:
            status = self._in_clusters(cluster, sides, shared_size, stream.handle, places)
        if status == COOPERATIVE_LAUNCH_TOO_LARGE:
            raise DeviceError(
                f"kernel {self._name} synchronises its grid, which has more blocks than this GPU runs at once: use a "
                "smaller --grid, and let each thread do more."
            )
        check(self._driver, status, self._name)

    def _in_clusters(
        self, cluster: Sequence[int], sides: Sequence[c_uint], shared_size: int, stream: int, places: Any
    ) -> int:
        """Launch by cuLaunchKernelEx, and return its status."""
        if not hasattr(self._driver, "cuLaunchKernelEx"):
            raise DeviceError("The driver has no clusters: it is older than CUDA 11.8, update it.")
        if cluster[0] * cluster[1] * cluster[2] > PORTABLE_CLUSTER:
            self.set_attribute(LARGE_CLUSTERS, 1)
        attributes = (Attribute * 2)()
        attributes[0].id = OF_A_CLUSTER
        attributes[0].value[:3] = cluster
        attributes[1].id = OF_COOPERATION
        attributes[1].value[0] = 1
        wanted = Configuration(
            (c_uint * 6)(*(side.value for side in sides)), shared_size, stream, attributes, 1 + self._cooperative
        )
        return int(self._driver.cuLaunchKernelEx(ctypes.byref(wanted), self._function, places, None))


class Module:
    """Machine code, loaded by the driver; it stays loaded as long as the context."""

    def __init__(self, driver: ctypes.CDLL, cubin: bytes, ptx: str) -> None:
        self._driver, self._ptx = driver, ptx
        self._module = c_void_p()
        check(driver, driver.cuModuleLoadData(ctypes.byref(self._module), ctypes.c_char_p(cubin)), "the module")

    def get_function(self, entry: str) -> Function:
        """Return a kernel by its name in the machine code."""
        function = c_void_p()
        status = self._driver.cuModuleGetFunction(ctypes.byref(function), self._module, entry.encode())
        check(self._driver, status, entry)
        return Function(self._driver, function, entry, synchronises_grid(self._ptx, entry))

    def get_global(self, symbol: str) -> tuple[int, int]:
        """Return address and size of a variable."""
        pointer, nbytes = c_uint64(), c_size_t()
        status = self._driver.cuModuleGetGlobal_v2(
            ctypes.byref(pointer), ctypes.byref(nbytes), self._module, symbol.encode()
        )
        check(self._driver, status, symbol)
        return int(pointer.value), int(nbytes.value)


def graph(driver: ctypes.CDLL, stream: Callable[[], int], queue: Callable[[], object]) -> Callable[[], None]:
    """Return one launch of a CUDA graph of all that `queue` queues: as fast as the GPU goes on, not as Python does.

    The graph lives as long as the context; `stream` is PyCUDA's, of the moment.
    """
    made, ready = c_void_p(), c_void_p()

    def call(name: str, *arguments: Any) -> None:
        if status := getattr(driver, name)(*arguments):
            raise DeviceError(f"CUDA failed while making a graph of the launches: {name} gave error {status}.")

    call("cuStreamBeginCapture_v2", c_void_p(stream()), c_int(CAPTURE_THREAD_LOCAL))
    try:
        queue()
    except BaseException:
        driver.cuStreamEndCapture(c_void_p(stream()), ctypes.byref(made))  # whose own error would hide this one
        raise
    call("cuStreamEndCapture", c_void_p(stream()), ctypes.byref(made))
    call("cuGraphInstantiateWithFlags", ctypes.byref(ready), made, ctypes.c_ulonglong(0))
    call("cuGraphDestroy", made)
    call("cuGraphUpload", ready, c_void_p(stream()))
    return lambda: call("cuGraphLaunch", ready, c_void_p(stream()))


def check(driver: ctypes.CDLL, status: int, what: str) -> None:
    """Raise DeviceError for a call of the driver that failed."""
    if status:
        text = ctypes.c_char_p()
        driver.cuGetErrorString(status, ctypes.byref(text))
        told = text.value.decode() if text.value else f"error {status}"
        raise DeviceError(f"CUDA failed with {what}: {told}.")
