"""Sorts basic blocks into an order in which divergent lanes reconverge as early as possible.

On a GPU, lanes that diverge at a branch reconverge at the branch's immediate post-dominator. Here the basic blocks are
sorted. If lanes wait in several blocks, the block that comes first in this order runs. Each block comes after all
blocks from which lanes may still reach it. The blocks of a loop are contiguous, and the loop's head is the last of
them. So lanes that begin another iteration, or that have left the loop, wait for the lanes inside the loop.
"""

from __future__ import annotations

import heapq
from collections.abc import Collection, Container, Iterable, Sequence
from graphlib import TopologicalSorter

from cudabench.simulator.program.code import Block

DEEPEST = 16  # loops are sorted down to this many levels of nesting; blocks in deeper loops keep the order of the code


def arranged(blocks: Sequence[Block]) -> list[int]:
    """Return the numbers of the blocks in the order in which blocks run.

    If several orders are possible, the result is the order nearest to that of the code. Functions are sorted
    separately: in the control-flow graph, a call has an edge to the block after the call, and a return has no edge.
    """
    order: list[int] = []
    _arrange(range(len(blocks)), [following_blocks(block) for block in blocks], order)
    return order


def following_blocks(block: Block) -> Sequence[int]:
    """Return the numbers of the blocks that may follow a block within its function."""
    end = block.terminator
    if end is not None and end.kind == "return":
        return ()
    if end is not None and end.kind == "call":
        return block.successors[len(end.targets) - 1 :]
    return block.successors


def reachable(blocks: Sequence[Block], start: Iterable[int], members: Container[int]) -> frozenset[int]:
    """Return the blocks that can be reached from the blocks `start` without leaving `members`, including `start`."""
    reached: set[int] = set()
    work = list(start)
    while work:
        number = work.pop()
        if number in members and number not in reached:
            reached.add(number)
            work.extend(following_blocks(blocks[number]))
    return frozenset(reached)


def _arrange(
    members: Collection[int], successors: Sequence[Sequence[int]], order: list[int], depth: int = DEEPEST
) -> None:
    """Append the blocks `members` to `order`, sorted; a loop's head comes after the other blocks of the loop."""
    inside = set(members)
    if not depth:
        order += sorted(inside)
        return
    pieces = strongly_connected(sorted(inside), successors, inside)
    piece_of = {number: place for place, piece in enumerate(pieces) for number in piece}
    before: dict[int, set[int]] = {place: set() for place in range(len(pieces))}
    entered: list[set[int]] = [set() for _ in pieces]
    for number in inside:
        for following in inside.intersection(successors[number]):
            if piece_of[following] != piece_of[number]:
                entered[piece_of[following]].add(following)
                before[piece_of[following]].add(piece_of[number])
    sorter = TopologicalSorter(before)
    sorter.prepare()
    waiting: list[tuple[int, int]] = []
    while sorter.is_active():
        for place in sorter.get_ready():
            heapq.heappush(waiting, (min(pieces[place]), place))
        _, place = heapq.heappop(waiting)
        piece = pieces[place]
        if len(piece) > 1:
            head = min(entered[place] or piece)
            _arrange([number for number in piece if number != head], successors, order, depth - 1)
            order.append(head)
        else:
            order.append(piece[0])
        sorter.done(place)


def strongly_connected(
    roots: Sequence[int], successors: Sequence[Sequence[int]], inside: Collection[int]
) -> list[list[int]]:
    """Return the strongly connected components that can be reached from `roots`, successors first (Tarjan, 1972).

    successors: the targets of each node's edges. inside: the nodes of the graph; edges to other nodes are ignored.
    """
    index: dict[int, int] = {}
    low: dict[int, int] = {}
    stack: list[int] = []
    stacked: set[int] = set()
    components: list[list[int]] = []
    for root in roots:
        if root in index:
            continue
        work = [(root, iter(successors[root]))]
        index[root] = low[root] = len(index)
        stack.append(root)
        stacked.add(root)
        while work:
            number, ways = work[-1]
            for following in ways:
                if following not in inside:
                    continue
                if following not in index:
                    index[following] = low[following] = len(index)
                    stack.append(following)
                    stacked.add(following)
                    work.append((following, iter(successors[following])))
                    break
                if following in stacked:
                    low[number] = min(low[number], index[following])
            else:
                work.pop()
                if work:
                    low[work[-1][0]] = min(low[work[-1][0]], low[number])
                if low[number] == index[number]:
                    piece: list[int] = []
                    while not piece or piece[-1] != number:
                        piece.append(stack.pop())
                        stacked.discard(piece[-1])
                    components.append(sorted(piece))
    return components
