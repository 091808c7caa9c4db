"""The Python side of the simulated driver: cards, modules and launches, run by cuInit in the process that called it.

The cards are those of CUDABENCH_DRIVER_CARDS, names that `--on` takes, orin unless told, whose 16
multiprocessors take the least time to simulate; CUDABENCH_DRIVER_MEMORY is the memory of each in bytes.
CUDABENCH_DRIVER_FAIL=NAME:COUNT=STATUS makes one call of the driver fail, CUDABENCH_DRIVER_QUEUE=N lets a stream hold
N works before the host has to wait.
"""

from __future__ import annotations

import ctypes
import functools
import os
import re
import sys
import time
import traceback
from collections.abc import Callable
from ctypes import POINTER, c_char, c_char_p, c_double, c_int, c_size_t, c_uint, c_uint64, c_void_p
from typing import Any

import numpy as np

from cudabench.cards import load as cards
from cudabench.compile import cubin as cubins
from cudabench.devices import driver_objects
from cudabench.occupancy import most_threads, multiprocessor
from cudabench.simulator import api as simulator
from cudabench.simulator.memory import SLOT_BITS, Region
from cudabench.simulator.program import ptx_parser
from cudabench.simulator.program.program import Program
from cudabench.simulator.tensor_maps import MAGIC, Mapped

MEMORY_BYTES = 4 << 30
NEVER_STOPPED = 1 << 60  # vector steps: a kernel that does not end is ended by whoever waits for it
LAUNCH_NS, SECTOR_BYTES = 2000, 32
INVALID_VALUE, INVALID_IMAGE, NO_BINARY, NOT_FOUND = 1, 200, 209, 500
ILLEGAL_ADDRESS, ASSERT, MISALIGNED, LAUNCH_FAILED, NOT_SUPPORTED = 700, 710, 716, 719, 801
UNKNOWN, INTERRUPTED = 999, -1  # the second is the driver's own
FAULTS = {"out-of-bounds": ILLEGAL_ADDRESS, "use-after-free": ILLEGAL_ADDRESS, "misaligned": MISALIGNED}
# CUdevice_attribute in cuda.h, of every card.
ATTRIBUTES = {
    1: 1024, 2: 1024, 3: 1024, 4: 64, 5: 2**31 - 1, 6: 65535, 7: 65535, 8: 48 << 10, 9: 64 << 10, 10: 32, 11: 2**31 - 1,
    12: 65536, 14: 512, 15: 1, 17: 0, 18: 0, 19: 1, 20: 0, 31: 1, 32: 0, 35: 0, 40: 3, 41: 1, 78: 1, 82: 65536,
    83: 0, 84: 0, 95: 1, 106: 32,
}  # fmt: skip
CLOCK_KHZ, MULTIPROCESSORS, MEMORY_KHZ, BUS_BITS, L2_BYTES, MAJOR, MINOR, THREADS_OF_SM, SHARED_OF_SM, MOST_SHARED = (
    13, 16, 36, 37, 38, 75, 76, 39, 81, 97,
)  # fmt: skip


class Card(ctypes.Structure):
    """A card as the driver's C++ has it."""

    _fields_ = (
        ("name", c_char * 128), ("attributes", c_int * 256), ("memory", c_size_t), ("bytes_per_ns", c_double),
        ("uuid", c_char * 16),
    )  # fmt: skip


class Function(ctypes.Structure):
    """What the driver's C++ is told of a kernel."""

    _fields_ = (
        ("attributes", c_int * 16), ("parameters", c_int), ("offsets", c_uint * 256), ("sizes", c_uint * 256),
    )  # fmt: skip


class Launch(ctypes.Structure):
    """A launch that is due."""

    _fields_ = (
        ("module", c_int), ("name", c_char_p), ("sides", c_uint * 6), ("cluster", c_uint * 3), ("shared", c_uint),
        ("parameters", c_void_p), ("parameter_bytes", c_size_t),
    )  # fmt: skip


class Loaded:
    """A module: its machine code, or none where it came as PTX, and its program."""

    def __init__(self, image: bytes, first_slot: int) -> None:
        self.cubin = image if image.startswith(b"\x7fELF") else None
        text = cubins.ptx(image) if self.cubin else image.rstrip(b"\0").decode()
        if not text.strip():
            raise LookupError("the machine code carries no PTX, which the simulator needs: compile with -lineinfo")
        # A GPU knows one kind of trap, whether the source asks for it or the compiler puts it.
        self.program = Program(_parsed(re.sub(r"\btrap;", "trap.asked;", text)), first_slot)
        self.slots = self.program.slots - first_slot


driver: Any = None  # the library
bytes_per_ns = 1.0  # of the first card's memory
_parsed = functools.lru_cache(maxsize=8)(ptx_parser.parse)  # PyCUDA loads one image again and again
modules: dict[int, Loaded] = {}
objects: dict[int, simulator.Texture] = {}
maps: dict[int, tuple[simulator.TensorMap, int]] = {}


def start() -> None:
    """Give the driver its cards and the functions of this file."""
    global driver, bytes_per_ns
    driver = ctypes.CDLL("libcuda.so.1")
    named = os.environ.get("CUDABENCH_DRIVER_CARDS", "orin").split()
    there = (Card * max(1, len(named)))(*(_card(name, number) for number, name in enumerate(named)))
    bytes_per_ns = there[0].bytes_per_ns
    driver.simulated_start(ctypes.byref(CALLBACKS), there, len(named))
    driver.simulated_memories.argtypes = (POINTER(c_int), POINTER(c_void_p), POINTER(c_size_t), c_int)


def _card(name: str, number: int) -> Card:
    info = cards.load(name).device
    major, _, minor = info.compute_capability.partition(".")
    memory_mhz = info.clocks["memory_mhz"]
    bus = round((info.peak_gbps or 0) * 8e3 / (2 * memory_mhz))
    of_sm = multiprocessor(info.compute_capability)
    attributes = {
        **ATTRIBUTES, CLOCK_KHZ: info.clocks["sm_mhz"] * 1000, MULTIPROCESSORS: info.sm_count or 1,
        MEMORY_KHZ: memory_mhz * 1000, BUS_BITS: bus, L2_BYTES: info.l2_bytes or 0,
        MAJOR: int(major), MINOR: int(minor),
        THREADS_OF_SM: of_sm.threads, SHARED_OF_SM: of_sm.shared_bytes, MOST_SHARED: of_sm.shared_of_block,
    }  # fmt: skip
    card = Card(name=f"simulated {info.name}".encode(), bytes_per_ns=info.peak_gbps or 1)
    card.attributes[:] = [attributes.get(number, -1) for number in range(256)]
    card.memory = int(os.environ.get("CUDABENCH_DRIVER_MEMORY", MEMORY_BYTES))
    ctypes.memmove(ctypes.addressof(card) + Card.uuid.offset, bytes([number + 1] * 16), 16)
    return card


def load(number: int, image: int, nbytes: int, first_slot: int, slots: Any) -> int:
    """Load a module from machine code that carries its PTX, or from PTX."""
    try:
        modules[number] = Loaded(ctypes.string_at(image, nbytes), first_slot)
    except LookupError as error:
        return _failed(NO_BINARY, error)
    except simulator.PtxError as error:
        return _failed(INVALID_IMAGE, error)
    slots[0] = modules[number].slots
    return 0


def unload(number: int) -> int:
    """Forget a module."""
    modules.pop(number, None)
    return 0


def find(number: int, name: bytes, function: Any) -> int:
    """Describe a kernel: CUfunction_attribute and where its parameters lie."""
    loaded, entry = modules[number], name.decode()
    kernel = loaded.program.kernels.get(entry)
    if kernel is None:
        return NOT_FOUND
    code, told = loaded.program.code(entry), function[0]
    registers = (cubins.registers(loaded.cubin, entry) if loaded.cubin else None) or 32
    bound = loaded.program.module.functions[entry].most_threads or 1024
    told.attributes[:8] = [
        min(bound, most_threads(registers)),
        code.static_shared,
        0,
        code.local_bytes,
        registers,
        90,
        90,
        0,
    ]
    if len(kernel.parameters) > len(told.offsets):
        return _failed(NOT_SUPPORTED, ValueError(f"kernel {entry} has more than {len(told.offsets)} parameters"))
    told.parameters = len(kernel.parameters)
    for place, parameter in enumerate(kernel.parameters):
        told.offsets[place], told.sizes[place] = code.parameter_offsets[parameter.name], parameter.size
    return 0


def variable(number: int, name: bytes, address: Any, host: Any, nbytes: Any) -> int:
    """Tell where a module variable lies."""
    space = modules[number].program.space()
    symbol = name.decode()
    try:
        data = modules[number].program.variable(symbol)
    except KeyError:
        return NOT_FOUND
    region = next(one for one in space.slots if one.size and np.shares_memory(one.bytes, data))
    address[0], host[0], nbytes[0] = region.base, data.ctypes.data, data.size
    return 0


def launch(what: Any, nanoseconds: Any) -> int:
    """Run a kernel to its end."""
    now = what[0]
    program, name = modules[now.module].program, now.name.decode()
    code = program.code(name)
    raw = ctypes.string_at(now.parameters, now.parameter_bytes).ljust(code.parameter_bytes, b"\0")
    space = program.space()
    _place_memories(space)
    found = {
        handle: Mapped(one, region, base) for handle, (one, base) in maps.items() if (region := space.nearest(base))
    }
    placed = simulator.Placed(space, raw, dict(objects), found)
    cluster = tuple(now.cluster) if now.cluster[0] else None
    grid, block = tuple(now.sides[:3]), tuple(now.sides[3:])
    try:
        report = simulator.run(
            program, name, grid, block, placed, shared_bytes=now.shared, cluster=cluster, budget=NEVER_STOPPED
        )
    except simulator.KernelAssert as error:
        return _failed(ASSERT, error)
    except simulator.KernelTrap as error:
        return _failed(LAUNCH_FAILED, error)
    except simulator.UnsupportedKernel as error:
        return _failed(NOT_SUPPORTED, error)
    except simulator.LaunchError as error:
        return _failed(INVALID_VALUE, error)
    except simulator.BudgetExceeded as error:  # on a GPU it would run for ever
        _failed(0, error)
        while True:
            time.sleep(1)
    if report.output:
        sys.stdout.write(report.output)
        sys.stdout.flush()
    sectors = sum(access.sectors or 0 for access in report.accesses if access.space == "global")
    nanoseconds[0] = LAUNCH_NS + sectors * SECTOR_BYTES / bytes_per_ns
    return next((FAULTS[hazard.kind] for hazard in report.hazards if hazard.kind in FAULTS), 0)


def texture(handle: int, resource: int, how: int, host: int, place: int, nbytes: int, extents: Any, flags: int) -> int:
    """Note a texture object, or a surface object where nothing is said of how it reads; no resource: forget it."""
    if not resource:
        objects.pop(handle, None)
        return 0
    linear = driver_objects.ResourceDescriptor.from_address(resource).of.linear
    dtype = next(name for name, number in driver_objects.FORMATS.items() if number == linear.format)
    flat = _memory(host, nbytes).view(dtype)
    sides = [extents[2], extents[1], extents[0]] if extents[0] else [flat.size // linear.channels]
    shape = [side for side in sides if side] + [linear.channels] * (linear.channels > 1)
    about: dict[str, Any] = {"channels": linear.channels, "layered": bool(flags & driver_objects.LAYERED)}
    if how:
        described = driver_objects.TextureDescriptor.from_address(how)
        integers = flat.dtype.kind != "f" and not described.flags & driver_objects.READ_AS_INTEGER
        about |= {
            "filter": _named(driver_objects.FILTERS, described.filter),
            "address": _named(driver_objects.ADDRESS_MODES, described.address[0]),
            "normalized": bool(described.flags & driver_objects.NORMALIZED_COORDINATES),
            "read": "normalized" if integers else "element",
            "linear": not extents[0],
        }
    try:
        objects[handle] = simulator.Texture(flat.reshape(shape), **about, name=f"texture {handle:#x}", base=place)
    except simulator.LaunchError as error:
        return _failed(INVALID_VALUE, error)
    return 0


def forget(slot: int) -> int:
    """Forget texture and surface objects over memory that is freed."""
    for handle in [handle for handle, one in objects.items() if one.base >> SLOT_BITS == slot]:
        del objects[handle]
    return 0


def tensor_map(
    encoded: int,
    type_: int,
    rank: int,
    place: int,
    sizes: Any,
    strides: Any,
    box: Any,
    steps: Any,
    swizzle: int,
    fill: int,
) -> int:
    """Write the 128 bytes of a tensor map: what the simulator knows one by, and its number."""
    dtype = next(name for name, number in driver_objects.TYPES.items() if number == type_)
    stored = np.dtype("uint16" if dtype == "bfloat16" else dtype)
    try:
        made = simulator.TensorMap(
            np.empty(0, stored), tuple(box[:rank]), tuple(sizes[:rank]), tuple(strides[: rank - 1]),
            tuple(steps[:rank]), _named(driver_objects.SWIZZLES, swizzle), _named(driver_objects.FILLS, fill), dtype,
        )  # fmt: skip
    except simulator.LaunchError as error:
        return _failed(INVALID_VALUE, error)
    number = len(maps) + 1
    maps[number] = made, place
    ctypes.memmove(encoded, (MAGIC + number.to_bytes(8, "little")).ljust(driver_objects.MAP_BYTES, b"\0"), 128)
    return 0


def _named(numbers: Any, wanted: int) -> Any:
    return next(name for name, number in numbers.items() if number == wanted)


def _place_memories(space: Any) -> None:
    """Give all memories of the device their slots in a launch's address space."""
    count = driver.simulated_memories(None, None, None, 0)
    slots, hosts, sizes = (c_int * count)(), (c_void_p * count)(), (c_size_t * count)()
    driver.simulated_memories(slots, hosts, sizes, count)
    for slot, host, size in zip(slots, hosts, sizes, strict=True):
        if slot < len(space.slots) and space.slots[slot].base:
            continue  # a variable of the module itself
        space.skip_to(slot + 1)
        space.slots[slot] = Region(f"allocation {slot}", slot << SLOT_BITS, _memory(host, size), True)


def _memory(host: int, nbytes: int) -> Any:
    """Return bytes of the host's memory as an array."""
    return np.ctypeslib.as_array((ctypes.c_uint8 * nbytes).from_address(host))


def _failed(status: int, error: BaseException) -> int:
    print(f"the simulated driver: {error}", file=sys.stderr, flush=True)
    return status


def _called(function: Callable[..., int]) -> Callable[..., int]:
    """Return a function as C calls it, which knows no exceptions."""

    @functools.wraps(function)
    def call(*arguments: Any) -> int:
        try:
            return function(*arguments)
        except KeyboardInterrupt:
            return INTERRUPTED
        except Exception:
            traceback.print_exc()
            return UNKNOWN

    return call


_P = ctypes.POINTER
_FUNCTIONS: dict[str, tuple[Callable[..., int], tuple[Any, ...]]] = {
    "load": (load, (c_int, c_void_p, c_size_t, c_int, _P(c_int))),
    "unload": (unload, (c_int,)),
    "find": (find, (c_int, c_char_p, _P(Function))),
    "variable": (variable, (c_int, c_char_p, _P(c_uint64), _P(c_void_p), _P(c_size_t))),
    "launch": (launch, (_P(Launch), _P(c_double))),
    "texture": (
        texture,
        (c_uint64, c_void_p, c_void_p, c_void_p, c_uint64, c_size_t, _P(c_size_t), c_uint),
    ),
    "forget": (forget, (c_int,)),
    "tensor_map": (
        tensor_map,
        (c_void_p, c_int, c_uint, c_uint64, _P(c_uint64), _P(c_uint64), _P(c_uint), _P(c_uint), c_int, c_int),
    ),
}
CALLBACKS = (c_void_p * len(_FUNCTIONS))()  # struct Callbacks, in its order
_KEPT = [ctypes.CFUNCTYPE(c_int, *types)(_called(function)) for function, types in _FUNCTIONS.values()]
CALLBACKS[:] = [ctypes.cast(one, c_void_p).value for one in _KEPT]
