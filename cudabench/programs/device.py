"""The answers to a program's queries of cards and kernels: cudaGetDeviceProperties, cudaFuncGetAttributes and so on."""

from __future__ import annotations

import ctypes
import struct
from ctypes import c_char, c_double, c_int, c_size_t, c_uint
from typing import TYPE_CHECKING

from cudabench.compile import cubin as cubins
from cudabench.occupancy import most_threads, multiprocessor

if TYPE_CHECKING:
    from cudabench.programs.modules import LoadedModule
    from cudabench.records.results import DeviceInfo

# Attributes with the same value on every card, keyed by the number of the CUdevice_attribute in cuda.h.
ATTRIBUTES = {
    1: 1024, 2: 1024, 3: 1024, 4: 64, 5: 2**31 - 1, 6: 65535, 7: 65535, 8: 48 << 10, 9: 64 << 10, 10: 32, 11: 2**31 - 1,
    12: 65536, 14: 512, 15: 1, 17: 0, 18: 0, 19: 1, 20: 0, 31: 1, 32: 0, 35: 0, 40: 3, 41: 1, 78: 1, 82: 65536,
    83: 0, 84: 0, 95: 1,
}  # fmt: skip
CLOCK_KHZ, MULTIPROCESSORS, MEMORY_KHZ, BUS_BITS, L2_BYTES, MAJOR, MINOR, THREADS_OF_SM, SHARED_OF_SM, MOST_SHARED = (
    13, 16, 36, 37, 38, 75, 76, 39, 81, 97,
)  # fmt: skip
BLOCKS_OF_SM = 106
# More attributes that a program may query. The fake driver of the tests uses ATTRIBUTES, but not these attributes.
PROGRAM_ATTRIBUTES = {
    21: 131072, 22: 131072, 23: 65536, 24: 16384, 25: 16384, 26: 16384, 27: 32768, 28: 32768, 29: 2048, 30: 512, 33: 0,
    34: 0, 42: 32768, 43: 2048, 50: 0, 51: 32, 77: 131072, 79: 1, 80: 1, 83: 1, 85: 0, 86: 0, 88: 0, 89: 1, 90: 1,
    91: 0, 96: 0, 99: 1, 100: 0, 101: 0, 115: 1,
}  # fmt: skip

# The fields of cudaDeviceProp that follow the memory's size, in order, as numbers of attributes. The format is that of
# the `struct` module; "old": a field of four bytes that CUDA 12 has and CUDA 13 does not.
PROPERTIES = (
    ("Q", [8]), ("i", [12, 10]), ("Q", [11]), ("i", range(1, 8)), ("old", [13]), ("Q", [9]), ("i", [75, 76]),
    ("Q", [14, 51]), ("old", [15]), ("i", [16]), ("old", [17]), ("i", [18, 19]), ("old", [20]), ("i", [21, 77]),
    ("old", [69]), ("i", [22, 23, 73, 74, 70, 71, 72, 45, 46, *range(24, 27), *range(47, 50), 52, 42, 43]),
    ("i", [*range(27, 30), *range(53, 69)]), ("Q", [30]), ("i", [*range(31, 35), 50, 35, 40, 41]), ("old", [36]),
    ("i", [37, 38, 108, 39, 78, 79, 80]), ("Q", [81]), ("i", range(82, 87)), ("old", [87]), ("i", [*range(88, 92), 95]),
    ("old", [96]), ("Q", [97]), ("i", [100, 101, 106, 109]), ("Q", [111]),
    ("i", [99, *range(112, 120), 121, 125, 120, 129]),
)  # fmt: skip
PROPERTY_BYTES = (1008, 1032)  # the sizes of cudaDeviceProp in CUDA 13 and 12


class Card(ctypes.Structure):
    """The properties of a card; the same layout as the struct in the C++ of cudabench's CUDA runtime."""

    _fields_ = (
        ("name", c_char * 128), ("attributes", c_int * 256), ("memory", c_size_t), ("bytes_per_ns", c_double),
        ("uuid", c_char * 16), ("properties", c_char * PROPERTY_BYTES[1] * 2),
    )  # fmt: skip


class Function(ctypes.Structure):
    """The properties of a kernel; the same layout as the struct in the C++ of cudabench's CUDA runtime."""

    _fields_ = (
        ("attributes", c_int * 16), ("parameters", c_int), ("offsets", c_uint * 256), ("sizes", c_uint * 256),
    )  # fmt: skip


def card(info: DeviceInfo, name: str, number: int, memory: int, more: dict[int, int] | None = None) -> Card:
    """Return the properties of a card.

    `number`: the index of the card in the machine; `memory`: the bytes of its memory; `more`: attributes in addition to
    ATTRIBUTES.
    """
    major, _, minor = info.compute_capability.partition(".")
    memory_mhz = info.clocks["memory_mhz"]
    bus = round((info.peak_gbps or 0) * 8e3 / (2 * memory_mhz))
    sm = multiprocessor(info.compute_capability)
    attributes = {
        **ATTRIBUTES, **(more or {}), CLOCK_KHZ: info.clocks["sm_mhz"] * 1000, MULTIPROCESSORS: info.sm_count or 1,
        MEMORY_KHZ: memory_mhz * 1000, BUS_BITS: bus, L2_BYTES: info.l2_bytes or 0,
        MAJOR: int(major), MINOR: int(minor), THREADS_OF_SM: sm.threads, SHARED_OF_SM: sm.shared_bytes,
        MOST_SHARED: sm.shared_of_block, BLOCKS_OF_SM: sm.blocks,
    }  # fmt: skip
    record = Card(name=name.encode(), bytes_per_ns=info.peak_gbps or 1)
    record.attributes[:] = [attributes.get(attribute, -1) for attribute in range(256)]
    record.memory = memory
    uuid = bytes([number + 1] * 16)
    ctypes.memmove(ctypes.addressof(record) + Card.uuid.offset, uuid, len(uuid))
    for old, nbytes in enumerate(PROPERTY_BYTES):
        form, values = "@256s16s8xIQ", [record.name, uuid, 0, memory]
        for kind, numbers in PROPERTIES:
            if kind != "old" or old:
                form += kind.replace("old", "i") * len(numbers)
                values += [max(0, attributes.get(attribute, 0)) for attribute in numbers]
        # the last fields (device numbers and reserved bytes) are 0
        content = struct.pack(form, *values).ljust(nbytes, b"\0")
        ctypes.memmove(ctypes.addressof(record.properties[old]), content, nbytes)
    return record


def describe(loaded: LoadedModule, entry: str, record: Function) -> bool:
    """Fill `record` with a kernel's attributes (CUfunction_attribute) and the offsets and sizes of its parameters.

    Return False if the kernel has more parameters than the record can hold.
    """
    kernel, code = loaded.program.kernels[entry], loaded.program.code(entry)
    registers = (cubins.registers(loaded.cubin, entry) if loaded.cubin else None) or 32
    function = loaded.program.module.functions.outline(entry)
    bound = function.most_threads or 1024
    threads = min(bound, most_threads(registers))
    record.attributes[:8] = [threads, code.static_shared, 0, code.local_bytes, registers, 90, 90, 0]
    record.attributes[11:14] = function.cluster or (0, 0, 0)
    if len(kernel.parameters) > len(record.offsets):
        return False
    record.parameters = len(kernel.parameters)
    for index, parameter in enumerate(kernel.parameters):
        record.offsets[index], record.sizes[index] = code.parameter_offsets[parameter.name], parameter.size
    return True
