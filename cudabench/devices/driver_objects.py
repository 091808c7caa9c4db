"""Calls the CUDA driver directly for features that PyCUDA lacks.

The features are launches of kernels that synchronise their grid or take tensor maps, graphs of launches, texture and
surface objects with their CUDA arrays, and tensor maps.
"""

from __future__ import annotations

import ctypes
import re
import weakref
from collections.abc import Callable, Iterable, Mapping, MutableMapping, Sequence
from ctypes import c_float, c_int, c_size_t, c_uint, c_uint64, c_void_p
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from cudabench.devices.protocol import OVER_BUFFERS
from cudabench.errors import DeviceError, OutOfMemory
from cudabench.records.launch import ByValue, Surface, TensorMap, Texture

# Numbers from cuda.h: CUarray_format, CUmemorytype, CUresult, CUaddress_mode, CUfilter_mode, CUresourcetype
FORMATS = {
    "uint8": 1, "uint16": 2, "uint32": 3, "int8": 8, "int16": 9, "int32": 10, "float16": 16, "float32": 32,
}  # fmt: skip
MEMORY_DEVICE, MEMORY_ARRAY = 2, 3
LAYERED, SURFACE_LDST, GATHER = 1, 2, 8  # flags of CUDA arrays
MOST_GATHERED = 32768  # the maximum number of texels along a side of an array that allows tex2Dgather
NO_MEMORY = 2
ADDRESS_MODES = {"wrap": 0, "clamp": 1, "mirror": 2, "border": 3}
FILTERS = {"point": 0, "linear": 1}
RESOURCE_ARRAY, RESOURCE_LINEAR = 0, 2
READ_AS_INTEGER, NORMALIZED_COORDINATES = 1, 2


class ArrayDescriptor(ctypes.Structure):
    """The C struct CUDA_ARRAY3D_DESCRIPTOR."""

    _fields_ = (
        ("width", c_size_t), ("height", c_size_t), ("depth", c_size_t), ("format", c_int), ("channels", c_uint),
        ("flags", c_uint),
    )  # fmt: skip


class Copy(ctypes.Structure):
    """The C struct CUDA_MEMCPY3D."""

    _fields_ = (
        ("src_x", c_size_t), ("src_y", c_size_t), ("src_z", c_size_t), ("src_lod", c_size_t), ("src_type", c_int),
        ("src_host", c_void_p), ("src_device", c_uint64), ("src_array", c_void_p), ("reserved0", c_void_p),
        ("src_pitch", c_size_t), ("src_height", c_size_t),
        ("dst_x", c_size_t), ("dst_y", c_size_t), ("dst_z", c_size_t), ("dst_lod", c_size_t), ("dst_type", c_int),
        ("dst_host", c_void_p), ("dst_device", c_uint64), ("dst_array", c_void_p), ("reserved1", c_void_p),
        ("dst_pitch", c_size_t), ("dst_height", c_size_t),
        ("width_bytes", c_size_t), ("height", c_size_t), ("depth", c_size_t),
    )  # fmt: skip


class _Linear(ctypes.Structure):
    _fields_ = (("pointer", c_uint64), ("format", c_int), ("channels", c_uint), ("nbytes", c_size_t))


class _Resource(ctypes.Union):
    _fields_ = (("array", c_void_p), ("linear", _Linear), ("reserved", c_int * 32))


class ResourceDescriptor(ctypes.Structure):
    """The C struct CUDA_RESOURCE_DESC."""

    _fields_ = (("type", c_int), ("of", _Resource), ("flags", c_uint))


class TextureDescriptor(ctypes.Structure):
    """The C struct CUDA_TEXTURE_DESC."""

    _fields_ = (
        ("address", c_int * 3), ("filter", c_int), ("flags", c_uint), ("anisotropy", c_uint), ("mip_filter", c_int),
        ("mip_bias", c_float), ("mip_least", c_float), ("mip_most", c_float), ("border", c_float * 4),
        ("reserved", c_int * 12),
    )  # fmt: skip


def _call(driver: ctypes.CDLL, view: Surface | Texture, name: str, *arguments: Any) -> None:
    """Call a function of the driver for a texture or surface.

    Raises OutOfMemory, or DeviceError for another failure; the message names the texture or surface.
    """
    if not (status := getattr(driver, name)(*arguments)):
        return
    kind = type(view).__name__.lower()
    subject = f"the {kind} {view.buffer}, {view.dtype} {'x'.join(map(str, view.shape))}"
    if status == NO_MEMORY:
        raise OutOfMemory(f"The GPU ran out of memory while making {subject}; use smaller arrays.")
    raise DeviceError(
        f"CUDA failed while making {subject}: {name} gave error {status}; see the limits of {kind}s in the CUDA C++ "
        "Programming Guide."
    )


def _extents(view: Surface | Texture) -> tuple[int, int, int]:
    """Return width, height and depth (or layers) in texels, as the driver expects them: 0 for a missing dimension."""
    shape = view.shape[:-1] if view.channels > 1 else view.shape
    layers = shape[0] if view.layered else 0
    width, height, depth = (*(shape[1:] if view.layered else shape)[::-1], 0, 0)[:3]
    return width, height, layers or depth


class CudaArray:
    """A CUDA array with the shape of a texture or surface; it is freed when this object is deleted."""

    def __init__(self, driver: ctypes.CDLL, view: Surface | Texture) -> None:
        self._driver, self._what = driver, view
        width, height, depth = _extents(view)
        flags = LAYERED * view.layered | SURFACE_LDST * isinstance(view, Surface)
        if height and not depth and max(width, height) <= MOST_GATHERED:
            flags |= GATHER
        handle = c_void_p()
        descriptor = ArrayDescriptor(width, height, depth, FORMATS[view.dtype], view.channels, flags)
        _call(driver, view, "cuArray3DCreate_v2", ctypes.byref(handle), ctypes.byref(descriptor))
        self.resource = ResourceDescriptor(RESOURCE_ARRAY, _Resource(array=handle))
        self._array = {"type": MEMORY_ARRAY, "array": handle.value}
        weakref.finalize(self, driver.cuArrayDestroy, handle).atexit = False

    def copy_from_buffer(self, pointer: int, stream: int) -> None:
        """Queue a copy from a buffer of the same shape, at the address `pointer`, to the array."""
        self._copy(stream, src=self._memory(pointer), dst=self._array)

    def copy_to_buffer(self, pointer: int, stream: int) -> None:
        """Queue a copy from the array to a buffer of the same shape, at the address `pointer`."""
        self._copy(stream, src=self._array, dst=self._memory(pointer))

    def _memory(self, pointer: int) -> dict[str, Any]:
        width, height, _ = _extents(self._what)
        pitch = width * self._what.channels * np.dtype(self._what.dtype).itemsize
        return {"type": MEMORY_DEVICE, "device": pointer, "pitch": pitch, "height": max(height, 1)}

    def _copy(self, stream: int, **sides: dict[str, Any]) -> None:
        _, height, depth = _extents(self._what)
        copy = Copy(width_bytes=self._memory(0)["pitch"], height=max(height, 1), depth=max(depth, 1))
        for side, location in sides.items():
            for name, value in location.items():
                setattr(copy, f"{side}_{name}", value)
        _call(self._driver, self._what, "cuMemcpy3DAsync_v2", ctypes.byref(copy), c_void_p(stream))


class TextureObject:
    """A texture object over a buffer in device memory, or over the CUDA array of a surface; kernels get `handle`.

    A texture over linear memory reads the buffer itself. Any other texture has its own CUDA array, unless a surface
    uses the same buffer. `copy_from_buffer` copies the buffer to this array only once, before the first launch, because
    kernels cannot change the array.
    """

    def __init__(self, driver: ctypes.CDLL, texture: Texture, pointer: int, array: CudaArray | None = None) -> None:
        self.pointer = pointer
        self._own = CudaArray(driver, texture) if array is None and not texture.linear else None
        self._array = array or self._own  # a reference, so that the array lives as long as this object
        linear = _Linear(pointer, FORMATS[texture.dtype], texture.channels, texture.nbytes)
        resource = ResourceDescriptor(RESOURCE_LINEAR, _Resource(linear=linear))
        handle, texturing = c_uint64(), TextureDescriptor()
        # Set the address mode only for axes that the texture has, as host code does. On an H200, a one-dimensional
        # texture was filtered with a border when one of its missing axes had the address mode border.
        axes = 1 + sum(extent > 0 for extent in _extents(texture)[1:]) - texture.layered
        texturing.address[:axes] = (ADDRESS_MODES[texture.address],) * axes
        texturing.filter = FILTERS[texture.filter]
        texturing.flags = READ_AS_INTEGER * (texture.read == "element") | NORMALIZED_COORDINATES * texture.normalized
        source = ctypes.byref(self._array.resource if self._array else resource)
        _call(driver, texture, "cuTexObjectCreate", ctypes.byref(handle), source, ctypes.byref(texturing), None)
        self.handle = int(handle.value)
        weakref.finalize(self, driver.cuTexObjectDestroy, handle).atexit = False

    def copy_from_buffer(self, stream: int) -> None:
        """Queue the copy of the buffer to the texture's own CUDA array, if any."""
        if self._own is not None:
            self._own.copy_from_buffer(self.pointer, stream)


@dataclass(frozen=True)
class SurfaceObject:
    """A surface object over a CUDA array, which replaces a buffer in device memory while kernels run.

    Kernels get `handle`. `copy_from_buffer` and `copy_to_buffer` copy the buffer to the array and back. Two objects are
    equal if they copy the same buffer and the same array.
    """

    array: CudaArray
    pointer: int
    handle: int = field(compare=False)

    def copy_from_buffer(self, stream: int) -> None:
        """Queue the copy of the buffer to the CUDA array."""
        self.array.copy_from_buffer(self.pointer, stream)

    def copy_to_buffer(self, stream: int) -> None:
        """Queue the copy of the CUDA array to the buffer."""
        self.array.copy_to_buffer(self.pointer, stream)


def objects_of(
    driver: ctypes.CDLL,
    arguments: Iterable[Any],
    pointers: Mapping[str, int],
    arrays: MutableMapping[Surface, CudaArray],
) -> dict[Surface | Texture, SurfaceObject | TextureObject]:
    """Return the texture and surface objects for the arguments of launches, by argument.

    `arrays`: the CUDA arrays of surfaces; missing arrays are added. A surface keeps its array even if its
    buffer is at another address next time, so that a kernel cannot find an earlier result in another array.
    """
    views = dict.fromkeys(argument for argument in arguments if isinstance(argument, (Surface, Texture)))
    shared: dict[str, CudaArray] = {}
    objects: dict[Surface | Texture, SurfaceObject | TextureObject] = {}
    # Textures come last, because they may use the array of a surface.
    for view in sorted(views, key=lambda view: isinstance(view, Texture)):
        if isinstance(view, Surface):
            array = arrays.get(view) or CudaArray(driver, view)
            shared[view.buffer] = arrays[view] = array
            handle = c_uint64()
            _call(driver, view, "cuSurfObjectCreate", ctypes.byref(handle), ctypes.byref(array.resource))
            objects[view] = SurfaceObject(array, pointers[view.buffer], int(handle.value))
            weakref.finalize(objects[view], driver.cuSurfObjectDestroy, handle).atexit = False
        else:
            surface_array = None if view.linear else shared.get(view.buffer)
            objects[view] = TextureObject(driver, view, pointers[view.buffer], surface_array)
    return objects


# Tensor maps ---------------------------------------------------------------------------------------------------------

MAP_BYTES, ALIGNMENT = 128, 64
# Numbers from cuda.h: CUtensorMapDataType, CUtensorMapSwizzle, CUtensorMapL2promotion, CUtensorMapFloatOOBfill
TYPES = {
    "uint8": 0, "int8": 0, "uint16": 1, "uint32": 2, "int32": 3, "uint64": 4, "int64": 5, "float16": 6, "float32": 7,
    "float64": 8, "bfloat16": 9,
}  # fmt: skip
SWIZZLES = {0: 0, 32: 1, 64: 2, 128: 3}
NOT_INTERLEAVED = 0
L2_PROMOTION_128B = 2
FILLS = {"zeros": 0, "nan": 1}


def encode_tensor_map(driver: ctypes.CDLL, tensor: TensorMap, pointer: int) -> bytes:
    """Return the 128 bytes of a tensor map over memory at the address `pointer`.

    Raises DeviceError if the driver does not accept the map's sizes.
    """
    if not hasattr(driver, "cuTensorMapEncodeTiled"):
        raise DeviceError("The driver lacks tensor maps, because it is older than CUDA 12.0: update it.")
    room = (ctypes.c_ubyte * (MAP_BYTES + ALIGNMENT))()
    start = -ctypes.addressof(room) % ALIGNMENT

    def array(kind: Any, values: tuple[int, ...]) -> Any:
        return (kind * max(1, len(values)))(*values)

    status = driver.cuTensorMapEncodeTiled(
        ctypes.byref(room, start), c_int(TYPES[tensor.dtype]), c_uint(len(tensor.sizes)), c_void_p(pointer),
        array(c_uint64, tensor.sizes), array(c_uint64, tensor.strides), array(c_uint, tensor.box),
        array(c_uint, tensor.steps), c_int(NOT_INTERLEAVED), c_int(SWIZZLES[tensor.swizzle]), c_int(L2_PROMOTION_128B),
        c_int(FILLS[tensor.fill]),
    )  # fmt: skip
    check(driver, status, f"the tensor map of {tensor.buffer}, a box of {'x'.join(map(str, tensor.box[::-1]))}")
    return bytes(room[start : start + MAP_BYTES])


# Modules -------------------------------------------------------------------------------------------------------------

# Numbers from cuda.h: CUfunction_attribute, CUresult
MAX_THREADS, SHARED_BYTES, CONSTANT_BYTES, LOCAL_BYTES, REGISTERS = range(5)
LARGE_CLUSTERS = 14  # CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED
# The maximum number of blocks in a cluster for a kernel without the attribute LARGE_CLUSTERS.
PORTABLE_CLUSTER = 8
COOPERATIVE_LAUNCH_TOO_LARGE = 720
CAPTURE_THREAD_LOCAL = 1  # CUstreamCaptureMode
COOPERATIVE_ATTRIBUTE, CLUSTER_ATTRIBUTE = 2, 4  # CUlaunchAttributeID
_FUNCTION = re.compile(r"^\s*(?:\.(?:visible|extern|weak)\s+)*\.(entry|func)\b", re.M)


def argument_types(arguments: Sequence[Any]) -> list[Any]:
    """Return the type of each argument for PyCUDA's `prepare`: a NumPy dtype, 'P' for an address, or text such as
    '4x16s' for a struct (4 bytes of padding, 16 bytes of content). The padding is needed because PyCUDA does not align
    bytes."""
    types: list[Any] = []
    offset = 0
    for argument in arguments:
        match argument:
            case ByValue():
                gap, width = -offset % argument.align, len(argument.content)
                types.append(f"{gap}x{width}s" if gap else f"{width}s")
                offset += gap + width
            case TensorMap(pointer=False):
                # The driver launches kernels with such a parameter, not PyCUDA. The driver knows the offset of the map.
                types.append("map")
            case _:
                is_address = isinstance(argument, (str, *OVER_BUFFERS))
                dtype = np.dtype(np.uint64) if is_address else np.asarray(argument).dtype
                types.append("P" if is_address else dtype)
                offset += -offset % dtype.itemsize + dtype.itemsize
    return types


def needs_driver_launch(ptx: str) -> bool:
    """Return whether kernels with this PTX need features that PyCUDA lacks: a cooperative launch, a large cluster, or a
    tensor map as an argument. (A tensor map has 64 or 128 bytes of alignment, depending on CUDA's headers.)"""
    maps = re.search(r"\.param\s+\.align\s+(64|128)\s+\.b8\s+\w+\[128\]", ptx)
    return "%envreg2" in ptx or ".reqnctapercluster" in ptx or maps is not None


def synchronises_grid(ptx: str, entry: str) -> bool:
    """Return whether a kernel needs a cooperative launch.

    This is the case if the kernel, or a function that it may call, reads the register %envreg2, from which cooperative
    groups get the address of the grid's barrier.
    """
    if "%envreg2" not in ptx:
        return False
    starts = [match.start() for match in _FUNCTION.finditer(ptx)]
    parts = [ptx[start:end] for start, end in zip(starts, [*starts[1:], len(ptx)], strict=True)]
    kernel = next((part for part in parts if re.match(rf"\s*[.\w\s]*\.entry\s+{re.escape(entry)}\b", part)), "")
    callees = [part for part in parts if re.match(r"\s*[.\w\s]*\.func\b", part)]
    return "%envreg2" in kernel or ("call" in kernel and any("%envreg2" in part for part in callees))


class Attribute(ctypes.Structure):
    """The C struct CUlaunchAttribute; its value is a union of 64 bytes, used here only for numbers."""

    _fields_ = [("id", c_int), ("pad", c_int), ("value", c_uint * 16)]


class Configuration(ctypes.Structure):
    """The C struct CUlaunchConfig."""

    _fields_ = [
        ("sides", c_uint * 6), ("shared_bytes", c_uint), ("stream", c_void_p),
        ("attributes", ctypes.POINTER(Attribute)), ("count", c_uint),
    ]  # fmt: skip


class Function:
    """A kernel that the driver loaded; it has those methods and attributes of PyCUDA's functions that are used here."""

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
        value = c_int()
        check(self._driver, self._driver.cuFuncGetAttribute(ctypes.byref(value), number, self._function), self._name)
        return value.value

    def set_attribute(self, attribute: int, value: int) -> None:
        """Set a CUfunction_attribute."""
        check(self._driver, self._driver.cuFuncSetAttribute(self._function, int(attribute), value), self._name)

    def prepare(self, types: Sequence[Any]) -> Function:
        """Set the types of the arguments, as `argument_types` returns them, and return this function."""
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
        """Queue a launch on a PyCUDA stream. `cluster`: the blocks of a cluster, if the launch sets them."""
        values = [
            np.frombuffer(value, np.uint8) if isinstance(value, bytes) else np.array(value, type_)
            for value, type_ in zip(arguments, self._types, strict=True)
        ]
        pointers = (c_void_p * max(1, len(values)))(*(array.ctypes.data for array in values))
        sides = [c_uint(side) for side in (*(*grid, 1, 1)[:3], *(*block, 1, 1)[:3])]
        if cluster is None:
            status = self._launch(
                self._function, *sides, c_uint(shared_size), c_void_p(stream.handle), pointers, *self._extra
            )
        else:
            status = self._launch_in_clusters(cluster, sides, shared_size, stream.handle, pointers)
        if status == COOPERATIVE_LAUNCH_TOO_LARGE:
            raise DeviceError(
                f"kernel {self._name} synchronises its grid, which has more blocks than fit this GPU at once: use a "
                "smaller --grid, and give each thread more work."
            )
        check(self._driver, status, self._name)

    def _launch_in_clusters(
        self, cluster: Sequence[int], sides: Sequence[c_uint], shared_size: int, stream: int, pointers: Any
    ) -> int:
        """Launch the kernel in clusters with cuLaunchKernelEx, and return the call's status."""
        if not hasattr(self._driver, "cuLaunchKernelEx"):
            raise DeviceError("The driver lacks clusters, because it is older than CUDA 11.8: update it.")
        if cluster[0] * cluster[1] * cluster[2] > PORTABLE_CLUSTER:
            self.set_attribute(LARGE_CLUSTERS, 1)
        attributes = (Attribute * 2)()
        attributes[0].id = CLUSTER_ATTRIBUTE
        attributes[0].value[:3] = cluster
        attributes[1].id = COOPERATIVE_ATTRIBUTE
        attributes[1].value[0] = 1
        configuration = Configuration(
            (c_uint * 6)(*(side.value for side in sides)), shared_size, stream, attributes, 1 + self._cooperative
        )
        return int(self._driver.cuLaunchKernelEx(ctypes.byref(configuration), self._function, pointers, None))


class Module:
    """Machine code that the driver has loaded; it stays loaded as long as the context exists."""

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
        """Return the address and the size in bytes of a variable."""
        pointer, nbytes = c_uint64(), c_size_t()
        status = self._driver.cuModuleGetGlobal_v2(
            ctypes.byref(pointer), ctypes.byref(nbytes), self._module, symbol.encode()
        )
        check(self._driver, status, symbol)
        return int(pointer.value), int(nbytes.value)


def graph(driver: ctypes.CDLL, stream: Callable[[], int], queue: Callable[[], object]) -> Callable[[], None]:
    """Record everything that `queue` queues as a CUDA graph, and return a function that launches the graph.

    The launches of a graph follow each other at the GPU's speed, not at Python's. The graph lives as long as the
    context. `stream`: returns the handle of the current stream.
    """
    captured, executable = c_void_p(), c_void_p()

    def call(name: str, *arguments: Any) -> None:
        if status := getattr(driver, name)(*arguments):
            raise DeviceError(f"CUDA failed while making a graph of the launches: {name} gave error {status}.")

    call("cuStreamBeginCapture_v2", c_void_p(stream()), c_int(CAPTURE_THREAD_LOCAL))
    try:
        queue()
    except BaseException:
        # End the capture. If this call fails too, its error must not hide the first error.
        driver.cuStreamEndCapture(c_void_p(stream()), ctypes.byref(captured))
        raise
    call("cuStreamEndCapture", c_void_p(stream()), ctypes.byref(captured))
    call("cuGraphInstantiateWithFlags", ctypes.byref(executable), captured, ctypes.c_ulonglong(0))
    call("cuGraphDestroy", captured)
    call("cuGraphUpload", executable, c_void_p(stream()))
    return lambda: call("cuGraphLaunch", executable, c_void_p(stream()))


def check(driver: ctypes.CDLL, status: int, subject: str) -> None:
    """Raise DeviceError if `status`, which a call of the driver returned, is an error; `subject`: the object of the
    call, for the message."""
    if status:
        text = ctypes.c_char_p()
        driver.cuGetErrorString(status, ctypes.byref(text))
        reason = text.value.decode() if text.value else f"error {status}"
        raise DeviceError(f"CUDA failed with {subject}: {reason}.")
