"""A right command line for a kernel, for messages: from its signature, its text and what was given already."""

from __future__ import annotations

import math
import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache, partial

import numpy as np

from cudabench.errors import UsageError
from cudabench.toolchain import includes, places, preprocess, source, toolkit
from cudabench.toolchain.named import template_arguments
from cudabench.toolchain.signatures import types_listed, types_of
from cudabench.toolchain.source import KernelSource, Parameter, SourceFile
from cudabench.userkernel import constants, pointers, rows, tensor_maps, textures
from cudabench.userkernel.accessors import accessor_of
from cudabench.userkernel.arguments import NoLine, check_taken
from cudabench.userkernel.by_value import Layout, layout_of
from cudabench.userkernel.problem import dimensions
from cudabench.userkernel.request import UserRequest
from cudabench.userkernel.suggested import host_launch, launching, object_examples, orders
from cudabench.userkernel.suggested.counters import counters
from cudabench.userkernel.suggested.fitting import fitted, room_for
from cudabench.userkernel.suggested.host_launch import HostLaunch
from cudabench.userkernel.suggested.instances import instance
from cudabench.userkernel.suggested.reach import RANDOM_BELOW, Reach
from cudabench.userkernel.suggested.strides import strides
from cudabench.userkernel.suggested.uses import numbers_by_pointer, outputs
from cudabench.userkernel.type_names import aliases_of
from cudabench.userkernel.values import CONSTANTS

ELEMENTS = 1 << 20
CHECKED = 10007  # of `check`: arrays end within a block, where faults are
ALONE = 256  # elements for a kernel of one block, which has a thread for each
SIDES = {2: 256, 3: 64, 6: 16}  # of a problem with so many dimensions, or more
SMALLER = (2048, 512, 256, 64, 16, 8, 4)  # where a thread would loop, or an array reach, too far
POINTED = 16  # what a number is that a kernel reads through a pointer: an extent, as far as its text shows
MOST_TRIPS, MOST_REACHED = 1 << 11, 1 << 24
MOST_HELD = 1 << 26  # elements of an array of which no index says more
MOST_TURNS = 1 << 26  # of loops, by all threads together: a minute in the simulator
MOST_LAUNCHED = 1 << 23  # threads of a grid that nothing in the file says
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
    r"dilation|groups?|radius|halo|half_?(?:width|size|window)|ksize|kernel_?size|start|begin|first|direction|[xyz]0|"
    r"^inc\w?|^off\w?)$|^(?:use|is|has|do|with|enable)_"
)
_ZERO = re.compile(r"pad(?:ding)?$|^off|[xyz]0$")  # flags that shift nothing so
_RANDOM_STATE = re.compile(r"curandState\w*")
_CURAND = "#include <curand_kernel.h>"
_HALVES = re.compile(r">>=?\s*1\b|<<=\s*1\b|[*/]=\s*2\b|/\s*2\b")  # a tree, of a power of two
_TAPS = re.compile(r"[spd]\d")  # strides, paddings and dilations


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
    ragged = command == "check"
    name = kernel.expression or kernel.qualified_name
    extents = _extents(kernel, file.text, aliases)
    if kernel.template_parameters and "<" not in name:
        side = _first_side(kernel, extents, None, ragged)
        launch = host_launch.find(file.text, kernel, dict.fromkeys(extents, side), aliases)
        name = instance(kernel, file, launch, aliases)
        kernel = source.find(file, name)
        extents = _extents(kernel, file.text, aliases)
    elif kernel.overloaded and "(" not in name:
        name += types_listed(kernel.parameters)
    unknown = _unknown_types(kernel, file.text, aliases)
    if unknown:
        aliases = {**aliases, **unknown}
        extents = _extents(kernel, file.text, aliases)
    check_taken(kernel, file.text, aliases)
    given = request.given()
    _check_pointed(kernel, file.text, aliases, given)
    asked = _asked(request, file, kernel, aliases, extents, ragged)
    sizes, extents = asked.sizes, asked.extents
    words: list[str] = []
    guesses: list[Guess] = []
    for at, parameter in enumerate(kernel.parameters):
        own = parameter.name or f"arg{at}"
        host = _number(at, parameter, asked.said, aliases)
        guessed = "" if host and (own not in extents or not ragged or asked.values.get(own) == host) else "number"
        if parameter.type == tensor_maps.TYPE:
            value = tensor_maps.EXAMPLE
        elif parameter.pointer:
            value, guessed = _array(at, parameter, kernel, file, aliases, extents, asked)
        elif parameter.type == textures.TYPE:
            value = object_examples.texture(own, kernel.text, aliases, file.text)
        elif parameter.type == textures.SURFACE_TYPE:
            types = {**aliases, **template_arguments(kernel)}
            value = object_examples.surface(own, kernel.text, types, extents, sizes, file.text)
        elif accessor := accessor_of(parameter.type, file.text, aliases):
            value = accessor.example(pointers.like(accessor.parameter(own), aliases))
        else:
            value = _plain(at, parameter, file, aliases, extents, asked)
        words += ["--arg", f"{own}={given.get(own, value)}"]
        if guessed and own not in given:
            guesses.append(Guess("--arg", words[-1], guessed))
    words += [word for text in request.expect for word in ("--expect", text)]
    set_ = {text.partition("=")[0].strip() for text in request.constants}
    launch = asked.launch
    for constant in constants.unset(file, kernel, ()):
        if constant not in set_:
            host = _spelt(launch.constants.get(constant) if launch else None)
            value = host or _spelt(asked.constants.get(constant))
            words += ["--const", f"{constant}={constants.like(constant, file, aliases, value)}"]
            if not host:
                guesses.append(Guess("--const", words[-1], "number"))
    words += [word for text in request.constants for word in ("--const", text)]
    known = {**sizes, **asked.constants}
    grid, block = launching.geometry(request, kernel, asked.sides, asked.side, launch, known, file.text)
    if any(re.search(rf"\b{constant}\b", grid) for constant in asked.constants):
        blocks = ",".join(map(str, _sides_of(grid, known)))  # --grid knows no constants
        grid = re.sub(r"(,1)+$", "", blocks)
    for option, text, host_says in zip(
        ("--grid", "--block"), (grid, block), launching.said(request, kernel, launch), strict=True
    ):
        if not host_says:
            guesses.append(Guess(option, text, "launch"))
    launched = ["--grid", grid, "--block", block]
    cluster = request.cluster or launching.cluster(kernel, launch)
    if cluster:
        launched += ["--cluster", cluster]
    if request.shared is None and launch and launch.shared:
        launched += ["--shared", str(launch.shared)]
    elif request.shared is None and launching.dynamic_shared(kernel, file.text):
        launched += ["--shared", SHARED_BYTES]
        guesses.append(Guess("--shared", SHARED_BYTES, "launch"))
    defines = [f"{macro}={value}" if value else macro for macro, value in request.defines.items()]
    defines += [f"{ctype}={meant}" for ctype, meant in unknown.items()]
    defines += [f"{name}={side}" for name, side in launching.of_a_build(kernel, file.text).items()]
    options = [word for folder in request.include for word in ("-I", str(folder))]
    options += [word for define in defines for word in ("-D", define)]
    return Line(("cudabench", command, file.path, "--kernel", name, *options, *launched, *words), tuple(guesses))


# How large a problem is ----------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Asked:
    """A problem of a size that a first look can take.

    `extents` are of arrays, `values` the numbers by their parameters, `sizes` those of them that are whole, `starts`
    how arrays of whole numbers start, `said` the host's launch as far as it is one whatever the problem's extents are,
    `constants` the `__constant__` variables that are extents, too.
    """

    side: int
    launch: HostLaunch | None
    extents: list[str]
    values: Mapping[str, str]
    sizes: Mapping[str, int]
    starts: Mapping[str, str]
    reach: Reach
    said: HostLaunch | None
    constants: Mapping[str, int]

    @property
    def sides(self) -> list[str]:
        """The names of the problem's extents, those of constants last."""
        return [*self.extents, *self.constants]

    @property
    def threads(self) -> int:
        """The threads of the host's launch, 0 where it is not known."""
        launch = self.launch
        return math.prod(launch.grid) * math.prod(launch.block) if launch and launch.grid and launch.block else 0


def _first_side(kernel: KernelSource, extents: Sequence[str], launch: HostLaunch | None, ragged: bool) -> int:
    """Return how large an extent is to be, before loops and arrays are looked at."""
    dimensions = launching.dimensions_of(kernel, extents)
    side = next((SIDES[least] for least in sorted(SIDES, reverse=True) if dimensions >= least), 0)
    side = side or (CHECKED if ragged else ELEMENTS)
    if (
        launch and launch.block and math.prod(launch.block) > launching.MOST_OF_A_BLOCK
    ):  # a thread for each element of a block
        return SIDES[2]
    if any(parameter.type == textures.SURFACE_TYPE for parameter in kernel.parameters):
        side = min(side, object_examples.side_of_surfaces(kernel.text))
    if launching.blocks_of_rows(kernel.text, extents) == "1":
        return min(side, SMALLER[0])
    return side


def _asked(
    request: UserRequest,
    file: SourceFile,
    kernel: KernelSource,
    aliases: Mapping[str, str],
    extents: Sequence[str],
    ragged: bool,
) -> _Asked:
    """Return the largest problem for which no thread loops for long and no array reaches too far."""
    bare = Reach(kernel.text, file.text, {}, (), (), partial(_nbytes, aliases=aliases))
    rooms = {own: room_for(own, bare, _member_arrays(kernel, file.text, aliases)) for own in extents}
    dtypes = {one.name: source.numpy_dtype(one.type, aliases) or "int32" for one in kernel.parameters if one.name}
    most = 0  # threads of a host's launch, where each does much

    def assumed(side: int) -> dict[str, int]:
        return {
            own: fitted(own, value, dtypes[own], rooms[own], kernel.text, ragged)
            for own, value in _extended(extents, side).items()
        }

    def find(side: int, **others: int) -> HostLaunch | None:
        launch = host_launch.find(file.text, kernel, {**assumed(side), **others}, aliases, ragged, most)
        return launching.with_named_threads(launch, kernel)

    given = request.given()
    said = host_launch.find(file.text, kernel, {}, aliases)
    starts = orders.starts(kernel, aliases)
    constant = [] if said else _constant_extents(request, file, kernel, aliases)
    numbers = [one.name for one in kernel.parameters if _whole(one, aliases)]
    arrays = [one for one in kernel.parameters if one.pointer]
    width = max((_nbytes(one.type, aliases) or 1 for one in arrays), default=1)
    stepped = partial(strides, numbers, text=kernel.text, width=width)
    steps = stepped(1)
    unsaid = {own: "0" if _ZERO.search(own.lower()) else "1" for own in numbers}
    # `tile[i * BLOCK_SIZE + j]` with what a parameter calls the block's side.
    blocks = [] if said else [own for own in numbers if launching.NAMED_THREADS.fullmatch(own)]
    extents = [own for own in extents if own not in (*steps, *blocks)]
    own_sides = [own for own in extents if not _is_product(own, extents)]
    every = [*own_sides, *constant]
    found = find(_first_side(kernel, every, None, ragged))
    first = _first_side(kernel, every, found, ragged)
    if found is None and launching.dimensions_of(kernel, every) == 1 and launching.is_alone(kernel, file.text):
        first = ALONE - (ragged and not _HALVES.search(kernel.text))
    for side in (first, *(one for one in SMALLER if one < first)):
        values = unsaid | {own: str(value) for own, value in {**assumed(side), **stepped(side)}.items()}
        launch = find(side)
        if launch and launch.block and math.prod(launch.block) == 1 < side and len(extents) > 1:
            # A block of one thread, for its extents divide each other: let one be 1.
            for own in extents:
                other = find(side, **{own: 1})
                if other and other.block and 1 < math.prod(other.block) <= launching.MOST_OF_A_BLOCK:
                    launch = other
                    values[own] = "1"
                    break
        for at, one in enumerate(kernel.parameters):
            own = one.name or f"arg{at}"
            values |= {own: text} if (text := _number(at, one, launch, aliases)) else {}
        side_of_block = launching.block_of(request, kernel, extents, launch, file.text)[0]
        values |= dict.fromkeys(blocks, str(side_of_block))
        values |= {own: text for own, text in given.items() if own in values}
        sizes = {own: int(value) for own, value in values.items() if value.isdigit()}
        within = [own for own in own_sides if 0 < sizes.get(own, 1) <= MOST_REACHED]  # none else is one of an array
        fixed = dict.fromkeys(constant, side)
        reach = _reach(request, kernel, file, aliases, within, side, launch, sizes, starts, fixed)
        asked = _Asked(side, launch, within, values, sizes, starts, reach, said, fixed)
        reached = (reach.elements(one.name) for one in kernel.parameters if one.pointer and one.name)
        threads = math.prod(reach.grid) * math.prod(reach.block)
        looped = reach.trips()
        steps_fit = all(value <= MOST_REACHED for value in stepped(side).values())
        if (
            steps_fit
            and looped <= MOST_TRIPS
            and threads <= MOST_LAUNCHED
            and threads * looped <= MOST_TURNS
            and max(reached, default=0) <= MOST_REACHED
        ):
            break
        if threads * looped > MOST_TURNS and asked.threads > FEW_THREADS:
            most = max(asked.threads // 8, FEW_THREADS)
    return asked


def _member_arrays(kernel: KernelSource, text: str, aliases: Mapping[str, str]) -> dict[tuple[str, str], int]:
    """Return the elements of the arrays in structs that a kernel takes by value, by the parameter and the member."""
    layouts = {
        one.name: layout_of(one.type, text, aliases) for one in kernel.parameters if one.name and not one.pointer
    }
    return {
        (own, member): inner.count
        for own, layout in layouts.items()
        for member, _, inner in (layout.members if layout else ())
        if inner.count
    }


def _extended(extents: Sequence[str], side: int) -> dict[str, int]:
    """Return a size for each extent; one that is called after others, such as `rows_columns`, is their product."""
    return {
        own: side ** len(own.split("_")) if _is_product(own, extents) and not _is_padded(own, extents) else side
        for own in extents
    }


def _is_product(own: str, extents: Sequence[str]) -> bool:
    """Return whether an extent is called after others, as the product of them or one with padding."""
    parts = own.split("_")
    return (len(parts) > 1 and all(part in extents for part in parts)) or _is_padded(own, extents)


def _is_padded(own: str, names: Sequence[str]) -> bool:
    """Return whether a name is another's with padding, such as `columns_pad`."""
    other, _, ending = own.rpartition("_")
    return other in names and ending in ("pad", "padded")


def _reach(
    request: UserRequest,
    kernel: KernelSource,
    file: SourceFile,
    aliases: Mapping[str, str],
    extents: Sequence[str],
    side: int,
    launch: HostLaunch | None,
    sizes: Mapping[str, int],
    starts: Mapping[str, str],
    constant: Mapping[str, int],
) -> Reach:
    """Return how far the arrays of an instance of a kernel are reached with numbers of its parameters, and of
    `__constant__` variables."""
    known = {**sizes, **constant}
    numbers = {own: int(value) for own, value in template_arguments(kernel).items() if value.isdigit()} | known
    for at, one in enumerate(kernel.parameters):
        layout = None if one.pointer or not one.name else layout_of(one.type, file.text, aliases)
        if layout and layout.members and not layout.vector:
            said = _members(at, layout, launch)
            numbers |= {f"{one.name}.{own}": int(said.get(own, 1)) for own, _, inner in layout.members if inner.dtype}
    texts = launching.geometry(request, kernel, [*extents, *constant], side, launch, known, file.text)
    grid, block = (_sides_of(text, known) for text in texts)
    most = _count(_shape(1, extents, sizes, 0, side), sizes)
    below = _below(extents, sizes)
    held = {one.name: below - 1 for one in kernel.parameters if one.pointer and _is_whole(one, aliases)}
    held |= {own: most - (start != "i0") for own, start in starts.items()}  # offsets are one more
    return Reach(kernel.text, file.text, numbers, block, grid, partial(_nbytes, aliases=aliases), held)


def _sides_of(text: str, sizes: Mapping[str, int]) -> Sequence[int]:
    """Return a grid or a block in numbers, () where it names what is not known."""
    try:
        return dimensions(text, "--grid", {**CONSTANTS, **sizes})
    except UsageError:
        return ()


def _nbytes(ctype: str, aliases: Mapping[str, str]) -> int | None:
    """Return the bytes of a type's name."""
    dtype = source.numpy_dtype(ctype, aliases)
    if dtype:
        return _itemsize(dtype)
    vector = source.vector_type(ctype, aliases)
    return np.dtype(vector[0]).itemsize * vector[1] if vector else None


# What an argument is given -------------------------------------------------------------------------------------------


def _array(
    at: int,
    parameter: Parameter,
    kernel: KernelSource,
    file: SourceFile,
    aliases: Mapping[str, str],
    extents: Sequence[str],
    asked: _Asked,
) -> tuple[str, str]:
    """Return an array as --arg writes it, and what in it is guessed."""
    own, sizes = parameter.name or f"arg{at}", asked.sizes
    start = asked.starts.get(own, "zeros" if own in outputs(kernel) | counters(kernel, file.text) else "random")
    if asked.launch and at in asked.launch.cleared:
        start = "zeros"
    by_rows = rows.of_pointers(parameter)
    if own in numbers_by_pointer(kernel) and _is_whole(parameter, aliases):
        return f"{pointers.like(parameter, aliases)}[1]:full({POINTED})", "number"
    if by_rows:
        parameter = rows.row_of(parameter)
    many = _elements(parameter, file.text, aliases)
    like = pointers.like(parameter, aliases)
    width = _itemsize(like)
    nbytes = asked.launch.nbytes.get(at) if asked.launch else None
    if nbytes and nbytes >= width:
        shape = launching.by_name(nbytes // width, sizes)
    else:
        deep = launching.dimensions_of(kernel, asked.sides) if asked.constants and not extents else 1
        all_ = asked.side ** min(deep, 3)  # of a problem whose extents are constants
        shape = _shape(many * _spread(kernel.text, own), extents, sizes, asked.threads, all_)
        reached = asked.reach.elements(own, many * width)
        dimensions = launching.dimensions_of(kernel, extents)
        if not reached and len(extents) == 1 < dimensions:  # one extent is all sides
            shape = _shape(many * _spread(kernel.text, own), [*extents] * dimensions, sizes, asked.threads, asked.side)
        least = max(many * reached, LEAST_PASSED_ON if _passed_on(kernel.text, own) else 0)
        if least > _count(shape, sizes):
            shape = launching.by_name(least, sizes)
        elif start == "i0":
            shape += "+1"
    whole_numbers = _is_whole(parameter, aliases) and start != "zeros"
    below = min(_below(extents, sizes), *([POINTED, RANDOM_BELOW] if numbers_by_pointer(kernel) else [RANDOM_BELOW]))
    if whole_numbers and start == "random" and below < RANDOM_BELOW:
        start = f"integers(1,{below})"  # as indices and lengths of a small problem are
    guessed = "indices" if whole_numbers else "" if nbytes else "size"
    if by_rows:
        sides = _sides(kernel.text, own, extents)
        while math.prod(sizes.get(one, 1) for one in sides) > MOST_HELD:
            sides[max(range(2), key=lambda at: sizes.get(sides[at], 1))] = str(SMALLER[-2])
        shape = ",".join(sides)
    return f"{like}[{shape}]:{start}", guessed


def _check_pointed(kernel: KernelSource, text: str, aliases: Mapping[str, str], given: Mapping[str, str]) -> None:
    """Raise NoLine for an array of structs whose pointers a kernel follows and does not compare with null: whatever
    bytes stood there, the kernel would be reported for what the line gave."""
    for parameter in kernel.parameters:
        if not parameter.pointer or parameter.name in given:
            continue
        layout = layout_of(parameter.type, text, aliases)
        own = text if _passed_on(kernel.text, parameter.name) else kernel.text
        for name, _, member in layout.members if layout else ():
            pointer = rf"(?:\.|->)\s*{name}\b"
            compared = rf"{pointer}\s*(?:[=!]=|\))|![\w.>-]*{pointer}"
            if member.pointee and re.search(pointer, own) and not re.search(compared, own):
                raise NoLine(
                    f"no line can be suggested, for '{parameter}' of {kernel.qualified_name} is an array of structs "
                    f"with pointers in memory ('{name}'), which no --arg can set: write a __global__ function beside "
                    f"it that takes '{name}' as an array of its own."
                )


def _is_whole(parameter: Parameter, aliases: Mapping[str, str]) -> bool:
    """Return whether an array is one of whole numbers that can be indices."""
    like = pointers.like(parameter, aliases)
    return like != "bfloat16" and np.dtype(like).kind in "iu"


def _below(extents: Sequence[str], sizes: Mapping[str, int]) -> int:
    """Return what whole numbers in arrays are below: the least extent, or what random ones are below anyhow. Less than
    three is no extent but a step of a loop of the host's."""
    return min([RANDOM_BELOW, *(size for own in extents if (size := sizes.get(own, 0)) > 2)])


def _plain(
    at: int,
    parameter: Parameter,
    file: SourceFile,
    aliases: Mapping[str, str],
    extents: Sequence[str],
    asked: _Asked,
) -> str:
    """Return a number, a vector or a struct as --arg writes it."""
    own = parameter.name or f"arg{at}"
    layout = layout_of(parameter.type, file.text, aliases)
    value = asked.values.get(own, "")
    if 0 < asked.threads <= FEW_THREADS and own in extents and value.isdigit():
        value = str(min(int(value), FEW_THREADS_SIDE))
    members = _members(at, layout, asked.launch) if layout else {}
    if parameter.type == "cudaPitchedPtr" and not {"ptr", "pitch"} <= {*members}:
        raise NoLine(
            f"no line can be suggested, for nothing here says how large the memory of '{parameter}' is: give --arg "
            f"'{own}={{ptr: float32[BYTES/4]:zeros, pitch: BYTES OF A ROW, xsize: BYTES USED OF IT, ysize: ROWS}}'."
        )
    return value or (layout.example(members) if layout else "2.5")


def _members(at: int, layout: Layout, launch: HostLaunch | None) -> dict[str, float]:
    """Return what host code gives the members of a struct, by their names."""
    read = launch.members.get(at, {}) if launch else {}
    by_name = {name: read.get(name, read.get(str(order))) for order, (name, _, _) in enumerate(layout.members)}
    return {name: value for name, value in by_name.items() if value is not None}


def _unknown_types(kernel: KernelSource, text: str, aliases: Mapping[str, str]) -> dict[str, str]:
    """Return the types of parameters that nothing declares, as of a header that is missing, each with a guess.

    Raises NoLine for one that the kernel uses as a class, for which no number can stand.
    """
    guesses = {}
    for parameter in kernel.parameters:
        ctype = parameter.type.rstrip("*").strip()
        ctype = aliases.get(ctype, ctype)
        if not re.fullmatch(r"[^\W\d]\w*", ctype) or ctype in ("void", tensor_maps.TYPE, *textures.OBJECTS):
            continue
        named = rf"\b(?:struct|class|union|enum|typename)\s+{ctype}\b|\}}\s*{ctype}\s*[;,]"
        known = pointers.elements(Parameter("", ctype), aliases) or layout_of(ctype, text, aliases)
        if ctype == "uchar" and ctype not in aliases:  # OpenCV's; `uint` and `ushort` are the C library's
            known = None
        if known or re.search(named, text) or f"elements of {ctype}" in aliases:
            continue
        if _RANDOM_STATE.fullmatch(ctype):
            if toolkit.of_device_libraries(_CURAND):
                continue  # the compiler knows it
            raise NoLine(
                f"no line can be suggested, for '{parameter}' of {kernel.qualified_name} is of <curand_kernel.h>, "
                "which is not here: pip install nvidia-curand, or name its folder with -I."
            )
        if _is_class(ctype, parameter.name, kernel.text):
            raise NoLine(
                f"no line can be suggested, for nothing here declares the class {ctype} of {kernel.qualified_name}: "
                "name the folder of the header that declares it with -I, or put the declaration into the file."
            )
        guesses[ctype] = next((kind for pattern, kind in _GUESSES if re.search(pattern, ctype.lower())), "float")
    here = re.search(r"\bcurand_\w+\s*\([^(){};]*\)\s*\{", text) or toolkit.of_device_libraries(_CURAND)
    if not here and re.search(r"\bcurand_\w+\s*\(", kernel.text):
        raise NoLine(
            f"no line can be suggested, for {kernel.qualified_name} draws random numbers by <curand_kernel.h>, "
            "which is not here: pip install nvidia-curand, or name its folder with -I."
        )
    return guesses


def _is_class(ctype: str, name: str, text: str) -> bool:
    """Return whether a kernel uses members of a type: of a parameter, of what else it declares so, or by `::`."""
    declared = re.findall(rf"\b{ctype}\s*(?:const\s*)?[&*]*\s*(\w+)\s*[=;,(]", text)
    names = "|".join(dict.fromkeys(one for one in (name, *declared) if one))
    return bool(re.search(rf"\b(?:{names})\s*(?:\[[^\[\]]*\]\s*)?(?:\.|->)\s*[^\W\d]|\b{ctype}\s*::", text))


def _extents(kernel: KernelSource, text: str, aliases: Mapping[str, str]) -> list[str]:
    """Return the parameters that are the problem's extents: whole numbers that choose nothing and shift nothing."""
    return [
        p.name
        for p in kernel.parameters
        if _whole(p, aliases)
        and (
            not (_FLAGS.search(p.name.lower()) or _TAPS.fullmatch(p.name))
            or _is_padded(p.name, [one.name for one in kernel.parameters])
        )
        and not _is_enumeration(p.type, text)
    ]


@lru_cache(maxsize=64)  # the types of a kernel's parameters are few
def _is_enumeration(ctype: str, text: str) -> bool:
    """Return whether a text has an enumeration of this name."""
    named = rf"\benum\s+(?:class\s+|struct\s+)?{ctype}\b|\benum\b[^;{{}}]*{{[^{{}}]*}}\s*{ctype}\b"
    return places.first(re.compile(named), text, "enum") is not None


def _constant_extents(
    request: UserRequest, file: SourceFile, kernel: KernelSource, aliases: Mapping[str, str]
) -> list[str]:
    """Return the `__constant__` variables that nothing sets and that are the problem's extents, as parameters are."""
    set_ = {text.partition("=")[0].strip() for text in request.constants}
    found = []
    for name in constants.unset(file, kernel, ()):
        value = constants.like(name, file, aliases)
        if value == "1" and name not in set_ and not _FLAGS.search(name.lower()):
            found.append(name)
    return found


def with_headers_nearby(request: UserRequest) -> tuple[UserRequest, SourceFile] | None:
    """Return a request with the folders of headers that lie around its file and that no -I names, and the file as the
    compiler then reads it; None where there are none. A macro that hides all of the file's kernels is defined."""
    written = source.read(request.file)
    folders = includes.lacking(written.text, request.file, request.include)
    hiding = _hiding(written.text, request)
    if not folders and not hiding:
        return None
    wider = replace(request, include=(*request.include, *folders), defines={**request.defines, **hiding})
    return wider, source.preprocessed(written, wider.defines, wider.include)


def _hiding(text: str, request: UserRequest) -> dict[str, str]:
    """Return the macros without which a preprocessor leaves no kernel of a file: `#ifdef USE_CUDA` around them all."""
    first = re.search(r"\b__global__\b", text)
    if first is None:
        return {}
    opened: list[str] = []
    for match in re.finditer(r"^[ \t]*#[ \t]*(if|endif|else|elif)(\w*)[ \t]*([^\n]*)", text[: first.start()], re.M):
        if match[1] == "if":
            named = re.match(r"\(?\s*(?:defined\s*\(?\s*)?([^\W\d]\w*)\s*\)*\s*$", match[3].split("//")[0].strip())
            opened.append(named[1] if named and match[2] in ("", "def") else "")
        elif match[1] == "endif" and opened:
            opened.pop()
    macros = {name: "1" for name in opened if name and not name.startswith("__") and name not in request.defines}
    expanded = preprocess.expand(text, request.file, request.defines, request.include) if macros else None
    return {} if expanded is None or "__global__" in expanded else macros


def _with_headers_nearby(
    request: UserRequest, file: SourceFile, kernel: KernelSource, aliases: Mapping[str, str]
) -> tuple[UserRequest, SourceFile, KernelSource, Mapping[str, str]]:
    """Return the same as `with_headers_nearby` leaves it."""
    found = with_headers_nearby(request)
    if found is None:
        return request, file, kernel, aliases
    wider, file = found
    wide = aliases_of(file, wider.defines, wider.include)
    own = _same_kernel(kernel, file)
    return wider, file, source.resolved(own, wide) if own else kernel, wide


def _same_kernel(kernel: KernelSource, file: SourceFile) -> KernelSource | None:
    """Return a kernel as a file has it that was read with more headers, whose macros may give it other types."""
    try:
        if kernel.expression not in ("", kernel.qualified_name):
            return source.find(file, kernel.expression)
    except UsageError:  # of other types in a call's brackets
        return None
    named = [one for one in file.kernels if one.qualified_name == kernel.qualified_name]
    same = [one for one in named if types_of(one.parameters) == types_of(kernel.parameters)]
    own = same[0] if same else named[0] if len(named) == 1 else None
    return replace(own, expression=kernel.expression) if own else None


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


def _spread(text: str, name: str) -> int:
    """Return how many elements of an array lie between those of neighbours: 4 in `name[4 * i + 1]`."""
    inside = re.findall(rf"\b{name}\s*\[([^\[\];]*)\]", text)
    factors = [int(one) for part in inside for one in re.findall(r"(?:^|[\w)]\s*\*)\s*(\d+)\s*(?=$|[+*])", part)]
    return max([one for one in factors if 1 <= one <= 16] or [1])


def _passed_on(text: str, name: str) -> bool:
    """Return whether a kernel gives an array to a function as a whole."""
    return bool(re.search(rf"[(,]\s*{name}\s*[,)]", text.partition("{")[2]))


def _count(shape: str, sizes: Mapping[str, int]) -> int:
    """Return the elements of a shape as this module writes them."""
    return math.prod(int(word) if word.isdigit() else sizes.get(word, 1) for word in shape.split("*"))


def _shape(many: int, extents: Sequence[str], sizes: Mapping[str, int], threads: int, side: int) -> str:
    """Return the shape of an array that host code does not show: the extents' product, or an element a thread."""
    taken = [
        name
        for at, name in enumerate(extents[:3])
        if math.prod(sizes.get(one, side) for one in extents[: at + 1]) <= MOST_HELD
    ]
    if taken and math.prod(sizes.get(name, side) for name in taken) >= threads:
        return f"{many}*{'*'.join(taken)}" if many > 1 else "*".join(taken)
    return launching.by_name(many * (threads or side), sizes)


def _sides(text: str, name: str, extents: Sequence[str]) -> list[str]:
    """Return the rows and columns of an array that a kernel takes by its rows: what bounds the indices `[i][j]`."""
    used = re.search(rf"\b{name}\s*\[\s*(\w+)\s*\]\s*\[\s*(\w+)\s*\]", text)
    sides = []
    for at in range(2):
        bound = used and re.search(rf"\b{used[at + 1]}\s*<=?\s*(\w+)", text)
        known = bound[1] if bound and (bound[1] in extents or bound[1].isdigit()) else ""
        sides.append(known or ([*extents[at:], *extents[-1:]] or [str(SIDES[2])])[0])
    return sides


def _itemsize(like: str) -> int:
    return 2 if like == "bfloat16" else np.dtype(like).itemsize


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
