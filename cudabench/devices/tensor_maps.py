"""Tensor maps on a GPU, made by the driver: PyCUDA has no call for them."""

from __future__ import annotations

import ctypes
from typing import Any

from cudabench.devices.modules import check
from cudabench.errors import DeviceError
from cudabench.records.launch import TensorMap

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
    rank = len(tensor.sizes)

    def array(kind: Any, values: tuple[int, ...]) -> Any:
        return (kind * max(1, len(values)))(*values)

    status = driver.cuTensorMapEncodeTiled(
        ctypes.byref(room, start), ctypes.c_int(TYPES[tensor.dtype]), ctypes.c_uint32(rank), ctypes.c_void_p(pointer),
        array(ctypes.c_uint64, tensor.sizes), array(ctypes.c_uint64, tensor.strides),
        array(ctypes.c_uint32, tensor.box), array(ctypes.c_uint32, tensor.steps), ctypes.c_int(NOT_INTERLEAVED),
        ctypes.c_int(SWIZZLES[tensor.swizzle]), ctypes.c_int(L2_PROMOTION_128B), ctypes.c_int(FILLS[tensor.fill]),
    )  # fmt: skip
    check(driver, status, f"the tensor map of {tensor.buffer}, a box of {'x'.join(map(str, tensor.box[::-1]))}")
    return bytes(room[start : start + MAP_BYTES])
