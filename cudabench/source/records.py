"""The content of a CUDA source: plain records, independent of the parser."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field

from cudabench.source.types import bytes_of, numpy_type, vector_type

VIRTUAL = "/cudabench-source/"  # folder of files that only the parser sees


@dataclass(frozen=True)
class Parameter:
    """One parameter of a kernel.

    `type` is the type of the value or, with `pointer`, of the pointee, without const, restrict and reference:
    `const T* __restrict__ p` has type 'T'. `const`: the pointee is const. A pointer to a pointer has type 'float*'; a
    pointer to a function is not a `pointer` and has type 'float (*)(float)'. `meaning` is the whole type in one
    spelling with macros, typedefs and traits resolved: 'const float*'; '' if unknown. `element` is `type` resolved;
    for an enumeration the type of its numbers; complex numbers, texture and surface objects keep their names. `parts`
    are the NumPy type and count of its numbers, if all have one type.
    """

    name: str
    type: str
    pointer: bool = False
    const: bool = False
    restrict: bool = False
    meaning: str = field(default="", compare=False)
    element: str = field(default="", compare=False)
    parts: tuple[str, int] | None = field(default=None, compare=False)

    @property
    def number(self) -> str | None:
        """The NumPy type of the value or pointee; None if it is not a number."""
        return numpy_type(self.element or self.type)

    @property
    def vector(self) -> tuple[str, int] | None:
        """The NumPy type and number of elements of a CUDA vector, or of a pointee that is a vector."""
        return vector_type(self.element or self.type)

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
class Kernel:
    """A `__global__` function with a body.

    `line` is the line of the name, from 1; `start` and `end` are offsets into the file's text, from the first word of
    the definition (template, extern, ...) to after the closing brace. A kernel in a header has the header's path in
    `file`, and its line and offsets are the header's. `expression` is its name for the compiler: the qualified name,
    with template arguments after `find_kernel`. `names` are the names outside of functions that its code reaches, also
    through the functions that it calls.
    """

    name: str
    qualified_name: str
    parameters: tuple[Parameter, ...]
    comment: str
    line: int
    template_parameters: tuple[TemplateParameter, ...]
    start: int
    end: int
    text: str
    expression: str = ""
    overloaded: bool = False
    file: str = ""
    names: frozenset[str] = frozenset()

    @property
    def signature(self) -> str:
        """The head as text: 'axpy(float a, const float* x)'."""
        template = f"template <{', '.join(map(str, self.template_parameters))}> " if self.template_parameters else ""
        name = self.qualified_name if self.template_parameters else self.expression or self.qualified_name
        return f"{template}{name.partition('(')[0]}({', '.join(map(str, self.parameters))})"


@dataclass(frozen=True)
class Layout:
    """The memory layout of a type: a number (`dtype`), an array of `count`, or members at their offsets, in bytes.

    pointee: the layout behind a pointer.
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


def numbers_in(layout: Layout) -> tuple[frozenset[str], int]:
    """Return the NumPy types of the numbers in a value, 'pointer' for pointers, and their bytes without padding."""
    if layout.dtype or layout.pointee:
        return frozenset([layout.dtype or "pointer"]), layout.size
    if layout.element:
        kinds, nbytes = numbers_in(layout.element)
        return kinds, nbytes * layout.count
    parts = [numbers_in(member) for _, _, member in layout.members]
    return frozenset().union(*(kinds for kinds, _ in parts)), sum(nbytes for _, nbytes in parts)


def uniform(layout: Layout) -> tuple[str, int] | None:
    """Return the NumPy type and count of the numbers in a value; None for several types, and for padding."""
    kinds, nbytes = numbers_in(layout)
    (kind,) = kinds if len(kinds) == 1 else ("",)
    return (kind, nbytes // bytes_of(kind)) if kind not in ("", "pointer") and nbytes == layout.size else None


@dataclass(frozen=True)
class Constant:
    """A `__constant__` variable: its type without the extents, the extents, and whether it is initialised."""

    name: str
    type: str
    extents: tuple[int, ...]
    starts: bool
    layout: Layout | None = None


@dataclass(frozen=True)
class Question:
    """A question to the parser about a file: the parameters of a kernel's instance, or the layout of a type.

    text: the name in C++. launches: ask for the host code's launches of kernels with this name. at: the position of the
    kernel's name in the file, which distinguishes overloaded templates.
    """

    text: str
    type: bool = False
    at: int | None = None
    launches: bool = False


@dataclass(frozen=True)
class Task:
    """A text to parse. folder: folder of quoted headers, or None to read no headers."""

    path: str
    text: str
    folder: str | None = None
    folders: tuple[str, ...] = ()
    defines: tuple[tuple[str, str], ...] = ()
    std: str | None = None
    questions: tuple[Question, ...] = ()

    @property
    def name(self) -> str:
        """The file's name for the parser."""
        name = os.path.basename(self.path) or "source.cu"
        return os.path.join(self.folder, name) if self.folder is not None else VIRTUAL + name


@dataclass(frozen=True)
class SourceFile:
    """A `.cu` file: its text, its kernels in order, and its other declarations.

    `types` maps names to their meaning by a typedef, a using or a macro of the file, its headers or -D, and has the
    names of structs ('struct P') and enumerations (the type of their numbers). `layouts` are its structs' layouts.
    `references` are the file's texture and surface references with their type, `numbers` the values of its macros and
    whole constants. `large` are functions and classes that the compiler may not inline; `private`: the file has device
    variables that other files cannot see.
    """

    path: str
    text: str
    kernels: tuple[Kernel, ...]
    types: Mapping[str, str] = field(default_factory=dict)
    layouts: Mapping[str, Layout] = field(default_factory=dict)
    constants: tuple[Constant, ...] = ()
    references: Mapping[str, str] = field(default_factory=dict)
    numbers: Mapping[str, str] = field(default_factory=dict)
    large: frozenset[str] = frozenset()
    private: bool = False
    task: Task | None = field(default=None, compare=False)  # for further questions to the parser


@dataclass(frozen=True)
class HostLaunch:
    """A launch in host code: template arguments as text; grid, block, dynamic shared bytes and number arguments, which
    are () or None if they are not plain numbers."""

    template: tuple[str, ...] = ()
    grid: tuple[int, ...] = ()
    block: tuple[int, ...] = ()
    shared: int | None = None
    passed: tuple[int | None, ...] = ()


@dataclass(frozen=True)
class Answer:
    """The answer to a question: the parameters of a kernel's instance, the layout of a type, or launches."""

    parameters: tuple[Parameter, ...] | None = None
    layout: Layout | None = None
    launches: tuple[HostLaunch, ...] = ()


@dataclass(frozen=True)
class Reading:
    """The reading of a file, and the answers to the questions about it."""

    file: SourceFile
    answers: tuple[Answer, ...] = ()
