"""Another order of a grid's blocks than the simulator's own, in which chunks come by number and their blocks in step.

`reverse` begins with the last block and `random:SEED` shuffles. Chunks come in that order, and within a chunk the blocks
stand the other way round, so that another block is first at an atomic and last at a store. Where blocks may tell each
other something they no longer run in step, either: they run in groups, each of which goes as far as it can before the
next one does. Where blocks wait for each other, chunks keep their order, for a block may wait for an earlier one.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from cudabench.simulator.errors import LaunchError
from cudabench.simulator.program.code import Barrier, Op
from cudabench.simulator.values import Array, Chunk, Index3

if TYPE_CHECKING:
    from cudabench.simulator.machine import Machine

Lanes = dict[int, Array | None]  # by the block of code at which they are
Parked = tuple[int, Array | None, Op, Barrier]
GROUPS = 4  # of a chunk in random order, at most


class Schedule(NamedTuple):
    """An order of blocks; seed: of the random one, None for the reverse."""

    seed: int | None

    @classmethod
    def of(cls, text: str) -> Schedule:
        """Read 'reverse' or 'random:SEED'. Raises LaunchError for anything else."""
        found = re.fullmatch(r"reverse|random:(\d+)", text)
        if found is None:
            raise LaunchError(f"the order of blocks '{text}' is not known: use reverse or random:SEED.")
        return cls(None if found[1] is None else int(found[1]))

    def arrange(self, chunks: list[tuple[Index3, Chunk]], waits: bool, turned: bool) -> list[tuple[Index3, Chunk]]:
        """Return the chunks in this order. waits: blocks wait for others; turned: the blocks of a chunk may be turned
        round, which those of a cluster may not."""
        generator = np.random.default_rng(self.seed)
        if turned:
            for chunk in {id(chunk): chunk for _, chunk in chunks}.values():
                x, y, z = (True, True, True) if self.seed is None else generator.random(3) < 0.5
                chunk.turned = bool(x), bool(y), bool(z)
        if waits:
            return chunks
        return chunks[::-1] if self.seed is None else [chunks[place] for place in generator.permutation(len(chunks))]

    def groups(self, chunk: Chunk) -> list[Array]:
        """Return the lanes (blocks, threads) of each group of a chunk's blocks: the first block, the last, all others.

        A block that is alone runs ahead of all others, or behind them; in random order groups are drawn.
        """
        number = np.arange(chunk.blocks)
        if self.seed is None:
            group = np.clip(number, 0, 1) + (number == chunk.blocks - 1)
        else:
            group = np.random.default_rng(self.seed).integers(0, min(GROUPS, chunk.blocks), chunk.blocks)
        rows = [(group == one).reshape(-1, 1) for one in sorted(set(group.tolist()))]
        return [chunk.real(row) for row in rows]


class Turns:
    """The groups of a chunk's blocks, one of which has its lanes in the machine while those of the others are here."""

    def __init__(self, machine: Machine, groups: list[Array]) -> None:
        self.machine, self.groups = machine, groups
        self.rest: list[tuple[Lanes, Lanes, list[Parked], set[int]]] = []
        self.apart = False

    def step(self) -> None:
        """Let the next group go on where the one in hand is through, or has looked in vain for what it waits for.

        While the machine looks whether anything ends the launch, all groups run in step.
        """
        machine = self.machine
        if machine.watch is not None:
            if self.apart:
                self.join()
        elif not self.apart:
            self.part()
        elif machine.ready:
            if machine.ready.keys() <= machine.asleep:
                if not machine.reconsider() and not (machine.parked and machine.release(spinning=True)):
                    self.switch()
        elif not machine.waiting and not machine.parked:
            self.switch()

    def switch(self) -> None:
        """Take the next group's lanes for those in hand, which come last now."""
        machine = self.machine
        # What blocks did so far was in another order than what comes now: nothing of it is one interval.
        machine.shared_races.barrier()
        machine.global_races.barrier()
        mine = (dict(machine.ready), dict(machine.waiting), list(machine.parked), set(machine.loose))
        if any(mine):
            self.rest.append(mine)
        if self.rest:
            self.set(*self.rest.pop(0))

    def set(self, ready: Lanes, waiting: Lanes, parked: list[Parked], loose: set[int]) -> None:
        """Give the machine the lanes that it runs."""
        machine = self.machine
        for now, new in ((machine.ready, ready), (machine.waiting, waiting)):
            now.clear()
            now.update(new)
        machine.parked[:] = parked
        machine.loose.clear()
        machine.loose.update(loose)
        machine.asleep.clear()
        machine.held = tuple(
            number for one in self.rest for number in (*one[0], *one[1], *(entry[0] for entry in one[2]))
        )

    def part(self) -> None:
        """Take the lanes apart by their groups."""
        machine = self.machine
        self.rest = [
            (
                among(machine.ready, lanes),
                among(machine.waiting, lanes),
                [(following, part, op, barrier) for following, mask, op, barrier in machine.parked
                 for part in among({0: mask}, lanes).values()],
                set(machine.loose),
            )
            for lanes in self.groups
        ]  # fmt: skip
        self.rest = [one for one in self.rest if any(one[:3])]
        self.apart = True
        if self.rest:
            self.set(*self.rest.pop(0))

    def join(self) -> None:
        """Put the lanes of all groups together."""
        machine = self.machine
        ready, waiting, parked, loose = (
            dict(machine.ready), dict(machine.waiting), list(machine.parked), set(machine.loose)
        )  # fmt: skip
        for one in self.rest:
            for mine, others in ((ready, one[0]), (waiting, one[1])):
                for number, mask in others.items():
                    mine[number] = machine.union(mask, mine[number]) if number in mine else mask
            parked += one[2]
            loose |= one[3]
        self.rest, self.apart = [], False
        self.set(ready, waiting, parked, loose)


def among(entries: Lanes, lanes: Array) -> Lanes:
    """Return of the lanes at each block of code those that are among some, where there are any."""
    parts = {number: lanes if mask is None else mask & lanes for number, mask in entries.items()}
    return {number: part for number, part in parts.items() if part.any()}
