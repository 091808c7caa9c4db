"""Texture objects on a GPU, made by the driver: what PyCUDA has are texture references, which CUDA 12 took away."""

from __future__ import annotations

import ctypes
from ctypes import c_float, c_int, c_size_t, c_uint, c_uint64, c_void_p
from typing import Any

import numpy as np

from cudabench.errors import DeviceError
from cudabench.model import Texture

# cuda.h: CUarray_format, CUaddress_mode, CUfilter_mode, CUresourcetype, CUmemorytype
FORMATS = {
    "uint8": 1, "uint16": 2, "uint32": 3, "int8": 8, "int16": 9, "int32": 10, "float16": 16, "float32": 32,
}  # fmt: skip
ADDRESS_MODES = {"wrap": 0, "clamp": 1, "mirror": 2, "border": 3}
FILTERS = {"point": 0, "linear": 1}
RESOURCE_ARRAY, RESOURCE_LINEAR = 0, 2
MEMORY_DEVICE, MEMORY_ARRAY = 2, 3
LAYERED, GATHER = 1, 8  # flags of arrays
MOST_GATHERED = 32768  # texels along a side of what tex2Dgather reads
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


class TextureObject:
    """A texture object over a buffer in device memory.

    Linear memory is read where it lies. Any other texture has a CUDA array of its own, which `fill` copies the buffer
    to: before the first launch, since no launch changes what it reads through a texture.
    """

    def __init__(self, driver: ctypes.CDLL, texture: Texture, pointer: int) -> None:
        self._driver, self.texture, self.pointer = driver, texture, pointer
        self._array, self._object = c_void_p(), c_uint64()
        resource, how = self._resource(), TextureDescriptor()
        # Of its own axes only, as host code sets it: with a border beyond an axis that is not there, a one-dimensional
        # texture is filtered with it (seen on an H200).
        axes = 1 + sum(extent > 0 for extent in self._extents()[1:]) - texture.layered
        how.address[:axes] = (ADDRESS_MODES[texture.address],) * axes
        how.filter = FILTERS[texture.filter]
        how.flags = READ_AS_INTEGER * (texture.read == "element") | NORMALIZED_COORDINATES * texture.normalized
        self._call("cuTexObjectCreate", ctypes.byref(self._object), ctypes.byref(resource), ctypes.byref(how), None)

    @property
    def handle(self) -> int:
        """What a kernel gets."""
        return int(self._object.value)

    def fill(self, stream: int) -> None:
        """Queue the copy of the buffer to the CUDA array, where there is one."""
        if not self._array.value:
            return
        texture, (width, height, depth) = self.texture, self._extents()
        copy = Copy()
        copy.src_type, copy.src_device = MEMORY_DEVICE, self.pointer
        copy.dst_type, copy.dst_array = MEMORY_ARRAY, self._array.value
        row = width * texture.channels * np.dtype(texture.dtype).itemsize
        copy.src_pitch = copy.width_bytes = row
        copy.src_height = copy.height = max(height, 1)
        copy.depth = max(depth, 1)
        self._call("cuMemcpy3DAsync_v2", ctypes.byref(copy), c_void_p(stream))

    def release(self) -> None:
        """Free the object and its array."""
        self._driver.cuTexObjectDestroy(self._object)
        if self._array.value:
            self._driver.cuArrayDestroy(self._array)

    def _extents(self) -> tuple[int, int, int]:
        """Return width, height and depth (or layers) in texels as the driver wants them: 0 where there is none."""
        texture = self.texture
        shape = texture.shape[:-1] if texture.channels > 1 else texture.shape
        layers = shape[0] if texture.layered else 0
        sides = (shape[1:] if texture.layered else shape)[::-1]
        width, height, depth = (*sides, 0, 0)[:3]
        return width, height, layers or depth

    def _resource(self) -> ResourceDescriptor:
        texture, resource = self.texture, ResourceDescriptor()
        format_ = FORMATS[texture.dtype]
        if texture.linear:
            resource.type = RESOURCE_LINEAR
            linear = resource.of.linear
            linear.pointer, linear.format, linear.channels = self.pointer, format_, texture.channels
            linear.nbytes = texture.nbytes
            return resource
        width, height, depth = self._extents()
        flags = LAYERED * texture.layered
        if height and not depth and max(width, height) <= MOST_GATHERED:
            flags |= GATHER
        wanted = ArrayDescriptor(width, height, depth, format_, texture.channels, flags)
        self._call("cuArray3DCreate_v2", ctypes.byref(self._array), ctypes.byref(wanted))
        resource.type = RESOURCE_ARRAY
        resource.of.array = self._array.value
        return resource

    def _call(self, name: str, *arguments: Any) -> None:
        status = getattr(self._driver, name)(*arguments)
        if status:
            shape = "x".join(map(str, self.texture.shape))
            raise DeviceError(
                f"CUDA failed while making the texture {self.texture.buffer}, {self.texture.dtype} {shape}: {name} "
                f"gave error {status}; see the limits of textures in the CUDA C++ Programming Guide."
            )
