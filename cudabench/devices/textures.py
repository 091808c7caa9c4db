"""Texture and surface objects on a GPU, made by the driver: PyCUDA has references, which CUDA 12 took away."""

from __future__ import annotations

import ctypes
import weakref
from collections.abc import Iterable, Mapping, MutableMapping
from ctypes import c_float, c_int, c_size_t, c_uint, c_uint64, c_void_p
from dataclasses import dataclass
from typing import Any

from cudabench.devices.cuda_arrays import FORMATS, CudaArray, call, extents
from cudabench.records.launch import Surface, Texture

# cuda.h: CUaddress_mode, CUfilter_mode, CUresourcetype
ADDRESS_MODES = {"wrap": 0, "clamp": 1, "mirror": 2, "border": 3}
FILTERS = {"point": 0, "linear": 1}
RESOURCE_ARRAY, RESOURCE_LINEAR = 0, 2
READ_AS_INTEGER, NORMALIZED_COORDINATES = 1, 2


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
    """A texture object over a buffer in device memory, or over the CUDA array of a surface.

    Linear memory is read where it lies. Any other texture without a surface has a CUDA array of its own, which `fill`
    copies the buffer to: before the first launch, since no launch changes what it reads through a texture.
    """

    def __init__(self, driver: ctypes.CDLL, texture: Texture, pointer: int, array: CudaArray | None = None) -> None:
        self.texture, self.pointer = texture, pointer
        self._own = CudaArray(driver, texture) if array is None and not texture.linear else None
        self._array = array or self._own
        handle, resource, how = c_uint64(), self._resource(), TextureDescriptor()
        # Of its own axes only, as host code sets it: with a border beyond an axis that is not there, a one-dimensional
        # texture is filtered with it (seen on an H200).
        axes = 1 + sum(extent > 0 for extent in extents(texture)[1:]) - texture.layered
        how.address[:axes] = (ADDRESS_MODES[texture.address],) * axes
        how.filter = FILTERS[texture.filter]
        how.flags = READ_AS_INTEGER * (texture.read == "element") | NORMALIZED_COORDINATES * texture.normalized
        call(
            driver, texture, "cuTexObjectCreate", ctypes.byref(handle), ctypes.byref(resource), ctypes.byref(how), None
        )
        self.handle = int(handle.value)  # what a kernel gets
        weakref.finalize(self, driver.cuTexObjectDestroy, handle).atexit = False

    def fill(self, stream: int) -> None:
        """Queue the copy of the buffer to the CUDA array, where there is one of its own."""
        if self._own is not None:
            self._own.fill(self.pointer, stream)

    def _resource(self) -> ResourceDescriptor:
        texture = self.texture
        if self._array is not None:
            return _array_resource(self._array)
        resource = ResourceDescriptor()
        resource.type = RESOURCE_LINEAR
        linear = resource.of.linear
        linear.pointer, linear.format, linear.channels = self.pointer, FORMATS[texture.dtype], texture.channels
        linear.nbytes = texture.nbytes
        return resource


class SurfaceObject:
    """A surface object over a CUDA array that stands for a buffer in device memory while kernels run.

    `fill` and `empty` copy the buffer to the array and back; two are equal where they do the same.
    """

    def __init__(self, driver: ctypes.CDLL, surface: Surface, pointer: int, array: CudaArray) -> None:
        self.array, self.pointer = array, pointer
        handle, resource = c_uint64(), _array_resource(array)
        call(driver, surface, "cuSurfObjectCreate", ctypes.byref(handle), ctypes.byref(resource))
        self.handle = int(handle.value)  # what a kernel gets
        weakref.finalize(self, driver.cuSurfObjectDestroy, handle).atexit = False

    def __eq__(self, other: object) -> bool:
        return isinstance(other, SurfaceObject) and (self.array, self.pointer) == (other.array, other.pointer)

    def __hash__(self) -> int:
        return hash((id(self.array), self.pointer))

    def fill(self, stream: int) -> None:
        """Queue the copy of the buffer to the CUDA array."""
        self.array.fill(self.pointer, stream)

    def empty(self, stream: int) -> None:
        """Queue the copy of the CUDA array to the buffer."""
        self.array.empty(self.pointer, stream)


def _array_resource(array: CudaArray) -> ResourceDescriptor:
    resource = ResourceDescriptor()
    resource.type = RESOURCE_ARRAY
    resource.of.array = array.handle
    return resource


@dataclass(frozen=True)
class Objects:
    """The texture and surface objects of launches."""

    textures: Mapping[Texture, TextureObject]
    surfaces: Mapping[Surface, SurfaceObject]

    def handle(self, argument: Surface | Texture) -> int:
        """Return what a kernel gets for an argument."""
        found = self.surfaces[argument] if isinstance(argument, Surface) else self.textures[argument]
        return found.handle


def objects_of(
    driver: ctypes.CDLL,
    arguments: Iterable[Any],
    pointers: Mapping[str, int],
    arrays: MutableMapping[Surface, CudaArray],
) -> Objects:
    """Return the objects of the textures and surfaces among arguments of launches.

    `arrays` are those of surfaces, to which a missing one is added: one serves all places of the memory at which a
    surface's buffer lies, so that no result of a launch is left in any array that a kernel could find.
    """
    wanted = dict.fromkeys(one for one in arguments if isinstance(one, (Surface, Texture)))
    shared: dict[str, CudaArray] = {}
    surfaces: dict[Surface, SurfaceObject] = {}
    for one in wanted:
        if isinstance(one, Surface):
            array = arrays.get(one)
            if array is None:
                array = arrays[one] = CudaArray(driver, one)
            shared[one.buffer] = array
            surfaces[one] = SurfaceObject(driver, one, pointers[one.buffer], array)
    textures = {
        one: TextureObject(driver, one, pointers[one.buffer], None if one.linear else shared.get(one.buffer))
        for one in wanted
        if isinstance(one, Texture)
    }
    return Objects(textures, surfaces)
