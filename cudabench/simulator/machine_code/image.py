"""Reads a kernel from a cubin: the code, the constant banks, and the size of the kernel's shared memory."""

from __future__ import annotations

import struct
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

from cudabench.compile import cubin, nvdisasm
from cudabench.simulator.machine_code.decode import Decoded, decode
from cudabench.simulator.machine_code.operands import Unreadable
from cudabench.simulator.memory import LOCAL_WINDOW, SHARED_WINDOW, AddressSpace
from cudabench.simulator.values import Index3
from cudabench.symbols import plain_name


class BankLayout(NamedTuple):
    """The offsets in constant bank 0, in bytes, of the kernel's arguments, the block's and the grid's dimensions, the
    initial value of R1, the stack pointer, and the generic addresses of local and of shared memory. `shared` is None if
    the code reads the latter from a special register."""

    arguments: int
    block: int
    grid: int
    stack: int
    local: int
    shared: int | None = None


# For each major version of the architecture: the offsets from which code that ptxas compiled for this version reads.
LAYOUTS = {
    7: BankLayout(0x160, 0x0, 0xC, 0x28, 0x20, 0x18),
    8: BankLayout(0x160, 0x0, 0xC, 0x28, 0x20, 0x18),
    9: BankLayout(0x210, 0x0, 0xC, 0x28, 0x20),
    10: BankLayout(0x380, 0x360, 0x370, 0x37C, 0x2F8),
    11: BankLayout(0x380, 0x360, 0x370, 0x37C, 0x2F8),
    12: BankLayout(0x380, 0x360, 0x370, 0x37C, 0x2F8),
}
# Functions of the driver, whose code is not in the cubin: its name in machine code, and in C++.
DRIVER_FUNCTIONS = {"malloc": "malloc", "free": "free", "vprintf": "printf", "__assertfail": "assert"}
RESERVED = 1024  # bytes of shared memory that CUDA reserves before the kernel's own, from major version 9


class Kernel(NamedTuple):
    """A kernel of a cubin.

    `decoded`: its decoded code; `major`: the major version of the compute capability; `banks`: the content of its
    constant banks in the cubin, keyed by number; `variables`: (offset in bank 3, name) of each `__constant__` variable;
    `pointers`: (bank, offset, name, addend) of each place in a bank that holds the address of a variable plus an
    addend; `shared`: the bytes of static shared memory, including reserved bytes.
    """

    decoded: Decoded
    major: int
    banks: Mapping[int, bytes]
    variables: tuple[tuple[int, str], ...]
    pointers: tuple[tuple[int, int, str, int], ...]
    shared: int

    def bank_bytes(
        self, space: AddressSpace, grid: Index3, block: Index3, parameters: bytes, stack: int
    ) -> list[bytes]:
        """Return the content of the constant banks for a launch; bank k is item k of the list.

        space: contains the launch's arrays and variables; parameters: the bytes of the kernel's arguments; stack: the
        initial stack pointer. Raises Unreadable if a bank needs the address of a variable that is not in the space.
        """
        regions = {region.name: region for region in space.slots}
        data = [bytearray(self.banks.get(number, b"")) for number in range(5)]
        layout = LAYOUTS[self.major]
        data[0] = bytearray(layout.arguments) + parameters
        struct.pack_into("<3I", data[0], layout.block, *block)
        struct.pack_into("<3I", data[0], layout.grid, *grid)
        struct.pack_into("<I", data[0], layout.stack, stack)
        struct.pack_into("<Q", data[0], layout.local, LOCAL_WINDOW)
        if layout.shared is not None:
            struct.pack_into("<Q", data[0], layout.shared, SHARED_WINDOW)
        for place, name in self.variables:
            content = regions[name].bytes.tobytes()
            data[3][place : place + len(content)] = content
        for bank, place, name, behind in self.pointers:
            if name not in regions:
                raise Unreadable(f"the address of {name}")
            struct.pack_into("<Q", data[bank], place, regions[name].base + behind)
        return [bytes(bank) + bytes(16) for bank in (*data, b"")]


@lru_cache(maxsize=64)
def kernel(image: bytes, entry: str) -> Kernel:
    """Return kernel `entry` of a cubin.

    Raises Unreadable if the kernel has an unknown instruction, and DeviceUnusable if nvdisasm is not installed or
    refuses the cubin.
    """
    return nvdisasm.remembered("sass-decoded", image, entry, lambda: _kernel(image, entry), Path(__file__).parent)


def _kernel(image: bytes, entry: str) -> Kernel:
    from elftools.elf.relocation import RelocationSection
    from elftools.elf.sections import SymbolTableSection

    decoded = decode(nvdisasm.listed(image, entry))
    elf = cubin.open_elf(image)
    version = elf.header["e_flags"]
    major = (version >> 8 & 0xFF if version >> 24 else version & 0xFF) // 10
    if major not in LAYOUTS:
        raise Unreadable(f"the constant banks of compute capability {major}")
    table = elf.get_section_by_name(".symtab")
    assert isinstance(table, SymbolTableSection)
    banks: dict[int, bytes] = {}
    variables: list[tuple[int, str]] = []
    pointers: list[tuple[int, int, str, int]] = []
    shared = RESERVED * (major >= 9)
    numbers = {f".nv.constant{number}{end}": number for number in (2, 3, 4) for end in ("", f".{entry}")}
    for section in elf.iter_sections():
        if section.name == f".nv.shared.{entry}":
            shared = section["sh_size"]
        if isinstance(section, RelocationSection):
            target = elf.get_section(section["sh_info"]).name
            if target == f".text.{entry}" and section.num_relocations():
                raise Unreadable("an address in the code that the linker fills in")
            for relocation in section.iter_relocations() if target in numbers else ():
                symbol = table.get_symbol(relocation["r_info_sym"])
                if symbol["st_shndx"] == "SHN_UNDEF":
                    if symbol.name not in DRIVER_FUNCTIONS:
                        raise Unreadable(f"a call of {symbol.name}")
                    continue
                name = plain_name(symbol.name)
                behind = relocation["r_addend"] if relocation.is_RELA() else 0
                pointers.append((numbers[target], relocation["r_offset"], name, behind))
        elif section.name in numbers:
            banks[numbers[section.name]] = section.data()
    for symbol in table.iter_symbols():
        at, data = symbol["st_shndx"], symbol["st_info"]["type"] == "STT_OBJECT" and symbol["st_size"]
        if data and isinstance(at, int) and elf.get_section(at).name == ".nv.constant3":
            variables.append((symbol["st_value"], plain_name(symbol.name)))
    return Kernel(decoded, major, banks, tuple(variables), tuple(pointers), shared)


def readable(image: bytes, entry: str) -> Kernel | str:
    """Return kernel `entry` of a cubin, or the reason why it is unreadable; raises DeviceUnusable like `kernel`."""
    try:
        return kernel(image, entry)
    except Unreadable as error:
        return str(error)
