"""Converts the texture and surface objects and the tensor maps of a running program to the simulator's objects."""

from __future__ import annotations

from typing import Any

import numpy as np

from cudabench.devices import driver_objects
from cudabench.simulator import api as simulator
from cudabench.simulator.memory import SLOT_BITS, AddressSpace
from cudabench.simulator.tensor_maps import MAGIC, Mapped


class Objects:
    """The objects that a program has created; `textures`: textures and surfaces, by handle. Methods raise LaunchError
    for an object that no GPU accepts."""

    def __init__(self) -> None:
        self.textures: dict[int, simulator.Texture] = {}
        self._maps: dict[int, tuple[simulator.TensorMap, int]] = {}

    def add(
        self, handle: int, resource: bytes, how: bytes | None, memory: np.ndarray, place: int, extents: Any, flags: int
    ) -> None:
        """Add a texture object, or a surface object if `how` is None.

        `resource`, `how`: the bytes of the object's CUDA_RESOURCE_DESC and CUDA_TEXTURE_DESC. `memory`, `place`: the
        object's memory and its device address. `extents`, `flags`: width, height, depth and flags of the CUDA array or
        the pitched rows; 0 for linear memory.
        """
        linear = driver_objects.ResourceDescriptor.from_buffer_copy(resource).of.linear
        dtype = next(name for name, number in driver_objects.FORMATS.items() if number == linear.format)
        flat = memory.view(dtype)
        width, height, depth = extents
        # texels in one row, including its padding
        row = flat.size // linear.channels // max(1, height) // max(1, depth)
        shape = [side for side in (depth, height, row) if side] + [linear.channels] * (linear.channels > 1)
        about: dict[str, Any] = {"channels": linear.channels, "layered": bool(flags & driver_objects.LAYERED)}
        about["width"] = width if width < row else 0
        if how is not None:
            described = driver_objects.TextureDescriptor.from_buffer_copy(how)
            integers = flat.dtype.kind != "f" and not described.flags & driver_objects.READ_AS_INTEGER
            about |= {
                "filter": _named(driver_objects.FILTERS, described.filter),
                "address": _named(driver_objects.ADDRESS_MODES, described.address[0]),
                "normalized": bool(described.flags & driver_objects.NORMALIZED_COORDINATES),
                "read": "normalized" if integers else "element",
                "linear": not extents[0],
            }
        name = f"texture {handle:#x}"
        self.textures[handle] = simulator.Texture(flat.reshape(shape), **about, name=name, base=place)

    def remove(self, handle: int) -> None:
        """Remove an object that the program destroys."""
        self.textures.pop(handle, None)

    def remove_in_slot(self, slot: int) -> None:
        """Remove the objects whose memory, in this slot, is freed."""
        for handle in [handle for handle, texture in self.textures.items() if texture.base >> SLOT_BITS == slot]:
            del self.textures[handle]

    def tensor_map(
        self, type_: int, rank: int, place: int, sizes: Any, strides: Any, box: Any, steps: Any, swizzle: int, fill: int
    ) -> bytes:
        """Add a tensor map; return the 128 bytes of its CUtensorMap: a marker of the simulator and the map's number."""
        dtype = next(name for name, number in driver_objects.TYPES.items() if number == type_)
        stored = np.dtype("uint16" if dtype == "bfloat16" else dtype)
        tensor_map = simulator.TensorMap(
            np.empty(0, stored), tuple(box[:rank]), tuple(sizes[:rank]), tuple(strides[: rank - 1]),
            tuple(steps[:rank]), _named(driver_objects.SWIZZLES, swizzle), _named(driver_objects.FILLS, fill), dtype,
        )  # fmt: skip
        number = len(self._maps) + 1
        self._maps[number] = tensor_map, place
        return (MAGIC + number.to_bytes(8, "little")).ljust(driver_objects.MAP_BYTES, b"\0")

    def tensor_maps(self, space: AddressSpace) -> dict[int, Mapped]:
        """Return the tensor maps whose memory is in an address space, keyed by their number."""
        placed = ((number, tensor_map, base, space.nearest(base)) for number, (tensor_map, base) in self._maps.items())
        return {number: Mapped(tensor_map, region, base) for number, tensor_map, base, region in placed if region}


def _named(numbers: Any, wanted: int) -> Any:
    return next(name for name, number in numbers.items() if number == wanted)
