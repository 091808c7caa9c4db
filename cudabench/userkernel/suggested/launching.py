"""The grid and the block of a line that a message suggests: as host code launches, or as a kernel's text asks."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import product

from cudabench.toolchain import places
from cudabench.toolchain.kernels import KernelSource
from cudabench.toolchain.named import template_arguments
from cudabench.toolchain.reached import names
from cudabench.userkernel.request import UserRequest
from cudabench.userkernel.suggested.covered import Covered
from cudabench.userkernel.suggested.host_launch import MOST_THREADS, HostLaunch
from cudabench.userkernel.suggested.reach import joined

TOGETHER = "32"  # blocks that wait for each other
MOST_OF_A_BLOCK = 1024
_BLOCKS = {1: [256], 2: [16, 16], 3: [8, 8, 4]}
NAMED_THREADS = re.compile(
    r"(?:k|n|num)?_?(?:block_?(?:size|dim|threads)|threads(?:_?per_?block)?|tpb|cta_?(?:size|threads))(?:_?x)?_?", re.I
)
_HEADS = re.compile(r"\b(\w+)\s*\([^(){};]*\)\s*(?:const\s*)?\{|\b(?:struct|class)\s+(\w+)\s*(?::[^{};]*)?\{")
_IN_A_ROW = re.compile(
    r"\bblockIdx ?\. ?[yz] ?\)? ?\* ?\(? ?gridDim ?\. ?[xy]\b|\bgridDim ?\. ?[xy] ?\)? ?\* ?\(? ?blockIdx ?\. ?[yz]\b"
)
_WARPS = re.compile(r"\b(?:__shfl|__reduce_|__ballot|__activemask|__syncwarp)|\btiled_partition\s*<\s*32\b")
_DYNAMIC = re.compile(
    r"\b(?:extern\s[^;{}\[\]]*\b__shared__|__shared__\s[^;{}\[\]]*\bextern)\b[^;{}\[\]]*?(\w+)\s*\[\s*\]"
)


def geometry(
    request: UserRequest,
    kernel: KernelSource,
    extents: Sequence[str],
    side: int,
    launch: HostLaunch | None,
    sizes: Mapping[str, int],
    text: str,
) -> tuple[str, str]:
    """Return --grid and --block. `side` is what a problem without extents has of elements."""
    deep, wide = (_axes(kernel.text, names) for names in ("threadIdx", "threadIdx|blockIdx"))
    # `(blockIdx.x + blockIdx.y * gridDim.x) * blockDim.x + threadIdx.x` counts blocks in one row, however they lie.
    if deep == 1 and _IN_A_ROW.search(joined(kernel.text)):
        wide = 1
    own = block_of(request, kernel, extents, launch, text)
    block = own + [1] * (wide - len(own)) if launch and launch.block else own
    if launch and launch.grid and launch.block and not (launch.spare and _waits(kernel, text)):
        grid = _grid(launch.grid, block, sizes)
    elif _waits(kernel, text):
        grid = TOGETHER  # all of them must run at once
    elif is_alone(kernel, text):
        grid = "1"
    elif rows_ := blocks_of_rows(kernel.text, extents) if wide == deep == 1 else "":
        grid = rows_
    else:
        covered = Covered(kernel.text, extents)
        sides = [*block, 1, 1]
        if wide > 1 and (len(extents) > 1 or dimensions_of(kernel, extents) >= wide):
            every = zip("xyz", _of_axes(covered, extents, wide), strict=False)
            layers = [
                _layers(one, covered.tile(axis, sides, partial(_constant, kernel=kernel, text=text)))
                for axis, one in every
            ]
            grid = ",".join(layers)
        else:
            apart = covered.tile("x", sides, partial(_constant, kernel=kernel, text=text))
            width = apart if apart > 1 else block[0]
            grid = f"cdiv({covered.guarded() or '*'.join(extents[:3]) or side},{width})"
    return request.grid or grid, request.block or ",".join(map(str, own))


def _of_axes(covered: Covered, extents: Sequence[str], wide: int) -> list[str]:
    """Return the extent that each axis of a grid covers, '' for none: what the kernel's text says, else in order."""
    found = [*extents] * wide if len(extents) == 1 else covered.axes(wide)
    taken = set("*".join(found).split("*"))
    rest = [own for own in extents if own not in taken]
    return [
        "" if not covered.used(axis) else own or (rest.pop(0) if rest else "")
        for axis, own in zip("xyz", found, strict=False)
    ]


def _layers(extent: str, side: int) -> str:
    """Return the blocks of a grid along an axis."""
    return f"cdiv({extent},{side})" if extent and side > 1 else extent or "1"


def cluster(kernel: KernelSource, launch: HostLaunch | None) -> str:
    """Return the blocks of a cluster that host code asks for, '' for none, or where the kernel itself says them."""
    found = launch.cluster if launch and launch.grid else None
    if not found or math.prod(found) == 1 or "__cluster_dims__" in kernel.text:
        return ""
    return ",".join(map(str, found[: 3 if found[2] > 1 else 2 if found[1] > 1 else 1]))


def said(request: UserRequest, kernel: KernelSource, launch: HostLaunch | None) -> tuple[bool, bool]:
    """Return whether the grid and the block of a line are the request's, or host code's."""
    read = launch if launch and not launch.spare else None
    grid = read is not None and read.grid is not None and read.block is not None
    return request.grid is not None or grid, request.block is not None or bool(read and read.block)


def _waits(kernel: KernelSource, text: str) -> bool:
    """Return whether the blocks of a kernel wait for each other, in functions that it calls too."""
    return "this_grid" in names(text, kernel) or bool(re.search(r"\bgrid_group\b", kernel.text))


def is_alone(kernel: KernelSource, text: str) -> bool:
    """Return whether a kernel's threads never ask which block they are in, so that a second one does the same again."""
    asked = r"\b(?:blockIdx|gridDim|block_index|group_index|thread_rank|\w*cluster\w*)\b|%ctaid"
    if "threadIdx" not in kernel.text or re.search(asked, kernel.text) or "blockIdx" in names(text, kernel):
        return False
    return not re.search(r"^[ \t]*#[ \t]*define\b(?:[^\n]|\\\n)*\bblockIdx\b", text, re.M)


def block_of(
    request: UserRequest, kernel: KernelSource, extents: Sequence[str], launch: HostLaunch | None, text: str
) -> list[int]:
    """Return the threads of a block along its axes: as the host launches, or as the kernel has room for."""
    if request.block and all(side.isdigit() for side in request.block.split(",")):
        return [int(side) for side in request.block.split(",")]
    own = list(launch.block) if launch and launch.block else []
    deep = _axes(kernel.text, "threadIdx")
    if deep == 1 and not own and (named := _named_threads(kernel)):
        return [named]
    if own:
        while own[-1:] == [1] and len(own) > 1:
            own.pop()
        return own
    if counted := _counted_threads(kernel, text, deep):
        return counted
    block = _BLOCKS[deep if dimensions_of(kernel, extents) >= deep else 1]
    if len(block) == 2 and _WARPS.search(kernel.text):
        block = [32, 8]  # its rows are the warps
    room = _shared_room(kernel, text) if block == [256] else None
    bound = re.search(r"\b__launch_bounds__\s*\(\s*(\w+)", kernel.text)
    most = template_arguments(kernel).get(bound[1], bound[1]) if bound else ""
    if most.isdigit() and math.prod(block) > int(most) > 0:
        room = min(room or int(most), int(most))
    return [room] if room else block


def blocks_of_rows(text: str, extents: Sequence[str]) -> str:
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


def dimensions_of(kernel: KernelSource, extents: Sequence[str]) -> int:
    """Return how many dimensions a problem has: its extents, or the threads' axes where one extent is all sides."""
    return len(extents) if len(extents) != 1 else max(1, _axes(kernel.text, "threadIdx"))


def with_named_threads(launch: HostLaunch | None, kernel: KernelSource) -> HostLaunch | None:
    """Return a launch whose block only callers know with the one that a parameter of the template is called after."""
    named = _named_threads(kernel)
    if not launch or not launch.spare or not launch.grid or not named or _axes(kernel.text, "threadIdx") > 1:
        return launch
    return replace(launch, block=(named, 1, 1)) if math.prod(launch.grid) * named <= MOST_THREADS else launch


def _named_threads(kernel: KernelSource) -> int:
    """Return what a template's parameter that is called after a block's threads is given, 0 for none."""
    given = (
        value for own, value in template_arguments(kernel).items() if NAMED_THREADS.fullmatch(own) and value.isdigit()
    )
    return next((int(value) for value in given if 1 <= int(value) <= 1024), 0)


def _counted_threads(kernel: KernelSource, text: str, deep: int) -> list[int]:
    """Return the block that a kernel's constants take for granted, [] where they say none.

    A loop from `threadIdx.x` on has blockDim.x as its step, and `blockIdx.x * 32 + threadIdx.x` counts threads by it;
    a loop whose name is added to a thread's place has it as its step where that is less.
    """
    body = joined(kernel.text)
    sides = []
    for axis in "xyz"[:deep]:
        own = rf"threadIdx ?\. ?{axis}"
        alias = "|".join([own, *re.findall(rf"\b(\w+) ?= ?{own} ?[;,]", body)])
        looped = re.findall(rf"\bfor ?\( ?(?:\w+ )*\w+ ?= ?(?:{alias}) ?;[^;]*; ?\w+ ?\+= ?(\w+) ?\)", body)
        number = rf"(\w+) ?\* ?blockIdx ?\. ?{axis}\b(?! ?[*.])|blockIdx ?\. ?{axis} ?\* ?(\w+)(?! ?[\w*.(])"
        placed = rf"(?:{number}) ?\+ ?(?:{alias})\b|(?:{alias}) ?\+ ?(?:{number})"
        widths = ["".join(found) for found in re.findall(placed, body)]
        steps = _steps_beside(alias, axis, body)
        known = [_constant(word, kernel, text) for word in (*looped, *([] if looped else widths))]
        side = next((one for one in known if one > 0), 0)
        within = [one for word in steps if 0 < (one := _constant(word, kernel, text)) < side]
        sides.append(min([side, *within]))
    bound = re.search(r"\b__launch_bounds__ ?\( ?([\w *()]+?) ?[,)]", body)
    if len(sides) > 1 and sides.count(0) == 1:
        rest = math.prod(side for side in sides if side)
        most = _product_of(bound[1]) if bound else max(rest, _BLOCKS[1][0])
        sides[sides.index(0)] = most // rest if most % rest == 0 else 0
    return sides if all(sides) and math.prod(sides) <= MOST_OF_A_BLOCK else []


def of_a_build(kernel: KernelSource, text: str) -> dict[str, int]:
    """Return the names by which a kernel counts its threads and that nothing here declares, as a build's `-D` would,
    each with a block's side."""
    body, found = joined(kernel.text), {}
    deep = _axes(kernel.text, "threadIdx")
    for axis, side in zip("xyz", _BLOCKS[deep], strict=False):
        own, name = rf"blockIdx ?\. ?{axis}", r"([^\W\d]\w*)(?! ?[\w(.:<])"
        for pair in re.findall(rf"{own} ?\* ?{name}|(?<![\w.] )(?<![\w.]){name} ?\* ?{own}", body):
            width = "".join(pair)
            if not re.search(rf"[\w>,&]\s+{width}\s*(?:=(?!=)|[;,)\[{{}}]|$)|\bdefine\s+{width}\b", text):
                found[width] = side
    return {name: side for name, side in found.items() if name not in template_arguments(kernel)}


def _steps_beside(alias: str, axis: str, body: str) -> list[str]:
    """Return the steps of loops whose name is added to a thread's place along an axis."""
    places = re.findall(rf"\b(\w+) ?= ?[^;=,]*(?:{alias})\b", body)
    place = "|".join([alias, *(re.escape(one) for one in places)])
    steps = []
    counted = re.findall(r"\bfor ?\( ?(?:\w+ )*(\w+) ?= ?0 ?;[^;]*; ?(?:\+\+ ?\w+|\w+ ?\+\+) ?\)", body)
    for name, step in re.findall(rf"(?:{place}) ?\+ ?(\w+) ?\* ?(\w+)\b(?! ?[.(])", body):
        if name in counted:  # `i + k * 256` for the thread's k-th element
            steps.append(step)
    for name, step in re.findall(r"\bfor ?\( ?(?:\w+ )*(\w+) ?= ?0 ?;[^;]*; ?\w+ ?\+= ?(\w+) ?\)", body):
        if re.search(rf"(?:{place}) ?\+ ?{name}\b|\b{name} ?\+ ?(?:{place})\b", body):
            steps.append(step)
    return steps


def _constant(word: str, kernel: KernelSource, text: str) -> int:
    """Return the number that a name stands for in every launch, 0 for another."""
    word = template_arguments(kernel).get(word, word)
    known = (
        None if word.isdigit() else re.search(rf"\b(?:const|constexpr)\b[^;=(){{}}]*\b{word}\s*=\s*(\d+)\s*[;,]", text)
    )
    word = known[1] if known else word
    return int(word) if word.isdigit() else 0


def _product_of(words: str) -> int:
    """Return a product of whole numbers, 0 for what is none."""
    parts = [part.strip(" ()") for part in words.split("*")]
    return math.prod(map(int, parts)) if all(part.isdigit() for part in parts) else 0


def _shared_room(kernel: KernelSource, text: str) -> int | None:
    """Return the threads for which a kernel's shared arrays that it indexes by threadIdx.x have room.

    An element each, or as many as the index says, `[2 * tid + 1]`; of `[128 + 2 * RADIUS]` that is 128.
    """
    body = joined(kernel.text)
    own = {r"threadIdx ?\. ?x", *re.findall(r"\b(\w+) ?= ?threadIdx ?\. ?x ?[;,]", body)}
    shifted = re.findall(rf"\b(\w+) ?= ?(?:{'|'.join(own)}) ?\+ ?\w+ ?[;,]", body)
    sizes = []
    for name, size in re.findall(r"__shared__ (?:volatile )?[\w:]+ (\w+) ?\[([\w +*]+)\]", body):
        terms = [math.prod(_number_of(one, kernel, text) for one in part.split("*")) for part in size.split("+")]
        padded = [term for term in terms if term % 32 == 0 and term] if len(terms) > 1 else []
        index = "|".join([*own, *(shifted if padded else ())])
        factors = re.findall(rf"\b{name} ?\[ ?(?:(\d+) ?\* ?)?(?:{index}) ?(?:\+ ?\d+ ?)?\]", body)
        if re.search(rf"\b{name} ?\[ ?(?:\d+ ?\* ?)?(?:{index}) ?\]", body) and (padded or all(terms)):
            sizes.append(max(padded or [sum(terms)]) // max(int(one or 1) for one in factors))
    return next((least for least in sorted(sizes) if 32 <= least <= 1024), None)


def _number_of(word: str, kernel: KernelSource, text: str) -> int:
    """Return the number that a name stands for in every launch or by a macro, 0 for another."""
    known = re.search(rf"#\s*define\s+{word.strip()}\s+\(?\s*(\d+)\b", text)
    return int(known[1]) if known else _constant(word.strip(), kernel, text)


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


def dynamic_shared(kernel: KernelSource, text: str) -> bool:
    """Return whether a kernel uses dynamic shared memory, or a function or class that it comes to declares some."""
    reached = names(text, kernel)
    return any(
        re.search(rf"\b{match[1]}\b", kernel.text) or any(one in reached for one in _around(text, match.start()))
        for match in places.matches(_DYNAMIC, text, "extern", "__shared__")
    )


def _around(text: str, at: int) -> Iterator[str]:
    """Yield the names of the functions and classes that a place is in."""
    opened: list[int] = []
    for brace in re.compile("[{}]").finditer(text, 0, at):
        if brace[0] == "{":
            opened.append(brace.start())
        elif opened:
            opened.pop()
    for brace_at in opened:
        begins = 1 + max(text.rfind(mark, 0, brace_at) for mark in "{};")
        for match in _HEADS.finditer(text, begins, brace_at + 1):
            yield match[1] or match[2]


def by_name(count: int, sizes: Mapping[str, int]) -> str:
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
        if one * two >= 64 and count % (one * two) == 0 and count // (one * two) <= 16:
            return f"{count // (one * two)}*{first}*{second}"
    for name, value in large.items():
        if value >= 64 and count % value == 0 and count // value in (32, 64, 128, 256, 512, 1024):
            return f"{count // value}*{name}"
    for (first, one), (second, two) in pairs:
        if (one + 1) * two == count:
            return f"({first}+1)*{second}"
    return next((f"{name}+1" for name, value in large.items() if value + 1 == count), str(count))
