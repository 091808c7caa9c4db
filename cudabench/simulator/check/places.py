"""Places in memory as the source says them: `s[3][4]` in a shared array, `x[128]` or `y[row 3, column 4]` in others."""

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
    """Where a barrier can stand that comes after an access and before a later one, by lines; 0 for none.

    kind: 'between' the lines `after` and `before`; in another 'turn' of a loop, at whose end it stands; where both are
    in the 'same' statement, or the earlier in the 'head' of one whose part the later is; in the two 'branches' of one.
    loop: where that begins. span: the first and the last line of what stands after the barrier and has the later
    access in it. around: conditions which part threads and have one of the accesses in them, but not the barrier.
    outside: of such a one that has both in it, is_loop: whether it is a loop's. leaves: of one from which threads leave
    before. bare: whether the body of the loop has no braces. turn: where the later access may come in another turn,
    the place for that.
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


# By file, lines and columns of two accesses, and the lines whose conditions part threads.
Between = Callable[[str, tuple[int, int], tuple[int, int], Collection[int]], "Gap | None"]


class Places:
    """The names of places; declared: what the source says of shared arrays."""

    def __init__(self, code: Code, shared_size: int, declared: Declared | None) -> None:
        self.code, self.shared_size, self.declared = code, shared_size, declared

    def shared(self, offset: int, width: int, line: int = 0) -> str:
        """Return the place at a byte of the block's shared memory; width: bytes of an element, unless that is known."""
        for name, start, size in self.code.shared_names:
            size = size or self.shared_size - start
            if start <= offset < start + size:
                return self.of_shared(name, start, size, offset, width, line)
        return f"byte {offset} of the shared memory"

    def of_shared(self, name: str, start: int, size: int, offset: int, width: int, line: int) -> str:
        """Return the place at a byte of shared memory as one of a certain array, which may end before it."""
        plain = plain_name(name)
        found = self.declared(plain, size, line) if self.declared else None
        element, shape = found or (width, ())
        if self.declared and not found and size == width and offset == start and plain.isidentifier():
            return plain  # not declared as an array
        return _element(plain, offset - start, element, shape, False)

    def size(self, name: str, size: int, width: int, line: int) -> str:
        """Return how many elements a shared array of so many bytes has."""
        found = self.declared(plain_name(name), size, line) if self.declared else None
        element, shape = found or (width, (size // width,))
        return elements(shape, element, size)


def same_memory(code: Code, offset: int) -> str:
    """Return a sentence for a hazard at an offset of a block's shared memory where several of a kernel's arrays lie, by
    their names; an empty text where it has one dynamic array, or the offset is that of a static one."""
    names = list(dict.fromkeys(f"'{plain_name(name)}'" for name in code.dynamic))
    if len(names) < 2 or offset < code.static_shared:
        return ""
    all_of_them = "both begin" if len(names) == 2 else "all begin"
    return (
        f"{', '.join(names[:-1])} and {names[-1]} {all_of_them} at byte 0 of the dynamic shared memory: they are the "
        "same memory; take one array and an offset."
    )


def in_region(region: Region, offset: int, width: int) -> str:
    """Return the place at a byte of an array; width: bytes of an element, unless the array has its own."""
    name = plain_name(region.name)
    return _element(name, offset, region.element or width, region.shape, True)


def elements(shape: Sequence[int], element: int, size: int) -> str:
    """Return the number of elements by dimension for a message; the bytes where they are not so many elements."""
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
