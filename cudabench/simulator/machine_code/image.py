"""What a launch finds of a cubin besides code: the banks of constants, and how much shared memory the kernel has."""

from __future__ import annotations

import struct
from collections.abc import Mapping
from functools import lru_cache
from typing import NamedTuple

from cudabench.compile import cubin, nvdisasm, sass
from cudabench.simulator.machine_code.decode import Decoded, decode
from cudabench.simulator.machine_code.operands import Unreadable
from cudabench.simulator.memory import AddressSpace
from cudabench.simulator.values import Index3
from cudabench.symbols import plain_name

ARGUMENTS = {7: 0x160, 8: 0x160, 9: 0x210}  # where they begin in bank 0, by the major number of the architecture
STACK_AT = 0x28  # of the first value of R1
RESERVED = {9: 1024}  # bytes of shared memory in front of the kernel's own


class Kernel(NamedTuple):
    """A kernel of a cubin: its code, and the banks of constants as the cubin has them.

    variables: (place in bank 3, name) of `__constant__` variables; pointers: (bank, place, name, bytes behind it) of
    addresses of variables. shared: bytes of static shared memory, with what is reserved in front of it.
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
        """Return the banks of a launch, whose arrays and variables lie in a space.

        Raises Unreadable for a pointer to something else.
        """
        regions = {region.name: region for region in space.slots}
        data = [bytearray(self.banks.get(number, b"")) for number in range(5)]
        start = ARGUMENTS[self.major]
        data[0] = bytearray(start) + parameters
        struct.pack_into("<6I", data[0], 0, *block, *grid)
        struct.pack_into("<I", data[0], STACK_AT, stack)
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
    """Return a kernel of a cubin.

    Raises Unreadable for an instruction that is not known, DeviceUnusable if nvdisasm is not installed or refuses it.
    """
    from elftools.elf.relocation import RelocationSection
    from elftools.elf.sections import SymbolTableSection

    text = sass.section(nvdisasm.begin(image).result(), entry)
    decoded = decode(sass.listed(text).get(entry, []))
    elf = cubin.opened(image)
    version = elf.header["e_flags"]
    major = (version >> 8 & 0xFF if version >> 24 else version & 0xFF) // 10
    if major not in ARGUMENTS:
        raise Unreadable(f"the banks of constants of compute capability {major}")
    table = elf.get_section_by_name(".symtab")
    assert isinstance(table, SymbolTableSection)
    banks: dict[int, bytes] = {}
    variables: list[tuple[int, str]] = []
    pointers: list[tuple[int, int, str, int]] = []
    shared = RESERVED.get(major, 0)
    numbers = {f".nv.constant{number}{end}": number for number in (2, 3, 4) for end in ("", f".{entry}")}
    for section in elf.iter_sections():
        if section.name == f".nv.shared.{entry}":
            shared = section["sh_size"]
        if isinstance(section, RelocationSection):
            target = elf.get_section(section["sh_info"]).name
            if target == f".text.{entry}" and section.num_relocations():
                raise Unreadable("an address that is put into the code")
            for relocation in section.iter_relocations() if target in numbers else ():
                name = plain_name(table.get_symbol(relocation["r_info_sym"]).name)
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
    """Return a kernel of a cubin, or why its code is not read whole; errors of nvdisasm as `kernel`."""
    try:
        return kernel(image, entry)
    except Unreadable as error:
        return str(error)
