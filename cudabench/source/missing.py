"""Makes stand-in declarations for names from missing headers: incomplete types, and empty macros.

libclang treats an unknown type as int. If an incomplete type of this name is declared before the file, the parser keeps
the name, and messages can ask the user for the type. Names inside functions' bodies are ignored.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field

from cudabench.source.brackets import closing, listed
from cudabench.source.declared import Declarations
from cudabench.source.parameters import is_restrict
from cudabench.source.words import DIRECTIVE, blank, macros_of, without_comments, words_of

# a file is parsed at most this many times; the error about one unknown name may hide the error about another name
ROUNDS = 4
MOST_NAMES = 100  # declarations are made for about this many unknown names
_UNKNOWN = re.compile(
    r"unknown type name '|no template named '|use of undeclared identifier '|no type named '|unknown class name '"
    r"|no member named '|incomplete type '.*' named in nested|is not a class, namespace|expected class name"
)
_HEADERS = {
    **dict.fromkeys(("half", "half2", "__half", "__half2", "nv_half"), "cuda_fp16.h"),
    **dict.fromkeys(("__nv_bfloat16", "__nv_bfloat162", "nv_bfloat16", "nv_bfloat162"), "cuda_bf16.h"),
    **dict.fromkeys(("__nv_fp8_e4m3", "__nv_fp8_e5m2"), "cuda_fp8.h"),
    **dict.fromkeys(("cuComplex", "cuFloatComplex", "cuDoubleComplex"), "cuComplex.h"),
    **dict.fromkeys(("cufftReal", "cufftDoubleReal", "cufftComplex", "cufftDoubleComplex"), "cufft.h"),
    **dict.fromkeys(("std::array", "std::pair"), "array"),
    "CUtensorMap": "cuda.h",
}
_OF_TRAITS = re.compile(
    r"std::(?:enable_if|conditional|is_same|remove_|integral_constant|is_integral|is_floating|type_identity)"
)
_KEYWORDS = frozenset(
    """alignas auto bool char class const constexpr consteval decltype double enum explicit extern float inline int long
    noexcept register requires restrict short signed static struct template typename union unsigned void volatile
    __attribute__ __global__ __device__ __host__ __launch_bounds__ __restrict__ __restrict __forceinline__ __noinline__
    __cluster_dims__ __block_size__ __maxnreg__ __align__ __declspec __pragma _Pragma __inline__ __extension__
    __grid_constant__""".split()  # noqa: SIM905
)


@dataclass
class _Type:
    """An unknown type; values: for a template, one bool per parameter, true for a value; inner: nested types."""

    values: list[bool] | None = None
    inner: dict[str, _Type] = field(default_factory=dict)
    scope: bool = False  # whether the name is a namespace instead of a type


@dataclass
class MissingNames:
    """The names that a file uses but does not declare. `headers`: CUDA's headers that declare some of them."""

    types: dict[str, _Type] = field(default_factory=dict)
    macros: dict[str, str] = field(default_factory=dict)
    headers: set[str] = field(default_factory=set)
    count: int = 0

    def text(self) -> str:
        """Return the stand-in declarations as C++ text."""
        lines = [f"#include <{name}>" for name in sorted(self.headers)]
        lines += [f"#define {name} {value}" for name, value in self.macros.items()]
        lines += _declared(self.types)
        return "\n".join(lines) + "\n"

    def add_missing(self, found: Declarations, name: str, text: str) -> bool:
        """Add the missing names that a file's errors show; return whether new names were added.

        `name`: the file's name in the errors; `text`: the file's text.
        """
        places = [(fault.offset, fault.message) for fault in found.faults if fault.file == name]
        places = [(at, message) for at, message in places if not any(start <= at < end for start, end in found.bodies)]
        if not places:
            return False
        before, plain = self.text(), without_comments(text.encode(errors="surrogateescape").decode("latin-1"))
        self._add_macros(plain, {at for at, _ in places})
        for at, message in places:
            self._add_type(plain, at, message)
        return self.text() != before and self.count < MOST_NAMES

    # Macros ----------------------------------------------------------------------------------------------------------

    def _add_macros(self, text: str, places: set[int]) -> None:
        """Add unknown words in the declarations of kernels with errors as macros, usually empty ones."""
        known = {name for name, _, _ in macros_of(text)}
        for start, head in _kernel_declarations(text):
            end = start + len(head) + 1
            for word, called in _macro_like_words(head) if any(start <= place <= end for place in places) else ():
                if word not in known:
                    value = "__restrict" if "restrict" in word.lower() else ""
                    self.macros.setdefault(f"{word}(...)" if called else word, value)
                    self.count += 1

    # Types -----------------------------------------------------------------------------------------------------------

    def _add_type(self, text: str, at: int, message: str) -> None:
        if not _UNKNOWN.search(message):
            return
        chain, template, end = _qualified_name(text, at)
        if not chain or chain[-1] in self.macros or set(chain) & _KEYWORDS or _is_declared(chain[0], text):
            return
        name = "::".join(chain)
        if header := _HEADERS.get(name) or ("type_traits" if _OF_TRAITS.match(name) else ""):
            self.headers.add(header)
            return
        given = re.search(r"[<,]\s*\Z", text[: end[0]]) and re.match(r"\s*[,>]", text[end[1] :])
        if len(chain) == 1 and not template and "undeclared identifier" in message and not given:
            return  # the unknown name is a value, not a type
        self.count += 1
        inside = self.types
        dependent = bool(re.search(r"\btypename\s*(?:::)?\s*\Z", text[: end[0]]))
        for scope in chain[:-1]:
            inside = inside.setdefault(scope, _Type(scope=not dependent)).inner
        unknown = inside.setdefault(chain[-1], _Type())
        if template and not unknown.scope:
            parts = listed(text[end[1] + 1 : closing(text, end[1], angles=True)], angles=True)
            unknown.values = unknown.values or []
            unknown.values += [_is_value(part, text) for part in parts[len(unknown.values) :]]


def _is_value(part: str, text: str) -> bool:
    """Return whether a template argument is a value: a literal, or a name that the text declares as a number."""
    number = r"\b(?:int|unsigned|bool|long|auto|\w+_t)\s+{0}\b|#\s*define\s+{0}\s+[\d(]".format(re.escape(part))
    return bool(re.match(r"[\d'-]|(?:true|false|sizeof)\b", part) or re.search(number, text))


def _is_declared(name: str, text: str) -> bool:
    """Return whether the text declares this name; then the error is about another name."""
    own = rf"\b(?:using|struct|class|union|enum|namespace)\s+(?:\w+\s*\([^()]*\)\s*)?{name}\b"
    return re.search(rf"{own}|\btypedef\b[^;]*\b{name}\s*;", text) is not None


def _declared(types: dict[str, _Type]) -> Iterator[str]:
    for name, unknown in types.items():
        inner = " ".join(_declared(unknown.inner))
        kinds = ", ".join("auto = 0" if value else "class = void" for value in unknown.values or ())
        if unknown.scope:
            yield f"namespace {name} {{ {inner} }}"
        elif unknown.values is not None:
            yield f"template <{kinds}> struct {name};"
        else:
            yield f"struct {name} {{ {inner} }};" if inner else f"struct {name};"


def _qualified_name(text: str, at: int) -> tuple[list[str], bool, tuple[int, int]]:
    """Return (parts of the qualified name at a position, whether '<' follows the name, its (start, end))."""
    before = re.search(r"(?:[^\W\d]\w*\s*::\s*)*\w*\Z", text[max(at - 300, 0) : at])
    start = at - len(before[0]) if before else at
    match = re.compile(r"([^\W\d]\w*(?:\s*::\s*[^\W\d]\w*)*)(\s*<(?![<=]))?").match(text, start)
    if match is None:
        return [], False, (at, at)
    end = match.end() - 1 if match[2] else match.end()
    return re.split(r"\s*::\s*", match[1]), match[2] is not None, (start, end)


def _kernel_declarations(text: str) -> Iterator[tuple[int, str]]:
    """For each kernel in a text, yield the position of its declaration, and the declaration up to its body."""
    for part in re.finditer(r"[^;{}\s][^;{}]*", DIRECTIVE.sub(lambda directive: blank(directive[0]), text)):
        if re.search(r"\b__global__\b", part[0]):
            yield part.start(), part[0]


def _macro_like_words(head: str) -> Iterator[tuple[str, bool]]:
    """Yield each word of a kernel's declaration that is probably a macro, and whether '(' or '<' follows it.

    Such a word is not the kernel's name, not in a parameter's type or name, and not a C++ keyword.
    """
    words = words_of(head)
    # for each word outside of brackets: (index of the word, whether a bracket follows)
    outside: list[tuple[int, bool]] = []
    depth = angles = 0
    for at, word in enumerate(words):
        angles += (word == "<") - (word == ">") if depth == 0 else 0
        if depth == 0 and angles == 0 and re.match(r"[^\W\d]", word) and word not in _KEYWORDS:
            outside.append((at, words[at + 1 : at + 2] in (["("], ["<"])))
        depth += (word in "([") - (word in ")]")
    called = [at for at, follows in outside if follows]
    name = ([at for at in called if not re.fullmatch(r"[A-Z_][A-Z0-9_]*", words[at])] or called or [-1])[-1]
    for at, follows in outside:
        if at != name and "::" not in (*words[max(at - 1, 0) : at], *words[at + 1 : at + 2]):
            yield words[at], follows
    opening = words.index("(", name) if "(" in words[name:] else len(words)
    for at in range(opening + 1, len(words)):
        starred = words[at - 1] == "*" and re.match(r"[^\W\d]", "".join(words[at + 1 : at + 2]))
        named = re.match(r"[^\W\d]", words[at]) and words[at] not in _KEYWORDS
        if named and (starred or is_restrict(at - opening, words[opening:])):
            yield words[at], False
