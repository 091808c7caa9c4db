"""The kernels of a source: each with its signature, the comment above it and where it stands."""

from __future__ import annotations

import functools
import re
from bisect import bisect_right
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from pathlib import Path

from cudabench.source.comments import cleaned
from cudabench.toolchain.signatures import (
    Parameter,
    TemplateParameter,
    name_and_list,
    parameter_of,
    template_head,
    types_of,
)
from cudabench.toolchain.tokens import Scan, is_name, opens_scope, spell, split

# CUDA's own functions outside of namespaces (CUDA Math API): a kernel of such a name is one more overload of it.
_MATH = """
abs acos acosh asin asinh atan atan2 atanh cbrt ceil copysign cos cosh cospi cyl_bessel_i0 cyl_bessel_i1 erf erfc
erfcinv erfcx erfinv exp exp10 exp2 expm1 fabs fdim fdivide floor fma fmax fmin fmod frexp hypot ilogb j0 j1 jn
ldexp lgamma llrint llround log log10 log1p log2 logb lrint lround max min modf nan nearbyint nextafter norm norm3d
norm4d normcdf normcdfinv pow rcbrt remainder remquo rhypot rint rnorm rnorm3d rnorm4d round rsqrt scalbln scalbn
sin sincos sincospi sinh sinpi sqrt tan tanh tgamma trunc y0 y1 yn"""
_OF_CUDA = frozenset(
    [*_MATH.split(), *(f"{name}f" for name in _MATH.split()), "labs", "llabs", "llmax", "llmin", "umax", "umin"]
)


@dataclass(frozen=True)
class KernelSource:
    """A `__global__` function with a body.

    `line` is where the name stands, 1-based; `start` and `end` are offsets into the file's text, from the first word of
    the definition (template, extern, ...) to behind the closing brace. `expression` is what the compiler is asked for:
    the qualified name, with template arguments once `named.find` has put them in.
    """

    name: str
    qualified_name: str
    parameters: tuple[Parameter, ...]
    comment: str
    line: int
    extern_c: bool
    template_parameters: tuple[TemplateParameter, ...]
    start: int
    end: int
    text: str
    expression: str = ""
    overloaded: bool = False

    @property
    def signature(self) -> str:
        """The head as a user would write it: 'axpy(float a, const float* x)'."""
        template = f"template <{', '.join(map(str, self.template_parameters))}> " if self.template_parameters else ""
        name = self.qualified_name if self.template_parameters else self.expression or self.qualified_name
        return f"{template}{name.partition('(')[0]}({', '.join(map(str, self.parameters))})"


@dataclass(frozen=True)
class SourceFile:
    """A `.cu` file: its text, the comment that opens it, its kernels in order, and the type names that it defines.

    `aliases` maps a name to what a typedef, a using or an object-like macro of the file makes of it (first one wins).
    """

    path: str
    text: str
    opening: str
    kernels: tuple[KernelSource, ...]
    aliases: Mapping[str, str] = field(default_factory=dict)

    def line(self, number: int) -> str:
        """Return the text of a line (1-based) without surrounding white space, '' outside the file."""
        lines = self.text.split("\n")
        return lines[number - 1].strip() if 1 <= number <= len(lines) else ""


def parse(text: str, path: str | Path) -> SourceFile:
    """Parse the text of a `.cu` file; `path` is only recorded. Text that is no CUDA at all has no kernels."""
    return _parsed(text.replace("\r\n", "\n"), str(path))


@functools.lru_cache(maxsize=64)  # a ladder asks for its chapter once a kernel
def _parsed(text: str, path: str) -> SourceFile:
    return _Reader(text, path).read()


class _Reader(Scan):
    """The kernels at namespace scope, and the type names that are defined on the way."""

    def __init__(self, text: str, path: str) -> None:
        super().__init__(text)
        self.path = path

    def read(self) -> SourceFile:
        hidden = self.hidden_spans()
        self.leave_out(hidden)
        kernels, aliases = self._declarations()
        for directive in self.directives:
            define = re.fullmatch(r"(\w+)\s+([^\W\d][\w:\s*]*)", directive.rest)
            inside = any(start <= directive.start < end for start, end in hidden)
            if directive.word == "define" and define and not inside:
                aliases.setdefault(define[1], define[2])
        return SourceFile(self.path, self.text, self._opening(kernels), kernels, aliases)

    def _declarations(self) -> tuple[tuple[KernelSource, ...], dict[str, str]]:
        kernels: list[KernelSource] = []
        specialised: list[KernelSource] = []
        known: set[tuple[str, tuple[str, ...]]] = set()  # what tells the kernels apart
        declared: set[tuple[str, tuple[str, ...]]] = set()  # with those that only a header announces
        announced: dict[tuple[str, tuple[str, ...]], str] = {}  # comments of forward declarations
        aliases: dict[str, str] = {}
        scopes: list[tuple[str, bool]] = []  # namespace or '', within extern "C"
        position = 0
        while position < len(self.words):
            first = position
            words, stop = self.head(first)
            closer = self.words[stop] if stop < len(self.words) else ";"
            if closer == "}":
                if scopes:
                    scopes.pop()
                position = stop + 1
                continue
            if closer == "{" and opens_scope(words):
                names = "".join(words[words.index("namespace") + 1 :]) if "namespace" in words else ""
                names = re.sub(r"\[\[.*?\]\]|inline(?=::|$)", "", names)
                scopes.append((names, words[0] == "extern" or bool(scopes and scopes[-1][1])))
                position = stop + 1
                continue
            end = self.matching(stop) if closer == "{" else stop
            if closer == "{" and set(words) & {"struct", "class"} and "(" not in words:
                self._member_types(words, stop + 1, end, aliases)
            position = end + 1
            if "__global__" in words:
                kernel = self._kernel(first, words, end, scopes)
                if kernel is None:
                    continue
                key = (kernel.qualified_name, types_of(kernel.parameters))
                if words[:1] != ["template"] or (words[1:2] == ["<"] and words[2:3] != [">"]):
                    declared.add(key)
                if closer != "{":
                    if kernel.comment:
                        announced.setdefault(key, kernel.comment)
                elif words[:3] == ["template", "<", ">"]:
                    specialised.append(kernel)
                elif key not in known:
                    known.add(key)
                    kernels.append(replace(kernel, comment=kernel.comment or announced.get(key, "")))
            elif words[:1] == ["typedef"] and len(words) > 2 and closer == ";":
                aliases.setdefault(words[-1], spell(words[1:-1]))
            elif words[:1] == ["using"] and words[2:3] == ["="]:
                aliases.setdefault(words[1], spell(words[3:]))
        # A specialisation is reached through its primary template; alone in the file it stands for itself.
        primary = {kernel.qualified_name for kernel in kernels}
        kernels += [kernel for kernel in specialised if kernel.qualified_name not in primary]
        counts = Counter(name for name, _ in declared)  # a header may declare another of the name
        marked = (
            replace(kernel, overloaded=counts[kernel.qualified_name] > 1 or kernel.qualified_name in _OF_CUDA)
            for kernel in kernels
        )
        return tuple(sorted(marked, key=lambda kernel: kernel.start)), aliases

    def _member_types(self, words: Sequence[str], position: int, end: int, aliases: dict[str, str]) -> None:
        """Enter the type names of a class that is no template, or of a specialisation, as 'Class::Type'."""
        if words[:1] == ["template"] and words[:3] != ["template", "<", ">"]:
            return
        key = next(at for at, word in enumerate(words) if word in ("struct", "class"))
        name = spell(list(words[key + 1 : words.index(":", key) if ":" in words else None]))
        while position < end:
            if self.is_label(position):
                position += 2
                continue
            inner, stop = self.head(position)
            if inner[:1] == ["typedef"] and len(inner) > 2:
                aliases.setdefault(f"{name}::{inner[-1]}", spell(inner[1:-1]))
            elif inner[:1] == ["using"] and inner[2:3] == ["="]:
                aliases.setdefault(f"{name}::{inner[1]}", spell(inner[3:]))
            position = (self.matching(stop) if stop < end and self.words[stop] == "{" else stop) + 1

    def _kernel(
        self, position: int, words: list[str], end: int, scopes: Sequence[tuple[str, bool]]
    ) -> KernelSource | None:
        """The kernel whose head are these words, from a token on."""
        templates, first = template_head(words)
        place = name_and_list(words, first)
        if place is None:
            return None
        name_at, opening, closing = place
        prefix = ""
        while name_at - 2 >= 0 and words[name_at - 1] == "::" and is_name(words[name_at - 2]):
            name_at -= 2
            prefix += words[name_at] + "::"
        name = words[place[0]]
        inner = words[opening + 1 : closing]
        parameters = tuple(parameter_of(part) for part in split(inner, ",") if part and part != ["void"])
        namespaces = [name for name, _ in scopes if name]
        qualified = "::".join([*namespaces, prefix + name])
        linkage = any(pair == ("extern", '"C"') for pair in pairwise(words))
        start = self.starts[position]
        finish = self.end(min(end, len(self.words) - 1))
        return KernelSource(
            name=name,
            qualified_name=qualified,
            parameters=parameters,
            comment=self._comment_above(start),
            line=bisect_right(self.line_starts, self.starts[position + place[0]]),
            extern_c=linkage or bool(scopes and scopes[-1][1]),
            template_parameters=templates,
            start=start,
            end=finish,
            text=self.text[start:finish],
            expression=qualified,
        )

    def _comment_above(self, position: int) -> str:
        """The block of comments that ends on the line before `position`, each at the start of its line."""
        block: list[str] = []
        index = bisect_right([comment.start for comment in self.comments], position) - 1
        while index >= 0:
            comment = self.comments[index]
            between = self.text[comment.end : position]
            alone = not self.text[self.line_starts[bisect_right(self.line_starts, comment.start) - 1] : comment.start]
            alone = alone or self._only_space_before(comment.start)
            if between.strip() or between.count("\n") > 1 or not alone:
                break
            block.insert(0, comment.text)
            position, index = comment.start, index - 1
        return cleaned(block)

    def _only_space_before(self, position: int) -> bool:
        line = self.line_starts[bisect_right(self.line_starts, position) - 1]
        return not self.text[line:position].strip()

    def _opening(self, kernels: Sequence[KernelSource]) -> str:
        """The first block of comments, where no code and no kernel of its own follows on its heels."""
        if not self.comments or (self.starts and self.starts[0] < self.comments[0].start):
            return ""
        block = [self.comments[0]]
        for comment in self.comments[1:]:
            between = self.text[block[-1].end : comment.start]
            if between.strip() or between.count("\n") > 1:
                break
            block.append(comment)
        behind = self.text[block[-1].end :]
        gap = behind[: len(behind) - len(behind.lstrip())]
        owned = any(kernel.start == block[-1].end + len(gap) for kernel in kernels)
        return "" if owned and gap.count("\n") < 2 else cleaned([comment.text for comment in block])
