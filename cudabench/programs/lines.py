"""Writes the `cudabench run` command that repeats a launch of a program, with the same sizes and types.

The command's arrays are random, or are read from files into which the arrays of the program were saved.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from cudabench.errors import CudabenchError
from cudabench.programs.launches import Geometry, KernelLaunches
from cudabench.simulator.memory import SLOT_BITS, AddressSpace
from cudabench.source.choose_kernel import find_kernel
from cudabench.source.files import read_file
from cudabench.source.records import Parameter

UNKNOWN = "..."  # stands for a value that cannot be written as an --arg


class Example(NamedTuple):
    """The geometry and the arguments of a launch, as they are before the launch runs.

    `values`: the bytes of each parameter. `pointees`: for each parameter that points into an allocation, (the bytes up
    to the end of the allocation, a copy of them or None); None for other parameters.
    """

    geometry: Geometry
    values: tuple[bytes, ...]
    pointees: tuple[tuple[int, np.ndarray | None] | None, ...]


def example_of(
    kernel: KernelLaunches, geometry: Geometry, raw: bytes, space: AddressSpace, *, contents: bool
) -> Example:
    """Return the example of a launch that has not run yet.

    `raw`: the bytes of the launch's parameters; `space`: the device memory; `contents`: whether to copy the memory that
    pointers point to.
    """
    code = kernel.loaded.program.code(kernel.entry)
    values: list[bytes] = []
    pointees: list[tuple[int, np.ndarray | None] | None] = []
    for parameter in kernel.loaded.program.kernels[kernel.entry].parameters:
        at = code.parameter_offsets[parameter.name]
        values.append(raw[at : at + parameter.size])
        address = int.from_bytes(values[-1], "little") if parameter.size == 8 else 0
        slot = address >> SLOT_BITS
        region = space.slots[slot] if 0 < slot < len(space.slots) else None
        inside = region is not None and region.base and 0 <= address - region.base < region.size
        if region is None or not inside:
            pointees.append(None)
            continue
        data = region.bytes[address - region.base :]
        pointees.append((data.size, data.copy() if contents else None))
    return Example(geometry, tuple(values), tuple(pointees))


def command_of(kernel: KernelLaunches, example: Example, words: Sequence[str], folder: Path | None) -> str:
    """Return the command line that repeats a launch; `words`: options of the compiler to add to it.

    `folder`: where the arrays' contents are saved, or None. Raises CudabenchError if the source cannot be read or lacks
    the kernel.
    """
    file = kernel.source.name
    includes = [*kernel.source.include]
    definition = find_kernel(read_file(file, folders=includes), kernel.function)
    grid, block, shared, cluster = example.geometry
    line = ["cudabench", "run", file, "--kernel", kernel.function, "--grid", _sides(grid), "--block", _sides(block)]
    line += ["--shared", str(shared)] if shared else []
    line += ["--cluster", _sides(cluster)] if cluster else []
    if len(definition.parameters) != len(example.values):
        raise CudabenchError(f"{file} declares {kernel.function} with other parameters than the program.")
    for parameter, value, pointee in zip(definition.parameters, example.values, example.pointees, strict=True):
        line += ["--arg", f"{parameter.name}={_argument(kernel, parameter, value, pointee, folder)}"]
    return shlex.join([*line, *words])


def _argument(
    kernel: KernelLaunches, parameter: Parameter, value: bytes, pointee: tuple[int, np.ndarray | None] | None,
    folder: Path | None,
) -> str:  # fmt: skip
    vector = parameter.vector
    dtype = parameter.number or (vector[0] if vector and parameter.pointer else None)
    if dtype is None or (parameter.pointer and pointee is None):
        return UNKNOWN
    if not parameter.pointer:
        return f"{np.frombuffer(value, dtype)[0]}" if np.dtype(dtype).itemsize == len(value) else UNKNOWN
    assert pointee is not None
    nbytes, data = pointee
    width = np.dtype(dtype).itemsize * (vector[1] if vector else 1)
    if nbytes < width:
        return UNKNOWN
    shape = (nbytes // width, vector[1]) if vector else (nbytes // width,)
    if data is None or folder is None:
        return f"{dtype}[{','.join(map(str, shape))}]:random"
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{re.sub(r'[^A-Za-z0-9]+', '-', kernel.name).strip('-')}-{parameter.name}.npy"
    np.save(path, data[: nbytes // width * width].view(dtype).reshape(shape))
    return f"@{path}"


def _sides(sides: tuple[int, int, int]) -> str:
    return ",".join(map(str, sides))
