"""The Python side of the simulated driver: cards, modules and launches. cuInit starts it in the calling process.

CUDABENCH_DRIVER_CARDS lists the cards by names that `--on` takes; the default is orin, whose 16 multiprocessors take
the least time to simulate. CUDABENCH_DRIVER_MEMORY is the memory of each card in bytes.
CUDABENCH_DRIVER_FAIL=NAME:COUNT=STATUS makes one call of the driver fail. CUDABENCH_DRIVER_QUEUE=N limits a stream to N
queued operations before the host has to wait.
"""

from __future__ import annotations

import ctypes
import functools
import os
import sys
import time
import traceback
from collections.abc import Callable
from ctypes import POINTER, c_char_p, c_double, c_int, c_size_t, c_uint, c_uint64, c_void_p
from typing import Any

import numpy as np

from cudabench.cards import load as cards
from cudabench.devices import driver_objects
from cudabench.programs import device
from cudabench.programs.launches import (
    ASSERT,
    FAULTS,
    INVALID_VALUE,
    LAUNCH_FAILED,
    NO_IMAGE,
    NO_STEP_LIMIT,
    NOT_FOUND,
    NOT_SUPPORTED,
    UNKNOWN_IMAGE,
)
from cudabench.programs.modules import LoadedModule
from cudabench.programs.objects import Objects
from cudabench.simulator import api as simulator
from cudabench.simulator.memory import SLOT_BITS, Region

MEMORY_BYTES = 4 << 30
LAUNCH_NS, SECTOR_BYTES = 2000, 32
UNKNOWN, INTERRUPTED = 999, -1  # the second is a status of this driver alone


class Launch(ctypes.Structure):
    """A launch to run now."""

    _fields_ = (
        ("module", c_int), ("name", c_char_p), ("sides", c_uint * 6), ("cluster", c_uint * 3), ("shared", c_uint),
        ("parameters", c_void_p), ("parameter_bytes", c_size_t),
    )  # fmt: skip


driver: Any = None  # the library
bytes_per_ns = 1.0  # of the first card's memory
modules: dict[int, LoadedModule] = {}
objects = Objects()


def start() -> None:
    """Pass the cards and the functions of this file to the driver."""
    global driver, bytes_per_ns
    driver = ctypes.CDLL("libcuda.so.1")
    named = os.environ.get("CUDABENCH_DRIVER_CARDS", "orin").split()
    there = (device.Card * max(1, len(named)))(*(_card(name, number) for number, name in enumerate(named)))
    bytes_per_ns = there[0].bytes_per_ns
    driver.simulated_start(ctypes.byref(CALLBACKS), there, len(named))
    driver.simulated_memories.argtypes = (POINTER(c_int), POINTER(c_void_p), POINTER(c_size_t), c_int)


def _card(name: str, number: int) -> device.Card:
    info = cards.load_card(name).device
    memory = int(os.environ.get("CUDABENCH_DRIVER_MEMORY", MEMORY_BYTES))
    return device.card(info, f"simulated {info.name}", number, memory)


def load(number: int, image: int, nbytes: int, first_slot: int, slots: Any) -> int:
    """Load a module from PTX, or from machine code that includes its PTX."""
    try:
        modules[number] = LoadedModule(ctypes.string_at(image, nbytes), first_slot)
    except LookupError as error:
        return _failed(NO_IMAGE, error)
    except simulator.PtxError as error:
        return _failed(UNKNOWN_IMAGE, error)
    slots[0] = modules[number].slots
    return 0


def unload(number: int) -> int:
    """Forget a module."""
    modules.pop(number, None)
    return 0


def find(number: int, name: bytes, function: Any) -> int:
    """Describe a kernel: its CUfunction_attribute values and the offsets of its parameters."""
    loaded, entry = modules[number], name.decode()
    if entry not in loaded.program.kernels:
        return NOT_FOUND
    if not device.describe(loaded, entry, function[0]):
        most = len(function[0].offsets)
        return _failed(NOT_SUPPORTED, ValueError(f"kernel {entry} has more than {most} parameters"))
    return 0


def variable(number: int, name: bytes, address: Any, host: Any, nbytes: Any) -> int:
    """Return the address and size of a module variable."""
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
    placed = simulator.Placed(space, raw, dict(objects.textures), objects.tensor_maps(space))
    cluster = tuple(now.cluster) if now.cluster[0] else None
    grid, block = tuple(now.sides[:3]), tuple(now.sides[3:])
    try:
        report = simulator.run(
            program, name, grid, block, placed, shared_bytes=now.shared, cluster=cluster, budget=NO_STEP_LIMIT
        )
    except simulator.KernelAssert as error:
        return _failed(ASSERT, error)
    except simulator.KernelTrap as error:
        return _failed(LAUNCH_FAILED, error)
    except simulator.UnsupportedKernel as error:
        return _failed(NOT_SUPPORTED, error)
    except simulator.LaunchError as error:
        return _failed(INVALID_VALUE, error)
    except simulator.BudgetExceeded as error:  # on a GPU it would run forever
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
    """Register a texture object, or a surface object if `how` is null; without a resource, forget the object."""
    if not resource:
        objects.remove(handle)
        return 0
    described = ctypes.string_at(resource, ctypes.sizeof(driver_objects.ResourceDescriptor))
    reads = ctypes.string_at(how, ctypes.sizeof(driver_objects.TextureDescriptor)) if how else None
    try:
        objects.add(handle, described, reads, _memory(host, nbytes), place, tuple(extents[:3]), flags)
    except simulator.LaunchError as error:
        return _failed(INVALID_VALUE, error)
    return 0


def forget(slot: int) -> int:
    """Forget texture and surface objects over freed memory."""
    objects.remove_in_slot(slot)
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
    """Write the 128 bytes of a tensor map, by which the simulator identifies it."""
    try:
        made = objects.tensor_map(type_, rank, place, sizes, strides, box, steps, swizzle, fill)
    except simulator.LaunchError as error:
        return _failed(INVALID_VALUE, error)
    ctypes.memmove(encoded, made, len(made))
    return 0


def _place_memories(space: Any) -> None:
    """Put all memories of the device into their slots of a launch's address space."""
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
    """Return a function for C, which returns a status in place of an exception."""

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
    "find": (find, (c_int, c_char_p, _P(device.Function))),
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
