"""Finds the memory layout of a type by its name in C++."""

from __future__ import annotations

from cudabench.source import clang_parse
from cudabench.source.records import Layout, Question, SourceFile
from cudabench.source.types import bytes_of, canonical, numpy_type, vector_type
from cudabench.source.words import respelled

_AXES = "xyzw"
_OF_CUDA = frozenset(["cudaPitchedPtr", "cudaExtent", "cudaPos"])


def layout_of(ctype: str, file: SourceFile) -> Layout | None:
    """Return the layout of a type; None if it is unknown.

    The layouts of vector types follow CUDA's table of alignments (CUDA C++ programming guide, built-in vector types).
    Layouts of structs come from the parser.
    """
    if "(" in ctype or "*" in ctype:
        return None
    aliases, dtype = file.types, numpy_type(ctype, file.types)
    if dtype and not dtype.startswith("complex"):
        size = bytes_of(dtype)
        return Layout(ctype, size, size, dtype)
    vector = vector_type(ctype, aliases)
    if canonical(ctype, aliases) == "dim3":
        vector = ("uint32", 3)
    if dtype:
        vector = ("float32" if dtype == "complex64" else "float64", 2)
    if vector:
        kind, count = vector
        width = bytes_of(kind)
        align = min(16, width * count) if count in (2, 4) else width
        members = tuple((_AXES[at], at * width, Layout(kind, width, width, kind)) for at in range(count))
        return Layout(ctype, width * count, align, members=members, vector=True)
    name = ctype
    for _ in range(8):
        name = aliases.get(name, name).removeprefix("struct ").strip()
    layout = file.layouts.get(respelled(name)) or file.layouts.get(respelled(ctype))
    if layout is None and file.task and ("<" in name or name in _OF_CUDA):
        layout = clang_parse.answer_of(file.task, Question(name, type=True)).layout
    return layout
