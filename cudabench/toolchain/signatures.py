"""The head of a kernel: its template's parameters, its name, its parameters and their types."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from cudabench.source.types import SPECIFIERS, canonical
from cudabench.toolchain.tokens import closing_angle, closing_bracket, is_name, opening_angle, spell, split, words_of

_ATTRIBUTES = frozenset(
    """__launch_bounds__ __cluster_dims__ __block_size__ __maxnreg__ __attribute__ __declspec
    alignas noexcept decltype requires _Pragma __pragma""".split()  # noqa: SIM905
)


@dataclass(frozen=True)
class Parameter:
    """One parameter of a kernel.

    `type` is the type of the value or, where `pointer` is set, of what it points at; without const, restrict and
    reference to the name: `const T* __restrict__ p` has type 'T'. `const` says that the pointee is const. A pointer to
    a pointer has type 'float*'; a pointer to a function is no `pointer` and has type 'float (*)(float)'.
    """

    name: str
    type: str
    pointer: bool = False
    const: bool = False
    restrict: bool = False

    @property
    def ctype(self) -> str:
        """The type as C++ spells it, for a cast: 'const float*'."""
        base, bracket, bounds = self.type.partition("[")
        pointer = f" (*)[{bounds}" if bracket and self.pointer else "*" if self.pointer else ""
        return f"{'const ' if self.const else ''}{base if pointer else self.type}{pointer}"

    def __str__(self) -> str:
        restrict = " __restrict__" if self.restrict else ""
        return f"{self.ctype}{restrict} {self.name}".rstrip()


@dataclass(frozen=True)
class TemplateParameter:
    """One parameter of a template: `type` is 'typename' or, for a value, its type; `default` may be empty."""

    name: str
    type: str
    default: str = ""

    def __str__(self) -> str:
        return f"{self.type} {self.name}".rstrip() + (f" = {self.default}" if self.default else "")


def template_head(words: Sequence[str]) -> tuple[tuple[TemplateParameter, ...], int]:
    """The parameters of the leading template<...> and the index of what follows it."""
    if words[:2] != ["template", "<"]:
        return (), 0
    end = closing_angle(words, 1)
    parameters = []
    for part in split(words[2:end], ","):
        default = ""
        if "=" in part:
            cut = part.index("=")
            part, default = part[:cut], spell(part[cut + 1 :])
        if not part:
            continue
        named = len(part) > 1 and re.fullmatch(r"[^\W\d]\w*", part[-1]) is not None and part[-1] not in SPECIFIERS
        kind = part[:-1] if named else part
        kind = ["typename" if word == "class" else word for word in kind if word != "const"]
        dots = "..." if spell(kind).endswith("...") else ""
        kind = [word for word in kind if word != "."]
        parameters.append(TemplateParameter(part[-1] if named else "", spell(kind) + dots, default))
    return tuple(parameters), end + 1


def name_and_list(head: Sequence[str], first: int) -> tuple[int, int, int] | None:
    """The index of the kernel's name and of the brackets around its parameters.

    Between `__global__` and the name, and behind the list, may stand attributes and macros with arguments. So all
    `word(...)` are collected; known attributes go, then words in capitals; the last that is left is the kernel.
    """
    groups: list[tuple[int, int, int]] = []
    index = first
    while index < len(head):
        if head[index] == "(":
            closing = closing_bracket(head, index)
            before = index - 1
            if before >= 0 and head[before] == ">":  # a specialisation: f<float>(...)
                before = opening_angle(head, before) - 1
            if before >= first and is_name(head[before]) and head[before] not in _ATTRIBUTES:
                groups.append((before, index, closing))
            index = closing
        index += 1
    lower = [group for group in groups if not re.fullmatch(r"[A-Z_][A-Z0-9_]*", head[group[0]])]
    chosen = lower or groups
    return chosen[-1] if chosen else None


def parameter_of(words: Sequence[str]) -> Parameter:
    """Return one parameter of a kernel by its words: no default value, no attributes; an array is a pointer."""
    words = list(words)
    if "=" in words:
        words = words[: words.index("=")]
    while words[:2] == ["[", "["]:  # [[maybe_unused]]
        words = words[words.index("]") + 2 :]
    words = [word for word in words if word not in ("__grid_constant__", "volatile", "register")]
    # A macro may write it; ns::Restrict and what stands in a template's list are types.
    marks = [
        at
        for at in range(1, len(words))
        if "restrict" in words[at].lower() and words[at - 1] != "::" and words[:at].count("<") == words[:at].count(">")
    ]
    restrict = bool(marks)
    words = [word for at, word in enumerate(words) if at not in marks]
    if "(" in words:  # a pointer to a function, or to an array
        star = words.index("*") if "*" in words else words.index("(")
        name = next((word for word in words[star:] if re.fullmatch(r"[^\W\d]\w*", word)), "")
        at = words.index(name, star) if name else -1
        rest = words[at + 1 :] if name else words[star + 1 :]
        if rest[:1] == [")"] and rest[1:2] == ["["]:
            base = [word for word in words[: words.index("(")] if word != "const"]
            return Parameter(name, spell(base) + spell(rest[1:]), True, "const" in words[:star], restrict)
        return Parameter(name, spell(word for index, word in enumerate(words) if index != at))
    dimensions: list[str] = []
    if "[" in words:
        dimensions = words[words.index("[") :]
        words = words[: words.index("[")]
    name = ""
    if len(words) > 1 and re.fullmatch(r"[^\W\d]\w*", words[-1]) and words[-1] not in SPECIFIERS | {"const"}:
        named = words[-2] not in ("::", "struct", "class", "union", "enum", "typename") and words[:-1] != ["const"]
        if named:
            name = words.pop()
    if "*" in words:
        # Behind the last star stand only its own qualifiers and macros; before it, the pointee.
        if dimensions:  # `float *rows[]`
            words = [*words, "*"]
        last = len(words) - 1 - words[::-1].index("*")
        pointee = words[:last]
        inner = pointee[len(pointee) - pointee[::-1].index("*") :] if "*" in pointee else pointee
        const = "const" in inner
        return Parameter(name, spell(word for word in pointee if word != "const"), True, const, restrict)
    const = "const" in words
    base = [word for word in words if word != "const"]
    if dimensions:
        outer = closing_bracket(dimensions, 0)
        return Parameter(name, spell(base) + spell(dimensions[outer + 1 :]), True, const, restrict)
    return Parameter(name, spell(base))


_OPAQUE = ("CUtensorMap", "cudaTextureObject_t", "cudaSurfaceObject_t")


def pointer_resolved(parameter: Parameter, aliases: Mapping[str, str]) -> Parameter:
    """Return a parameter as the pointer that its type is another name of, or as it is.

    Another name of one of CUDA's opaque types becomes that type.
    """
    words, const = words_of(parameter.type), parameter.const
    for _ in range(8):
        bare = [word for word in words if word not in ("const", "volatile", "struct", "typename")]
        key = spell(bare)
        meant = aliases.get(key) or aliases.get(bare[-1] if "::" in bare and len(bare) > 2 else key)
        if meant is None or meant == key or "(" in meant or "[" in meant:
            break
        words = words_of(meant)
        if words in ([name] for name in _OPAQUE):
            return replace(parameter, type=words[0])
        const = const or ("const" in words and words[-1:] == ["*"])
    if parameter.pointer and (words[-1:] == ["*"] or "::" in parameter.type):
        return replace(parameter, type=spell(word for word in words if word != "const"))
    if "::" in parameter.type and words[-1:] != ["*"]:
        return replace(parameter, type=spell(word for word in words if word not in ("const", "typename")))
    if not parameter.pointer and words[-1:] == ["*"]:
        pointee = spell(word for word in words[:-1] if word != "const")
        return replace(parameter, type=pointee, pointer=True, const=const)
    return parameter


def types_of(parameters: Iterable[Parameter]) -> tuple[str, ...]:
    """Return the types of parameters in one spelling each, to compare overloads by."""
    return tuple(canonical(parameter.ctype) for parameter in parameters)


def types_listed(parameters: Iterable[Parameter]) -> str:
    """Return the types of parameters as a list in brackets: '(const float*, int)'."""
    return f"({', '.join(parameter.ctype for parameter in parameters)})"
