"""CUDA arrays, made by the driver: what texture and surface objects are of."""

from __future__ import annotations

import ctypes
import weakref
from ctypes import c_int, c_size_t, c_uint, c_uint64, c_void_p
from typing import Any

import numpy as np

from cudabench.errors import DeviceError, OutOfMemory
from cudabench.records.launch import Surface, Texture

# cuda.h: CUarray_format, CUmemorytype, CUresult
FORMATS = {
    "uint8": 1, "uint16": 2, "uint32": 3, "int8": 8, "int16": 9, "int32": 10, "float16": 16, "float32": 32,
}  # fmt: skip
MEMORY_DEVICE, MEMORY_ARRAY = 2, 3
LAYERED, SURFACE_LDST, GATHER = 1, 2, 8  # flags of arrays
MOST_GATHERED = 32768  # texels along a side of what tex2Dgather reads
NO_MEMORY = 2


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


def call(driver: ctypes.CDLL, what: Surface | Texture, name: str, *arguments: Any) -> None:
    """Call the driver for a texture or surface. Raises OutOfMemory, and DeviceError with what was being made."""
    status = getattr(driver, name)(*arguments)
    if not status:
        return
    shape = "x".join(map(str, what.shape))
    kind = type(what).__name__.lower()
    made = f"the {kind} {what.buffer}, {what.dtype} {shape}"
    if status == NO_MEMORY:
        raise OutOfMemory(f"The GPU ran out of memory while making {made}; use smaller arrays.")
    raise DeviceError(
        f"CUDA failed while making {made}: {name} gave error {status}; see the limits of {kind}s in the CUDA C++ "
        "Programming Guide."
    )


def extents(what: Surface | Texture) -> tuple[int, int, int]:
    """Return width, height and depth (or layers) in texels as the driver wants them: 0 where there is none."""
    shape = what.shape[:-1] if what.channels > 1 else what.shape
    layers = shape[0] if what.layered else 0
    sides = (shape[1:] if what.layered else shape)[::-1]
    width, height, depth = (*sides, 0, 0)[:3]
    return width, height, layers or depth


class CudaArray:
    """A CUDA array in the shape of a texture or a surface, freed with this object."""

    def __init__(self, driver: ctypes.CDLL, what: Surface | Texture) -> None:
        self._driver, self._what = driver, what
        self._extents = width, height, depth = extents(what)
        flags = LAYERED * what.layered | SURFACE_LDST * isinstance(what, Surface)
        if height and not depth and max(width, height) <= MOST_GATHERED:
            flags |= GATHER
        handle = c_void_p()
        wanted = ArrayDescriptor(width, height, depth, FORMATS[what.dtype], what.channels, flags)
        call(driver, what, "cuArray3DCreate_v2", ctypes.byref(handle), ctypes.byref(wanted))
        self.handle = handle.value
        weakref.finalize(self, driver.cuArrayDestroy, handle).atexit = False

    def fill(self, pointer: int, stream: int) -> None:
        """Queue the copy of a buffer of its shape to the array."""
        copy = self._copy()
        copy.src_type, copy.src_device = MEMORY_DEVICE, pointer
        copy.dst_type, copy.dst_array = MEMORY_ARRAY, self.handle
        copy.src_pitch, copy.src_height = copy.width_bytes, copy.height
        call(self._driver, self._what, "cuMemcpy3DAsync_v2", ctypes.byref(copy), c_void_p(stream))

    def empty(self, pointer: int, stream: int) -> None:
        """Queue the copy of the array to a buffer of its shape."""
        copy = self._copy()
        copy.src_type, copy.src_array = MEMORY_ARRAY, self.handle
        copy.dst_type, copy.dst_device = MEMORY_DEVICE, pointer
        copy.dst_pitch, copy.dst_height = copy.width_bytes, copy.height
        call(self._driver, self._what, "cuMemcpy3DAsync_v2", ctypes.byref(copy), c_void_p(stream))

    def _copy(self) -> Copy:
        width, height, depth = self._extents
        copy = Copy()
        copy.width_bytes = width * self._what.channels * np.dtype(self._what.dtype).itemsize
        copy.height, copy.depth = max(height, 1), max(depth, 1)
        return copy
