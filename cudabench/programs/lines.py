"""Writes the `cudabench run` command that repeats a launch of a program, with the same sizes and types.

The command's arrays are random, or are read from files into which the arrays of the program were saved.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from cudabench.errors import CudabenchError
from cudabench.programs.launches import Geometry, KernelLaunches
from cudabench.simulator.memory import SLOT_BITS, AddressSpace
from cudabench.source.choose_kernel import find_kernel
from cudabench.source.files import read_file
from cudabench.source.named_types import layout_of
from cudabench.source.records import Layout, Parameter
from cudabench.source.types import bytes_of
from cudabench.userkernel.arguments import NULL, why_not_given
from cudabench.userkernel.by_value import accessor_of
from cudabench.userkernel.pointers import element_type, elements
from cudabench.userkernel.textures import MAP_TYPE, OBJECTS

UNKNOWN = "..."  # stands for a value that cannot be written as an --arg
STORED = {"bfloat16": "uint16"}  # the types that .npy files have in place of types that NumPy lacks
POINTER_BYTES = 8


class Example(NamedTuple):
    """The geometry and the arguments of a launch, as they are before the launch runs.

    `values`: the bytes of each parameter. `pointees`: for each address in these bytes that points into an allocation,
    (the bytes up to the end of the allocation, a copy of them or None).
    """

    geometry: Geometry
    values: tuple[bytes, ...]
    pointees: Mapping[int, tuple[int, np.ndarray | None]]


def example_of(
    kernel: KernelLaunches, geometry: Geometry, raw: bytes, space: AddressSpace, *, contents: bool
) -> Example:
    """Return the example of a launch that has not run yet.

    `raw`: the bytes of the launch's parameters; `space`: the device memory; `contents`: whether to copy the memory that
    pointers point to.
    """
    code = kernel.loaded.program.code(kernel.entry)
    values: list[bytes] = []
    pointees: dict[int, tuple[int, np.ndarray | None]] = {}
    for parameter in kernel.loaded.program.kernels[kernel.entry].parameters:
        at = code.parameter_offsets[parameter.name]
        values.append(raw[at : at + parameter.size])
        whole = parameter.size // POINTER_BYTES * POINTER_BYTES
        for address in np.frombuffer(values[-1][:whole], np.uint64).tolist():
            slot = address >> SLOT_BITS
            region = space.slots[slot] if 0 < slot < len(space.slots) else None
            if region is not None and region.base and 0 <= address - region.base < region.size:
                data = region.bytes[address - region.base :]
                pointees[address] = data.size, data.copy() if contents else None
    return Example(geometry, tuple(values), pointees)


def command_of(kernel: KernelLaunches, example: Example, words: Sequence[str], folder: Path | None) -> str:
    """Return the command line that repeats a launch; `words`: options of the compiler to add to it.

    If `run` cannot take an argument, the line is a comment, after comments with the reasons. `folder`: where the
    arrays' contents are saved, or None. Raises CudabenchError if the source cannot be read or lacks the kernel.
    """
    file = read_file(kernel.source.name, folders=[*kernel.source.include])
    definition = find_kernel(file, kernel.function)
    grid, block, shared, cluster = example.geometry
    line = ["cudabench", "run", kernel.source.name, "--kernel", kernel.function]
    line += ["--grid", _sides(grid), "--block", _sides(block)]
    line += ["--shared", str(shared)] if shared else []
    line += ["--cluster", _sides(cluster)] if cluster else []
    if len(definition.parameters) != len(example.values):
        raise CudabenchError(f"{kernel.source.name} declares {kernel.function} with other parameters than the program.")
    texts, reasons = _Texts(kernel.name, example.pointees, folder), []
    for parameter, value in zip(definition.parameters, example.values, strict=True):
        text, layout = UNKNOWN, layout_of(parameter.type, file)
        reason = why_not_given(parameter, definition, file) or _why_not_repeated(parameter)
        if not reason:
            try:
                text = texts.argument(parameter, layout, value)
            except CudabenchError as error:
                reason = str(error)
        reasons += [f"# {kernel.name}: {reason}\n"] if reason else []
        line += ["--arg", f"{parameter.name}={text}"]
    return "".join([*reasons, "# " if reasons else "", shlex.join([*line, *words])])


def _why_not_repeated(parameter: Parameter) -> str:
    """Return the reason why the value of a parameter that `run` accepts is not known here; '' if it is known."""
    if parameter.type == MAP_TYPE:
        return f"'{parameter}' is a tensor map: write {parameter.name}=tensormap(ARRAY, ...)."
    if parameter.type in OBJECTS and not parameter.pointer:
        return f"'{parameter}' is {OBJECTS[parameter.type]}."
    if parameter.type.endswith("*"):
        return f"'{parameter}' points to pointers: write one array of all rows, {parameter.name}=float32[n,m]:random."
    if not parameter.pointer and (accessor := accessor_of(parameter)):
        example = accessor.example(element_type(accessor.parameter(parameter.name)))
        return f"'{parameter}' is an accessor: write {parameter.name}={example}."
    return ""


class _Texts:
    """Writes the values of a launch's parameters as `run` reads them; see Example for `pointees`."""

    def __init__(self, kernel: str, pointees: Mapping[int, tuple[int, np.ndarray | None]], folder: Path | None) -> None:
        self.kernel, self.pointees, self.folder = kernel, pointees, folder

    def argument(self, parameter: Parameter, layout: Layout | None, value: bytes) -> str:
        """Return the text of a parameter's value; `layout`: of its type. Raises CudabenchError if there is none."""
        if parameter.pointer:
            return self.array(parameter, value, parameter.name)
        if number := parameter.number:
            layout = Layout(parameter.type, bytes_of(number), bytes_of(number), number)
        if layout is None or layout.size != len(value):
            raise CudabenchError(f"'{parameter}' has {len(value)} bytes in the program, and another size here.")
        text = self.value(layout, value, parameter.name)
        return text[1:-1] if layout.vector else text

    def value(self, layout: Layout, value: bytes, title: str) -> str:
        """Return the text of a value of a struct, vector, array, number or pointer. `title`: its name."""
        if layout.pointee:
            return self.array(layout.pointee, value, title)
        if layout.dtype:
            return str(np.frombuffer(value, layout.dtype)[0])
        if layout.element:
            size = layout.element.size
            parts = [self.value(layout.element, value[at * size :][:size], title) for at in range(layout.count)]
            return f"[{', '.join(parts)}]"
        members = [
            (name, self.value(member, value[at : at + member.size], f"{title}_{name}"))
            for name, at, member in layout.members
        ]
        if layout.vector:
            return f"[{','.join(text for _, text in members)}]"
        return f"{{{', '.join(f'{name}: {text}' for name, text in members)}}}"

    def array(self, parameter: Parameter, value: bytes, title: str) -> str:
        """Return the text of the array that a pointer points to; save the array's contents if they are known."""
        address = int.from_bytes(value, "little")
        if not address:
            return NULL[0]
        dtype, count = element_type(parameter), elements(parameter)
        nbytes, data = self.pointees.get(address, (0, None))
        number = nbytes // (bytes_of(dtype) * (count or 1))
        if not number:
            raise CudabenchError(f"'{parameter}' does not point to an element in an allocation of device memory.")
        shape = (number, count) if count and count > 1 else (number,)
        if data is None or self.folder is None:
            return f"{dtype}[{','.join(map(str, shape))}]:{'random' if count else 'zeros'}"
        self.folder.mkdir(parents=True, exist_ok=True)
        path = self.folder / f"{re.sub(r'[^A-Za-z0-9]+', '-', self.kernel).strip('-')}-{title}.npy"
        stored = np.dtype(STORED.get(dtype, dtype))
        np.save(path, data[: number * (count or 1) * stored.itemsize].view(stored).reshape(shape))
        return f"@{path}"


def _sides(sides: tuple[int, int, int]) -> str:
    return ",".join(map(str, sides))
