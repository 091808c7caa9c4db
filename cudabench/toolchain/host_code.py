"""The part of a source that is for the host: a kernel does not need it, and a machine without its libraries refuses it.

Three rules, on every device and for every compiler. `without_host_code` takes out what the text shows to be the
host's. `without_faults` takes out what a compiler refused, as long as it is none of what was asked for, and
`without_other_kernels` the kernels that were not, where the assembler refused one and so all of them.

Where the body of a function is what was refused its head stays, and so does which function a call means.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass

from cudabench.toolchain import left_out
from cudabench.toolchain.declarations import Declaration, blanked, declarations, without_bodies
from cudabench.toolchain.diagnostics import Fault
from cudabench.toolchain.left_out import LeftOut
from cudabench.toolchain.tokens import Scan

DEVICE_WORDS = frozenset(
    ["__global__", "__device__", "__constant__", "__shared__", "__managed__", "constexpr", "consteval"]
)
_OF_THIS_FILE = frozenset(["static", "inline", "__inline__", "__inline", "__forceinline__"])
_INSTANTIATION = re.compile(r"template\b(?!\s*<)")
_ANNOTATED = re.compile(r"\]((?:\s*\b__(?:device|host)__\b)+)")
Macros = Mapping[str, frozenset[str]]


def without_host_code(source: str, macros: Macros | None = None) -> str:
    """Blank out the host's functions, keeping every line where it is.

    These are functions at namespace scope whose head has no `__global__`, `__device__` or constexpr, and no macro of
    this text or of `macros` that writes one of them. Classes and variables stay: a kernel may use any.
    """
    return blanked(source, [(one.start, one.end) for one in _hosts(source, macros)])


def with_hosts_heads(
    source: str, filename: str, macros: Macros, overloaded: Collection[str]
) -> tuple[str, tuple[LeftOut, ...]]:
    """Return what `without_host_code` does, but for the heads of functions that have a name of these, and those.

    A call that means one of them has to be refused: it must not come to a function of the device of the same name.
    """
    hosts = _hosts(source, macros)
    heads = [one for one in hosts if left_out.called(source, one) in overloaded]
    text = blanked(source, [(one.start, one.end) for one in hosts if one not in heads])
    gone = []
    for one in heads:
        line = source.count("\n", 0, one.start) + 1
        said = f'calling the __host__ function "{left_out.called(source, one)}" from device code is not allowed'
        gone.append(left_out.left_out(source, one, (), f"{filename}({line}): error: {said}\n", body=True))
    return _as_declared(text, heads), tuple(gone)


def devices_functions(source: str, macros: Macros) -> set[str]:
    """Return the names of the functions at namespace scope that are for the device."""
    found = declarations(source, macros)
    return {left_out.called(source, one) for one in found if one.function and DEVICE_WORDS & one.head} - {""}


def without_faults(
    source: str, faults: Collection[Fault], macros: Macros, kept: Collection[str], log: str, *, device: bool
) -> tuple[str, tuple[LeftOut, ...]]:
    """Blank out the declarations that a compiler found at fault, and return the text and what it lacks.

    Of a class only the members at fault go, unless its head is, and of a function only the body, unless its head is. A
    kernel called as one of `kept` stays; `device` says whether what else is written for the device may go too. An
    assertion that fails stays, for it is the author's word. `log` is the refusal that the record is to speak of.
    """
    found = [
        part
        for one in declarations(source, macros) if faults
        if not ("__global__" in one.head and one.head & set(kept))
        for part in _at_fault(one, list(_places(source, faults)))
        if device or not DEVICE_WORDS & (part.one.head if part.one.function else part.one.words)
        if not part.asserts(source)
    ]  # fmt: skip
    gone = tuple(
        left_out.left_out(source, part.one, part.inside, log, body=part.only_body)
        for part in found
        if part.only_body or not part.takes_unknown
    )
    bodies = [part for part in found if part.only_body and not part.declared_before(source)]
    text = blanked(source, [(part.one.start, part.one.end) for part in found if part not in bodies])
    text = _as_declared(text, [part.one for part in bodies if not part.inside])
    return without_bodies(
        text, [(part.one.body, part.one.end) for part in bodies if part.inside and part.one.body]
    ), gone


def without_lambdas_annotations(source: str) -> str:
    """Blank out the __device__ and __host__ of lambdas: in a kernel they say nothing, and no compiler takes them there
    without an option."""
    return _ANNOTATED.sub(lambda found: "]" + re.sub(r"[^\s]", " ", found[1]), source)


def without_other_kernels(source: str, macros: Macros, kept: Collection[str]) -> str:
    """Blank out the kernels that are called as none of `kept`, and all explicit instantiations: a template's instance
    that is asked for is made for its name."""
    kernels = (one for one in declarations(source, macros) if one.function and "__global__" in one.head)
    other = [one for one in kernels if not one.head & set(kept) or _INSTANTIATION.match(source, one.start)]
    return blanked(source, [(one.start, one.end) for one in other])


def _hosts(source: str, macros: Macros | None) -> list[Declaration]:
    return [one for one in declarations(source, macros) if one.function and not DEVICE_WORDS & one.head]


def _as_declared(text: str, functions: Iterable[Declaration]) -> str:
    """Return a text with declarations in place of these functions, none of them `static` or inline: who calls one
    comes to an undefined function, and one that nobody calls is no fault."""
    functions = list(functions)
    for one in functions:
        scan = Scan(text[one.start : one.body or one.end])
        for word, start in zip(scan.words, scan.starts, strict=True):
            if word in _OF_THIS_FILE:
                start += one.start
                text = text[:start] + " " * len(word) + text[start + len(word) :]
    return without_bodies(text, [(one.body, one.end) for one in functions if one.body])


def _places(source: str, faults: Iterable[Fault]) -> Iterator[tuple[int, int, str]]:
    """The character that each fault is at, or its line where the compiler does not show it."""
    starts = [0, *(at + 1 for at, character in enumerate(source) if character == "\n"), len(source) + 1]
    for fault in faults:
        if 0 < fault.line < len(starts):
            start, end = starts[fault.line - 1], starts[fault.line]
            # nvcc shows the line with its own spelling of __device__: other columns.
            if fault.column is not None and source[start : end - 1] == fault.shown and start + fault.column < end:
                start, end = start + fault.column, start + fault.column + 1
            yield start, end, fault.message


@dataclass(frozen=True)
class _Part:
    """A declaration at fault, with the classes that it is a member of; `messages` are what was said of it."""

    one: Declaration
    inside: tuple[Declaration, ...]
    places: tuple[tuple[int, int, str], ...]

    @property
    def only_body(self) -> bool:
        """Whether a fault is in the body of a function, whose head may stay."""
        body, end = self.one.body, self.one.end
        if body is None or ("virtual" in self.one.head and not DEVICE_WORDS & self.one.head):
            return False  # an object has the addresses of its virtual functions, also of those that nobody calls
        return any(body < stop and start < end for start, stop, _ in self.places)

    @property
    def takes_unknown(self) -> bool:
        """Whether it is the head of a host's function with types that are not there, which no kernel has."""
        unknown = not any("referenced but not defined" in message for _, _, message in self.places)
        return self.one.function and not self.inside and not DEVICE_WORDS & self.one.head and unknown

    def declared_before(self, source: str) -> bool:
        """Whether the declaration of a function `T C::f() {...}` stands in a class or a namespace."""
        return not self.inside and self.one.function and left_out.is_defined_outside(source, self.one)

    def asserts(self, source: str) -> bool:
        """Whether all that is wrong is what the text itself asserts."""
        failed = all(message.startswith("static assertion failed") for _, _, message in self.places)
        return failed and source.startswith(("static_assert", "_Static_assert"), self.one.start)


def _at_fault(
    declaration: Declaration, places: Iterable[tuple[int, int, str]], inside: tuple[Declaration, ...] = ()
) -> Iterator[_Part]:
    """The declaration if it stands at one of these places, or those of its members that do."""
    within = tuple(place for place in places if _meet(place, declaration))
    if not within:
        return
    members = declaration.members
    found = [part for member in members for part in _at_fault(member, within, (*inside, declaration))]
    outside = [place for place in within if not any(_meet(place, member) for member in members)]
    if outside or not found:
        yield _Part(declaration, inside, within)
    else:
        yield from found


def _meet(place: tuple[int, int, str], declaration: Declaration) -> bool:
    return place[0] < declaration.end and declaration.start < place[1]
