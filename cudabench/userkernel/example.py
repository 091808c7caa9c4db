"""A right command line for a kernel, for messages: from its signature, its text and what was given already."""

from __future__ import annotations

import math
import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product

import numpy as np

from cudabench.toolchain import includes, source
from cudabench.toolchain.named import likely_argument
from cudabench.toolchain.signatures import TemplateParameter, types_listed, types_of
from cudabench.toolchain.source import KernelSource, Parameter, SourceFile
from cudabench.toolchain.tokens import spell, split, words_of
from cudabench.userkernel import constants, host_launch, pointers, rows, tensor_maps, textures
from cudabench.userkernel.accessors import accessor_of
from cudabench.userkernel.by_value import layout_of
from cudabench.userkernel.host_launch import HostLaunch
from cudabench.userkernel.reach import Reach, is_offsets
from cudabench.userkernel.request import UserRequest
from cudabench.userkernel.type_names import aliases_of

ELEMENTS = "1048576"
CHECKED = "10007"  # of `check`: arrays end within a block, where faults are
SIDES = {2: "256", 3: "64"}  # of a problem with so many dimensions, or more
SMALLER = ("2048", "512", "256", "64", "16")  # where a thread would loop, or an array reach, too far
MOST_TRIPS, MOST_REACHED = 1 << 11, 1 << 24
MOST_OF_A_BLOCK = 1024
TOGETHER = "32"  # blocks that wait for each other
LEAST_PASSED_ON = 64  # elements of an array that a function is given, which may index it anyhow
FEW_THREADS, FEW_THREADS_SIDE = 64, 16384  # a host's launch of so few takes as long as the problem has elements
UNKNOWN_BYTES = 64  # of an element that is declared nowhere
SHARED_BYTES = "16384"  # where the kernel declares dynamic shared memory
_GUESSES = (
    ("bool", "bool"),
    ("byte|char|uint_?8|u8$", "unsigned char"),
    ("long|int_?64|[iu]64$", "long"),
    ("int|index|idx|size|len|count|num|id$", "int"),
)
_FLAGS = re.compile(
    r"(?:which|mode|flags?|kind|type|op|seed|offset|shift|iters?|iterations|n?steps?|turns|level|axis|pad(?:ding)?|stride|"
    r"dilation|groups?|radius|halo|ksize|kernel_?size|start|begin|first|^inc\w?|^off\w?|^[spd]\d)$"
)


@dataclass(frozen=True)
class Guess:
    """A part of a line that nothing in the file says: an option and its text.

    kind: "number", "launch", and of an array "size" or "indices", whole numbers that the kernel reads.
    """

    option: str
    text: str
    kind: str


@dataclass(frozen=True)
class Line:
    """A command line by its words, and which of its parts are guesses."""

    words: tuple[str, ...]
    guesses: tuple[Guess, ...]

    def __str__(self) -> str:
        return " ".join(map(shlex.quote, self.words))


@dataclass(frozen=True)
class Example:
    """A line that would be right, found where a message needs it: that reads the file's host code."""

    request: UserRequest
    file: SourceFile
    kernel: KernelSource
    aliases: Mapping[str, str]
    command: str = "run"

    def __str__(self) -> str:
        return example_line(self.request, self.file, self.kernel, self.aliases, self.command)


def instance(kernel: KernelSource, file: SourceFile, launch: HostLaunch | None = None) -> str:
    """Return an instance of a template that the file itself names, else one of defaults, floats and 32."""
    name, places = kernel.qualified_name, len(kernel.template_parameters)
    last = name.rpartition("::")[2]
    named = [list(launch.template)] if launch and launch.template else []
    named += [
        [word.strip() for word in match[1].split(",")]
        for match in re.finditer(rf"\b{last}\s*<([\w\s,:]+)>\s*(?:<\s*<\s*<|\()", file.text)
    ]
    variadic = any(one.type.endswith("...") for one in kernel.template_parameters)
    chosen = [one.default or _likely(one, kernel, file.text) for one in kernel.template_parameters]
    for words in named:
        known = [bool(re.fullmatch(r"true|false|-?\d+", word) or source.numpy_dtype(word)) for word in words]
        if (len(words) == places or (variadic and len(words) >= places)) and all(known):
            return f"{name}<{', '.join(words)}>"
        if len(words) == places and any(known):  # in a function that is a template itself
            chosen = [word if sure else one for word, sure, one in zip(words, known, chosen, strict=True)]
            break
    return f"{name}<{', '.join(chosen)}>"


def _likely(parameter: TemplateParameter, kernel: KernelSource, text: str) -> str:
    """Return what a template may be given for a parameter: for a type that the kernel calls, a functor of the file."""
    own = re.escape(parameter.name or "")
    space = kernel.qualified_name.rpartition("::")[0]
    if own and parameter.type in ("typename", "class"):
        member = re.search(rf"\b{own}\s*::\s*(\w+)\s*\(", kernel.text)
        called = rf"\b{member[1]}" if member else r"\boperator\s*\(\s*\)"
        if member or re.search(rf"\b{own}\s*(?:\(\s*\)|\{{\s*\}})\s*\(", kernel.text):
            call = re.search(rf"\b{own}\s*(?:\(\s*\)|\{{\s*\}})\s*\(([^;]*)\)\s*;", kernel.text)
            wanted = len(split(words_of(call[1]), ",")) if call else 0
            body = rf"\b(?:struct|class)\s+(\w+)\s*\{{[^{{}}]*{called}\s*\(([^()]*)\)"
            for functor, taken in re.findall(body, text):
                if not wanted or len(split(words_of(taken), ",")) == wanted:
                    return f"{space}::{functor}" if space else functor
    return likely_argument(parameter.type, text)


def example_line(
    request: UserRequest, file: SourceFile, kernel: KernelSource, aliases: Mapping[str, str], command: str = "run"
) -> str:
    """Return a whole command line for a kernel."""
    return str(line_for(request, file, kernel, aliases, command))


def line_for(
    request: UserRequest, file: SourceFile, kernel: KernelSource, aliases: Mapping[str, str], command: str = "run"
) -> Line:
    """Return a whole command line for a kernel, with what in it is a guess.

    It launches as the file's own host code does, as far as that can be read. Where it cannot, whole numbers that are no
    flags are the problem's extents, arrays hold their product, and a kernel that asks for threadIdx.y is launched in
    two dimensions.
    """
    request, file, kernel, aliases = _with_headers_nearby(request, file, kernel, aliases)
    name = kernel.expression or kernel.qualified_name
    extents = _extents(kernel, file.text, aliases)
    side = SIDES.get(min(_dimensions(kernel, extents), 3), CHECKED if command == "check" else ELEMENTS)
    launch = host_launch.find(file.text, kernel, dict.fromkeys(extents, int(side)), aliases, command == "check")
    if kernel.template_parameters and "<" not in name:
        name = instance(kernel, file, launch)
        kernel = source.find(file, name)
        extents = _extents(kernel, file.text, aliases)
    elif kernel.overloaded and "(" not in name:
        name += types_listed(kernel.parameters)
    unknown = _unknown_types(kernel, file.text, aliases)
    aliases = {**aliases, **unknown}
    if unknown:
        extents = _extents(kernel, file.text, aliases)
        side = SIDES.get(min(_dimensions(kernel, extents), 3), CHECKED if command == "check" else ELEMENTS)
        launch = host_launch.find(file.text, kernel, dict.fromkeys(extents, int(side)), aliases, command == "check")
    if launch and launch.block and math.prod(launch.block) > MOST_OF_A_BLOCK:  # a thread for each element of a block
        side = SIDES[2]
    elif _rows(kernel.text, extents) == "1" and int(side) > int(SMALLER[0]):
        side = SMALLER[0]
    given = dict(text.partition("=")[::2] for text in request.arguments)
    sides = [side, *(one for one in SMALLER if int(one) < int(side))]
    for side in sides:
        launch = host_launch.find(file.text, kernel, dict.fromkeys(extents, int(side)), aliases, command == "check")
        values = dict.fromkeys(extents, side)
        for at, one in enumerate(kernel.parameters):
            own = one.name or f"arg{at}"
            values |= {own: text} if (text := _number(at, one, launch, aliases)) else {}
        values |= {own: text for own, text in given.items() if own in extents}
        reach = _reach(kernel, file.text, values, _block(request, kernel, extents, launch, file.text))
        reached = (reach.elements(one.name) for one in kernel.parameters if one.pointer and one.name)
        if reach.trips() <= MOST_TRIPS and max(reached, default=0) <= MOST_REACHED:
            break  # no thread loops for long, and no array is the square of many
    sizes = {own: int(value) for own, value in values.items() if value.isdigit()}
    extents = [own for own in extents if 0 < sizes.get(own, 1) <= MOST_REACHED]  # none else is one of an array
    threads = math.prod(launch.grid) * math.prod(launch.block) if launch and launch.grid and launch.block else 0
    said = host_launch.find(file.text, kernel, {}, aliases)
    sure = set(said.numbers) if said else set()  # what host code passes, whatever the problem's extents are
    words: list[str] = []
    guesses: list[Guess] = []
    outputs = _outputs(kernel)
    for at, parameter in enumerate(kernel.parameters):
        own = parameter.name or f"arg{at}"
        guessed = "" if at in sure and (own not in extents or command != "check") else "number"
        if parameter.type == tensor_maps.TYPE:
            value = tensor_maps.EXAMPLE
        elif parameter.pointer:
            start = "zeros" if own in outputs else "random"
            by_rows = rows.of_pointers(parameter)
            if by_rows:
                parameter = rows.row_of(parameter)
            many = _elements(parameter, file.text, aliases)
            like = pointers.like(parameter, aliases)
            nbytes = launch.nbytes.get(at) if launch else None
            offsets = np.dtype(like).kind in "iu" if like != "bfloat16" else False
            offsets = offsets and is_offsets(kernel.text, own)
            if nbytes and nbytes >= _itemsize(like):
                shape = _named(nbytes // _itemsize(like), sizes)
            else:
                shape = _shape(many * _spread(kernel.text, own), extents, sizes, threads, int(side))
                least = max(many * reach.elements(own), LEAST_PASSED_ON if _passed_on(kernel.text, own) else 0)
                if least > _count(shape, sizes):
                    shape = _named(least, sizes)
                elif offsets:
                    shape += "+1"
            if offsets:
                start = "i0"  # rows of one element each
            whole_numbers = like != "bfloat16" and np.dtype(like).kind in "iu" and start != "zeros"
            guessed = "indices" if whole_numbers else "" if nbytes else "size"
            if by_rows:
                shape = ",".join(_sides(kernel.text, own, extents))
            value = f"{like}[{shape}]:{start}"
        elif parameter.type == textures.TYPE:
            value = textures.example(own, kernel.text, aliases)
        elif accessor := accessor_of(parameter.type, file.text, aliases):
            value = accessor.example(pointers.like(accessor.parameter(own), aliases))
        else:
            layout = layout_of(parameter.type, file.text, aliases)
            zero = "0" if re.search(r"pad(?:ding)?$|^off", own.lower()) else "1"
            value = values.get(own, "") or (zero if _whole(parameter, aliases) else "")
            if 0 < threads <= FEW_THREADS and own in extents and value.isdigit():
                value = str(min(int(value), FEW_THREADS_SIDE))
            value = value or (layout.example() if layout else "2.5")
        words += ["--arg", f"{own}={given.get(own, value)}"]
        if guessed and own not in given:
            guesses.append(Guess("--arg", words[-1], guessed))
    words += [word for text in request.expect for word in ("--expect", text)]
    set_ = {text.partition("=")[0].strip() for text in request.constants}
    for constant in constants.unset(file, kernel, ()):
        if constant not in set_:
            host = _spelt(launch.constants.get(constant) if launch else None)
            words += ["--const", f"{constant}={constants.like(constant, file, aliases, host)}"]
            if not host:
                guesses.append(Guess("--const", words[-1], "number"))
    words += [word for text in request.constants for word in ("--const", text)]
    geometry = _launch(request, kernel, extents, "*".join(extents[:3]) or side, launch, sizes, file.text)
    for option, known in zip(("--grid", "--block"), _said(request, kernel, launch), strict=True):
        if not known:
            guesses.append(Guess(option, geometry[geometry.index(option) + 1], "launch"))
    if request.shared is None and launch and launch.shared:
        geometry += ["--shared", str(launch.shared)]
    elif request.shared is None and _dynamic_shared(kernel, file.text):
        geometry += ["--shared", SHARED_BYTES]
        guesses.append(Guess("--shared", SHARED_BYTES, "launch"))
    defines = [f"{macro}={value}" if value else macro for macro, value in request.defines.items()]
    defines += [f"{ctype}={meant}" for ctype, meant in unknown.items()]
    options = [word for folder in request.include for word in ("-I", str(folder))]
    options += [word for define in defines for word in ("-D", define)]
    return Line(("cudabench", command, file.path, "--kernel", name, *options, *geometry, *words), tuple(guesses))


def _unknown_types(kernel: KernelSource, text: str, aliases: Mapping[str, str]) -> dict[str, str]:
    """Return the types of parameters that nothing declares, as of a header that is missing, each with a guess."""
    guesses = {}
    for parameter in kernel.parameters:
        ctype = parameter.type.rstrip("*").strip()
        ctype = aliases.get(ctype, ctype)
        if not re.fullmatch(r"[^\W\d]\w*", ctype) or ctype in ("void", tensor_maps.TYPE, *textures.OBJECTS):
            continue
        named = rf"\b(?:struct|class|union|enum|typename)\s+{ctype}\b|\}}\s*{ctype}\b"
        known = pointers.elements(Parameter("", ctype), aliases) or layout_of(ctype, text, aliases)
        if known or re.search(named, text) or f"elements of {ctype}" in aliases:
            continue
        guesses[ctype] = next((kind for pattern, kind in _GUESSES if re.search(pattern, ctype.lower())), "float")
    return guesses


def _extents(kernel: KernelSource, text: str, aliases: Mapping[str, str]) -> list[str]:
    """Return the parameters that are the problem's extents: whole numbers that choose nothing and shift nothing."""
    return [
        p.name
        for p in kernel.parameters
        if _whole(p, aliases)
        and not _FLAGS.search(p.name.lower())
        and not re.search(
            rf"\benum\s+(?:class\s+|struct\s+)?{p.type}\b|\benum\b[^;{{}}]*{{[^{{}}]*}}\s*{p.type}\b", text
        )
    ]


def _with_headers_nearby(
    request: UserRequest, file: SourceFile, kernel: KernelSource, aliases: Mapping[str, str]
) -> tuple[UserRequest, SourceFile, KernelSource, Mapping[str, str]]:
    """Return the same with the folders of headers that lie around the file and that no -I names yet."""
    written = source.read(request.file)
    folders = includes.lacking(written.text, request.file, request.include)
    if not folders:
        return request, file, kernel, aliases
    wider = replace(request, include=(*request.include, *folders))
    file = source.preprocessed(written, request.defines, wider.include)
    wide = aliases_of(file, request.defines, wider.include)
    same = (one for one in file.kernels if types_of(one.parameters) == types_of(kernel.parameters))
    found = next((one for one in same if one.qualified_name == kernel.qualified_name), None)
    if found is None or kernel.expression != kernel.qualified_name:
        return wider, file, kernel, wide
    return wider, file, source.resolved(found, wide), wide


def _number(at: int, parameter: Parameter, launch: HostLaunch | None, aliases: Mapping[str, str]) -> str:
    """Return the number that host code passes for a parameter, '' where none is known."""
    value = launch.numbers.get(at) if launch else None
    dtype = source.numpy_dtype(parameter.type, aliases)
    if value is None or not dtype or parameter.pointer:
        return ""
    kind = np.dtype(dtype).kind if dtype != "bfloat16" else "f"
    return str(bool(value)).lower() if kind == "b" else repr(float(value)) if kind == "f" else str(int(value))


def _spelt(value: int | float | None) -> str:
    return "" if value is None else repr(value)


def _outputs(kernel: KernelSource) -> set[str]:
    """Return the arrays that a kernel writes and does not read, as far as its text shows; atomics add to zeros."""
    found, pointers_ = set(), [p.name for p in kernel.parameters if p.pointer and not p.const and p.name]
    body = kernel.text.partition("{")[2]
    for name in pointers_:
        element = rf"(?:\b{name}\s*\[(?:[^\[\];]|\[[^\[\];]*\])*\](?:\s*\.\s*\w+)?|\*\s*{name}\b)"
        writes = len(re.findall(rf"{element}\s*=(?!=)", body))
        uses = len(re.findall(element, body))
        atomic = re.search(rf"\batomic\w+\s*\(\s*&?\s*\(?\s*{name}\b", body)
        if atomic or (writes and writes == uses):
            found.add(name)
    return found or set(pointers_[-1:])


def _spread(text: str, name: str) -> int:
    """Return how many elements of an array lie between those of neighbours: 4 in `name[4 * i + 1]`."""
    inside = re.findall(rf"\b{name}\s*\[([^\[\];]*)\]", text)
    factors = [int(one) for part in inside for one in re.findall(r"(?:^|[\w)]\s*\*)\s*(\d+)\s*(?=$|[+*])", part)]
    return max([one for one in factors if 1 <= one <= 16] or [1])


def _passed_on(text: str, name: str) -> bool:
    """Return whether a kernel gives an array to a function as a whole."""
    return bool(re.search(rf"[(,]\s*{name}\s*[,)]", text.partition("{")[2]))


def _reach(kernel: KernelSource, text: str, values: Mapping[str, str], block: Sequence[int]) -> Reach:
    """Return how far the arrays of an instance of a kernel are reached with values of its parameters."""
    sizes = {own: int(value) for own, value in {**_templates(kernel), **values}.items() if value.isdigit()}
    return Reach(kernel.text, text, sizes, block)


def _count(shape: str, sizes: Mapping[str, int]) -> int:
    """Return the elements of a shape as this module writes them."""
    return math.prod(int(word) if word.isdigit() else sizes.get(word, 1) for word in shape.split("*"))


def _named(count: int, sizes: Mapping[str, int]) -> str:
    """Return a number by the arguments that it is, or is the product of."""
    large = {name: value for name, value in sizes.items() if value > 1}
    for name, value in large.items():
        if value == count:
            return name
    pairs = sorted(product(large.items(), repeat=2), key=lambda pair: pair[0][0] == pair[1][0])  # squares last
    for (first, one), (second, two) in pairs:
        if one * two == count:
            return f"{first}*{second}"
    for name, value in large.items():
        if value >= 64 and count % value == 0 and count // value <= 16:
            return f"{count // value}*{name}"
    for (first, one), (second, two) in pairs:
        if (one + 1) * two == count:
            return f"({first}+1)*{second}"
    return next((f"{name}+1" for name, value in large.items() if value + 1 == count), str(count))


def _shape(many: int, extents: Sequence[str], sizes: Mapping[str, int], threads: int, side: int) -> str:
    """Return the shape of an array that host code does not show: the extents' product, or an element a thread."""
    product = math.prod(sizes.get(name, side) for name in extents[:3])
    if extents and product >= threads:
        return f"{many}*{'*'.join(extents[:3])}" if many > 1 else "*".join(extents[:3])
    return _named(many * (threads or side), sizes)


def _sides(text: str, name: str, extents: Sequence[str]) -> list[str]:
    """Return the rows and columns of an array that a kernel takes by its rows: what bounds the indices `[i][j]`."""
    used = re.search(rf"\b{name}\s*\[\s*(\w+)\s*\]\s*\[\s*(\w+)\s*\]", text)
    sides = []
    for at in range(2):
        bound = used and re.search(rf"\b{used[at + 1]}\s*<=?\s*(\w+)", text)
        known = bound[1] if bound and (bound[1] in extents or bound[1].isdigit()) else ""
        sides.append(known or ([*extents[at:], *extents[-1:]] or [SIDES[2]])[0])
    return sides


def _itemsize(like: str) -> int:
    return 2 if like == "bfloat16" else np.dtype(like).itemsize


def _launch(
    request: UserRequest,
    kernel: KernelSource,
    extents: Sequence[str],
    count: str,
    launch: HostLaunch | None,
    sizes: Mapping[str, int],
    text: str,
) -> list[str]:
    """Return --grid and --block."""
    deep, wide = (_axes(kernel.text, names) for names in ("threadIdx", "threadIdx|blockIdx"))
    # `(blockIdx.x + blockIdx.y * gridDim.x) * blockDim.x + threadIdx.x` counts blocks in one row, however they lie.
    if deep == 1 and re.search(r"\bgridDim\s*\.\s*x\b", kernel.text):
        wide = 1
    own = _block(request, kernel, extents, launch, text)
    block = own + [1] * (wide - len(own)) if launch and launch.block else own
    if re.search(r"\bthis_grid\s*\(|\bgrid_group\b", kernel.text):
        grid = TOGETHER  # all of them must run at once
    elif launch and launch.grid and launch.block:
        grid = _grid(launch.grid, block, sizes)
    elif rows_ := _rows(kernel.text, extents) if wide == deep == 1 else "":
        grid = rows_
    elif wide > 1 and _dimensions(kernel, extents) >= wide:
        sides = [*block, 1, 1]
        every = extents[:wide] if len(extents) > 1 else [*extents] * wide
        grid = ",".join(f"cdiv({extent},{side})" for extent, side in zip(every, sides, strict=False))
    else:
        grid = f"cdiv({count},{block[0]})"
    return ["--grid", request.grid or grid, "--block", request.block or ",".join(map(str, own))]


def _said(request: UserRequest, kernel: KernelSource, launch: HostLaunch | None) -> tuple[bool, bool]:
    """Return whether the grid and the block of a line are the request's, or host code's."""
    together = "this_grid" in kernel.text
    grid = launch is not None and launch.grid is not None and launch.block is not None and not together
    return request.grid is not None or grid, request.block is not None or bool(launch and launch.block)


def _block(
    request: UserRequest, kernel: KernelSource, extents: Sequence[str], launch: HostLaunch | None, text: str
) -> list[int]:
    """Return the threads of a block along its axes: as the host launches, or as the kernel has room for."""
    if request.block and all(side.isdigit() for side in request.block.split(",")):
        return [int(side) for side in request.block.split(",")]
    own = list(launch.block) if launch and launch.block else []
    if own:
        while own[-1:] == [1] and len(own) > 1:
            own.pop()
        return own
    deep = _axes(kernel.text, "threadIdx")
    block = {1: [256], 2: [16, 16], 3: [8, 8, 4]}[deep if _dimensions(kernel, extents) >= deep else 1]
    room = _shared_room(kernel.text, text) if block == [256] else None
    bound = re.search(r"\b__launch_bounds__\s*\(\s*(\w+)", kernel.text)
    most = _templates(kernel).get(bound[1], bound[1]) if bound else ""
    if most.isdigit() and math.prod(block) > int(most) > 0:
        room = min(room or int(most), int(most))
    return [room] if room else block


def _templates(kernel: KernelSource) -> dict[str, str]:
    """Return what an instance of a template is given, by the names of its parameters."""
    words = split(words_of(kernel.expression.partition("<")[2].rpartition(">")[0]), ",")
    return {one.name: spell(part) for one, part in zip(kernel.template_parameters, words, strict=False)}


def _rows(text: str, extents: Sequence[str]) -> str:
    """Return the extent that a kernel takes a block each for, '' for one that takes a thread for each element."""
    if not re.search(r"\bblockIdx\s*\.\s*x\b", text) or re.search(
        r"\bblockIdx\s*\.\s*x\s*\)?\s*\*\s*\(?\s*(?:blockDim\b|\w+\s*\)?\s*\+\s*threadIdx)|\bblockDim\s*\.\s*x\s*\*",
        text,
    ):
        return ""
    own = ["blockIdx\\s*\\.\\s*x", *re.findall(r"\b(\w+)\s*=\s*blockIdx\s*\.\s*x\s*;", text)]
    block = "|".join(own)
    guarded = [one for one in extents if re.search(rf"\b(?:{block})\s*(?:<|>=)\s*{one}\b", text)]
    lengths = [one for one in extents if re.search(rf"\b(?:{block})\s*\*\s*{one}\b|\b{one}\s*\*\s*(?:{block})\b", text)]
    if lengths == list(extents):
        return "1"
    return (guarded or ([one for one in extents if one not in lengths] if lengths else []) or [""])[0]


def _dimensions(kernel: KernelSource, extents: Sequence[str]) -> int:
    """Return how many dimensions a problem has: its extents, or the threads' axes where one extent is all sides."""
    return len(extents) if len(extents) != 1 else max(1, _axes(kernel.text, "threadIdx"))


def _shared_room(kernel: str, text: str) -> int | None:
    """Return the threads for which a kernel's shared arrays that it indexes by threadIdx.x alone have room."""
    own = {"threadIdx.x", *re.findall(r"\b(\w+)\s*=\s*threadIdx\s*\.\s*x\s*[;,]", kernel)}
    index = "|".join(re.escape(one) for one in own)
    sizes = []
    for name, size in re.findall(r"__shared__\s+(?:volatile\s+)?[\w:]+\s+(\w+)\s*\[\s*(\w+)\s*\]", kernel):
        known = re.search(rf"(?:#\s*define\s+{size}\s+|\b{size}\s*=\s*)\(?\s*(\d+)\b", text)
        count = size if size.isdigit() else known[1] if known else ""
        if count and re.search(rf"\b{name}\s*\[\s*(?:{index})\s*\]", kernel):
            sizes.append(int(count))
    return next((least for least in sorted(sizes) if 32 <= least <= 1024), None)


def _axes(text: str, names: str) -> int:
    """Return how many axes of these a kernel asks for."""
    used = [axis for axis in "xyz" if re.search(rf"\b(?:{names})\s*\.\s*{axis}\b", text)]
    return {"z": 3, "y": 2}.get(used[-1] if used else "x", 1)


def _grid(grid: Sequence[int], block: Sequence[int], sizes: Mapping[str, int]) -> str:
    """Return a grid in numbers, or by the one argument that it covers."""
    if grid[1] == grid[2] == 1:
        covered = [name for name, value in sizes.items() if value > 1 and -(-value // block[0]) == grid[0] > 1]
        return f"cdiv({covered[0]},{block[0]})" if len(covered) == 1 else str(grid[0])
    return ",".join(map(str, grid[: 3 if grid[2] > 1 else 2]))


def _dynamic_shared(kernel: KernelSource, text: str) -> bool:
    names = re.findall(
        r"\bextern\s+__shared__\s+[^;\[\]]*?(\w+)\s*\[\s*\]|\b__shared__\s+extern\s+[^;\[\]]*?(\w+)\s*\[", text
    )
    return any(re.search(rf"\b{name}\b", kernel.text) for pair in names for name in pair if name)


def _elements(parameter: Parameter, text: str, aliases: Mapping[str, str]) -> int:
    """Return how many elements of an array's type one of a pointer takes."""
    many = pointers.elements(parameter, aliases)
    if many is not None:
        return many
    layout = layout_of(parameter.type, text, aliases)
    return layout.size if layout else UNKNOWN_BYTES


def _whole(parameter: Parameter, aliases: Mapping[str, str]) -> bool:
    """Return whether a parameter is a whole number with a name."""
    dtype = None if parameter.pointer else source.numpy_dtype(parameter.type, aliases)
    return bool(dtype and parameter.name) and np.dtype(dtype).kind in "iu"
