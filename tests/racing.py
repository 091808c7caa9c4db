"""Small PTX kernels of loads, stores and barriers, generated from a list of statements, for tests of race detection."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

WORDS = 256  # of each array
SHARED, GLOBAL = ("s", "t"), ("a", "b")


class Index(NamedTuple):
    """An element of an array: `threads` * threadIdx.x + `blocks` * blockIdx.x + `plus`."""

    threads: int
    blocks: int
    plus: int


class Statement(NamedTuple):
    """A statement for the threads from `first` up to `end`.

    kind: 'load', 'store', 'add' (an atomic), 'barrier' or 'meet' (__syncwarp). value: the stored value; None for the
    sum of all loaded values and the thread number. mask: the lanes of the __syncwarp.
    """

    kind: str
    array: str = "s"
    index: Index = Index(1, 0, 0)  # type: ignore[assignment]  # a tuple has a method of that name
    value: int | None = None
    first: int = 0
    end: int = 1024
    mask: int = 0xFFFFFFFF

    def lines(self, number: int) -> list[str]:
        """Return the statement's PTX instructions."""
        if self.kind == "barrier":
            return ["bar.sync 0;"]
        if self.kind == "meet":
            made = [f"bar.warp.sync {self.mask};"]
        else:
            made = [
                f"mad.lo.s32 %r4, %r0, {self.index.threads}, {self.index.plus};",
                f"mad.lo.s32 %r4, %r1, {self.index.blocks}, %r4;", *self._access(),
            ]  # fmt: skip
        return [
            f"setp.ge.s32 %p0, %r0, {self.first};", f"@!%p0 bra L{number};",
            f"setp.ge.s32 %p0, %r0, {self.end};", f"@%p0 bra L{number};", *made, f"L{number}:",
        ]  # fmt: skip

    def _access(self) -> list[str]:
        space = "shared" if self.array in SHARED else "global"
        start = "%rd2" if self.array in SHARED else f"%rd{GLOBAL.index(self.array)}"
        made = [f"mov.u64 %rd2, {self.array};"] * (self.array in SHARED)
        made += ["mul.wide.s32 %rd3, %r4, 4;", f"add.s64 %rd3, %rd3, {start};"]
        place = "%rd3"
        value = "%r3" if self.value is None else str(self.value)
        if self.kind == "load":
            return [*made, f"ld.{space}.u32 %r6, [{place}];", "add.s32 %r3, %r3, %r6;"]
        if self.kind == "add":
            return [*made, f"red.{space}.add.u32 [{place}], {value};"]
        if self.value is not None:
            return [*made, f"mov.u32 %r7_{self.value}, {self.value};", f"st.{space}.u32 [{place}], %r7_{self.value};"]
        return [*made, f"st.{space}.u32 [{place}], {value};"]


def kernel(statements: Sequence[Statement], times: int = 1) -> str:
    """Return the PTX of kernel `k(a, b)`, which runs the statements `times` times."""
    body = [line for number, one in enumerate(statements) for line in one.lines(number)]
    declared = "\n".join(f".shared .align 16 .b8 {name}[{4 * WORDS}];" for name in SHARED)
    text = "\n".join(body)
    return f""".version 8.0
.target sm_80
.address_size 64
.visible .entry k(.param .u64 k_param_0, .param .u64 k_param_1)
{{
.reg .pred %p<4>;
.reg .b32 %r<10>;
.reg .b32 %r7_<8>;
.reg .b64 %rd<8>;
{declared}
ld.param.u64 %rd4, [k_param_0];
ld.param.u64 %rd5, [k_param_1];
cvta.to.global.u64 %rd0, %rd4;
cvta.to.global.u64 %rd1, %rd5;
mov.u32 %r0, %tid.x;
mov.u32 %r1, %ctaid.x;
mov.u32 %r3, %r0;
mov.u32 %r8, 0;
TURN:
{text}
add.s32 %r8, %r8, 1;
setp.ge.s32 %p1, %r8, {times};
@!%p1 bra TURN;
ret;
}}
"""
