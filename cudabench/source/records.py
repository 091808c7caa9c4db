"""Records of the content of a CUDA source, independent of the parser."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field

from cudabench.source.types import bytes_of, numpy_type, vector_type

VIRTUAL = "/cudabench-source/"  # this folder does not exist; the parser gets the contents of its files from memory


@dataclass(frozen=True)
class Parameter:
    """One parameter of a kernel.

    `type`: the type of the value or, with `pointer`, of the pointee. `type` has no const, restrict and reference: for
    `const T* __restrict__ p` it is 'T', and for a pointer to pointers it is 'float*'. A pointer to a function is not a
    `pointer`; its type is like 'float (*)(float)'. `const`: whether the pointee is const. `meaning`: the whole type
    with macros, typedefs and traits resolved, such as 'const float*'; '' if unknown. `element`: `type` with typedefs
    resolved; for an enumeration its integer type; complex numbers, texture and surface objects keep their names.
    `parts`: (NumPy type, count) of the numbers in the value or pointee, if all have the same type, else None.
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
        """The NumPy type of the value or, for a pointer, of the pointee; None if it is not a number."""
        return numpy_type(self.element or self.type)

    @property
    def vector(self) -> tuple[str, int] | None:
        """(NumPy type of an element, number of elements) if the value or pointee is a CUDA vector, else None."""
        return vector_type(self.element or self.type)

    @property
    def ctype(self) -> str:
        """The parameter's type in C++, for a cast, such as 'const float*'."""
        base, bracket, bounds = self.type.partition("[")
        pointer = f" (*)[{bounds}" if bracket and self.pointer else "*" if self.pointer else ""
        return f"{'const ' if self.const else ''}{base if pointer else self.type}{pointer}"

    def __str__(self) -> str:
        restrict = " __restrict__" if self.restrict else ""
        return f"{self.ctype}{restrict} {self.name}".rstrip()


@dataclass(frozen=True)
class TemplateParameter:
    """One parameter of a template; `type`: 'typename', or the type of a value; `default`: the default argument or
    ''."""

    name: str
    type: str
    default: str = ""

    def __str__(self) -> str:
        return f"{self.type} {self.name}".rstrip() + (f" = {self.default}" if self.default else "")


@dataclass(frozen=True)
class Kernel:
    """A `__global__` function with a body.

    `line`: the line with the kernel's name, from 1. `start`, `end`: the offsets of the definition in the file's text,
    from its first word (template, extern, ...) to after the closing brace. `file`: for a kernel in a header, the
    header's path, to which `line`, `start` and `end` then refer; else ''. `expression`: the kernel's name for the
    compiler, which is the qualified name; after `find_kernel`, it also has template arguments. `names`: the global
    names that the kernel's code uses, directly or through the functions that it calls.
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
        """The name with the parameters, such as 'axpy(float a, const float* x)'."""
        template = f"template <{', '.join(map(str, self.template_parameters))}> " if self.template_parameters else ""
        name = self.qualified_name if self.template_parameters else self.expression or self.qualified_name
        return f"{template}{name.partition('(')[0]}({', '.join(map(str, self.parameters))})"


@dataclass(frozen=True)
class Layout:
    """The memory layout of a type; `size` and `align` are in bytes.

    dtype: for a number, its NumPy type. count, element: for an array, the number and the layout of its elements.
    members: for a struct or vector, (name, offset in bytes, layout) of each member. vector: whether the type is a CUDA
    vector. pointee: for a pointer, a parameter record of the type that it points to.
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
    """Return (the set of NumPy types of the numbers in a value, their total bytes); a pointer has the type
    'pointer'."""
    if layout.dtype or layout.pointee:
        return frozenset([layout.dtype or "pointer"]), layout.size
    if layout.element:
        kinds, nbytes = numbers_in(layout.element)
        return kinds, nbytes * layout.count
    parts = [numbers_in(member) for _, _, member in layout.members]
    return frozenset().union(*(kinds for kinds, _ in parts)), sum(nbytes for _, nbytes in parts)


def uniform(layout: Layout) -> tuple[str, int] | None:
    """Return (NumPy type, count) of the numbers in a value; None if their types differ, or if there is padding."""
    kinds, nbytes = numbers_in(layout)
    (kind,) = kinds if len(kinds) == 1 else ("",)
    return (kind, nbytes // bytes_of(kind)) if kind not in ("", "pointer") and nbytes == layout.size else None


@dataclass(frozen=True)
class Constant:
    """A `__constant__` variable; `type`: without the array sizes `extents`."""

    name: str
    type: str
    extents: tuple[int, ...]
    has_initialiser: bool
    layout: Layout | None = None


@dataclass(frozen=True)
class Question:
    """A question to the parser about a file; by default it asks for the parameters of a kernel's instance.

    text: the name in C++ of the kernel or type. type: ask for the layout of this type instead. launches: ask for the
    launches of this kernel in host code instead. at: the position of the kernel's name in the file, which is needed for
    overloaded templates.
    """

    text: str
    type: bool = False
    at: int | None = None
    launches: bool = False


@dataclass(frozen=True)
class Task:
    """A text to parse. folder: the folder of the file, for #include "...", or None to read no headers. folders: further
    folders for headers."""

    path: str
    text: str
    folder: str | None = None
    folders: tuple[str, ...] = ()
    defines: tuple[tuple[str, str], ...] = ()
    std: str | None = None
    questions: tuple[Question, ...] = ()

    @property
    def name(self) -> str:
        """The path under which the parser gets the file."""
        name = os.path.basename(self.path) or "source.cu"
        return os.path.join(self.folder, name) if self.folder is not None else VIRTUAL + name


@dataclass(frozen=True)
class SourceFile:
    """A `.cu` file: its text, its kernels in order, and its other declarations.

    `types`: the meanings of names that a typedef, a using or a macro of the file, its headers or -D defines: 'struct P'
    for a struct, the integer type for an enumeration. `layouts`: the layouts of structs. `references`: the types of
    texture and surface references. `numbers`: the values of macros and integer constants. `large`: the
    functions and classes that the compiler may not inline. `private`: whether the file has device variables that other
    files cannot see. Dicts are keyed by name.
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
    # the task with which the file was parsed, so that the parser can be asked more questions
    task: Task | None = field(default=None, compare=False)


@dataclass(frozen=True)
class HostLaunch:
    """A launch in host code; `template`: the template arguments of the launched kernel, as text.

    `grid`, `block`: the sizes of grid and block, or () if unknown. `shared`: the dynamic shared bytes, or None if
    unknown. `arguments`: the value of each argument that is a constant whole number, None for others.
    """

    template: tuple[str, ...] = ()
    grid: tuple[int, ...] = ()
    block: tuple[int, ...] = ()
    shared: int | None = None
    arguments: tuple[int | None, ...] = ()


@dataclass(frozen=True)
class Answer:
    """The answer to a `Question`; only the field that the question asks for is set."""

    parameters: tuple[Parameter, ...] | None = None
    layout: Layout | None = None
    launches: tuple[HostLaunch, ...] = ()


@dataclass(frozen=True)
class Reading:
    """The declarations of a file, and the answers to the task's questions, in the order of the questions."""

    file: SourceFile
    answers: tuple[Answer, ...] = ()
