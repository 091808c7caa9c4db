"""The part of a source that is for the host: a kernel does not need it, and a machine without its libraries refuses it.

Three rules, on every device and for every compiler. `without_host_code` takes out what the text shows to be the
host's. `without_faults` takes out what a compiler refused, as long as it is none of what was asked for, and
`without_other_kernels` the kernels that were not, where the assembler refused one and so all of them.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Mapping

from cudabench.toolchain.declarations import Declaration, blanked, declarations
from cudabench.toolchain.diagnostics import Fault

DEVICE_WORDS = frozenset(
    ["__global__", "__device__", "__constant__", "__shared__", "__managed__", "constexpr", "consteval"]
)
_ANNOTATED = re.compile(r"\]((?:\s*\b__(?:device|host)__\b)+)")
Macros = Mapping[str, frozenset[str]]


def without_host_code(source: str, macros: Macros | None = None) -> str:
    """Blank out the host's functions, keeping every line where it is.

    These are functions at namespace scope whose head has no `__global__`, `__device__` or constexpr, and no macro of
    this text or of `macros` that writes one of them. Classes and variables stay: a kernel may use any.
    """
    hosts = (one for one in declarations(source, macros) if one.function and not DEVICE_WORDS & one.head)
    return blanked(source, [(one.start, one.end) for one in hosts])


def without_faults(
    source: str, faults: Collection[Fault], macros: Macros, kept: Collection[str], *, device: bool
) -> str:
    """Blank out the declarations that a compiler found at fault, and return the text.

    Of a class only the members at fault go, unless its head is. A kernel called as one of `kept` stays; `device` says
    whether what else is written for the device may go too.
    """
    if not faults:
        return source
    places = list(_places(source, faults))
    spans = [
        (part.start, part.end)
        for one in declarations(source, macros)
        if not ("__global__" in one.head and one.head & set(kept))
        for part in _at_fault(one, places)
        if device or not DEVICE_WORDS & (part.head if part.function else part.words)
    ]
    return blanked(source, spans)


def without_lambdas_annotations(source: str) -> str:
    """Blank out the __device__ and __host__ of lambdas: in a kernel they say nothing, and no compiler takes them there
    without an option."""
    return _ANNOTATED.sub(lambda found: "]" + re.sub(r"[^\s]", " ", found[1]), source)


def without_other_kernels(source: str, macros: Macros, kept: Collection[str]) -> str:
    """Blank out the kernels that are called as none of `kept`."""
    kernels = (one for one in declarations(source, macros) if one.function and "__global__" in one.head)
    return blanked(source, [(one.start, one.end) for one in kernels if not one.head & set(kept)])


def _places(source: str, faults: Iterable[Fault]) -> Iterator[tuple[int, int]]:
    """The character that each fault is at, or its line where the compiler does not show it."""
    starts = [0, *(at + 1 for at, character in enumerate(source) if character == "\n"), len(source) + 1]
    for fault in faults:
        if 0 < fault.line < len(starts):
            start, end = starts[fault.line - 1], starts[fault.line]
            # nvcc shows the line with its own spelling of __device__: other columns.
            if fault.column is not None and source[start : end - 1] == fault.shown and start + fault.column < end:
                start, end = start + fault.column, start + fault.column + 1
            yield start, end


def _at_fault(declaration: Declaration, places: Iterable[tuple[int, int]]) -> Iterator[Declaration]:
    """The declaration if it stands at one of these places, or those of its members that do."""
    inside = [(start, end) for start, end in places if start < declaration.end and declaration.start < end]
    if not inside:
        return
    members = declaration.members
    found = [part for member in members for part in _at_fault(member, inside)]
    outside = [place for place in inside if not any(_meet(place, member) for member in members)]
    if outside or not found:
        yield declaration
    else:
        yield from found


def _meet(place: tuple[int, int], declaration: Declaration) -> bool:
    return place[0] < declaration.end and declaration.start < place[1]
