"""The type names that a user's file and its headers bring: typedefs, aliases, structs."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from cudabench.errors import CudabenchError
from cudabench.toolchain import places, source
from cudabench.toolchain.source import SourceFile
from cudabench.userkernel.by_value import layout_of, numbers_in

_STRUCTS = re.compile(
    r"\b(?:struct|class|union)\s+(?:(?:__align__|alignas)\s*\([^)]*\)\s*)?(\w+)\s*[{:]"
    r"|\btypedef\s+(?:struct|union)\b[^{};]*\{[^{}]*\}\s*(\w+)\s*;"
)


_NUMBERS_NAME = re.compile(r"\btypedef\s+enum\s+\w+\s*\{[^{}]*\}\s*(\w+)\s*;")
_INSTANCE = re.compile(r"=\s*(\w+\s*<[^<>;]*>)\s*;|\btypedef\s+(\w+\s*<[^<>;]*>)\s+\w+\s*;")
_ENUMS = re.compile(
    r"\benum\s+(?:class\s+|struct\s+)?(\w+)\s*(?::\s*([\w:\s]+?))?\s*\{"
    r"|\btypedef\s+enum\b[^{};]*\{[^{}]*\}\s*(\w+)\s*;"
)


def aliases_of(file: SourceFile, defines: Mapping[str, str], include: Sequence[str] = ()) -> dict[str, str]:
    """Return the type names of a file and of the headers that it includes, beside it or in a folder; -D wins.

    A struct stands for itself, as 'struct P', an enumeration for its numbers' type. Of a struct whose members are all
    of one type, 'elements of P' has that NumPy type and how many they are: 'float32 3'.
    """
    found = dict(file.aliases)
    declared: dict[str, str] = {}  # structs, and the text that has them

    def structs(text: str) -> None:
        for match in places.matches(_ENUMS, text, "enum", "typedef"):
            found.setdefault(match[1] or match[3], match[2] or "int")
        for match in places.matches(_NUMBERS_NAME, text, "typedef"):
            found.setdefault(match[1], "int")
        for match in places.matches(_STRUCTS, text, "struct", "class", "union", "typedef"):
            name = match[1] or match[2]
            found.setdefault(name, f"struct {name}")
            declared.setdefault(name, text)
        for match in places.matches(_INSTANCE, text, "=", "typedef"):
            declared.setdefault(match[1] or match[2], text)

    structs(file.text)
    seen: set[Path] = set()
    waiting = [(Path(file.path), file.text)]
    while waiting and len(seen) < 32:
        path, text = waiting.pop()
        for name in re.findall(r'^[ \t]*#[ \t]*include[ \t]*["<]([^">\n]+)[">]', text, re.M):
            there = (folder / name for folder in (path.parent, *map(Path, include)))
            header = next((place for place in there if place.is_file()), None)
            if header is None or header in seen:
                continue
            seen.add(header)
            try:
                parsed = source.parse(source.text_of(header), header)
            except CudabenchError:  # the compiler says it better
                continue
            for alias, meaning in parsed.aliases.items():
                found.setdefault(alias, meaning)
            structs(parsed.text)
            waiting.append((header, parsed.text))
    for name, text in declared.items():
        layout = layout_of(name, text, found)
        kinds, nbytes = numbers_in(layout) if layout else (frozenset(), 0)
        if layout and len(kinds) == 1 and "pointer" not in kinds and nbytes == layout.size:
            (kind,) = kinds
            found[f"elements of {''.join(name.split())}"] = f"{kind} {nbytes // np.dtype(kind).itemsize}"
    return {**found, **defines}
