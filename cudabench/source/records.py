"""What is read of a CUDA source: plain records, which know nothing of the parser."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field

from cudabench.source.types import bytes_of, numpy_type, vector_type

VIRTUAL = "/cudabench-source/"  # the folder of what only the parser sees


@dataclass(frozen=True)
class Parameter:
    """One parameter of a kernel.

    `type` is the type of the value or, where `pointer` is set, of what it points at; without const, restrict and
    reference to the name: `const T* __restrict__ p` has type 'T'. `const` says that the pointee is const. A pointer to
    a pointer has type 'float*'; a pointer to a function is not a `pointer` and has type 'float (*)(float)'. `meaning`
    is the whole type in one spelling, macros, typedefs and traits followed: 'const float*'; '' where it is not known.
    `element` is what `type` stands for, an enumeration's that of its numbers; complex numbers, texture and surface
    objects keep their names. `parts` are the NumPy type and count of the numbers that it is made of, where they are all
    of one type.
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
        """The NumPy type of the value, or of what it points at; None for another type than a number's."""
        return numpy_type(self.element or self.type)

    @property
    def vector(self) -> tuple[str, int] | None:
        """The NumPy type and number of elements of a CUDA vector, or of one that it points at."""
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

    `line` is where the name stands, 1-based; `start` and `end` are offsets into the file's text, from the first word of
    the definition (template, extern, ...) to behind the closing brace. A kernel of a header has the header's path in
    `file`, and its line and offsets are that one's. `expression` is what the compiler is asked for: the qualified name,
    with template arguments once `find` has put them in. `names` are the names outside of functions that its code comes
    to, also through functions that it calls.
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
        """The head as a user would write it: 'axpy(float a, const float* x)'."""
        template = f"template <{', '.join(map(str, self.template_parameters))}> " if self.template_parameters else ""
        name = self.qualified_name if self.template_parameters else self.expression or self.qualified_name
        return f"{template}{name.partition('(')[0]}({', '.join(map(str, self.parameters))})"


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


def numbers_in(layout: Layout) -> tuple[frozenset[str], int]:
    """Return the NumPy types of the numbers in a value, 'pointer' for pointers, and their bytes without gaps."""
    if layout.dtype or layout.pointee:
        return frozenset([layout.dtype or "pointer"]), layout.size
    if layout.element:
        kinds, nbytes = numbers_in(layout.element)
        return kinds, nbytes * layout.count
    parts = [numbers_in(member) for _, _, member in layout.members]
    return frozenset().union(*(kinds for kinds, _ in parts)), sum(nbytes for _, nbytes in parts)


def uniform(layout: Layout) -> tuple[str, int] | None:
    """Return the NumPy type and count of the numbers that a value is made of; None for several types, and for gaps."""
    kinds, nbytes = numbers_in(layout)
    (kind,) = kinds if len(kinds) == 1 else ("",)
    return (kind, nbytes // bytes_of(kind)) if kind not in ("", "pointer") and nbytes == layout.size else None


@dataclass(frozen=True)
class Constant:
    """A `__constant__` variable: its type without the extents, these as numbers, whether it starts as something."""

    name: str
    type: str
    extents: tuple[int, ...]
    starts: bool
    layout: Layout | None = None


@dataclass(frozen=True)
class Question:
    """What the parser is asked about a file: the parameters of a kernel's instance, or the layout of a type.

    text: as C++ writes it. launches: what is asked are the host code's launches of kernels that are called so. at:
    where the name of the kernel stands in the file, to tell overloaded templates apart.
    """

    text: str
    type: bool = False
    at: int | None = None
    launches: bool = False


@dataclass(frozen=True)
class Task:
    """What is to be parsed. folder: where quoted headers are, None where none is to be read."""

    path: str
    text: str
    folder: str | None = None
    folders: tuple[str, ...] = ()
    defines: tuple[tuple[str, str], ...] = ()
    std: str | None = None
    questions: tuple[Question, ...] = ()

    @property
    def name(self) -> str:
        """What the parser calls the file."""
        name = os.path.basename(self.path) or "source.cu"
        return os.path.join(self.folder, name) if self.folder is not None else VIRTUAL + name


@dataclass(frozen=True)
class SourceFile:
    """A `.cu` file: its text, its kernels in order, and what it declares.

    `types` maps a name to what a typedef, a using or a macro of the file, its headers or -D makes of it, and has the
    names of structs ('struct P') and enumerations (of their numbers). `layouts` are those of its structs by name.
    `references` are the file's texture and surface references with their type, `numbers` what its macros and whole
    constants stand for. `large` are functions and classes that the compiler may not make part of their callers;
    `private` says that there are variables of the device that no other file knows.
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
    task: Task | None = field(default=None, compare=False)  # what the parser was given: it may be asked more


@dataclass(frozen=True)
class HostLaunch:
    """A launch in host code: template arguments as it writes them, grid, block, dynamic shared bytes and what is passed
    as numbers; () and None where they are not plain."""

    template: tuple[str, ...] = ()
    grid: tuple[int, ...] = ()
    block: tuple[int, ...] = ()
    shared: int | None = None
    passed: tuple[int | None, ...] = ()


@dataclass(frozen=True)
class Answer:
    """What a question was answered: the parameters of a kernel's instance, the layout of a type, launches."""

    parameters: tuple[Parameter, ...] | None = None
    layout: Layout | None = None
    launches: tuple[HostLaunch, ...] = ()


@dataclass(frozen=True)
class Reading:
    """What was read of a file, and the answers to what was asked about it."""

    file: SourceFile
    answers: tuple[Answer, ...] = ()
