"""Makes the command line that an error message suggests for a kernel.

The command line is made from the kernel's signature, the kernel's text and the options that the user gave. It runs
unchanged if every parameter is an array or a number, and at most one whole number is the size of the problem. Otherwise
`...` marks values that only the user knows. From launches in host code, only constant numbers are copied.
"""

from __future__ import annotations

import contextlib
import math
import re
import shlex
from collections.abc import Mapping, Set
from dataclasses import dataclass, replace

import numpy as np

from cudabench.compile import includes
from cudabench.errors import UsageError
from cudabench.plan.constants import Constants, NotANumber
from cudabench.source import clang_parse
from cudabench.source.brackets import split
from cudabench.source.choose_kernel import find_kernel, template_arguments, types_listed
from cudabench.source.files import read_file, text_of
from cudabench.source.named_types import layout_of
from cudabench.source.records import HostLaunch, Kernel, Parameter, Question, SourceFile, TemplateParameter, numbers_in
from cudabench.userkernel import pointers
from cudabench.userkernel.arguments import GAP, check_taken
from cudabench.userkernel.by_value import accessor_of, example_of
from cudabench.userkernel.extents import ATOMIC, INDEXED, Extents
from cudabench.userkernel.request import UserRequest
from cudabench.userkernel.textures import MAP_TYPE, SURFACE_TYPE, TYPE

# Maps a number of dimensions to the side length of a suggested problem. No side length is a multiple of the side of the
# block, so that the last block is only partly used.
SIDES = {1: 10007, 2: 251, 3: 37}
BLOCKS = {1: [256], 2: [16, 16], 3: [8, 8, 4]}
_DYNAMIC = re.compile(r"\bextern\b[^;{}\[\]]*\b__shared__\b[^;{}\[\]]*?(\w+)\s*\[\s*\]")
_CAST = re.compile(r"\((?:u?int(?:32_t|64_t)?|unsigned(?: int)?|(?:unsigned )?long(?: long)?|size_t)\)(?=[\w(])")


@dataclass(frozen=True)
class Example:
    """The suggested command line for a kernel; the command line is made only when str() is called."""

    request: UserRequest
    file: SourceFile
    kernel: Kernel
    command: str = "run"

    def __str__(self) -> str:
        """Return the command line. Raises NoSuggestion if --arg cannot give one of the parameters."""
        request, file, kernel = self.request, self.file, self.kernel
        if wider := with_headers_nearby(request):
            request, file = wider
            # `find_kernel` refuses a template without arguments; then `kernel` stays as it is
            with contextlib.suppress(UsageError):
                kernel = find_kernel(file, kernel.expression or kernel.qualified_name)
        return shlex.join(_words(request, file, kernel, self.command))


def _words(request: UserRequest, file: SourceFile, kernel: Kernel, command: str) -> list[str]:
    """Return the words of the suggested command line."""
    launches = file.task and clang_parse.answer_of(file.task, Question(kernel.name, launches=True)).launches
    launch = next(
        (launch for launch in launches or () if launch.block), (launches or (HostLaunch(),))[0]
    )  # the first launch whose block is known, else the first launch
    name = kernel.expression or kernel.qualified_name
    if kernel.template_parameters and "<" not in name:
        name = _template_instance(kernel, launch, file)
        kernel = find_kernel(file, name.replace(GAP, "32"))
    elif kernel.overloaded and "(" not in name:
        name += types_listed(kernel.parameters)
    check_taken(kernel, file)
    problem = _problem_size(request, replace(kernel, expression=name), file, launch)
    given = request.given()
    shared = request.shared or (str(launch.shared) if launch.shared else GAP if _dynamic_shared(kernel, file) else None)
    names = [(parameter.name or f"arg{at}", parameter) for at, parameter in enumerate(kernel.parameters)]
    arguments = (
        f"{own}={given.get(own) or problem.numbers.get(own) or _suggested_value(parameter, file, problem)}"
        for own, parameter in names
    )
    return replace(
        request, file=str(file.path), kernels=(name,), grid=problem.grid or None, block=problem.block or None,
        shared=shared, arguments=tuple(arguments),
    ).words(command)  # fmt: skip


# The size of the suggested problem -----------------------------------------------------------------------------------


@dataclass(frozen=True)
class _ProblemSize:
    """The size of the suggested problem.

    `numbers`: values of the whole-number parameters, by name. `elements`: the number of elements of an array that only
    functions of the kernel index, as text. `size`: the name of the parameter that is the size of the problem, or ''.
    `body`: the kernel's text without needless blanks and casts.
    """

    grid: str
    block: str
    numbers: Mapping[str, str]
    elements: str
    size: str
    body: str

    @property
    def extents(self) -> Extents:
        """The extents of the arrays in a launch of this size."""
        launch = {
            f"{name}.{axis}": extent
            for name, given in (("gridDim", self.grid), ("blockDim", self.block))
            for axis, extent in zip("xyz", [*split(given), "1", "1"], strict=False)
        }
        return Extents(self.body, list(self.numbers), launch)


def _problem_size(request: UserRequest, kernel: Kernel, file: SourceFile, launch: HostLaunch) -> _ProblemSize:
    whole = {
        parameter.name or f"arg{at}": launch.arguments[at] if at < len(launch.arguments) else None
        for at, parameter in enumerate(kernel.parameters)
        if not parameter.pointer and np.dtype(parameter.number or "V").kind in "iu"
    }
    written = re.sub(r"/\*.*?\*/|//[^\n]*", " ", kernel.text, flags=re.S)
    written = re.sub(r"\b[^\W\d]\w*", lambda word: file.numbers.get(word[0], word[0]), written)
    for name, value in template_arguments(kernel).items():
        written = re.sub(rf"\b{name}\b", value, written) if value.isdigit() else written
    body = _CAST.sub("", re.sub(r"(?<!\w)\s+|\s+(?!\w)", "", written))
    used = kernel.names | set(re.findall(r"%(\w+)", body)) | set(re.findall(r"threadIdx|blockIdx", body))
    axes = [(name, " xyz".index(axis)) for name, axis in re.findall(r"\b(threadIdx|blockIdx)\.([xyz])\b", body)]
    deep = max((at for name, at in axes if name == "threadIdx"), default=1)
    wide = max((at for _, at in axes), default=1)
    sides = _implied_block(kernel, body, file, deep) or BLOCKS[deep]
    sides = sides if used & {"threadIdx", "this_grid", "this_thread_block", "tid"} else [1]
    # the block must have the size of the tile in shared memory, which is not known, so no default block is suggested
    sides = [] if "__shared__" in body and deep > 1 else sides
    block = request.block or ",".join(map(str, launch.block)) or ",".join(map(str, sides)) or GAP
    sides = [int(side) if side.strip().isdigit() else 1 for side in block.split(",")]
    alone = not used & {"blockIdx", "this_grid", "this_cluster", "ctaid"}
    grid = request.grid or ",".join(map(str, launch.grid)) or ("1" if alone else "")
    sizes = [own for own in whole if _is_size(own, body)]
    numbers = {own: str(value or GAP) for own, value in whole.items()}
    if len(sizes) > 1 or block == GAP:
        return _ProblemSize(grid or GAP, block, numbers, GAP, "", body)
    if not sizes:
        return _ProblemSize(grid or "1", block, numbers, GAP, "", body)
    (own,) = sizes
    # an index such as y*n means that the array has rows
    parts = re.search(rf"[\w)\]]\*\(?{own}\b|\b{own}\)?\*[\w(]", body)
    power = max(wide, 2 if parts or any(map(pointers.of_pointers, kernel.parameters)) else 1)
    # if each block has a row, the grid is the number of rows, which the kernel need not know
    grid = grid or ("" if _is_size(own, body, {"blockIdx", "thread_rank"}) else GAP)
    numbers[own] = str(whole[own] or (min(SIDES[power], math.prod(sides)) if alone else SIDES[power]))
    extents = (f"cdiv({own},{side})" if side > 1 else own for side in [*sides, 1, 1][: max(wide, len(sides))])
    return _ProblemSize(grid or ",".join(extents), block, numbers, own if power == 1 else GAP, own, body)


def _is_size(own: str, body: str, places: Set[str] = frozenset({"threadIdx", "blockIdx", "thread_rank"})) -> bool:
    """Return whether a kernel (text `body`) compares a thread's index, made of `places`, with the parameter `own`."""
    values = re.findall(r"\b(\w+)=(?!=)(?=([^;,]*))", body)
    for _ in range(3):
        places = places | {name for name, value in values if places & set(re.findall(r"\w+", value))}
    place, other = rf"\b(?:{'|'.join(places)})\b[\w.+*/()-]*?", rf"[\w.+*/()-]*?\b{own}\b"
    return bool(re.search(rf"{place}[<>]=?{other}|\b{own}\b[\w.+*/()-]*?[<>]=?[\w.+*/()-]*?{place}", body))


def _dynamic_shared(kernel: Kernel, file: SourceFile) -> bool:
    """Return whether a kernel, or a function or class that it uses, declares dynamic shared memory."""
    # `names` has the words of the kernel and of all code that the kernel uses
    own = {"extern", "__shared__"} <= kernel.names
    return own or any(match[1] in kernel.names for match in _DYNAMIC.finditer(file.text))


# Values for the parameters -------------------------------------------------------------------------------------------


def _suggested_value(parameter: Parameter, file: SourceFile, problem: _ProblemSize) -> str:
    """Return a suggested value for a parameter, in the form of --arg."""
    if kind := {MAP_TYPE: "tensormap", TYPE: "texture", SURFACE_TYPE: "surface"}.get(parameter.type):
        return f"{kind}({GAP})"
    if parameter.pointer:
        return _suggested_array(parameter, file, problem)
    if accessor := accessor_of(parameter):
        return f"{pointers.element_type(accessor.parameter(''))}[{','.join([GAP] * accessor.dimensions)}]:random"
    layout = layout_of(parameter.type, file)
    if layout and numbers_in(layout)[0] <= {"float16", "float32", "float64"}:
        return example_of(layout)
    if layout and layout.members:
        return f"{{{', '.join(f'{name}: {GAP}' for name, _, _ in layout.members)}}}"
    return "true" if layout and layout.dtype == "bool" else GAP


def _suggested_array(parameter: Parameter, file: SourceFile, problem: _ProblemSize) -> str:
    by_rows = pointers.of_pointers(parameter)
    pointee = pointers.row_of(parameter) if by_rows else parameter
    count, start = pointers.elements(pointee), _suggested_init(parameter, problem.body)
    if count is None:
        layout = layout_of(pointee.type, file)
        if layout is None or "pointer" in numbers_in(layout)[0]:
            return GAP
        count, start = (
            layout.size,
            "zeros" if start == "random" else start,
        )  # an array of structs is not filled with random bytes, which would not be valid numbers
    reached = problem.extents.of(parameter.name)
    shape = GAP if reached is None or "[" in pointee.type else reached or problem.elements
    if by_rows:
        shape = f"{problem.size},{problem.size}" if problem.size else GAP
    elif count > 1 and shape != GAP:
        shape = str(count * int(shape)) if shape.isdigit() else f"{count}*{shape}"
    return f"{pointers.element_type(pointee)}[{shape}]:{start}"


def _suggested_init(parameter: Parameter, text: str) -> str:
    """Return the suggested initial content of an array.

    The content is 'zeros' if the kernel updates the array by atomics or polls it (a counter, a lock, a flag), or
    updates it (`+=`) but does not read it otherwise; 'empty' if the kernel only writes the array; else 'random'.
    """
    own, body = re.escape(parameter.name or "?"), text.partition("{")[2]
    polls = rf"\bwhile\((?:[^;(){{}}]|\((?:[^;()]|\([^;()]*\))*\))*?(?<![\w.]){own}\b"
    if not parameter.const and re.search(rf"{ATOMIC}&?{own}\b|{polls}", body):
        return "zeros"
    uses = len(re.findall(rf"(?<![\w.]){own}\b", body))
    element = rf"(?<![\w.]){own}\s*{INDEXED}"
    writes = len(re.findall(rf"(?<![*&]\s)(?<![*&]){element}\s*=(?!=)|\*\s*{own}\s*=(?!=)", body))
    counts = len(re.findall(rf"{element}\s*(?:[-+|^]=|\+\s*\+|-\s*-)", body))
    if parameter.const or uses == 0 or uses > writes + counts:
        return "random"
    return "zeros" if counts else "empty"


# Templates and headers -----------------------------------------------------------------------------------------------


def _template_instance(kernel: Kernel, launch: HostLaunch, file: SourceFile) -> str:
    """Return a template instance's name, with the template arguments of a launch in host code or with likely ones."""

    def is_plain(word: str) -> bool:
        if _constant_value(word, file) is not None or word in ("true", "false"):
            return True
        declared = rf"\b(?:struct|class)\s+{re.escape(word)}\b(?!\s*[,>])"
        return bool(layout_of(word, file) or re.search(declared, file.text))

    words = [file.numbers.get(word, word) for word in launch.template]
    words = words if all(map(is_plain, words)) else []
    words = words or [_likely_argument(template_parameter, kernel) for template_parameter in kernel.template_parameters]
    return f"{kernel.qualified_name}<{', '.join(words)}>"


def _likely_argument(parameter: TemplateParameter, kernel: Kernel) -> str:
    """Return a likely template argument: the parameter's default value, else 'float' for a type that the kernel does
    not use like a class, else `...`."""
    if parameter.default:
        return parameter.default
    if parameter.type.rstrip(".") not in ("typename", "class"):
        return GAP
    own = re.escape(parameter.name or "?")
    objects = [
        formal.name for formal in kernel.parameters if not formal.pointer and formal.type.rstrip("&") == parameter.name
    ]
    as_class = [rf"\b{own}\s*(?:::|\(\s*\)\s*\(|\{{\s*\}}\s*\()", *(rf"\b{name}\s*[(.]" for name in objects)]
    return GAP if re.search("|".join(as_class), kernel.text) else "float"


def with_headers_nearby(request: UserRequest) -> tuple[UserRequest, SourceFile] | None:
    """Return (the request with -I added for folders near its file that have missing headers, the file as read then).

    Return None if there are no such folders.
    """
    folders = includes.missing_folders(text_of(request.file), request.file, request.include)
    if not folders:
        return None
    wider = replace(request, include=(*request.include, *folders))
    return wider, file_of(wider)


def file_of(request: UserRequest) -> SourceFile:
    """Read the file of a request with the request's defines, header folders and language."""
    return read_file(request.file, request.defines, request.include, request.std)


# Constant numbers in the source --------------------------------------------------------------------------------------


def _constant_value(words: str, file: SourceFile) -> int | None:
    """Return the value of a C++ expression of literals, macros and constants; None if it is unknown or negative."""
    try:
        value = Constants({}, {**file.types, **file.numbers}, 0).evaluate(words)
    except NotANumber:
        return None
    return value if value >= 0 else None


def _implied_block(kernel: Kernel, body: str, file: SourceFile, axes: int) -> list[int]:
    """Return the sides of the block that constants in a kernel imply, or [].

    `blockIdx.x*64+threadIdx.x` implies 64 threads, and so does a shared array with one dimension of 64 elements.
    `axes`: the number of sides.
    """
    given = template_arguments(kernel)

    def plain(pattern: str) -> int:
        words = next((word for match in re.findall(pattern, body) for word in match if word), "")
        return (_constant_value(given.get(words, words), file) or 0) if words else 0

    own = r"\bblockIdx\.{0}\*(\w+)(?![\w.(])|(?<![\w.])(\w+)\*blockIdx\.{0}\b"
    sides = [plain(own.format(axis)) for axis in "xyz"[:axes]]
    if axes == 1 and not sides[0]:
        sides = [plain(r"\b__shared__ [\w: ]+\[([^\[\]]+)\](?!\[)()") or plain(r"__launch_bounds__\(([^,()]+)()")]
    return sides if all(sides) and 32 <= math.prod(sides) <= 1024 else []
