"""The order in which diverged lanes run: they reconverge where their paths join, wherever that code is in the file."""

from __future__ import annotations

import numpy as np
import pytest

from cudabench.simulator import api as simulator
from cudabench.simulator.program.code import Block
from cudabench.simulator.program.order import arranged

HEAD = '.version 8.0\n.target sm_90\n.address_size 64\n.file 1 "order.cu"\n'
KERNEL = """.visible .entry k(.param .u64 out)
{
    .reg .pred %p<4>; .reg .b32 %r<8>; .reg .b64 %a<4>;
    ld.param.u64 %a1, [out]; mov.u32 %r1, %tid.x; mul.wide.u32 %a2, %r1, 4; add.u64 %a1, %a1, %a2;
    mov.u32 %r3, 0;
"""
STORE = "    .loc 1 9 1\n    st.global.u32 [%a1], %r2;\n    ret;\n"
# The code where the paths join comes before two of the five cases.
SWITCH = f"""{HEAD}{KERNEL}
    rem.u32 %r2, %r1, 5;
ways: .branchtargets A, B, C, D, E;
    brx.idx %r2, ways;
A:  add.u32 %r2, %r1, 10; bra.uni JOIN;
B:  add.u32 %r2, %r1, 20; bra.uni JOIN;
C:  add.u32 %r2, %r1, 30;
JOIN:
{STORE}
D:  add.u32 %r2, %r1, 40; bra.uni JOIN;
E:  add.u32 %r2, %r1, 50; bra.uni JOIN;
}}
"""
# Odd lanes jump back to the head of the loop early; even lanes first execute the rest of the loop.
CONTINUE = f"""{HEAD}{KERNEL}
    mov.u32 %r2, %r1;
HEAD_:
    .loc 1 5 1
    ld.global.u32 %r4, [%a1];
    add.u32 %r3, %r3, 1; setp.gt.u32 %p1, %r3, 3; @%p1 bra OUT;
    and.b32 %r5, %r1, 1; setp.ne.u32 %p2, %r5, 0; @%p2 bra HEAD_;
    add.u32 %r2, %r2, 100;
    bra.uni HEAD_;
OUT:
{STORE}
}}
"""


@pytest.mark.parametrize(
    ("ptx", "line", "want"),
    [
        (SWITCH, 9, [lane + 10 * (lane % 5 + 1) for lane in range(64)]),
        (CONTINUE, 5, [lane + (0 if lane % 2 else 300) for lane in range(64)]),
    ],
    ids=["switch", "continue"],
)
def test_lanes_meet_again(ptx: str, line: int, want: list[int]) -> None:
    """Diverged lanes reconverge after a switch and at each iteration of a loop: their warp makes one request there."""
    out = np.zeros(64, np.uint32)
    report = simulator.run(ptx, "k", 1, 64, [out])
    assert out.tolist() == want
    turns = 4 if line == 5 else 1
    assert [access.requests for access in report.accesses if access.line == line] == [2 * turns]


def test_a_block_comes_after_all_that_lead_to_it() -> None:
    """arranged() puts a basic block after its predecessors, keeps the blocks of a loop together, and puts the head of
    the loop last."""
    edges = {0: (3, 1), 1: (2,), 2: (5,), 3: (4, 2), 4: (3, 6), 5: (), 6: (7, 2), 7: (6,)}
    blocks = []
    for number, successors in edges.items():
        block = Block(number)
        block.successors = successors
        blocks.append(block)
    assert arranged(blocks) == [0, 1, 4, 3, 7, 6, 2, 5]


def test_jumps_from_everywhere_to_everywhere() -> None:
    """arranged() ends for an interpreter, a graph in which each of 100 basic blocks jumps to every other block."""
    blocks = []
    for number in range(100):
        block = Block(number)
        block.successors = tuple(range(1, 101))
        blocks.append(block)
    blocks.append(Block(100))
    assert sorted(arranged(blocks)) == list(range(101))
    assert arranged(blocks)[100] == 100
