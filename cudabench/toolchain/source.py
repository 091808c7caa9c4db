"""CUDA source text into records: the kernels of a file, their signatures and the comments above them.

This is a reader, not a compiler. It sees the text before the preprocessor does, so a kernel that a macro writes is
invisible to it; everything that the compiler would have to judge (types, overload resolution) is left to the compiler.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from pathlib import Path

from cudabench.errors import CudabenchError, UsageError, did_you_mean, no_such_file
from cudabench.toolchain import preprocess

MOST_BYTES = 16 << 20  # of a source file


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


@dataclass(frozen=True)
class KernelSource:
    """A `__global__` function with a body.

    `line` is where the name stands, 1-based; `start` and `end` are offsets into the file's text, from the first word of
    the definition (template, extern, ...) to behind the closing brace. `expression` is what the compiler is asked for:
    the qualified name, with template arguments once `instantiate` has put them in.
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


def read(path: str | Path) -> SourceFile:
    """Read and parse a file; CudabenchError where it is missing, a directory, unreadable or no text.

    What is not UTF-8 is taken as Latin-1, whose every byte is a character: such bytes stand in comments and strings.
    """
    path = Path(path)
    try:
        with path.open("rb") as stream:
            raw = stream.read(MOST_BYTES + 1)
    except FileNotFoundError:
        raise no_such_file(path, "*.cu") from None
    except IsADirectoryError:
        raise CudabenchError(f"{path} is a directory: name a .cu file in it.") from None
    except OSError as error:
        raise CudabenchError(f"{path} cannot be read: {error.strerror or error}.") from None
    if len(raw) > MOST_BYTES:
        raise CudabenchError(f"{path} has over {MOST_BYTES >> 20} MiB: that is no source file.")
    try:
        text = raw.decode("utf-8-sig")
    except UnicodeDecodeError:
        text = raw.decode("latin-1")
    if "\0" in text:
        raise CudabenchError(f"{path} is not a source file: it holds NUL bytes.")
    return parse(text, path)


def parse(text: str, path: str | Path) -> SourceFile:
    """Parse the text of a `.cu` file; `path` is only recorded. Text that is no CUDA at all has no kernels."""
    return _Reader(text.replace("\r\n", "\n"), str(path)).read()


def preprocessed(source: SourceFile, defines: Mapping[str, str], folders: Sequence[str | Path] = ()) -> SourceFile:
    """Return a file as the compiler reads it: with the kernels and types that macros, conditions and headers bring.

    `defines` are macros of the command line; the user's own headers are found beside the file and in `folders`. Its
    text is the preprocessor's. Where that leaves no kernel, or its work has no bounds, the file's own reading stands.
    """
    text = preprocess.expand(source.text, source.path, defines, folders)
    found = parse(text, source.path) if text is not None else source
    if not found.kernels:
        return source
    written = {kernel.qualified_name: kernel for kernel in source.kernels}
    kernels = tuple(
        replace(kernel, comment=own.comment, line=own.line) if (own := written.get(kernel.qualified_name)) else kernel
        for kernel in found.kernels
    )
    return replace(found, kernels=kernels, aliases={**source.aliases, **found.aliases})


def resolved(kernel: KernelSource, aliases: Mapping[str, str]) -> KernelSource:
    """Return a kernel whose parameters are pointers where their type is another name of one, a typedef or a trait."""
    return replace(kernel, parameters=tuple(_resolved(parameter, aliases) for parameter in kernel.parameters))


def _resolved(parameter: Parameter, aliases: Mapping[str, str]) -> Parameter:
    words, const = _words(parameter.type), parameter.const
    for _ in range(8):
        bare = [word for word in words if word not in ("const", "volatile", "struct", "typename")]
        key = _spell(bare)
        meant = aliases.get(key) or aliases.get(bare[-1] if "::" in bare and len(bare) > 2 else key)
        if meant is None or meant == key or "(" in meant or "[" in meant:
            break
        words = _words(meant)
        const = const or ("const" in words and words[-1:] == ["*"])
    if parameter.pointer and (words[-1:] == ["*"] or "::" in parameter.type):
        return replace(parameter, type=_spell(word for word in words if word != "const"))
    if "::" in parameter.type and words[-1:] != ["*"]:
        return replace(parameter, type=_spell(word for word in words if word not in ("const", "typename")))
    if not parameter.pointer and words[-1:] == ["*"]:
        pointee = _spell(word for word in words[:-1] if word != "const")
        return replace(parameter, type=pointee, pointer=True, const=const)
    return parameter


def without_kernels(text: str, keep: Collection[str]) -> str:
    """Return a file's text with nothing in place of the kernels that are not called so; all else keeps its line."""
    for kernel in reversed(parse(text, "").kernels):
        if kernel.name not in keep:
            gone = text[kernel.start : kernel.end]
            text = text[: kernel.start] + "\n" * gone.count("\n") + text[kernel.end :]
    return text


@dataclass(frozen=True)
class Declaration:
    """One declaration at namespace scope or of a class: its span and what its words are.

    `head` are the words before a body, or all where there is none; `words` are all. Where a word is a macro, the words
    that it stands for are among them. `members` are a class' own declarations.
    """

    start: int
    end: int
    head: frozenset[str]
    words: frozenset[str]
    function: bool
    members: tuple[Declaration, ...] = ()


def declarations(text: str, macros: Mapping[str, frozenset[str]] | None = None) -> tuple[Declaration, ...]:
    """Return all declarations at namespace scope, kernels or not, in order.

    `macros` are those of other files, by name with their words; the text's own come on top.
    """
    reader = _Reader(text, "")
    return reader.declarations({**(macros or {}), **reader.macros()})


def macros_of(text: str) -> dict[str, frozenset[str]]:
    """Return the macros that a text defines, each with the words of all its definitions."""
    return _Reader(text, "").macros()


def blanked(text: str, spans: Iterable[tuple[int, int]]) -> str:
    """Return a text with spaces in place of spans; line ends stay, and so do directives that hold for the rest."""
    spans = list(spans)
    kept = [
        (directive.start, directive.end)
        for directive in (_Reader(text, "").directives if spans else ())
        if directive.word in _LASTING
    ]
    for start, end in spans:
        inside = [(one, two) for one, two in kept if start <= one < end]
        edges = [start, *(edge for span in inside for edge in span), end]
        for one, two in zip(edges[::2], edges[1::2], strict=True):
            text = text[:one] + re.sub(r"[^\n]", " ", text[one:two]) + text[two:]
    return text


def find(source: SourceFile, name: str | None = None) -> KernelSource:
    """Return the kernel of this name, or the file's only one where the name is None.

    A name may be qualified ('ns::f'), may carry template arguments ('f<float, 32>', then the parameters' types have
    them put in) or the parameters' types ('f(float*, int)', to choose between overloads). UsageError where it is not in
    the file, is ambiguous, or is a template without arguments.
    """
    if not source.kernels:
        raise UsageError(f"{source.path} has no __global__ function with a body: give a file that defines a kernel.")
    listed = ", ".join(dict.fromkeys(kernel.qualified_name for kernel in source.kernels))
    if name is None:
        if len(source.kernels) > 1:
            raise UsageError(f"{source.path} has {len(source.kernels)} kernels: choose one with --kernel: {listed}.")
        return _instance(source.kernels[0], "")

    plain, arguments, types = _split_expression(name)
    matches = [kernel for kernel in source.kernels if kernel.qualified_name == plain]
    if not matches:
        matches = [kernel for kernel in source.kernels if ("::" + kernel.qualified_name).endswith("::" + plain)]
    if not matches:
        known = [word for kernel in source.kernels for word in (kernel.name, kernel.qualified_name)]
        hint = did_you_mean(plain, known)
        raise UsageError(f"{source.path} has no kernel '{name}', it has: {listed}.{hint}")
    if arguments:
        matches = [kernel for kernel in matches if kernel.template_parameters] or matches
    if types is not None:
        wanted = tuple(_canonical(part) for part in types)
        takers = [kernel for kernel in matches if bool(arguments) == bool(kernel.template_parameters)]
        fitting = [kernel for kernel in takers if _types(_instance(kernel, arguments).parameters) == wanted]
        if not fitting:
            known_signatures = "; ".join(kernel.signature for kernel in matches)
            raise UsageError(f"{source.path} has no kernel '{name}', it has: {known_signatures}.")
        matches = fitting
    if len(matches) > 1:
        qualified = {kernel.qualified_name for kernel in matches}
        if len(qualified) > 1:
            raise UsageError(f"'{name}' is ambiguous in {source.path}: write one of {', '.join(sorted(qualified))}.")
        choices = ", ".join(f"'{plain}{_list(kernel.parameters)}'" for kernel in matches)
        raise UsageError(f"'{name}' is overloaded in {source.path}: write one of {choices}.")
    return _instance(matches[0], arguments)


def first_sentence(comment: str) -> str:
    """Return the first sentence of a cleaned comment on one line, '' for none.

    A full stop ends a sentence where the text ends or the next word does not begin in lower case ('e.g. this' goes on).
    """
    paragraph = " ".join(comment.strip().split("\n\n")[0].split())
    end = re.search(r"(?<!\be\.g)(?<!\bi\.e)(?<!\bcf)[.!?](?=\s+[^a-z\s]|\s*$)", paragraph)
    return paragraph[: end.end()] if end else paragraph


# ------------------------------------------------------------------------------------------------------------- types

_DTYPES = {
    "float": "float32",
    "double": "float64",
    "bool": "bool",
    "half": "float16",
    "__half": "float16",
    "char": "int8",
    "signed char": "int8",
    "unsigned char": "uint8",
    "short": "int16",
    "unsigned short": "uint16",
    "int": "int32",
    "unsigned": "uint32",
    # CUDA on 64-bit Linux: long has 8 bytes (on Windows 4).
    "long": "int64",
    "unsigned long": "uint64",
    "long long": "int64",
    "unsigned long long": "uint64",
    "size_t": "uint64",
    "ptrdiff_t": "int64",
    "ssize_t": "int64",
    "intptr_t": "int64",
    "uintptr_t": "uint64",
    "clock_t": "int64",
    "uchar": "uint8",
    "ushort": "uint16",
    "uint": "uint32",
    "ulong": "uint64",
    "cuComplex": "complex64",
    "cuFloatComplex": "complex64",
    "cuDoubleComplex": "complex128",
    **{f"{u}int{bits}_t": f"{u}int{bits}" for u in ("", "u") for bits in (8, 16, 32, 64)},
}
_SPECIFIERS = frozenset(
    ["signed", "unsigned", "char", "short", "int", "long", "float", "double", "bool", "void", "auto", "__int128"]
)
_VECTOR_BASES = {
    **{base: base for base in ("char", "short", "int", "long", "float", "double")},
    **{"u" + base: "unsigned " + base for base in ("char", "short", "long")},
    "uint": "unsigned",
    "longlong": "long long",
    "ulonglong": "unsigned long long",
    "half": "half",
    "__half": "half",
}


def numpy_dtype(ctype: str, aliases: Mapping[str, str] | None = None) -> str | None:
    """Return the NumPy name of a C type ('unsigned char' -> 'uint8'), None where NumPy has none.

    `aliases` are the names that a file (`SourceFile.aliases`) or the command line defines; they win over the built-in.
    """
    words = _canonical(ctype, aliases)
    return _DTYPES.get(words)


def vector_type(ctype: str, aliases: Mapping[str, str] | None = None) -> tuple[str, int] | None:
    """Return the element's NumPy name and the number of elements of a CUDA vector type ('float4' -> 'float32', 4)."""
    match = re.fullmatch(r"(\w*[a-z])([1-4])", _canonical(ctype, aliases))
    if match and match[1] in _VECTOR_BASES:
        return _DTYPES[_VECTOR_BASES[match[1]]], int(match[2])
    return None


def _canonical(ctype: str, aliases: Mapping[str, str] | None = None) -> str:
    """One spelling for each type: no const, 'long unsigned int' -> 'unsigned long', aliases followed, no spaces."""
    for _ in range(8):  # an alias of an alias; the bound ends a circle
        words = [word for word in _words(ctype) if word not in ("const", "volatile", "struct", "typename")]
        if words[:2] == ["std", "::"] and len(words) == 3:
            words = words[2:]
        if words[:1] == ["::"]:
            words = words[1:]
        if aliases and len(words) == 1 and words[0] in aliases and aliases[words[0]] != ctype:
            ctype = aliases[words[0]]
            continue
        break
    stars = [word for word in words if word == "*"]
    base = [word for word in words if word != "*"]
    if base and set(base) <= _SPECIFIERS:
        count = Counter(base)
        kind = next((word for word in base if word in ("char", "short", "float", "double", "bool", "void", "auto")), "")
        kind = " ".join(["long"] * count["long"] + [kind] * bool(kind)) or "int"
        sign = "unsigned" if count["unsigned"] else "signed" if count["signed"] and kind == "char" else ""
        kind = "" if sign and kind == "int" else kind
        return f"{sign} {kind}".strip() + "*" * len(stars)
    return _spell(words)


def _list(parameters: Iterable[Parameter]) -> str:
    return f"({', '.join(parameter.ctype for parameter in parameters)})"


def _types(parameters: Iterable[Parameter]) -> tuple[str, ...]:
    return tuple(_canonical(parameter.ctype) for parameter in parameters)


# ---------------------------------------------------------------------------------------------------- template names


def _split_expression(name: str) -> tuple[str, str, tuple[str, ...] | None]:
    """'ns::f<float, 32>(float*)' -> 'ns::f', 'float, 32', ('float*',)."""
    match = re.fullmatch(r"\s*(?:::)?\s*([\w\s:]*?)\s*(<.*>)?\s*(\(.*\))?\s*", name, re.S)
    if match is None:
        return name.strip(), "", None
    plain = re.sub(r"\s+", "", match[1])
    types = None
    if match[3] is not None:
        types = tuple(_spell(part) for part in _split(_words(match[3][1:-1]), ",") if part)
    return plain, match[2] or "", types


def _instance(kernel: KernelSource, arguments: str) -> KernelSource:
    """Put template arguments ('<float, 32>', or '' for none) in the place of the parameters."""
    cast = _list(kernel.parameters) if kernel.overloaded else ""
    if not kernel.template_parameters:
        if arguments:
            raise UsageError(f"'{kernel.qualified_name}{arguments}': {kernel.qualified_name} is not a template.")
        return replace(kernel, expression=kernel.qualified_name + cast)
    example = ", ".join(
        parameter.default or ("float" if parameter.type in ("typename", "class") else "32")
        for parameter in kernel.template_parameters
    )
    if not arguments:
        raise UsageError(
            f"{kernel.signature} is a template: name an instantiation, such as '{kernel.qualified_name}<{example}>'."
        )
    given = [_spell(part) for part in _split(_words(arguments[1:-1]), ",") if part]
    variadic = any(parameter.type.endswith("...") for parameter in kernel.template_parameters)
    if len(given) > len(kernel.template_parameters) and not variadic:
        raise UsageError(
            f"'{kernel.qualified_name}{arguments}' has {len(given)} template arguments, "
            f"{kernel.signature} takes {len(kernel.template_parameters)}: write '{kernel.qualified_name}<{example}>'."
        )
    values: dict[str, str] = {}
    for index, parameter in enumerate(kernel.template_parameters):
        value = given[index] if index < len(given) else _substitute(parameter.default, values)
        if value and parameter.name and not parameter.type.endswith("..."):
            values[parameter.name] = value
    parameters = []
    for formal in kernel.parameters:
        words = _words(_substitute(formal.type, values))
        pointer, const = formal.pointer, formal.const
        if not pointer and words[-1:] == ["*"]:  # f<float*>(T x)
            words, pointer, const = words[:-1], True, "const" in words
        parameters.append(
            replace(formal, type=_spell([w for w in words if w != "const"]), pointer=pointer, const=const)
        )
    cast = _list(parameters) if kernel.overloaded else ""
    expression = f"{kernel.qualified_name}<{', '.join(given)}>{cast}"
    return replace(kernel, parameters=tuple(parameters), expression=expression)


def _substitute(text: str, values: Mapping[str, str]) -> str:
    return re.sub(r"(?<![\w:])[^\W\d]\w*", lambda match: values.get(match[0], match[0]), text)


# ------------------------------------------------------------------------------------------------------------ reading

_LEXEME = re.compile(
    r"""
      (?P<directive> ^[ \t]*\#(?: \\\n | "(?:\\.|[^"\\\n])*" | /\*.*?\*/ | [^\n] )* )
    | (?P<comment>   //(?:\\\n|[^\n])* | /\*.*?(?:\*/|\Z) )
    | (?P<string>    (?:u8|[uUL])?R"(?P<fence>[^()\\\s]{0,16})\(.*?\)(?P=fence)" | "(?:\\.|[^"\\\n])*"? )
    | (?P<number>    \.?\d(?:[eEpP][+-]|'?\w|\.)* )
    | (?P<character> '(?:\\.|[^'\\\n])*'? )
    | (?P<word>      [^\W\d]\w* )
    | (?P<mark>      ::|\S )
    """,
    re.X | re.S | re.M,
)
_ATTRIBUTES = frozenset(
    """__launch_bounds__ __cluster_dims__ __block_size__ __maxnreg__ __attribute__ __declspec
    alignas noexcept decltype requires _Pragma __pragma""".split()  # noqa: SIM905
)
# Directives that matter behind the declaration that they stand in.
_LASTING = ("if", "ifdef", "ifndef", "elif", "elifdef", "elifndef", "else", "endif", "define", "undef", "include")
_NO_FUNCTION = frozenset(["struct", "class", "union", "enum", "typedef", "using", "static_assert"])
_DEPTH = 8  # of classes in classes
_BRACKETS = {"(": ")", "[": "]", "{": "}"}


@dataclass(frozen=True)
class _Token:
    text: str
    start: int
    end: int
    kind: str


@dataclass(frozen=True)
class _Directive:
    word: str
    rest: str
    start: int
    end: int


class _Reader:
    """One pass over the text: lexemes, then what the preprocessor hides for sure, then declarations."""

    def __init__(self, text: str, path: str) -> None:
        self.text = text
        self.path = path
        self.line_starts = [0, *(match.end() for match in re.finditer("\n", text))]
        self.comments: list[_Token] = []
        self.directives: list[_Directive] = []
        self.tokens: list[_Token] = []
        for match in _LEXEME.finditer(text):
            kind = str(match.lastgroup)
            if match["directive"] is not None:
                parts = re.match(r"\s*#\s*(\w*)(.*)", match[0], re.S)
                assert parts is not None
                rest = re.sub(r"/\*.*?\*/|//.*|\\\n", " ", parts[2], flags=re.S).strip()
                self.directives.append(_Directive(parts[1], rest, match.start(), match.end()))
            elif match["comment"] is not None:
                self.comments.append(_Token(match[0], match.start(), match.end(), "comment"))
            else:
                kind = "string" if match["string"] is not None else kind
                self.tokens.append(_Token(match[0], match.start(), match.end(), kind))

    def read(self) -> SourceFile:
        hidden = self._hidden()
        self.tokens = _outside(self.tokens, hidden)
        kernels, aliases = self._declarations()
        for directive in self.directives:
            define = re.fullmatch(r"(\w+)\s+([^\W\d][\w:\s*]*)", directive.rest)
            inside = any(start <= directive.start < end for start, end in hidden)
            if directive.word == "define" and define and not inside:
                aliases.setdefault(define[1], define[2])
        return SourceFile(self.path, self.text, self._opening(kernels), kernels, aliases)

    def macros(self) -> dict[str, frozenset[str]]:
        found: dict[str, set[str]] = {}
        for directive in self.directives:
            define = re.match(r"(\w+)(?:\([^)]*\))?\s+(.*)", directive.rest, re.S)
            if directive.word == "define" and define:
                found.setdefault(define[1], set()).update(_words(define[2]))
        return {name: frozenset(words) for name, words in found.items()}

    def declarations(self, macros: Mapping[str, frozenset[str]]) -> tuple[Declaration, ...]:
        self.tokens = _outside(self.tokens, self._hidden())
        return self._declared(0, len(self.tokens), macros, depth=0)

    def _declared(
        self, position: int, stop: int, macros: Mapping[str, frozenset[str]], depth: int
    ) -> tuple[Declaration, ...]:
        """The declarations between two tokens; those of namespaces and `extern "C"` are among them."""
        found = []
        while position < stop:
            if self._is_label(position):
                position += 2
                continue
            macro_end = self._definition_by_macro(position, macros)
            if macro_end is not None:
                head, last = self.tokens[position : macro_end + 1], macro_end
                found.append(self._declaration(head, head, macros, function=True))
                position = last + 1
                continue
            head, closing = self._head(position)
            closing = min(closing, stop)
            words = [token.text for token in head]
            closer = self.tokens[closing].text if closing < stop else ";"
            first = _template_head(words)[1]
            function = "(" in words and "=" not in words[first : words.index("(")]
            function = function and not set(words[first : first + 1]) & _NO_FUNCTION
            if closer == "}" or (closer == "{" and _opens_scope(words)):
                position = closing + 1
                continue
            end = body_end = self._matching(closing) if closer == "{" else closing
            if closer == "{" and not function:  # a class or an initialiser goes on to its semicolon
                end = self._head(end + 1)[1]
            end = min(end, stop - 1)
            members: tuple[Declaration, ...] = ()
            a_class = closer == "{" and not function and bool(set(words) & {"struct", "class", "union"})
            if a_class and depth < _DEPTH:
                members = self._declared(closing + 1, min(body_end, stop), macros, depth + 1)
            if head:
                whole = self.tokens[position : end + 1]
                found.append(self._declaration(head, whole, macros, function=function, members=members))
            position = end + 1
        return tuple(found)

    def _declaration(
        self,
        head: Sequence[_Token],
        whole: Sequence[_Token],
        macros: Mapping[str, frozenset[str]],
        *,
        function: bool,
        members: tuple[Declaration, ...] = (),
    ) -> Declaration:
        first, every = (_meant((token.text for token in tokens), macros) for tokens in (head, whole))
        return Declaration(head[0].start, whole[-1].end, first, every, function, members)

    def _is_label(self, position: int) -> bool:
        """Whether `public:` or the like stands here."""
        words = [token.text for token in self.tokens[position : position + 2]]
        return words[1:] == [":"] and words[0] in ("public", "protected", "private")

    def _definition_by_macro(self, position: int, macros: Mapping[str, frozenset[str]]) -> int | None:
        """The closing bracket of `MACRO(...)` where the macro writes bodies and so needs no semicolon, else None."""
        words = [token.text for token in self.tokens[position : position + 2]]
        if words[1:] != ["("] or "{" not in macros.get(words[0], ()):
            return None
        depth = 0
        for index in range(position + 1, len(self.tokens)):
            depth += {"(": 1, ")": -1}.get(self.tokens[index].text, 0)
            if depth == 0:
                behind = self.tokens[index + 1].text if index + 1 < len(self.tokens) else ";"
                return None if behind in "{;" else index
        return None

    def _hidden(self) -> list[tuple[int, int]]:
        """The spans that no compiler sees, or that would break the balance of braces.

        Hidden are the branch of `#if 0`, the rest behind `#if 1`, and, where the branches of one `#if` open or close
        different numbers of braces (two heads for one body), all but the first.
        """
        spans: list[tuple[int, int]] = []
        stack: list[list[_Directive]] = []
        for directive in self.directives:
            if directive.word in ("if", "ifdef", "ifndef"):
                stack.append([directive])
            elif directive.word in ("else", "elif", "elifdef", "elifndef") and stack:
                stack[-1].append(directive)
            elif directive.word == "endif" and stack:
                group = [*stack.pop(), directive]
                branches = [(one.end, two.start) for one, two in pairwise(group)]
                condition = group[0].rest.strip("() \t") if group[0].word == "if" else ""
                if condition in ("0", "false"):
                    spans.append(branches[0])
                elif condition in ("1", "true") or (len(branches) > 1 and any(map(self._unbalanced, branches))):
                    spans += branches[1:]
        return spans

    def _unbalanced(self, span: tuple[int, int]) -> bool:
        braces = Counter(token.text for token in self.tokens if span[0] <= token.start < span[1])
        return braces["{"] != braces["}"]

    def _declarations(self) -> tuple[tuple[KernelSource, ...], dict[str, str]]:
        kernels: list[KernelSource] = []
        specialised: list[KernelSource] = []
        announced: dict[tuple[str, tuple[str, ...]], str] = {}  # comments of forward declarations
        aliases: dict[str, str] = {}
        scopes: list[tuple[str, bool]] = []  # namespace or '', within extern "C"
        tokens, position = self.tokens, 0
        while position < len(tokens):
            head, stop = self._head(position)
            closer = tokens[stop].text if stop < len(tokens) else ";"
            words = [token.text for token in head]
            if closer == "}":
                if scopes:
                    scopes.pop()
                position = stop + 1
                continue
            if closer == "{" and _opens_scope(words):
                names = "".join(words[words.index("namespace") + 1 :]) if "namespace" in words else ""
                names = re.sub(r"\[\[.*?\]\]|inline(?=::|$)", "", names)
                scopes.append((names, words[0] == "extern" or bool(scopes and scopes[-1][1])))
                position = stop + 1
                continue
            end = self._matching(stop) if closer == "{" else stop
            if closer == "{" and set(words) & {"struct", "class"} and "(" not in words:
                self._member_types(words, stop + 1, end, aliases)
            position = end + 1
            if "__global__" in words:
                kernel = self._kernel(head, stop, end, scopes)
                if kernel is None:
                    continue
                key = (kernel.qualified_name, _types(kernel.parameters))
                if closer != "{":
                    if kernel.comment:
                        announced.setdefault(key, kernel.comment)
                elif words[:3] == ["template", "<", ">"]:
                    specialised.append(kernel)
                elif key not in {(one.qualified_name, _types(one.parameters)) for one in kernels}:
                    kernels.append(replace(kernel, comment=kernel.comment or announced.get(key, "")))
            elif words[:1] == ["typedef"] and len(words) > 2 and closer == ";":
                aliases.setdefault(words[-1], _spell(words[1:-1]))
            elif words[:1] == ["using"] and words[2:3] == ["="]:
                aliases.setdefault(words[1], _spell(words[3:]))
        # A specialisation is reached through its primary template; alone in the file it stands for itself.
        known = {kernel.qualified_name for kernel in kernels}
        kernels += [kernel for kernel in specialised if kernel.qualified_name not in known]
        counts = Counter(kernel.qualified_name for kernel in kernels)
        marked = (replace(kernel, overloaded=counts[kernel.qualified_name] > 1) for kernel in kernels)
        return tuple(sorted(marked, key=lambda kernel: kernel.start)), aliases

    def _member_types(self, words: Sequence[str], position: int, end: int, aliases: dict[str, str]) -> None:
        """Enter the type names of a class that is no template, or of a specialisation, as 'Class::Type'."""
        if words[:1] == ["template"] and words[:3] != ["template", "<", ">"]:
            return
        key = next(at for at, word in enumerate(words) if word in ("struct", "class"))
        name = _spell(list(words[key + 1 : words.index(":", key) if ":" in words else None]))
        while position < end:
            if self._is_label(position):
                position += 2
                continue
            head, stop = self._head(position)
            inner = [token.text for token in head]
            if inner[:1] == ["typedef"] and len(inner) > 2:
                aliases.setdefault(f"{name}::{inner[-1]}", _spell(inner[1:-1]))
            elif inner[:1] == ["using"] and inner[2:3] == ["="]:
                aliases.setdefault(f"{name}::{inner[1]}", _spell(inner[3:]))
            position = (self._matching(stop) if stop < end and self.tokens[stop].text == "{" else stop) + 1

    def _head(self, position: int) -> tuple[list[_Token], int]:
        """The tokens of a declaration up to its ';', '{' or a scope's '}', and that one's index."""
        depth = 0
        for index in range(position, len(self.tokens)):
            text = self.tokens[index].text
            if text in "([":
                depth += 1
            elif text in ")]":
                depth = max(depth - 1, 0)
            elif depth == 0 and text in ("{", "}", ";"):
                return self.tokens[position:index], index
        return self.tokens[position:], len(self.tokens)

    def _matching(self, position: int) -> int:
        """The index of the brace that closes the one at `position`, or the last token where the file ends before."""
        depth = 0
        for index in range(position, len(self.tokens)):
            depth += {"{": 1, "}": -1}.get(self.tokens[index].text, 0)
            if depth == 0:
                return index
        return len(self.tokens) - 1

    def _kernel(
        self, head: list[_Token], stop: int, end: int, scopes: Sequence[tuple[str, bool]]
    ) -> KernelSource | None:
        words = [token.text for token in head]
        templates, first = _template_head(words)
        place = _name_and_list(head, first)
        if place is None:
            return None
        name_at, opening, closing = place
        prefix = ""
        while name_at - 2 >= 0 and head[name_at - 1].text == "::" and head[name_at - 2].kind == "word":
            name_at -= 2
            prefix += head[name_at].text + "::"
        name_token = head[place[0]]
        inner = [token.text for token in head[opening + 1 : closing]]
        parameters = tuple(_parameter(part) for part in _split(inner, ",") if part and part != ["void"])
        namespaces = [name for name, _ in scopes if name]
        qualified = "::".join([*namespaces, prefix + name_token.text])
        linkage = any(one.text == "extern" and two.text == '"C"' for one, two in pairwise(head))
        start = head[0].start
        finish = self.tokens[min(end, len(self.tokens) - 1)].end
        return KernelSource(
            name=name_token.text,
            qualified_name=qualified,
            parameters=parameters,
            comment=self._comment_above(start),
            line=bisect_right(self.line_starts, name_token.start),
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
        return _clean(block)

    def _only_space_before(self, position: int) -> bool:
        line = self.line_starts[bisect_right(self.line_starts, position) - 1]
        return not self.text[line:position].strip()

    def _opening(self, kernels: Sequence[KernelSource]) -> str:
        """The first block of comments, where no code and no kernel of its own follows on its heels."""
        if not self.comments or (self.tokens and self.tokens[0].start < self.comments[0].start):
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
        return "" if owned and gap.count("\n") < 2 else _clean([comment.text for comment in block])


def _outside(tokens: Iterable[_Token], spans: Sequence[tuple[int, int]]) -> list[_Token]:
    return [token for token in tokens if not any(start <= token.start < end for start, end in spans)]


def _meant(words: Iterable[str], macros: Mapping[str, frozenset[str]]) -> frozenset[str]:
    """Words and all that those stand for which are macros."""
    found: set[str] = set()
    waiting = list(words)
    while waiting:
        word = waiting.pop()
        if word not in found:
            found.add(word)
            waiting += macros.get(word, ())
    return frozenset(found)


def _opens_scope(words: Sequence[str]) -> bool:
    if list(words) == ["extern", '"C"'] or list(words) == ["extern", '"C++"']:
        return True
    return words[:1] == ["namespace"] or words[:2] == ["inline", "namespace"]


def _template_head(words: Sequence[str]) -> tuple[tuple[TemplateParameter, ...], int]:
    """The parameters of the leading template<...> and the index of what follows it."""
    if words[:2] != ["template", "<"]:
        return (), 0
    end = _closing_angle(words, 1)
    parameters = []
    for part in _split(words[2:end], ","):
        default = ""
        if "=" in part:
            cut = part.index("=")
            part, default = part[:cut], _spell(part[cut + 1 :])
        if not part:
            continue
        named = len(part) > 1 and re.fullmatch(r"[^\W\d]\w*", part[-1]) is not None and part[-1] not in _SPECIFIERS
        kind = part[:-1] if named else part
        kind = ["typename" if word == "class" else word for word in kind if word != "const"]
        dots = "..." if _spell(kind).endswith("...") else ""
        kind = [word for word in kind if word != "."]
        parameters.append(TemplateParameter(part[-1] if named else "", _spell(kind) + dots, default))
    return tuple(parameters), end + 1


def _name_and_list(head: Sequence[_Token], first: int) -> tuple[int, int, int] | None:
    """The index of the kernel's name and of the brackets around its parameters.

    Between `__global__` and the name, and behind the list, may stand attributes and macros with arguments. So all
    `word(...)` are collected; known attributes go, then words in capitals; the last that is left is the kernel.
    """
    groups: list[tuple[int, int, int]] = []
    index = first
    while index < len(head):
        text = head[index].text
        if text == "(":
            closing = _closing_bracket([token.text for token in head], index)
            before = index - 1
            if before >= 0 and head[before].text == ">":  # a specialisation: f<float>(...)
                before = _opening_angle([token.text for token in head], before) - 1
            if before >= first and head[before].kind == "word" and head[before].text not in _ATTRIBUTES:
                groups.append((before, index, closing))
            index = closing
        index += 1
    lower = [group for group in groups if not re.fullmatch(r"[A-Z_][A-Z0-9_]*", head[group[0]].text)]
    chosen = lower or groups
    return chosen[-1] if chosen else None


def _parameter(words: Sequence[str]) -> Parameter:
    words = list(words)
    if "=" in words:
        words = words[: words.index("=")]
    while words[:2] == ["[", "["]:  # [[maybe_unused]]
        words = words[words.index("]") + 2 :]
    words = [word for word in words if word not in ("__grid_constant__", "volatile", "register")]
    restrict = any("restrict" in word.lower() for word in words[1:])
    words = words[:1] + [word for word in words[1:] if "restrict" not in word.lower()]
    if "(" in words:  # a pointer to a function, or to an array
        star = words.index("*") if "*" in words else words.index("(")
        name = next((word for word in words[star:] if re.fullmatch(r"[^\W\d]\w*", word)), "")
        at = words.index(name, star) if name else -1
        rest = words[at + 1 :] if name else words[star + 1 :]
        if rest[:1] == [")"] and rest[1:2] == ["["]:
            base = [word for word in words[: words.index("(")] if word != "const"]
            return Parameter(name, _spell(base) + _spell(rest[1:]), True, "const" in words[:star], restrict)
        return Parameter(name, _spell(word for index, word in enumerate(words) if index != at))
    dimensions: list[str] = []
    if "[" in words:
        dimensions = words[words.index("[") :]
        words = words[: words.index("[")]
    name = ""
    if len(words) > 1 and re.fullmatch(r"[^\W\d]\w*", words[-1]) and words[-1] not in _SPECIFIERS | {"const"}:
        named = words[-2] not in ("::", "struct", "class", "union", "enum", "typename") and words[:-1] != ["const"]
        if named:
            name = words.pop()
    if "*" in words:
        # Behind the last star stand only its own qualifiers and macros; before it, the pointee.
        last = len(words) - 1 - words[::-1].index("*")
        pointee = words[:last]
        inner = pointee[len(pointee) - pointee[::-1].index("*") :] if "*" in pointee else pointee
        const = "const" in inner
        return Parameter(name, _spell(word for word in pointee if word != "const"), True, const, restrict)
    const = "const" in words
    base = [word for word in words if word != "const"]
    if dimensions:
        outer = _closing_bracket(dimensions, 0)
        return Parameter(name, _spell(base) + _spell(dimensions[outer + 1 :]), True, const, restrict)
    return Parameter(name, _spell(base))


# --------------------------------------------------------------------------------------------------------- small tools


def _words(text: str) -> list[str]:
    return [match[0] for match in _LEXEME.finditer(text) if match["comment"] is None]


def _spell(words: Iterable[str]) -> str:
    """Words in one spelling: a space between names and behind commas, none elsewhere."""
    text = ""
    for word in words:
        gap = text[-1:].isalnum() or text[-1:] in ("_", ">")
        if text and (text[-1] == "," or (gap and (word[0].isalnum() or word[0] in "_("))):
            text += " "
        text += word
    return text


def _split(words: Sequence[str], separator: str) -> list[list[str]]:
    """Split at separators outside all brackets, angle ones included; a shift opens none."""
    parts: list[list[str]] = [[]]
    depth = 0
    for index, word in enumerate(words):
        shift = word == "<" and "<" in (*words[max(index - 1, 0) : index], *words[index + 1 : index + 2])
        if word in ("(", "[", "{", "<") and not shift:
            depth += 1
        elif word in (")", "]", "}", ">") and depth > 0:
            depth -= 1
        if word == separator and depth == 0:
            parts.append([])
        else:
            parts[-1].append(word)
    return parts


def _closing_bracket(words: Sequence[str], position: int) -> int:
    opening, closing, depth = words[position], _BRACKETS[words[position]], 0
    for index in range(position, len(words)):
        depth += (words[index] == opening) - (words[index] == closing)
        if depth == 0:
            return index
    return len(words) - 1


def _closing_angle(words: Sequence[str], position: int) -> int:
    """The '>' that closes the '<' at `position`; comparisons of a default stand in brackets, as C++ demands."""
    depth, index = 0, position
    while index < len(words):
        if words[index] in _BRACKETS:
            index = _closing_bracket(words, index)
        depth += {"<": 1, ">": -1}.get(words[index], 0)
        if depth == 0:
            return index
        index += 1
    return len(words) - 1


def _opening_angle(words: Sequence[str], position: int) -> int:
    depth = 0
    for index in range(position, -1, -1):
        depth += {">": 1, "<": -1}.get(words[index], 0)
        if depth == 0:
            return index
    return 0


def _clean(comments: Iterable[str]) -> str:
    """The words of comments: no slashes, stars or ruled lines, paragraphs kept."""
    lines: list[str] = []
    for comment in comments:
        if comment.startswith("//"):
            lines += [re.sub(r"^\s*//+[!<]?\s?", "", line) for line in comment.split("\n")]
        else:
            first, *rest = re.sub(r"^/\*+!?|\*+/$", "", comment).split("\n")
            rest = [re.sub(r"^\s*\*+(?!\w)\s?", "", line) for line in rest]
            margin = min((len(line) - len(line.lstrip()) for line in rest if line.strip()), default=0)
            lines += [first.lstrip(), *(line[margin:] for line in rest)]
    lines = ["" if re.fullmatch(r"[-=*#~_/\s]+", line) else line.rstrip() for line in lines]
    return re.sub(r"\n{3,}", "\n\n", "\n".join(lines)).strip("\n")
