"""Texture and surface objects with their CUDA arrays, and tensor maps, by the driver: PyCUDA has no calls for them."""

from __future__ import annotations

import ctypes
import weakref
from collections.abc import Iterable, Mapping, MutableMapping
from ctypes import c_float, c_int, c_size_t, c_uint, c_uint64, c_void_p
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from cudabench.devices.modules import check
from cudabench.errors import DeviceError, OutOfMemory
from cudabench.records.launch import Surface, TensorMap, Texture

# cuda.h: CUarray_format, CUmemorytype, CUresult, CUaddress_mode, CUfilter_mode, CUresourcetype
FORMATS = {
    "uint8": 1, "uint16": 2, "uint32": 3, "int8": 8, "int16": 9, "int32": 10, "float16": 16, "float32": 32,
}  # fmt: skip
MEMORY_DEVICE, MEMORY_ARRAY = 2, 3
LAYERED, SURFACE_LDST, GATHER = 1, 2, 8  # flags of arrays
MOST_GATHERED = 32768  # texels along a side of what tex2Dgather reads
NO_MEMORY = 2
ADDRESS_MODES = {"wrap": 0, "clamp": 1, "mirror": 2, "border": 3}
FILTERS = {"point": 0, "linear": 1}
RESOURCE_ARRAY, RESOURCE_LINEAR = 0, 2
READ_AS_INTEGER, NORMALIZED_COORDINATES = 1, 2


class ArrayDescriptor(ctypes.Structure):
    """CUDA_ARRAY3D_DESCRIPTOR."""

    _fields_ = (
        ("width", c_size_t), ("height", c_size_t), ("depth", c_size_t), ("format", c_int), ("channels", c_uint),
        ("flags", c_uint),
    )  # fmt: skip


class Copy(ctypes.Structure):
    """CUDA_MEMCPY3D."""

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
    """CUDA_RESOURCE_DESC."""

    _fields_ = (("type", c_int), ("of", _Resource), ("flags", c_uint))


class TextureDescriptor(ctypes.Structure):
    """CUDA_TEXTURE_DESC."""

    _fields_ = (
        ("address", c_int * 3), ("filter", c_int), ("flags", c_uint), ("anisotropy", c_uint), ("mip_filter", c_int),
        ("mip_bias", c_float), ("mip_least", c_float), ("mip_most", c_float), ("border", c_float * 4),
        ("reserved", c_int * 12),
    )  # fmt: skip


def _call(driver: ctypes.CDLL, what: Surface | Texture, name: str, *arguments: Any) -> None:
    """Call the driver for a texture or surface. Raises OutOfMemory, and DeviceError with what was being made."""
    if not (status := getattr(driver, name)(*arguments)):
        return
    kind = type(what).__name__.lower()
    made = f"the {kind} {what.buffer}, {what.dtype} {'x'.join(map(str, what.shape))}"
    if status == NO_MEMORY:
        raise OutOfMemory(f"The GPU ran out of memory while making {made}; use smaller arrays.")
    raise DeviceError(
        f"CUDA failed while making {made}: {name} gave error {status}; see the limits of {kind}s in the CUDA C++ "
        "Programming Guide."
    )


def _extents(what: Surface | Texture) -> tuple[int, int, int]:
    """Return width, height and depth (or layers) in texels as the driver wants them: 0 where there is none."""
    shape = what.shape[:-1] if what.channels > 1 else what.shape
    layers = shape[0] if what.layered else 0
    width, height, depth = (*(shape[1:] if what.layered else shape)[::-1], 0, 0)[:3]
    return width, height, layers or depth


class CudaArray:
    """A CUDA array in the shape of a texture or a surface, freed with this object."""

    def __init__(self, driver: ctypes.CDLL, what: Surface | Texture) -> None:
        self._driver, self._what = driver, what
        width, height, depth = _extents(what)
        flags = LAYERED * what.layered | SURFACE_LDST * isinstance(what, Surface)
        if height and not depth and max(width, height) <= MOST_GATHERED:
            flags |= GATHER
        handle = c_void_p()
        wanted = ArrayDescriptor(width, height, depth, FORMATS[what.dtype], what.channels, flags)
        _call(driver, what, "cuArray3DCreate_v2", ctypes.byref(handle), ctypes.byref(wanted))
        self.resource = ResourceDescriptor(RESOURCE_ARRAY, _Resource(array=handle))
        self._array = {"type": MEMORY_ARRAY, "array": handle.value}
        weakref.finalize(self, driver.cuArrayDestroy, handle).atexit = False

    def fill(self, pointer: int, stream: int) -> None:
        """Queue the copy of a buffer of its shape to the array."""
        self._copy(stream, src=self._memory(pointer), dst=self._array)

    def empty(self, pointer: int, stream: int) -> None:
        """Queue the copy of the array to a buffer of its shape."""
        self._copy(stream, src=self._array, dst=self._memory(pointer))

    def _memory(self, pointer: int) -> dict[str, Any]:
        width, height, _ = _extents(self._what)
        pitch = width * self._what.channels * np.dtype(self._what.dtype).itemsize
        return {"type": MEMORY_DEVICE, "device": pointer, "pitch": pitch, "height": max(height, 1)}

    def _copy(self, stream: int, **sides: dict[str, Any]) -> None:
        _, height, depth = _extents(self._what)
        copy = Copy(width_bytes=self._memory(0)["pitch"], height=max(height, 1), depth=max(depth, 1))
        for side, place in sides.items():
            for name, value in place.items():
                setattr(copy, f"{side}_{name}", value)
        _call(self._driver, self._what, "cuMemcpy3DAsync_v2", ctypes.byref(copy), c_void_p(stream))


class TextureObject:
    """A texture object over a buffer in device memory, or over the CUDA array of a surface; `handle` is what a kernel
    gets.

    Linear memory is read where it lies. Any other texture without a surface has a CUDA array of its own, which `fill`
    copies the buffer to: before the first launch, since no launch changes what it reads through a texture.
    """

    def __init__(self, driver: ctypes.CDLL, texture: Texture, pointer: int, array: CudaArray | None = None) -> None:
        self.pointer = pointer
        self._own = CudaArray(driver, texture) if array is None and not texture.linear else None
        self._array = array or self._own  # kept as long as this object
        linear = _Linear(pointer, FORMATS[texture.dtype], texture.channels, texture.nbytes)
        resource = ResourceDescriptor(RESOURCE_LINEAR, _Resource(linear=linear))
        handle, how = c_uint64(), TextureDescriptor()
        # Of its own axes only, as host code sets it: with a border beyond an axis that is not there, a one-dimensional
        # texture is filtered with it (seen on an H200).
        axes = 1 + sum(extent > 0 for extent in _extents(texture)[1:]) - texture.layered
        how.address[:axes] = (ADDRESS_MODES[texture.address],) * axes
        how.filter = FILTERS[texture.filter]
        how.flags = READ_AS_INTEGER * (texture.read == "element") | NORMALIZED_COORDINATES * texture.normalized
        over = ctypes.byref(self._array.resource if self._array else resource)
        _call(driver, texture, "cuTexObjectCreate", ctypes.byref(handle), over, ctypes.byref(how), None)
        self.handle = int(handle.value)
        weakref.finalize(self, driver.cuTexObjectDestroy, handle).atexit = False

    def fill(self, stream: int) -> None:
        """Queue the copy of the buffer to the CUDA array, where there is one of its own."""
        if self._own is not None:
            self._own.fill(self.pointer, stream)


@dataclass(frozen=True)
class SurfaceObject:
    """A surface object over a CUDA array that stands for a buffer in device memory while kernels run; `handle` is what
    a kernel gets.

    `fill` and `empty` copy the buffer to the array and back; two are equal where they do the same.
    """

    array: CudaArray
    pointer: int
    handle: int = field(compare=False)

    def fill(self, stream: int) -> None:
        """Queue the copy of the buffer to the CUDA array."""
        self.array.fill(self.pointer, stream)

    def empty(self, stream: int) -> None:
        """Queue the copy of the CUDA array to the buffer."""
        self.array.empty(self.pointer, stream)


def objects_of(
    driver: ctypes.CDLL,
    arguments: Iterable[Any],
    pointers: Mapping[str, int],
    arrays: MutableMapping[Surface, CudaArray],
) -> dict[Surface | Texture, SurfaceObject | TextureObject]:
    """Return the objects of the textures and surfaces among arguments of launches.

    `arrays` are those of surfaces, to which a missing one is added: one serves all places of the memory at which a
    surface's buffer lies, so that no result of a launch is left in any array that a kernel could find.
    """
    wanted = dict.fromkeys(one for one in arguments if isinstance(one, (Surface, Texture)))
    shared: dict[str, CudaArray] = {}
    objects: dict[Surface | Texture, SurfaceObject | TextureObject] = {}
    for one in sorted(wanted, key=lambda one: isinstance(one, Texture)):  # which may be over a surface's array
        if isinstance(one, Surface):
            array = arrays.get(one) or CudaArray(driver, one)
            shared[one.buffer] = arrays[one] = array
            handle = c_uint64()
            _call(driver, one, "cuSurfObjectCreate", ctypes.byref(handle), ctypes.byref(array.resource))
            objects[one] = SurfaceObject(array, pointers[one.buffer], int(handle.value))
            weakref.finalize(objects[one], driver.cuSurfObjectDestroy, handle).atexit = False
        else:
            over = None if one.linear else shared.get(one.buffer)
            objects[one] = TextureObject(driver, one, pointers[one.buffer], over)
    return objects


# Tensor maps ---------------------------------------------------------------------------------------------------------

MAP_BYTES, ALIGNMENT = 128, 64
# cuda.h: CUtensorMapDataType, CUtensorMapSwizzle, CUtensorMapL2promotion, CUtensorMapFloatOOBfill
TYPES = {
    "uint8": 0, "int8": 0, "uint16": 1, "uint32": 2, "int32": 3, "uint64": 4, "int64": 5, "float16": 6, "float32": 7,
    "float64": 8, "bfloat16": 9,
}  # fmt: skip
SWIZZLES = {0: 0, 32: 1, 64: 2, 128: 3}
NOT_INTERLEAVED = 0
L2_PROMOTION_128B = 2
FILLS = {"zeros": 0, "nan": 1}


def encoded(driver: ctypes.CDLL, tensor: TensorMap, pointer: int) -> bytes:
    """Return the 128 bytes of a map over memory at an address. Raises DeviceError where the driver refuses it."""
    if not hasattr(driver, "cuTensorMapEncodeTiled"):
        raise DeviceError("The driver has no tensor maps: it is older than CUDA 12.0, update it.")
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
