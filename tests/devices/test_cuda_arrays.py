"""CUDA arrays of textures and surfaces, on a fake driver that records its calls."""

from __future__ import annotations

from typing import Any, cast

import pytest

from cudabench.devices import driver_objects
from cudabench.devices.driver_objects import objects_of
from cudabench.errors import DeviceError, OutOfMemory
from cudabench.records.launch import Surface, Texture


class Driver:
    """A driver that numbers the arrays and objects it makes, and records what it makes, copies and frees."""

    def __init__(self) -> None:
        self.made: list[Any] = []
        self.freed: list[str] = []
        self.status = 0

    def _new(self, target: Any) -> int:
        target._obj.value = 100 + len(self.made)
        return self.status

    def cuArray3DCreate_v2(self, array: Any, wanted: Any) -> int:  # noqa: N802
        """Make an array."""
        one = wanted._obj
        self.made.append(("array", one.width, one.height, one.depth, one.format, one.channels, one.flags))
        return self._new(array)

    def cuSurfObjectCreate(self, handle: Any, resource: Any) -> int:  # noqa: N802
        """Make a surface object."""
        self.made.append(("surface", resource._obj.of.array))
        return self._new(handle)

    def cuTexObjectCreate(self, handle: Any, resource: Any, how: Any, view: Any) -> int:  # noqa: N802
        """Make a texture object."""
        self.made.append(("texture", resource._obj.of.array))
        return self._new(handle)

    def cuMemcpy3DAsync_v2(self, copy: Any, stream: Any) -> int:  # noqa: N802
        """Record a copy."""
        one = copy._obj
        sides = (one.src_type, one.src_device or one.src_array, one.dst_type, one.dst_device or one.dst_array)
        pitches = max(one.src_pitch, one.dst_pitch), max(one.src_height, one.dst_height)
        self.made.append(("copy", *sides, one.width_bytes, one.height, one.depth, *pitches))
        return 0

    def __getattr__(self, name: str) -> Any:
        """Return a call that records what it frees."""
        return lambda handle: self.freed.append(name) or 0


DEVICE, ARRAY = driver_objects.MEMORY_DEVICE, driver_objects.MEMORY_ARRAY
STORED, LAYERED, GATHERED = driver_objects.SURFACE_LDST, driver_objects.LAYERED, driver_objects.GATHER


@pytest.mark.parametrize(
    ("surface", "array", "copied"),
    [
        (Surface("s", "float32", (9,)), (9, 0, 0, 32, 1, STORED), (36, 1, 1)),
        (Surface("s", "uint8", (5, 7, 4), 4), (7, 5, 0, 1, 4, STORED | GATHERED), (28, 5, 1)),
        (Surface("s", "int16", (3, 5, 7)), (7, 5, 3, 9, 1, STORED), (14, 5, 3)),
        (Surface("s", "float16", (3, 7), 1, True), (7, 0, 3, 16, 1, STORED | LAYERED), (14, 1, 3)),
        (Surface("s", "uint32", (3, 5, 7, 2), 2, True), (7, 5, 3, 3, 2, STORED | LAYERED), (56, 5, 3)),
    ],
)
def test_an_array_of_a_surface(surface: Surface, array: tuple[int, ...], copied: tuple[int, ...]) -> None:
    """The driver gets the array's extents, format, channels and flags; the whole array is copied from the buffer and
    back."""
    driver: Any = Driver()
    objects = objects_of(driver, [surface], {"s": 4096}, {})
    assert driver.made == [("array", *array), ("surface", 101)]
    assert objects[surface].handle == 102
    objects[surface].copy_from_buffer(0)
    objects[surface].copy_to_buffer(0)
    rest = (*copied, *copied[:2])
    assert driver.made[2:] == [("copy", DEVICE, 4096, ARRAY, 101, *rest), ("copy", ARRAY, 101, DEVICE, 4096, *rest)]


def test_who_shares_an_array() -> None:
    """A texture of a surface's buffer shares the surface's array; another texture has its own. Two sets of buffers
    share a surface's array and have separate objects. All are freed with the last object."""
    driver: Any = Driver()
    surface, own = Surface("s", "float32", (4, 4)), Texture("t", "float32", (4, 4))
    arrays: dict[Surface, driver_objects.CudaArray] = {}
    first = objects_of(driver, [surface, Texture("s", "float32", (4, 4)), own], {"s": 1, "t": 2}, arrays)
    assert [one for one in driver.made if one[0] != "array"] == [("surface", 101), ("texture", 101), ("texture", 104)]
    second = objects_of(driver, [surface], {"s": 3}, arrays)
    assert driver.made[-1] == ("surface", 101)
    assert first[surface] != second[surface]
    assert first[surface] == objects_of(driver, [surface], {"s": 1}, arrays)[surface]
    arrays.clear()
    del first
    assert sorted(driver.freed) == ["cuArrayDestroy", *["cuSurfObjectDestroy"] * 2, *["cuTexObjectDestroy"] * 2]
    del second
    assert driver.freed.count("cuArrayDestroy") == 2


def test_what_the_driver_refuses() -> None:
    """Too little memory is an OutOfMemory error; another failure is an error with the driver's number."""
    driver = Driver()
    for status, error, said in (
        (2, OutOfMemory, "ran out of memory while making the surface s"),
        (1, DeviceError, "error 1"),
    ):
        driver.status = status
        with pytest.raises(error, match=said):
            objects_of(cast(Any, driver), [Surface("s", "float32", (4, 4))], {"s": 1}, {})
