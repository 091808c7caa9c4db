"""Places in memory as the source has them: `s[3][4]` in a shared array, `x[128]` or `y[row 3, column 4]` in others."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from math import prod
from typing import NamedTuple

from cudabench.simulator.memory import Region
from cudabench.simulator.program.code import Code
from cudabench.symbols import plain_name

# By name, bytes and line of an access: bytes of an element and elements by dimension of a shared array, where known.
Declared = Callable[[str, int, int], "tuple[int, tuple[int, ...]] | None"]


class Gap(NamedTuple):
    """Where a barrier can stand between an access and a later one, by lines; 0 for none.

    kind: 'between' the lines `after` and `before`; 'turn': at the end of a loop, if the later access is of another
    iteration; 'same': both are in one statement; 'head': the earlier is in the head of a statement, the later in its
    body; 'branches': they are in the two branches of a statement. loop: the line where the loop begins. span: the first
    and the last line of the statement after the barrier that contains the later access. around: divergent conditions
    that contain one of the accesses, but not the barrier. outside: a divergent condition that contains both; is_loop:
    whether it is a loop's. leaves: a condition by which threads leave before. bare: whether the body of the loop has no
    braces. turn: if the later access may be of another iteration, the place for that.
    """

    kind: str
    after: int
    before: int
    loop: int
    span: tuple[int, int]
    around: tuple[int, ...] = ()
    outside: int = 0
    is_loop: bool = False
    leaves: int = 0
    bare: bool = False
    turn: Gap | None = None


# By file, lines and columns of two accesses, and the lines whose conditions make threads diverge.
Between = Callable[[str, tuple[int, int], tuple[int, int], Collection[int]], "Gap | None"]


class Places:
    """The names of places; declared: finds shared arrays in the source."""

    def __init__(self, code: Code, shared_size: int, declared: Declared | None) -> None:
        self.code, self.shared_size, self.declared = code, shared_size, declared

    def shared(self, offset: int, width: int, line: int = 0) -> str:
        """Return the name of a byte of the block's shared memory; width: bytes of an element, unless that is known."""
        for name, start, size in self.code.shared_names:
            size = size or self.shared_size - start
            if start <= offset < start + size:
                return self.of_shared(name, start, size, offset, width, line)
        return f"byte {offset} of the shared memory"

    def of_shared(self, name: str, start: int, size: int, offset: int, width: int, line: int) -> str:
        """Return the name of a byte of shared memory as a place in a certain array, which may end before it."""
        plain = plain_name(name)
        declaration = self.declared(plain, size, line) if self.declared else None
        element, shape = declaration or (width, ())
        if self.declared and not declaration and size == width and offset == start and plain.isidentifier():
            return plain  # not declared as an array
        return _element(plain, offset - start, element, shape, False)

    def size(self, name: str, size: int, width: int, line: int) -> str:
        """Return the number of elements of a shared array of `size` bytes, for a message."""
        declaration = self.declared(plain_name(name), size, line) if self.declared else None
        element, shape = declaration or (width, (size // width,))
        return elements(shape, element, size)


def same_memory(code: Code, offset: int) -> str:
    """Return a sentence, if several arrays of a kernel are at the same place, for a hazard at an offset of a block's
    shared memory; empty if the kernel has one dynamic array, or the offset is in a static one."""
    names = list(dict.fromkeys(f"'{plain_name(name)}'" for name in code.dynamic))
    if len(names) < 2 or offset < code.static_shared:
        return ""
    all_of_them = "both begin" if len(names) == 2 else "all begin"
    return (
        f"{', '.join(names[:-1])} and {names[-1]} {all_of_them} at byte 0 of the dynamic shared memory: they are the "
        "same memory; take one array and an offset."
    )


def in_region(region: Region, offset: int, width: int) -> str:
    """Return the name of a byte of an array; width: bytes of an element, unless the array has its own."""
    name = plain_name(region.name)
    return _element(name, offset, region.element or width, region.shape, True)


def elements(shape: Sequence[int], element: int, size: int) -> str:
    """Return the number of elements by dimension for a message; the bytes where the shape does not match them."""
    if prod(shape) * element != size:
        return f"{size} bytes"
    return f"{' x '.join(map(str, shape))} element{'s' if tuple(shape) != (1,) else ''}"


def _element(name: str, offset: int, element: int, shape: Sequence[int], rows: bool) -> str:
    index, rest = divmod(offset, element)
    numbers: tuple[int, ...] = (index,)
    if len(shape) > 1 and (not rows or 0 <= index < prod(shape)):
        for length in reversed(shape[1:]):
            numbers = (*divmod(numbers[0], length), *numbers[1:])
    inside = (", " if rows else "][").join(map(str, numbers))
    if rows and len(numbers) == 2:
        inside = f"row {numbers[0]}, column {numbers[1]}"
    place = f"{name}[{inside}]" if name.isidentifier() else f"element {inside} of '{name}'"
    return f"byte {rest} of {place}" if rest else place
