"""Arguments that a kernel takes by value: structs, vectors and PyTorch's packed accessors.

The bytes of such an argument are made from its value on the command line and the memory layout of its type. A pointer
in a struct takes an array, as a pointer parameter does, or the name of another argument's array. A packed accessor is a
struct with the address, the sizes and the strides of a tensor.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from cudabench.errors import UsageError, did_you_mean, refuse
from cudabench.source.brackets import listed
from cudabench.source.records import Layout, Parameter
from cudabench.source.words import listed_words
from cudabench.userkernel.pointers import element_type
from cudabench.userkernel.values import Array, Record, shape_text

_NAME = re.compile(r"(?:(?:torch|at)\s*::\s*)?(?:Generic)?PackedTensorAccessor(32|64)?\s*<(.*)>", re.S)
_FEW = 4  # if a struct's array has more elements, an example gives one value, which is used for all elements


def example_of(layout: Layout) -> str:
    """Return a valid value of a type with this layout, in the form of --arg."""
    if layout.dtype:
        return "2.5" if np.dtype(layout.dtype).kind == "f" else "1"
    if layout.pointee:
        return f"{element_type(layout.pointee)}[1024]:random"
    if layout.element and layout.element.dtype and layout.count > _FEW:
        return example_of(layout.element)
    if layout.element:
        return f"[{', '.join([example_of(layout.element)] * layout.count)}]"
    if layout.vector:
        return ",".join(example_of(member) for _, _, member in layout.members)
    return f"{{{', '.join(f'{name}: {_bracketed(member)}' for name, _, member in layout.members)}}}"


def _bracketed(layout: Layout) -> str:
    return f"[{example_of(layout)}]" if layout.vector else example_of(layout)


# Values --------------------------------------------------------------------------------------------------------------

# (offset in bytes, text of the value, layout of the value, path of member names such as 'inner_x')
Leaf = tuple[int, str, Layout, str]


def leaves(text: str, layout: Layout, where: str) -> Iterator[Leaf]:
    """Yield each number and pointer in a struct's or vector's value on the command line.

    `where`: the option as error messages show it. Raises UsageError if the value does not match the layout.
    """
    if layout.vector and not text.strip().startswith(("{", "[", "(")):
        text = f"[{text}]"
    yield from _leaves(0, text.strip(), layout, where, "")


def _leaves(at: int, text: str, layout: Layout, where: str, path: str) -> Iterator[Leaf]:
    if layout.dtype or layout.pointee:
        yield at, text, layout, path
        return
    element, right = layout.element, _right(where, layout, path)
    if element and element.dtype and not re.match(r"[\[{(]", text):
        parts = [text] * layout.count  # one value without brackets is used for all elements
    elif not re.fullmatch(r"(\{.*\}|\[.*\]|\(.*\))", text, re.S):
        raise UsageError(f"{where} is not a value of {layout.ctype}: write {right}.")
    else:
        parts = listed(text[1:-1])
    if layout.members and not layout.vector and all(re.match(r"\s*\w+\s*:(?!:)", part) for part in parts):
        given = {name.strip(): value.strip() for name, _, value in (part.partition(":") for part in parts)}
        known = [name for name, _, _ in layout.members]
        unknown = next((name for name in given if name not in known), "")
        missing = [name for name in known if name not in given]
        refuse(
            (
                unknown,
                f"{where}: {layout.ctype} lacks a member '{unknown}'; it has {', '.join(known)}."
                f"{did_you_mean(unknown, known)}",
            ),
            (missing, f"{where} lacks {', '.join(missing)}; write {right}."),
            (len(given) != len(parts), f"{where} names a member twice; write {right}."),
        )
        parts = [given[name] for name in known]
    members = [(str(i), i * element.size, element) for i in range(layout.count)] if element else layout.members
    if len(parts) != len(members):
        raise UsageError(
            f"{where} gives {len(parts)} value{'s' * (len(parts) != 1)}, {layout.ctype} takes {len(members)}: write "
            f"{right}."
        )
    for part, (name, offset, member) in zip(parts, members, strict=True):
        yield from _leaves(at + offset, part, member, where, f"{path}_{name}".lstrip("_"))


def _right(where: str, layout: Layout, path: str) -> str:
    """Return a valid value to show in an error message: the whole option, or 'path: value' for a member of a struct."""
    option, name = where.partition("=")[0].split()
    return f"{path}: {_bracketed(layout)}" if path else f"{option} '{name}={example_of(layout)}'"


# Accessors -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Accessor:
    """The type of a packed accessor; `element`: the C++ type of an element; `index_bytes`: the size of a stride."""

    element: str
    dimensions: int
    index_bytes: int

    def parameter(self, name: str) -> Parameter:
        """Return a pointer parameter that takes the same arrays as the accessor."""
        words = self.element.split()
        return Parameter(name, " ".join(word for word in words if word != "const"), True, "const" in words)

    def record(self, array: Array) -> Record:
        """Return the accessor for an array in C order, as bytes: address, sizes, and strides in elements."""
        if len(array.shape) != self.dimensions:
            has = f"{len(array.shape)} dimension{'s' * (len(array.shape) != 1)}"
            raise UsageError(
                f"--arg {array.name}={array.dtype}{shape_text(array.shape)} has {has}; the "
                f"accessor takes {self.dimensions}: write --arg '{array.name}={self.example(array.dtype)}'."
            )
        strides = [math.prod(array.shape[at + 1 :]) for at in range(self.dimensions)]
        numbers = np.array([*array.shape, *strides], f"<i{self.index_bytes}").tobytes()
        return Record(array.name, bytes(8) + numbers, 8, pointers=((0, array.name),), arrays=(array,))

    def example(self, dtype: str) -> str:
        """Return a valid value with elements of this type, in the form of --arg."""
        side = {1: 4096, 2: 64}.get(self.dimensions, 8)
        return f"{dtype}[{','.join([str(side)] * self.dimensions)}]:random"


def accessor_of(parameter: Parameter) -> Accessor | None:
    """Return the accessor if a parameter's type, with typedefs resolved, is a packed accessor; else None."""
    match = _NAME.fullmatch(parameter.meaning or parameter.type)
    parts = listed_words(match[2]) if match else []
    if match is None or len(parts) < 2 or not parts[1].isdigit() or not 1 <= int(parts[1]) <= 8:
        return None
    narrow = match[1] == "32" or (not match[1] and parts[3:4] == ["int"])
    return Accessor(parts[0], int(parts[1]), 4 if narrow else 8)
