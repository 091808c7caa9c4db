"""Reads a cubin (an ELF file of one architecture's machine code) without a GPU: its variables and its code.

Its sections: `.text.ENTRY` holds a kernel's instructions, `.nv.global` the zero-initialised variables,
`.nv.global.init` the variables with other initial values, and `.nv.constant3` the `__constant__` variables. A kernel
can write `__constant__` variables too, through a pointer that it gets by inline assembly.
"""

from __future__ import annotations

import hashlib
import io
import re
import struct
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING

from cudabench.compile.record import Resources
from cudabench.symbols import plain_name

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from elftools.elf.elffile import ELFFile

_SIZED, _REGISTERS, _FRAME = 0x04, 0x2F, 0x11  # the values of EIFMT_SVAL, EIATTR_REGCOUNT and EIATTR_FRAME_SIZE
WRITABLE = (".nv.global", ".nv.global.init", ".nv.constant3")


@dataclass(frozen=True)
class Variable:
    """A module variable that kernels can write; `symbol`: the name in the cubin; `nbytes`: the size in bytes."""

    symbol: str
    nbytes: int

    @property
    def name(self) -> str:
        """Return the name without namespaces and mangling: 'table' of '_ZN2ns5tableE'."""
        return plain_name(self.symbol)


def variables(cubin: bytes) -> tuple[Variable, ...]:
    """Return the variables that keep their values between launches.

    Such variables are `__device__`, `__managed__` and `__constant__` variables, and static variables of functions.
    """
    from elftools.elf.sections import SymbolTableSection

    elf = open_elf(cubin)
    table = elf.get_section_by_name(".symtab")
    if not isinstance(table, SymbolTableSection):
        return ()
    return tuple(
        Variable(symbol.name, symbol["st_size"])
        for symbol in table.iter_symbols()
        if symbol["st_info"]["type"] == "STT_OBJECT" and symbol["st_size"] and isinstance(symbol["st_shndx"], int)
        if elf.get_section(symbol["st_shndx"]).name in WRITABLE
    )


def entries(cubin: bytes) -> tuple[str, ...]:
    """Return the names of the functions in a cubin: kernels, and device functions that were not inlined."""
    return tuple(code(cubin))


def ptx(cubin: bytes) -> str:
    """Return the PTX in a cubin that was compiled with -lineinfo, or ''."""
    section = open_elf(cubin).get_section_by_name(".nv_debug_ptx_txt")
    return section.data().replace(b"\0", b"\n").decode("utf-8", "replace") if section is not None else ""


def code_sha256(cubin: bytes, wanted: Sequence[str]) -> str:
    """Return the SHA-256, in hexadecimal, of the machine code of the `wanted` functions together.

    Line information and file names are not hashed. A function that is missing in the cubin is hashed as empty code.
    """
    digest = hashlib.sha256()
    for entry in wanted:
        content = code(cubin).get(entry, b"")
        digest.update(len(content).to_bytes(8, "little") + content)
    return digest.hexdigest()


def data_sha256(cubin: bytes, hidden: Sequence[str] = ()) -> str:
    """Return the SHA-256, in hexadecimal, of the constant data that a module's code reads.

    The hashed data are the constant banks that the compiler fills: `.nv.constant3` has `__constant__` variables, other
    banks have addresses and literals. `.nv.constant0` is not hashed, because it has the launch arguments. If a bank
    contains a pointer to a variable, the variable's plain name and initial value are hashed instead of its address.
    `hidden`: texts to ignore in the data, such as the folder in __FILE__.
    """
    from elftools.elf.relocation import RelocationSection
    from elftools.elf.sections import SymbolTableSection

    elf, digest = open_elf(cubin), hashlib.sha256()
    table = elf.get_section_by_name(".symtab")
    drop = [text.encode() for text in sorted(hidden, key=len, reverse=True) if text]

    def without(data: bytes) -> bytes:
        for text in drop:
            data = data.replace(text, b"")
        return data

    for section in sorted(elf.iter_sections(), key=lambda section: section.name):
        name = section.name
        if isinstance(section, RelocationSection) and isinstance(table, SymbolTableSection):
            if not name.startswith((".rela.nv.constant", ".rel.nv.constant", ".rela.nv.global", ".rel.nv.global")):
                continue
            for entry in sorted(section.iter_relocations(), key=lambda entry: entry["r_offset"]):
                symbol = table.get_symbol(entry["r_info_sym"])
                at = symbol["st_shndx"]
                home = elf.get_section(at) if isinstance(at, int) else None
                start, size = symbol["st_value"], symbol["st_size"]
                content = b"" if home is None or home["sh_type"] == "SHT_NOBITS" else home.data()[start : start + size]
                addend = entry["r_addend"] if entry.is_RELA() else 0
                target = content if symbol["st_info"]["type"] != "STT_FUNC" else b""
                record = (entry["r_offset"], entry["r_info_type"], plain_name(symbol.name), not target and size, addend)
                digest.update(repr((name, record, without(target))).encode())
        elif name.startswith(".nv.constant") and not name.startswith(".nv.constant0"):
            digest.update(repr((name.split(".")[2], without(section.data()))).encode())
    return digest.hexdigest()


def registers(cubin: bytes, entry: str) -> int | None:
    """Return the number of registers per thread of a kernel, or None if the cubin does not contain it.

    The section `.nv.info` is a list of attributes. An attribute begins with a byte for its format and a byte for its
    kind. In the sized format, two bytes for the size of the value follow, then the value. The value of kind 0x2f is the
    number of a symbol, and the register count of this symbol's code.
    """
    return _values(cubin, _REGISTERS).get(entry)


def resources(cubin: bytes, entry: str) -> Resources:
    """Return the numbers of registers, local bytes and barriers of a kernel, read from its cubin. A cubin does not
    contain the spilled bytes."""
    elf = open_elf(cubin)
    text, about = elf.get_section_by_name(f".text.{entry}"), elf.get_section_by_name(f".nv.info.{entry}")
    barriers = (text["sh_flags"] >> 20 & 0x7F) if text is not None else 0
    match = re.search(b"\x02\x4c(.)\0", about.data(), re.DOTALL) if about is not None else None
    return Resources(
        registers=registers(cubin, entry) or 0,
        local_bytes=_values(cubin, _FRAME).get(entry, 0),
        barriers=match[1][0] if match else barriers,
    )


@lru_cache(maxsize=16)
def code(cubin: bytes) -> Mapping[str, bytes]:
    """Return the machine code of each function, keyed by its name; cached, because a cubin is read often."""
    prefix = ".text."
    return {s.name.removeprefix(prefix): s.data() for s in open_elf(cubin).iter_sections() if s.name.startswith(prefix)}


@lru_cache(maxsize=16)
def _values(cubin: bytes, wanted: int) -> Mapping[str, int]:
    from elftools.elf.sections import SymbolTableSection

    elf = open_elf(cubin)
    section, table = elf.get_section_by_name(".nv.info"), elf.get_section_by_name(".symtab")
    values: dict[str, int] = {}
    if section is None or not isinstance(table, SymbolTableSection):
        return values
    data, at = section.data(), 0
    while at + 4 <= len(data):
        form, kind, size = struct.unpack_from("<BBH", data, at)
        at += 4
        if form != _SIZED:
            continue  # in other formats the value is in the two bytes of the size field, so no further bytes follow
        if kind == wanted and size == 8:
            symbol, count = struct.unpack_from("<II", data, at)
            values.setdefault(table.get_symbol(symbol).name, int(count))
        at += size
    return values


def declared_at(text: str, name: str) -> int | None:
    """Return the line, from 1, that declares this module variable or static variable; None if no line is found."""
    pattern = re.compile(rf"\b(?:__device__|__managed__|__constant__|static)\b[^;(){{}}]*\b{re.escape(name)}\b")
    match = pattern.search(text)
    return text.count("\n", 0, match.end()) + 1 if match else None


def open_elf(cubin: bytes) -> ELFFile:
    """Return a cubin as an `ELFFile` of pyelftools."""
    from elftools.elf.elffile import ELFFile

    return ELFFile(io.BytesIO(cubin))
