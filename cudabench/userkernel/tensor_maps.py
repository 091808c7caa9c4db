"""`--arg NAME=tensormap(ARRAY, box=ROWSxCOLUMNS, OPTION=VALUE, ...)`: a CUtensorMap, by which kernels copy tiles."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from cudabench.errors import UsageError, refuse
from cudabench.records.launch import TensorMap
from cudabench.userkernel import expressions
from cudabench.userkernel.conforming import shape_text
from cudabench.userkernel.textures import read_call
from cudabench.userkernel.values import Array, BufferView

TYPE = "CUtensorMap"
TYPES = (
    "float32", "float64", "float16", "bfloat16", "int8", "uint8", "uint16", "int32", "uint32", "int64", "uint64",
)  # fmt: skip
OPTIONS = {
    "box": (), "swizzle": ("0", "32", "64", "128"), "fill": ("zeros", "nan"), "steps": (), "sizes": (), "strides": (),
    "access": ("read", "write"),
}  # fmt: skip
EXAMPLE = "tensormap(float16[1024,1024]:random, box=64x64, swizzle=128)"


def read_tensor_map(
    name: str,
    text: str,
    array: Array,
    shared: bool,
    scalars: Mapping[str, Any],
    pointer: bool,
) -> Array | BufferView:
    """Return the map of `tensormap(ARRAY, box=..., ...)`.

    `array` is ARRAY, which another argument is where it is `shared`; `pointer`: the parameter points to the map. Shapes
    are in the array's order, rows before columns. Raises UsageError for an unknown option or value, and for what
    cuTensorMapEncodeTiled refuses.
    """
    where = f"--arg {name}={text}"
    given = read_call(where, text, "tensormap", OPTIONS, "box=64x64")
    if "box" not in given:
        raise UsageError(f"{where} has no box, the tile that one copy moves: add box=64x64, rows before columns.")

    def numbers(key: str, count: int) -> tuple[int, ...]:
        inner = given[key]
        if re.fullmatch(r"\d+(\s*x\s*\d+)*", inner):
            inner = inner.replace("x", ",")
        value = expressions.parse(inner.strip("[]"), where, scalars).evaluate(scalars)
        found = value if isinstance(value, tuple) else (value,)
        if len(found) != count or not all(isinstance(one, (int, np.integer)) for one in found):
            raise UsageError(f"{where}: {key} takes {count} whole numbers, as in {key}={'x'.join(['64'] * count)}.")
        return tuple(int(one) for one in found)

    if array.dtype not in TYPES:
        raise UsageError(f"{where}: a tensor map cannot hold {array.dtype}; use one of {', '.join(TYPES)}.")
    width, sizes = np.dtype(array.storage).itemsize, tuple(array.shape)
    if "sizes" in given:
        sizes = numbers("sizes", len(re.split("[x,]", given["sizes"])))
    rank = len(sizes)
    steps_of = [int(np.prod(sizes[at + 1 :], dtype=np.int64)) for at in range(rank - 1)]
    strides = tuple(width * step for step in (numbers("strides", rank - 1) if "strides" in given else steps_of))
    box = numbers("box", rank)
    steps = numbers("steps", rank) if "steps" in given else (1,) * rank
    swizzle = int(given.get("swizzle", "0"))
    from cudabench.simulator.tensor_maps import refusal

    reason = refusal(width, sizes[::-1], strides[::-1], box[::-1], steps[::-1], swizzle)
    reach = sum((size - 1) * stride for size, stride in zip(sizes, (*strides, width), strict=True)) + width
    written = given.get("access", "write" if array.init in ("empty", "zeros") else "read") == "write"
    refuse(
        (reason, f"{where}: no tensor map has {reason}."),
        (
            reach > array.nbytes,
            f"{where}: sizes and strides reach {reach} bytes, and {array.dtype}{shape_text(array.shape)} has "
            f"{array.nbytes}.",
        ),
        (
            shared and given.get("access"),
            f"{where}: access is already set by {array.name}: remove it here.",
        ),
        (
            not shared and array.init == "empty" and not written,
            f"{where}: with access=read 'empty' would leave it poison: use random or arange.",
        ),
    )
    tensor = TensorMap(
        array.name, array.dtype, sizes[::-1], strides[::-1], box[::-1], steps[::-1], swizzle,
        given.get("fill", "zeros"), pointer,  # type: ignore[arg-type]
    )  # fmt: skip
    return BufferView(name, tensor) if shared else replace(array, const=not written, view=tensor)
