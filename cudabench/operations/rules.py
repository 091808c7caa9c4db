"""What values the constants of a kernel may have, in words that complete 'warp-tile takes ...'."""

from __future__ import annotations

from collections.abc import Callable
from math import prod
from typing import Any

from cudabench.occupancy import MAX_REGISTERS, MAX_STATIC_SHARED
from cudabench.records.launch import WARP, Dim
from cudabench.records.planned import Geometry, Kernel, Rule

MAX_WARPS = 8  # of a warp-tiled block: 128 sums a thread leave registers for no more

Check = Callable[[Geometry], str | None]


def rungs(operation: str, *usual: int) -> Callable[..., Kernel]:
    """Return what makes an operation's rungs: a name, which the function has too, a grid and other rules of a Kernel.

    usual: the block of those that say none.
    """

    def rung(name: str, grid: Callable[[Geometry], Dim], block: tuple[int, ...] = usual, **rules: Any) -> Kernel:
        return Kernel(name, f"{operation}_{name.replace('-', '_')}", block, grid, **rules)

    return rung


def number(least: int, most: int, *checks: Check, multiple: int | str = 1, power: bool = False) -> Rule:
    """Return the rule of a whole number from `least` to `most` that passes all `checks`.

    `multiple` is what it is a multiple of, a number or a constant of the chapter; with `power` it is a power of two.
    """

    def rule(value: int, geometry: Geometry) -> str | None:
        unit = geometry[multiple] if isinstance(multiple, str) else multiple
        if not least <= value <= most or value % unit or (power and value & (value - 1)):
            kind = "a power of two from " if power else f"a multiple of {unit} from " if unit > 1 else ""
            return f"{kind}{least} to {most}"
        return next((reason for check in checks if (reason := check(geometry))), None)

    return rule


def in_registers(*factors: str) -> Check:
    """Return the check that as many elements as the product of constants fit a thread's registers."""

    def check(geometry: Geometry) -> str | None:
        needed = prod(geometry[factor] for factor in factors) * max(geometry.itemsize // 4, 1)
        if needed <= MAX_REGISTERS:
            return None
        product = " x ".join(factors)
        return f"fewer: {product} elements would need {needed} registers a thread, and there are {MAX_REGISTERS}"

    return check


def in_static_shared(elements: Callable[[Geometry], int]) -> Check:
    """Return the check that an array of as many elements fits the static shared memory of a block."""

    def check(geometry: Geometry) -> str | None:
        needed = elements(geometry) * geometry.itemsize
        if needed <= MAX_STATIC_SHARED:
            return None
        return (
            f"less: its tile would take {needed / 1024:.0f} KiB of shared memory, and a block has "
            f"{MAX_STATIC_SHARED // 1024} KiB for such arrays"
        )

    return check


def needs_warps(geometry: Geometry) -> str | None:
    """Refuse a block that is not one to eight whole warps, for the warp-tiled kernels of matmul and solve."""
    threads = geometry.threads
    if threads % WARP:
        return f"whole warps share the work, and {threads} threads are no multiple of {WARP}"
    if threads > MAX_WARPS * WARP:
        return f"the sums take over half of 255 registers a thread, which leaves room for {MAX_WARPS * WARP} threads"
    return None
