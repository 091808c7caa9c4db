"""Finds where unoptimised code keeps the source's variables, from the DWARF debug information in the PTX."""

from __future__ import annotations

import inspect
import io
import re
from collections.abc import Iterator, Sequence
from functools import cache
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from elftools.dwarf.die import DIE

POINTER = 8  # bytes of an address
# PTX writes an address of local memory as a name, such as `__local_depot0`. In the bytes of a section, each such name
# is replaced by this number plus the index of the name.
_MARK = 0x4C4F43414C000000
_SECTION = re.compile(r"\.section\s+(\.debug_\w+)\s*\{([^}]*)\}")
_DATA = re.compile(r"^\s*\.b(8|16|32|64)\s+([^\n]*?);?\s*$", re.MULTILINE)
# The sequences of DWARF operations that this module accepts as the location of a variable.
_FORMS = [["DW_OP_addr", *more, *last] for more in ([], ["DW_OP_plus_uconst"]) for last in ([], ["DW_OP_deref"])]
_SAME_AS = ("DW_TAG_typedef", "DW_TAG_const_type", "DW_TAG_volatile_type", "DW_TAG_restrict_type")
_ADDRESSES = ("DW_TAG_pointer_type", "DW_TAG_reference_type", "DW_TAG_rvalue_reference_type")


class Variable(NamedTuple):
    """A variable in a function's local memory: its first byte, the byte after its last, and its name in the source."""

    start: int
    end: int
    name: str


def local_variables(text: str) -> dict[str, tuple[Variable, ...]]:
    """Return the variables in local memory, by the PTX name of the function's local memory (`__local_depot0`).

    text: PTX without comments. The dict is empty if the PTX has no DWARF; variables whose place or size is unknown are
    left out.
    """
    names: dict[str, int] = {}
    sections = {name: _bytes(body, names) for name, body in _SECTION.findall(text)}
    if not names:
        return {}
    by_memory: dict[str, set[Variable]] = {}
    for die in _entries(sections):
        place = _place(die, [*names])
        if place is None:
            continue
        memory, start, pointed = place
        size = POINTER if pointed else _size(die)
        if size:
            by_memory.setdefault(memory, set()).add(Variable(start, start + size, _name(die)))
    return {memory: tuple(sorted(variables)) for memory, variables in by_memory.items()}


def _bytes(body: str, names: dict[str, int]) -> bytes:
    """Return a section's bytes. A name of local memory becomes `_MARK` plus the index of the name in `names`.

    Other labels become 0. Each new name of local memory is added to `names`.
    """
    data = bytearray()
    for bits, values in _DATA.findall(body):
        for value in values.split(","):
            number = 0
            if match := re.fullmatch(r"\s*(?:\.debug_\w+\+)?(-?\d+)\s*", value):
                number = int(match[1])
            elif "local_depot" in value:
                number = _MARK + names.setdefault(value.strip(), len(names))
            data += (number % (1 << int(bits))).to_bytes(int(bits) // 8, "little")
    return bytes(data)


def _entries(sections: dict[str, bytes]) -> Iterator[DIE]:
    from elftools.common.exceptions import DWARFError, ELFParseError
    from elftools.dwarf.dwarfinfo import DebugSectionDescriptor, DwarfConfig, DWARFInfo

    def section(parameter: str) -> Any:
        data = sections.get(f".{parameter.removesuffix('_sec')}")
        if data is None:
            return None
        return DebugSectionDescriptor(io.BytesIO(data), parameter, 0, len(data), 0)

    config = DwarfConfig(little_endian=True, machine_arch="CUDA", default_address_size=8)
    parameters = [name for name in inspect.signature(DWARFInfo.__init__).parameters if name not in ("self", "config")]
    try:
        for unit in DWARFInfo(config, **{name: section(name) for name in parameters}).iter_CUs():
            yield from unit.iter_DIEs()
    except (DWARFError, ELFParseError):  # a format that elftools does not know: yield no further entries
        return


def _place(die: DIE, names: Sequence[str]) -> tuple[str, int, bool] | None:
    """Return (name of the local memory, first byte, whether a pointer to the variable is stored there instead of it).

    Return None if the variable is not in local memory.
    """
    from elftools.common.exceptions import ELFParseError
    from elftools.dwarf.dwarf_expr import DWARFExprParser

    location = die.attributes.get("DW_AT_location")
    if location is None or not isinstance(location.value, list):
        return None
    try:
        steps = DWARFExprParser(die.cu.structs).parse_expr(location.value)
    except (KeyError, ELFParseError):  # unknown format
        return None
    arguments = {step.op_name: step.args for step in steps}
    number = arguments["DW_OP_addr"][0] - _MARK if [step.op_name for step in steps] in _FORMS else -1
    if not 0 <= number < len(names):
        return None
    return names[number], arguments.get("DW_OP_plus_uconst", [0])[0], "DW_OP_deref" in arguments


def _origin(die: DIE) -> DIE:
    """Return the entry that describes a variable's name and type: for an inlined function, the original's entry."""
    while "DW_AT_abstract_origin" in die.attributes:
        die = die.get_DIE_from_attribute("DW_AT_abstract_origin")
    return die


def _name(die: DIE) -> str:
    name = _origin(die).attributes.get("DW_AT_name")
    return name.value.decode("utf-8", "replace") if name is not None else ""


@cache
def _size(die: DIE) -> int:
    """Return the size of a variable or of a type in bytes; 0 if it is unknown."""
    die = _origin(die)
    if die.tag in _ADDRESSES:
        return POINTER
    size = die.attributes.get("DW_AT_byte_size")
    if size is not None:
        return int(size.value)
    if "DW_AT_type" not in die.attributes:
        return 0
    nbytes = _size(die.get_DIE_from_attribute("DW_AT_type"))
    if die.tag != "DW_TAG_array_type":
        return nbytes if die.tag in (*_SAME_AS, "DW_TAG_variable", "DW_TAG_formal_parameter") else 0
    for child in die.iter_children():
        count, last = child.attributes.get("DW_AT_count"), child.attributes.get("DW_AT_upper_bound")
        nbytes *= int(count.value) if count is not None else int(last.value) + 1 if last is not None else 0
    return nbytes
