"""Structs and vectors by value: their layout, from CUDA's rules and the declaration in the source, and their bytes.

A member that is a pointer is given what a pointer of the kernel is given: an array, or the name of one.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from types import MappingProxyType
from typing import Any

import numpy as np

from cudabench.brackets import listed
from cudabench.errors import UsageError, did_you_mean
from cudabench.toolchain import places, source
from cudabench.toolchain.source import Parameter
from cudabench.userkernel.pointers import like

MAX_DEPTH = 8
_AXES = "xyzw"
_FEW = 4  # elements of an array that an example writes one by one
_POINTER_BYTES = 8
_OF_CUDA: Mapping[str, tuple[str, int]] = MappingProxyType(  # driver_types.h
    {
        "cudaPitchedPtr": ("void *ptr; size_t pitch; size_t xsize; size_t ysize;", 0),
        "cudaExtent": ("size_t width; size_t height; size_t depth;", 0),
        "cudaPos": ("size_t x; size_t y; size_t z;", 0),
    }
)
_BRACES = re.compile(r"[{}]")
_ALIGNED = r"(?:(?:__align__|alignas)\s*\(\s*(\d+)\s*\)\s*)?"
_STRUCT = re.compile(rf"\b(?:struct|class)\s+{_ALIGNED}(\w+)\s*\{{")
_TYPEDEF = re.compile(rf"\btypedef\s+struct\s*{_ALIGNED}\w*\s*\{{")
_TEMPLATE = re.compile(rf"\btemplate\s*<([^<>]*)>\s*(?:struct|class)\s+{_ALIGNED}(\w+)\s*\{{")
_NAMED_BEHIND = re.compile(r"\s*(\w+)\s*;")
_METHOD = re.compile(
    r"(?:template\s*<[^<>]*>\s*)?[^;{}()]*\b(?:operator\s*\(\s*\)|operator[^\w(;{}]+|operator\s+\w+|~?\s*\w+)\s*\([^;{}]*\)\s*(?:const\s*|noexcept\s*)*"
    r"(?::[^;{}]*|=\s*(?:default|delete)\s*)?(?P<end>[;{])"
)


@dataclass(frozen=True)
class Layout:
    """How a type lies in memory: a number (`dtype`), an array of `count`, or members at their offsets. In bytes.

    pointee: of a pointer, what it points at.
    """

    ctype: str
    size: int
    align: int
    dtype: str | None = None
    count: int = 0
    element: Layout | None = None
    members: tuple[tuple[str, int, Layout], ...] = ()
    vector: bool = False
    pointee: Parameter | None = None

    def example(self) -> str:
        """Return a value as the command line writes it."""
        if self.dtype:
            return "2.5" if np.dtype(self.dtype).kind == "f" else "1"
        if self.pointee:
            return f"{like(self.pointee, {})}[1024]:random"
        if self.element and self.element.dtype and self.count > _FEW:
            return self.element.example()
        if self.element:
            return f"[{', '.join([self.element.example()] * self.count)}]"
        if self.vector:
            return ",".join(member.example() for _, _, member in self.members)
        return f"{{{', '.join(f'{name}: {_bracketed(member)}' for name, _, member in self.members)}}}"


def numbers_in(layout: Layout) -> tuple[frozenset[str], int]:
    """Return the NumPy types of the numbers in a value, 'pointer' for pointers, and their bytes without gaps."""
    if layout.dtype or layout.pointee:
        return frozenset([layout.dtype or "pointer"]), layout.size
    if layout.element:
        kinds, nbytes = numbers_in(layout.element)
        return kinds, nbytes * layout.count
    parts = [numbers_in(member) for _, _, member in layout.members]
    return frozenset().union(*(kinds for kinds, _ in parts)), sum(nbytes for _, nbytes in parts)


def _bracketed(layout: Layout) -> str:
    return f"[{layout.example()}]" if layout.vector else layout.example()


def layout_of(ctype: str, text: str, aliases: Mapping[str, str], depth: int = 0) -> Layout | None:
    """Return how a type lies in memory; None for one that is not known here.

    `text` is the source that declares structs. Vectors follow CUDA's table of alignments (CUDA C++ programming guide,
    built-in vector types), structs C's rules.
    """
    dtype = source.numpy_dtype(ctype, aliases)
    if dtype and np.dtype(dtype).kind != "c":
        return Layout(ctype, np.dtype(dtype).itemsize, np.dtype(dtype).itemsize, dtype)
    vector = source.vector_type(ctype, aliases)
    if ctype == "dim3":
        vector = ("uint32", 3)
    if dtype:
        vector = ("float32" if dtype == "complex64" else "float64", 2)
    if vector:
        kind, count = vector
        width = np.dtype(kind).itemsize
        one = Layout(kind, width, width, kind)
        align = min(16, width * count) if count in (2, 4) else width
        members = tuple((_AXES[at], at * width, one) for at in range(count))
        return Layout(ctype, width * count, align, members=members, vector=True)
    if depth > MAX_DEPTH:
        return None
    name = aliases.get(ctype, ctype).removeprefix("struct ").strip()
    found = _declaration(name, text)
    return None if found is None else _struct(ctype, *found, text, aliases, depth)


def _declaration(name: str, text: str) -> tuple[str, int] | None:
    """Return the body of a struct and the alignment that it asks for, 0 for none."""
    known = _declared(text)
    instance = re.fullmatch(r"(\w+)\s*<([^<>]*)>", name)
    if instance:
        return _instance(known.templates.get(instance[1]), [part.strip() for part in instance[2].split(",")])
    return known.structs.get(name) or known.typedefs.get(name) or _OF_CUDA.get(name)


@dataclass(frozen=True)
class _Declared:
    """The structs of a text by name, each with its body and alignment; templates with their parameters, too."""

    structs: Mapping[str, tuple[str, int]]
    typedefs: Mapping[str, tuple[str, int]]
    templates: Mapping[str, tuple[str, str, int]]


@lru_cache(maxsize=64)  # a text is asked for each of its types
def _declared(text: str) -> _Declared:
    commented = "//" in text or "/*" in text
    plain = re.sub(r"//[^\n]*|/\*.*?\*/", " ", text, flags=re.S) if commented else text
    structs: dict[str, tuple[str, int]] = {}
    typedefs: dict[str, tuple[str, int]] = {}
    templates: dict[str, tuple[str, str, int]] = {}
    known: set[str] = set()
    for match in places.matches(_STRUCT, plain, "struct", "class"):
        if match[2] not in known:  # the first is the one, read or not
            known.add(match[2])
            body = _body(plain, match.end())
            structs |= {match[2]: (body, int(match[1] or 0))} if body is not None else {}
    for match in places.matches(_TYPEDEF, plain, "typedef"):
        body = _body(plain, match.end())
        named = _NAMED_BEHIND.match(plain, match.end() + len(body) + 1) if body is not None else None
        if body is not None and named and named[1] not in known:
            typedefs.setdefault(named[1], (body, int(match[1] or 0)))
    known.clear()
    for match in places.matches(_TEMPLATE, plain, "template"):
        if match[3] not in known:
            known.add(match[3])
            body = _body(plain, match.end())
            templates |= {match[3]: (match[1], body, int(match[2] or 0))} if body is not None else {}
    return _Declared(structs, typedefs, templates)


def _instance(template: tuple[str, str, int] | None, given: list[str]) -> tuple[str, int] | None:
    """Return the body of a struct template with what it is given put for its parameters."""
    if template is None:
        return None
    parameters, body, aligned = template
    names = [part.partition("=")[0].split()[-1] for part in parameters.split(",") if part.strip()]
    if len(names) != len(given):
        return None
    for parameter, value in zip(names, given, strict=True):
        body = re.sub(rf"\b{parameter}\b", value, body)
    return body, aligned


def _body(text: str, start: int) -> str | None:
    depth = 1
    for match in _BRACES.finditer(text, start):
        depth += 1 if match[0] == "{" else -1
        if depth == 0:
            return text[start : match.start()]
    return None


def _struct(ctype: str, body: str, asked: int, text: str, aliases: Mapping[str, str], depth: int) -> Layout | None:
    members: list[tuple[str, int, Layout]] = []
    offset, align = 0, max(asked, 1)
    body, named = _own_names(_members_alone(body))
    for alias, meaning in named.items():
        body = re.sub(rf"\b{alias}\b", meaning, body)
    if re.search(r"\b(virtual|union|struct|class|template|using|typedef|enum|friend)\b|[(){}]|:[^:]", body):
        return None  # tables of functions, unions, nested declarations: the bytes of a file
    for line in filter(None, (part.strip() for part in body.split(";"))):
        if re.match(r"static\b", line):
            continue
        if "*" in line:
            found = _pointers(line)
            if found is None:
                return None
            for name, layout in found:
                offset = -(-offset // layout.align) * layout.align
                members.append((name, offset, layout))
                offset, align = offset + layout.size, max(align, layout.align)
            continue
        match = re.fullmatch(
            r"((?:(?:const|unsigned|signed|long|short|struct)\s+)*[\w:]+(?:\s+(?:int|long|double|char))*)\s+(\w.*)",
            line,
        )
        if not match:
            return None
        kind = layout_of(match[1].removeprefix("struct ").removeprefix("const ").strip(), text, aliases, depth + 1)
        if kind is None:
            return None
        for declared in match[2].split(","):
            own = re.fullmatch(r"\s*(\w+)\s*((?:\[\s*\w+\s*\]\s*)*)", declared)
            if not own:
                return None
            layout = kind
            for extent in reversed(re.findall(r"\[\s*(\w+)\s*\]", own[2])):
                number = extent if extent.isdigit() else aliases.get(extent, "")
                if not number.isdigit() or not int(number):
                    number = next(
                        iter(re.findall(rf"#define\s+{extent}\s+(\d+)|\b{extent}\s*=\s*(\d+)\s*;", text)), ("", "")
                    )
                    number = "".join(number)
                    if not number:
                        return None
                layout = Layout(
                    layout.ctype, layout.size * int(number), layout.align, count=int(number), element=layout
                )
            offset = -(-offset // layout.align) * layout.align
            members.append((own[1], offset, layout))
            offset, align = offset + layout.size, max(align, layout.align)
    if not members:
        return Layout(ctype, align, align)  # a functor: a value of nothing still takes room
    return Layout(ctype, -(-offset // align) * align, align, members=tuple(members))


def _own_names(body: str) -> tuple[str, dict[str, str]]:
    """Return the body of a struct without its plain typedefs, and what they make of names."""
    own = {}
    for pattern, order in ((r"\busing\s+(\w+)\s*=\s*([\w:\s]+?)\s*;", 1), (r"\btypedef\s+([\w:\s]+?)\s+(\w+)\s*;", -1)):
        for match in re.finditer(pattern, body):
            name, meaning = match.groups()[::order]
            if not re.match(r"(?:struct|union|enum|typename)\b", meaning):
                own[name] = meaning
                body = body.replace(match[0], ";", 1)
    return body, own


def _without_starts(body: str) -> str:
    """Return the body of a struct without what its members start as: `float s = 1; V v = V(1, 2), w{3};`."""
    kept: list[str] = []
    depth = at = 0
    while at < len(body):
        letter = body[at]
        before = re.search(r"([\w\]])\s*$", "".join(kept[-80:])) if depth == 0 and letter in "={" else None
        word = re.search(r"(\w*)\s*$", "".join(kept[-80:])) if before else None
        alias = re.search(r"\busing\s+\w+\s*$", "".join(kept[-80:]))  # `using index = int`
        if before and word and not alias and word[1] not in _NO_MEMBER and body[at : at + 2] != "==":
            end = at + _start_ends(body[at:])
            if letter == "=" or re.match(r"\s*[;,]", body[end:]):
                at = end
                continue
        depth += (letter in "({[") - (letter in ")}]")
        kept.append(letter)
        at += 1
    return "".join(kept)


_NO_MEMBER = frozenset(("operator", "const", "noexcept", "override", "struct", "class", "union", "enum"))


def _start_ends(text: str) -> int:
    """Return where an initialiser ends that a text begins with: before the `;` or `,` outside of its brackets."""
    depth = 0
    for at, letter in enumerate(text):
        if depth == 0 and letter in ";,":
            return at
        depth += (letter in "({[") - (letter in ")}]")
        if depth == 0 and letter == "}" and text[0] == "{":
            return at + 1
    return len(text)


def _members_alone(body: str) -> str:
    """Return the body of a struct without its methods and the words that say who may use what."""
    body = re.sub(r"\b(?:public|private|protected)\s*:", " ", body)
    body = re.sub(r"\bstruct\s+(\w+)\s*\*", r"\1 *", body)
    body = _without_starts(body)
    # A constructor's `: bytes{0, 0} {}` is none of the brackets that end a method.
    body = re.sub(r"(?<=[:,])(\s*\w+\s*)\{([^{}]*)\}(?=\s*[,{])", r"\1(\2)", body)
    while match := _METHOD.search(body):
        if re.search(r"\bvirtual\b", match[0]):
            break
        inside = _body(body, match.end()) if match["end"] == "{" else None
        if match["end"] == "{" and inside is None:
            break
        end = match.end() if inside is None else match.end() + len(inside) + 1
        body = f"{body[: match.start()]} ; {body[end:]}"
    return body


def _pointers(line: str) -> list[tuple[str, Layout]] | None:
    """Return the members of one declaration of pointers; None for pointers to pointers and what else is not known."""
    base, _, rest = line.partition("*")
    words = base.split()
    ctype = " ".join(word for word in words if word not in ("const", "volatile"))
    found = []
    for part in f"*{rest}".split(","):
        match = re.fullmatch(
            r"\s*\*\s*(?:(?:const|__restrict__|__restrict|restrict)\s+)*(\w+)\s*(?:\[\s*(\d+)\s*\])?", part
        )
        if not match or not ctype:
            return None
        pointee = Parameter(match[1], ctype, pointer=True, const="const" in words)
        layout = Layout(f"{ctype}*", _POINTER_BYTES, _POINTER_BYTES, pointee=pointee)
        if match[2]:
            count = int(match[2])
            layout = Layout(layout.ctype, _POINTER_BYTES * count, _POINTER_BYTES, count=count, element=layout)
        found.append((match[1], layout))
    return found


# Values --------------------------------------------------------------------------------------------------------------

Number = Callable[[str, str], Any]  # of a text as a type; raises UsageError


@dataclass(frozen=True)
class Pointer:
    """A pointer inside a value: its offset in bytes, the path of its names, what it points at, and what it is given."""

    offset: int
    path: str
    pointee: Parameter
    text: str


@dataclass
class Packed:
    """The bytes of a value, its numbers by the path of their names (`p_a`), and its pointers, whose bytes are zero."""

    content: bytearray
    numbers: dict[str, Any] = field(default_factory=dict)
    pointers: list[Pointer] = field(default_factory=list)


def pack(text: str, layout: Layout, where: str, number: Number) -> Packed:
    """Return a value that the command line writes.

    `number` gives the value of an expression as a NumPy type. Raises UsageError where text and layout differ.
    """
    packed = Packed(bytearray(layout.size))
    if layout.vector and not text.strip().startswith(("{", "[", "(")):
        text = f"[{text}]"
    _fill(packed, 0, text.strip(), layout, where, number, "")
    return packed


def _fill(packed: Packed, at: int, text: str, layout: Layout, where: str, number: Number, path: str) -> None:
    if layout.dtype:
        value = number(text, layout.dtype)
        packed.content[at : at + layout.size] = np.dtype(layout.dtype).type(value).tobytes()
        packed.numbers[path] = value
        return
    if layout.pointee:
        packed.pointers.append(Pointer(at, path, layout.pointee, text))
        return
    if layout.element and layout.element.dtype and not re.match(r"[\[{(]", text):
        parts = [text] * layout.count  # one value for all
    else:
        parts = _parts(text, where, layout, path)
    wanted = layout.count or len(layout.members)
    if layout.members and not layout.vector and all(re.match(r"\s*\w+\s*:(?!:)", part) for part in parts):
        given = {}
        for part in parts:
            name, _, value = part.partition(":")
            given[name.strip()] = value.strip()
        known = [name for name, _, _ in layout.members]
        for name in given:
            if name not in known:
                raise UsageError(
                    f"{where}: {layout.ctype} has no member '{name}', it has {', '.join(known)}."
                    f"{did_you_mean(name, known)}"
                )
        missing = [name for name in known if name not in given]
        if missing or len(given) != len(parts):
            lack = f"lacks {', '.join(missing)}" if missing else "names a member twice"
            raise UsageError(f"{where} {lack}; write {_right(where, layout, path)}.")
        parts = [given[name] for name in known]
    if len(parts) != wanted:
        raise UsageError(
            f"{where} gives {len(parts)} value{'s' * (len(parts) != 1)}, {layout.ctype} takes {wanted}: write "
            f"{_right(where, layout, path)}."
        )
    if layout.element:
        for order, part in enumerate(parts):
            own = f"{path}_{order}".lstrip("_")
            _fill(packed, at + order * layout.element.size, part, layout.element, where, number, own)
        return
    for part, (name, offset, member) in zip(parts, layout.members, strict=True):
        _fill(packed, at + offset, part, member, where, number, f"{path}_{name}".lstrip("_"))


def _right(where: str, layout: Layout, path: str) -> str:
    """Return a value that would be right: the whole option, or what stands for a member."""
    option, name = where.partition("=")[0].split()
    return f"{path}: {_bracketed(layout)}" if path else f"{option} '{name}={layout.example()}'"


def _parts(text: str, where: str, layout: Layout, path: str) -> list[str]:
    """Return what stands between the outer brackets, split at its commas."""
    if not re.fullmatch(r"(\{.*\}|\[.*\]|\(.*\))", text, re.S):
        raise UsageError(f"{where} is no value of {layout.ctype}: write {_right(where, layout, path)}.")
    return listed(text.strip()[1:-1])
