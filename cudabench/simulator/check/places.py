"""The names that messages use for places in memory: `s[3][4]` in a shared array, `x[128]` or `y[row 3, column 4]`."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from math import prod
from typing import NamedTuple

from cudabench.simulator.memory import Region
from cudabench.simulator.program.code import Code
from cudabench.symbols import plain_name

# A function that finds the declaration of a shared array in the source. Its arguments are the array's name, the array's
# size in bytes, and the line of the access. It returns (bytes of an element, shape), or None if the source does not
# show the declaration.
Declared = Callable[[str, int, int], "tuple[int, tuple[int, ...]] | None"]


class Gap(NamedTuple):
    """Where a barrier can stand between an access and a later one; all places are source lines, 0 for none.

    kind: 'between': between the lines `after` and `before`; 'iteration': at the end of a loop's body, because the later
    access is in another iteration; 'next': the same, but the loop is unknown; 'same': both accesses are in one
    statement; 'head': the earlier access is in the head of a statement (as `if (...)`), the later access in its body;
    'branches': the two accesses are in two branches of a statement.

    loop: the line where the loop begins. span: the first and the last line of the statement after the barrier that
    contains the later access. around: the lines of divergent conditions that contain one of the accesses, but not the
    barrier. outside: the line of a divergent condition that contains both accesses; is_loop: whether this is the
    condition of a loop. leaves: the line of a condition under which threads leave before the barrier. bare: whether the
    body of the loop has no braces. in_loop: the place to use if the later access is in another iteration.
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
    in_loop: Gap | None = None


# A function that finds a place for a barrier in the source. Its arguments are the file, (line, column) of each of the
# two accesses, and the lines of the conditions at which threads diverge. It returns None if the source does not show a
# place.
Between = Callable[[str, tuple[int, int], tuple[int, int], Collection[int]], "Gap | None"]


class Places:
    """Names places in shared memory for messages; `declared`: finds the declarations of shared arrays in the source."""

    def __init__(self, code: Code, shared_size: int, declared: Declared | None) -> None:
        self.code, self.shared_size, self.declared = code, shared_size, declared

    def shared(self, offset: int, width: int, line: int = 0) -> str:
        """Return the name of the place at a byte of the block's shared memory, such as `s[3][4]`.

        width: the bytes of an element to assume if the declaration is unknown. line: the line of the access.
        """
        if (array := self.array_at(offset)) is None:
            return f"byte {offset} of the shared memory"
        return self.of_shared(*array, offset, width, line)

    def array_at(self, offset: int) -> tuple[str, int, int] | None:
        """Return (name, first byte, size) of the shared array that contains a byte, or None."""
        arrays = [(name, start, size or self.shared_size - start) for name, start, size in self.code.shared_names]
        return next((array for array in arrays if array[1] <= offset < array[1] + array[2]), None)

    def of_shared(self, name: str, start: int, size: int, offset: int, width: int, line: int) -> str:
        """Return the name of the place at a byte of shared memory, as an element of this array.

        start, size: the array's first byte and size. The byte may lie past the array's end. width, line: see `shared`.
        """
        plain, declaration = plain_name(name), self.declaration(name, size, line)
        element, shape = declaration or (width, ())
        if self.declared and not declaration and size == width and offset == start and plain.isidentifier():
            return plain  # a variable that is not declared as an array has no index
        return _element(plain, offset - start, element, shape, False)

    def declaration(self, name: str, size: int, line: int) -> tuple[int, tuple[int, ...]] | None:
        """Return the declaration of a shared array, see `Declared`."""
        return self.declared(plain_name(name), size, line) if self.declared else None

    def row_length(self, offset: int, line: int) -> tuple[str, int]:
        """Return (name, elements of a row) of the shared array that contains a byte; 0 elements without rows."""
        array = self.array_at(offset)
        if array is None:
            return "", 0
        _, shape = self.declaration(array[0], array[2], line) or (0, ())
        return plain_name(array[0]), int(shape[-1]) if len(shape) > 1 else 0

    def size(self, name: str, size: int, width: int, line: int) -> str:
        """Return the number of elements of a shared array of `size` bytes in words, such as '32 x 33 elements'."""
        element, shape = self.declaration(name, size, line) or (width, (size // width,))
        return elements(shape, element, size)


def same_memory(code: Code, offset: int) -> str:
    """Return a sentence that says that the kernel's dynamic shared arrays are all the same memory.

    The result is '' if the kernel has fewer than two dynamic shared arrays, or if the byte `offset` belongs to a static
    array.
    """
    names = list(dict.fromkeys(f"'{plain_name(name)}'" for name in code.dynamic))
    if len(names) < 2 or offset < code.static_shared:
        return ""
    all_of_them = "both begin" if len(names) == 2 else "all begin"
    return (
        f"{', '.join(names[:-1])} and {names[-1]} {all_of_them} at byte 0 of the dynamic shared memory: they are the "
        "same memory; take one array and an offset."
    )


def in_region(region: Region, offset: int, width: int) -> str:
    """Return the name of the place at a byte of a region, such as `x[128]`.

    width: the bytes of an element to assume if the region has no element size.
    """
    name = plain_name(region.name)
    return region.place(offset) or _element(name, offset, region.element or width, region.shape, True)


def elements(shape: Sequence[int], element: int, size: int) -> str:
    """Return an array's extents in words, such as '32 x 33 elements'; its size in bytes if the shape does not fit."""
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
