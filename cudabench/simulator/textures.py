"""Texture and surface objects, as arguments of a launch."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

import numpy as np

from cudabench.simulator.errors import LaunchError
from cudabench.simulator.values import Array

Filter = Literal["point", "linear"]
AddressMode = Literal["clamp", "wrap", "mirror", "border"]
FIRST_HANDLE = 1 << 35  # the first handle of texture and surface objects; no pointer has such a value


@dataclass(frozen=True)
class Texture:
    """An array read through a texture object, or read and written through a surface object.

    `array`: the texels, C-contiguous; its axes are depth (3D) or layers, height, width, and the channels if there are
    several. `channels`: 1, 2 or 4. `linear`: whether the texels are in linear memory, which only tex1Dfetch reads.
    `read`: "element" to read texels as they are, or "normalized" to read integers of 8 or 16 bits as floats in [0, 1]
    or
    [-1, 1]. `normalized`: whether coordinates run from 0 to 1. The address modes wrap and mirror need normalized
    coordinates; without these they act as clamp, as on the GPU. `width`: how many texels of each row belong to the
    texture, 0 for all. The launch sets `name`, the name in messages, and `base`, the array's address.

    Raises LaunchError for a shape, type or combination that no GPU accepts.
    """

    array: Array
    channels: int = 1
    layered: bool = False
    filter: Filter = "point"
    address: AddressMode = "clamp"
    normalized: bool = False
    read: Literal["element", "normalized"] = "element"
    linear: bool = False
    width: int = 0
    name: str = ""
    base: int = 0
    texels: Array = field(init=False, repr=False)

    def __post_init__(self) -> None:
        array = self.array
        if not array.ndim or not array.size:
            raise LaunchError(f"a texture needs at least one texel, and an array of shape {array.shape} has none.")
        if self.channels not in (1, 2, 4) or (self.channels > 1 and array.shape[-1] != self.channels):
            raise LaunchError(f"a texture of {self.channels} channels cannot read an array of shape {array.shape}.")
        if not array.flags.c_contiguous or array.dtype.name not in _TYPES:
            raise LaunchError(
                f"a texture cannot read an array of {array.dtype}: use {', '.join(_TYPES)}, C-contiguous."
            )
        if self.filter == "linear" and array.dtype.kind != "f" and self.read != "normalized":
            raise LaunchError(f"a texture of {array.dtype} has no linear filter, unless it is read as normalized.")
        if self.read == "normalized" and (array.dtype.kind == "f" or array.dtype.itemsize > 2):
            raise LaunchError(f"only integers of 8 and 16 bits are read as normalized, not {array.dtype}.")
        object.__setattr__(self, "texels", array if self.channels > 1 else array.reshape(*array.shape, 1))
        if not 1 <= self.dimensions <= (2 if self.layered else 3):
            raise LaunchError(f"a texture has 1 to 3 dimensions, not the {self.dimensions} of {array.shape}.")

    @property
    def dimensions(self) -> int:
        """The number of coordinates, without the layer."""
        return int(self.texels.ndim) - 1 - self.layered

    @property
    def extents(self) -> tuple[int, ...]:
        """The number of texels along x, y, z."""
        width, *others = self.texels.shape[self.layered : -1][::-1]
        return (self.width or width, *others)

    @property
    def modes(self) -> tuple[str, ...]:
        """The address modes along x, y, z."""
        mode = self.address
        if mode in ("wrap", "mirror") and not self.normalized:
            mode = "clamp"
        return (mode,) * self.dimensions

    @property
    def texel_bytes(self) -> int:
        """The bytes of a texel."""
        return self.channels * int(self.array.dtype.itemsize)

    @property
    def bytes(self) -> Array:
        """A view of all texels as a flat uint8 array."""
        return self.texels.reshape(-1).view(np.uint8)

    def values(self, texels: Array) -> Array:
        """Return texels as the kernel reads them: integers unchanged, or floats and normalized integers as float32."""
        if self.read == "normalized":
            info = np.iinfo(texels.dtype)
            return np.maximum(texels.astype(np.float64) / info.max, -1.0).astype(np.float32)
        return texels.astype(np.float32) if texels.dtype.kind == "f" else texels


_TYPES = ("float32", "float16", "int8", "uint8", "int16", "uint16", "int32", "uint32")
