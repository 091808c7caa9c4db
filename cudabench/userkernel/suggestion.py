"""The line that a message prints for a kernel, from its signature, its text and what was given already.

It runs as it is where every parameter is an array or a number and at most one whole number says how large the problem
is. Elsewhere `...` stands for what only the user knows. Nothing of host code is followed but a launch's plain numbers.
"""

from __future__ import annotations

import contextlib
import math
import re
import shlex
from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np

from cudabench.errors import UsageError
from cudabench.toolchain import includes, places, reached, source
from cudabench.toolchain.signatures import TemplateParameter, types_listed
from cudabench.toolchain.source import KernelSource, Parameter, SourceFile
from cudabench.userkernel import plain_launch, pointers, rows, textures
from cudabench.userkernel.accessors import accessor_of
from cudabench.userkernel.arguments import GAP, check_taken
from cudabench.userkernel.by_value import layout_of, numbers_in
from cudabench.userkernel.plain_launch import PlainLaunch
from cudabench.userkernel.request import UserRequest
from cudabench.userkernel.surface_calls import calls, example
from cudabench.userkernel.tensor_maps import TYPE as TENSOR_MAP
from cudabench.userkernel.texture_calls import fetches
from cudabench.userkernel.type_names import aliases_of

SIDES = {
    1: 10007,
    2: 251,
    3: 37,
}  # of a problem of so many dimensions; no block divides them
BLOCKS = {1: [256], 2: [16, 16], 3: [8, 8, 4]}
_DYNAMIC = re.compile(r"\bextern\b[^;{}\[\]]*\b__shared__\b[^;{}\[\]]*?(\w+)\s*\[\s*\]")
_CAST = re.compile(r"\((?:u?int(?:32_t|64_t)?|unsigned(?: int)?|(?:unsigned )?long(?: long)?|size_t)\)(?=[\w(])")
_INDEXED = r"\[[^\[\]]*(?:\[[^\[\]]*\][^\[\]]*)*\]"  # of an array, with an array inside


@dataclass(frozen=True)
class Example:
    """A line for a kernel, made where a message needs it."""

    request: UserRequest
    file: SourceFile
    kernel: KernelSource
    aliases: Mapping[str, str]
    command: str = "run"

    def __str__(self) -> str:
        """The line. Raises NoLine for a kernel with a parameter that no --arg can give."""
        request, file, kernel, aliases = self.request, self.file, self.kernel, self.aliases
        if found := with_headers_nearby(request):
            request, file = found
            aliases = aliases_of(file, request.defines, request.include)
            with contextlib.suppress(UsageError):  # a template has no instance yet
                named = source.find(file, kernel.expression or kernel.qualified_name)
                kernel = source.resolved(named, aliases)
        return shlex.join(_words(request, file, kernel, aliases, self.command))


def _words(
    request: UserRequest, file: SourceFile, kernel: KernelSource, aliases: Mapping[str, str], command: str
) -> list[str]:
    """Return a command line for a kernel by its words."""
    launch = plain_launch.find(kernel, file.text, aliases)
    name = kernel.expression or kernel.qualified_name
    if kernel.template_parameters and "<" not in name:
        name = _instance(kernel, launch, file.text, aliases)
        kernel = source.resolved(source.find(file, name.replace(GAP, "32")), aliases)
    elif kernel.overloaded and "(" not in name:
        name += types_listed(kernel.parameters)
    check_taken(kernel, file.text, aliases)
    sized = _sized(request, kernel, file.text, aliases, launch)
    given = request.given()
    words = ["cudabench", command, file.path, "--kernel", name]
    words += [word for folder in request.include for word in ("-I", str(folder))]
    words += [w for macro, value in request.defines.items() for w in ("-D", f"{macro}={value}" if value else macro)]
    words += ["--grid", sized.grid, "--block", sized.block]
    words += ["--cluster", request.cluster] if request.cluster else []
    shared = request.shared or launch.shared or (GAP if _dynamic_shared(kernel, file) else "")
    words += ["--shared", shared] if shared else []
    for at, parameter in enumerate(kernel.parameters):
        own = parameter.name or f"arg{at}"
        value = given.get(own) or sized.numbers.get(own) or _value(parameter, kernel, file.text, aliases, sized)
        words += ["--arg", f"{own}={value}"]
    words += [word for text in request.expect for word in ("--expect", text)]
    words += [word for text in request.constants for word in ("--const", text)]
    return words


# How large a problem is ----------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Sized:
    """A problem's size: grid, block and the whole numbers by their parameters; the elements of an array and one side
    of it; the name of the size, '' where there is none; the kernel's body without needless blanks."""

    grid: str
    block: str
    numbers: Mapping[str, str]
    elements: str
    side: str
    size: str
    body: str


def _sized(
    request: UserRequest, kernel: KernelSource, text: str, aliases: Mapping[str, str], launch: PlainLaunch
) -> _Sized:
    whole = {
        parameter.name or f"arg{at}": launch.passed[at] if at < len(launch.passed) else None
        for at, parameter in enumerate(kernel.parameters)
        if _is_whole(parameter, text, aliases)
    }
    body = _CAST.sub("", re.sub(r"(?<!\w)\s+|\s+(?!\w)", "", kernel.text))
    used = reached.names(text, kernel) | set(re.findall(r"%(\w+)", body))
    deep, wide = (_axes(body, names) for names in ("threadIdx", "threadIdx|blockIdx"))
    if not used & {"threadIdx", "this_grid", "this_thread_block", "tid"}:
        sides = [1]
    else:
        stated = plain_launch.block_in(kernel, body, text, aliases, deep)
        sides = stated or ([] if "__shared__" in body and deep > 1 else BLOCKS[deep])
    block = request.block or launch.block or ",".join(map(str, sides)) or GAP
    sides = [int(side) if side.strip().isdigit() else 1 for side in block.split(",")]
    alone = not used & {"blockIdx", "this_grid", "this_cluster", "ctaid"}
    grid = request.grid or launch.grid or ("1" if alone else "")
    sizes = [own for own in whole if _is_size(own, body)]
    numbers = {own: str(value or GAP) for own, value in whole.items()}
    if len(sizes) > 1 or block == GAP:
        return _Sized(grid or GAP, block, numbers, GAP, GAP, "", body)
    if not sizes:
        count = math.prod(int(side) if side.strip().isdigit() else 1 for side in f"{grid or 1},{block}".split(","))
        return _Sized(grid or "1", block, numbers, str(count), str(count), "", body)
    (own,) = sizes
    by_rows = any(rows.of_pointers(one) for one in kernel.parameters)
    power = max(wide, 2 if by_rows or re.search(rf"[\w)\]]\*\(?{own}\b|\b{own}\)?\*[\w(]", body) else 1)
    numbers[own] = str(whole[own] or (min(SIDES[power], math.prod(sides)) if alone else SIDES[power]))
    each = (f"cdiv({own},{one})" if one > 1 else own for one in [*sides, 1, 1][: max(wide, len(sides))])
    return _Sized(grid or ",".join(each), block, numbers, "*".join([own] * power), own, own, body)


def _is_size(own: str, body: str) -> bool:
    """Return whether a kernel compares a thread's place with a number."""
    found = {"threadIdx", "blockIdx", "thread_rank"}
    values = re.findall(r"\b(\w+)=(?!=)(?=([^;,]*))", body)
    for _ in range(3):
        found |= {name for name, value in values if found & set(re.findall(r"\w+", value))}
    place, other = rf"\b(?:{'|'.join(found)})\b[\w.+*/()-]*?", rf"[\w.+*/()-]*?\b{own}\b"
    return bool(re.search(rf"{place}[<>]=?{other}|\b{own}\b[\w.+*/()-]*?[<>]=?[\w.+*/()-]*?{place}", body))


def _is_reached(own: str, sized: _Sized) -> bool:
    """Return whether the elements of an array that a kernel names lie within what it is given, as far as indices say:
    one for each thread or, of a problem with a size, no multiple of a place but by that size."""
    values: dict[str, str] = {}
    for name, value in re.findall(r"\b(\w+)=(?!=)(?=([^;,]*))", sized.body):
        values.setdefault(name, value)
    factor = "|".join([r"(?:blockDim|gridDim)\.[xyz]", *sized.block.split(","), *([sized.size] * bool(sized.size))])
    for index in re.findall(rf"(?<![\w.]){own}({_INDEXED})", sized.body):
        if sized.size and re.search(rf"(?<![\w.]){re.escape(index[1:-1])}(?:<|>=){sized.size}\b", sized.body):
            continue
        for _ in range(3):
            index = re.sub(
                r"(?<![\w.])[^\W\d]\w*(?![\w.(])", lambda match: f"({values.get(match[0], match[0])})", index
            )
        index = re.sub(rf"\*\(*(?:{factor})\b|\b(?:{factor})\)*\*", "", index)
        if re.search(r"\*|<<", index):
            return False
        if not sized.size and re.search(r"\b(?!threadIdx\b|blockIdx\b|[xyz]\b)\w*[^\W\d]|[+-]\(*\d", index):
            return False
    return bool(sized.size) or not re.search(rf"[(,]{own}[,)]", sized.body.partition("{")[2])


def _is_whole(parameter: Parameter, text: str, aliases: Mapping[str, str]) -> bool:
    """Return whether a parameter is a whole number, and no word of an enumeration."""
    dtype = None if parameter.pointer else source.numpy_dtype(parameter.type, aliases)
    if dtype in (None, "bfloat16") or np.dtype(dtype).kind not in "iu":
        return False
    named = rf"\benum\s+(?:class\s+|struct\s+)?{parameter.type}\b|\benum\b[^;{{}}]*{{[^{{}}]*}}\s*{parameter.type}\b"
    return places.first(re.compile(named), text, "enum") is None


def _axes(text: str, names: str) -> int:
    """Return how many axes of these a kernel asks for."""
    return max((" xyz".index(axis) for axis in re.findall(rf"\b(?:{names})\.([xyz])\b", text)), default=1)


def _dynamic_shared(kernel: KernelSource, file: SourceFile) -> bool:
    """Return whether a kernel, or a function or class that it comes to, has shared memory that the launch sizes."""
    used = reached.names(file.text, kernel)
    for match in _DYNAMIC.finditer(file.text):
        around = (
            "" if any(k.start <= match.start() < k.end for k in file.kernels) else file.text[: match.start()][-400:]
        )
        heads = re.findall(r"\b(?:struct|class)\s+(\w+)|\b(\w+)\s*\([^(){}]*\)\s*\{", around)
        if match[1] in used or used & {name for pair in heads for name in pair}:
            return True
    return bool(_DYNAMIC.search(kernel.text))


# What a parameter is given -------------------------------------------------------------------------------------------


def _value(parameter: Parameter, kernel: KernelSource, text: str, aliases: Mapping[str, str], sized: _Sized) -> str:
    """Return an argument as --arg writes it."""
    if parameter.pointer and parameter.type != TENSOR_MAP:
        return _array(parameter, kernel, text, aliases, sized)
    if parameter.type == TENSOR_MAP:
        return f"tensormap({GAP})"
    if parameter.type in textures.OBJECTS:
        kind, uses = ("texture", fetches) if parameter.type == textures.TYPE else ("surface", calls)
        ctype, layered = next(
            ((one.ctype or "float", one.layered) for one in uses(kernel.text) if one.name == parameter.name),
            ("float", False),
        )
        return example(kind, ctype, aliases, layered)
    if accessor := accessor_of(parameter.type, text, aliases):
        return f"{pointers.like(accessor.parameter(parameter.name), aliases)}[{GAP}]:random"
    layout = layout_of(parameter.type, text, aliases)
    if layout is None or _is_whole(parameter, text, aliases):
        return GAP
    if layout.dtype == "bool":
        return "true"
    if numbers_in(layout)[0] <= {"float16", "float32", "float64"}:
        return layout.example()
    if layout.vector:
        return ",".join([GAP] * len(layout.members))
    return f"{{{', '.join(f'{name}: {GAP}' for name, _, _ in layout.members)}}}" if layout.members else GAP


def _array(parameter: Parameter, kernel: KernelSource, text: str, aliases: Mapping[str, str], sized: _Sized) -> str:
    by_rows = rows.of_pointers(parameter)
    one = rows.row_of(parameter) if by_rows else parameter
    many, start = pointers.elements(one, aliases), _start(parameter, sized.body)
    if many is None:
        layout = layout_of(one.type, text, aliases)
        if layout is None or "pointer" in numbers_in(layout)[0]:
            return GAP
        many, start = layout.size, "zeros" if start == "random" else start  # random bytes make no numbers of a struct
    shape = ",".join([sized.side] * 2) if by_rows else f"{many}*{sized.elements}" if many > 1 else sized.elements
    if GAP in shape or not _is_reached(parameter.name, sized):
        shape = GAP
    return f"{pointers.like(one, aliases)}[{shape}]:{start}"


def _start(parameter: Parameter, text: str) -> str:
    """Return how an array starts: as zeros where a kernel only counts in it, empty where it only writes it, else at
    random, as what it reads."""
    own, body = re.escape(parameter.name or "?"), text.partition("{")[2]
    uses = len(re.findall(rf"(?<![\w.]){own}\b", body))
    element = rf"(?<![\w.]){own}\s*{_INDEXED}"
    writes = len(re.findall(rf"(?<![*&]\s)(?<![*&]){element}\s*=(?!=)|\*\s*{own}\s*=(?!=)", body))
    counts = len(re.findall(rf"{element}\s*(?:[-+|^]=|\+\s*\+|-\s*-)|\batomic\w+\s*\(\s*(?:&\s*)?{own}\b", body))
    if parameter.const or uses == 0 or uses > writes + counts:
        return "random"
    return "zeros" if counts else "empty"


# Templates and headers -----------------------------------------------------------------------------------------------


def _instance(kernel: KernelSource, launch: PlainLaunch, text: str, aliases: Mapping[str, str]) -> str:
    """Return the instance that a launch names outright, else one of defaults, and float for a type."""
    words = launch.template
    if words and all(_is_sure(word, text, aliases) for word in words):
        return f"{kernel.qualified_name}<{', '.join(words)}>"
    return f"{kernel.qualified_name}<{', '.join(_likely(one, kernel) for one in kernel.template_parameters)}>"


def _is_sure(word: str, text: str, aliases: Mapping[str, str]) -> bool:
    """Return whether a template's argument means the same wherever it stands: a number, a type."""
    known = word in ("true", "false") or source.numpy_dtype(word, aliases) or source.vector_type(word, aliases)
    declared = rf"\b(?:struct|class)\s+{re.escape(word)}\b(?!\s*[,>])"
    return bool(known or re.search(declared, text)) or plain_launch.number(word, text, aliases) is not None


def _likely(parameter: TemplateParameter, kernel: KernelSource) -> str:
    """Return a template's default, float for a type that is only computed with, `...` for all else."""
    if parameter.default:
        return parameter.default
    if parameter.type.rstrip(".") not in ("typename", "class"):
        return GAP
    own = re.escape(parameter.name or "?")
    called = "|".join([own, *(one.name for one in kernel.parameters if one.type.rstrip("&") == parameter.name)])
    body = kernel.text.partition("{")[2]
    made = rf"\b(?:{called})\s*(?:\(\s*\)|\{{\s*\}})\s*\("  # a functor, made and called
    passed = [one.name for one in kernel.parameters if not one.pointer and one.type.rstrip("&") == parameter.name]
    calls = passed and re.search(rf"\b(?:{'|'.join(passed)})\s*[(.]", body)
    return GAP if re.search(rf"\b{own}\s*::", kernel.text) or re.search(made, body) or calls else "float"


def with_headers_nearby(request: UserRequest) -> tuple[UserRequest, SourceFile] | None:
    """Return a request with the folders of headers that lie around its file and that no -I names, and the file as the
    compiler then reads it; None where there are none."""
    written = source.read(request.file)
    folders = includes.lacking(written.text, request.file, request.include)
    if not folders:
        return None
    wider = replace(request, include=(*request.include, *folders))
    return wider, source.preprocessed(written, wider.defines, wider.include)
