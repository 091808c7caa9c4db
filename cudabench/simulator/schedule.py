"""Other orders of a grid's blocks than the default, in which chunks run by number and their blocks in step.

`reverse` begins with the last block, and `random:SEED` shuffles. Chunks run in that order, and within a chunk the order
of the blocks is reversed, so that another block is first at an atomic and last at a store. Blocks that may read results
of other blocks do not run in step. They run in groups, each until it waits; the last group also stops where it may have
released others (in random order only sometimes), so that these run before its next accesses. If blocks wait for each
other, chunks keep the default order, because a block may wait for an earlier one.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from cudabench.simulator.check.members import reconsider
from cudabench.simulator.errors import LaunchError
from cudabench.simulator.program.code import Barrier, Op
from cudabench.simulator.values import Array, Chunk, Index3

if TYPE_CHECKING:
    from cudabench.simulator.machine import Machine

Lanes = dict[int, Array | None]  # by the basic block that they run next
Parked = tuple[int, Array | None, Op, Barrier]
GROUPS = 4  # of a chunk in random order, at most


class Schedule(NamedTuple):
    """An order of blocks; seed: of the random one, None for the reverse."""

    seed: int | None

    @classmethod
    def of(cls, text: str) -> Schedule:
        """Read 'reverse' or 'random:SEED'. Raises LaunchError for anything else."""
        match = re.fullmatch(r"reverse|random:(\d+)", text)
        if match is None:
            raise LaunchError(f"the order of blocks '{text}' is not known: use reverse or random:SEED.")
        return cls(None if match[1] is None else int(match[1]))

    def arrange(self, chunks: list[tuple[Index3, Chunk]], waits: bool, turned: bool) -> list[tuple[Index3, Chunk]]:
        """Return the chunks in this order. waits: blocks wait for others; turned: the blocks of a chunk may be
        reversed, which those of a cluster may not."""
        generator = np.random.default_rng(self.seed)
        if turned:
            for chunk in {id(chunk): chunk for _, chunk in chunks}.values():
                x, y, z = (True, True, True) if self.seed is None else generator.random(3) < 0.5
                chunk.turned = bool(x), bool(y), bool(z)
        if waits:
            return chunks
        return chunks[::-1] if self.seed is None else [chunks[place] for place in generator.permutation(len(chunks))]

    def groups(self, chunk: Chunk) -> list[Array]:
        """Return the lanes (blocks, threads) of each group of a chunk's blocks; there are at least two groups.

        They are the first block, the last block, and all between; in random order they are drawn.
        """
        number = np.arange(chunk.blocks)
        if self.seed is None:
            group = np.clip(number, 0, 1) + (number == chunk.blocks - 1)
        else:
            generator = np.random.default_rng(self.seed)
            drawn = np.sort(generator.integers(0, GROUPS, chunk.blocks))
            drawn[:2] = 0, GROUPS - 1  # two groups at least
            group = generator.permutation(drawn)
        return [chunk.real((group == index).reshape(-1, 1)) for index in sorted(set(group.tolist()))]


class Group(NamedTuple):
    """The control state of some blocks' lanes, as in the machine; last: whether these blocks are the last ones."""

    ready: Lanes
    waiting: Lanes
    parked: list[Parked]
    loose: set[int]
    last: bool


class Turns:
    """The groups of a chunk's blocks: the machine runs one of them, the others are kept here."""

    def __init__(self, machine: Machine, schedule: Schedule, chunk: Chunk) -> None:
        self.machine, self.groups = machine, schedule.groups(chunk)
        self.chance = None if schedule.seed is None else np.random.default_rng(schedule.seed)
        self.rest: list[Group] = []
        self.apart = False
        self.last, self.since = False, 0  # of the running group; since: the steps at which its turn began

    def step(self) -> None:
        """Let the next group run if the running one has ended, or has polled in vain.

        While the machine checks whether the launch ever ends, all blocks run in step.
        """
        machine = self.machine
        if machine.watch is not None:
            if self.apart:
                self.join()
        elif not self.apart:
            self.part()
        elif not machine.ready:
            if not machine.waiting and not machine.parked:
                self.switch()
        elif machine.ready.keys() <= machine.asleep:
            if reconsider(machine) or (machine.parked and machine.barriers.release(spinning=True)):
                return
            self.switch()
        elif self.last and machine.steps > self.since and not machine.code.signs.isdisjoint(machine.ready):
            self.since = machine.steps
            if self.chance is None or self.chance.random() < 0.5:
                self.switch()

    def switch(self) -> None:
        """Run the next group; the running one becomes the last."""
        machine = self.machine
        # Accesses of two groups are not ordered as the checks of one interval need them.
        machine.end_interval()
        if machine.ready or machine.waiting or machine.parked:
            self.rest.append(Group(machine.ready, machine.waiting, machine.parked, machine.loose, self.last))
        if self.rest:
            self.take(self.rest.pop(0))

    def take(self, group: Group) -> None:
        """Make a group the running one."""
        machine = self.machine
        machine.ready, machine.waiting, machine.parked, machine.loose, self.last = group
        machine.asleep.clear()
        self.since = machine.steps
        machine.held = tuple(
            block for other in self.rest for block in (*other.ready, *other.waiting, *(i for i, *_ in other.parked))
        )

    def part(self) -> None:
        """Split the lanes by their groups."""
        machine = self.machine
        for lanes in self.groups:
            parked = [
                (following, part, op, barrier)
                for following, mask, op, barrier in machine.parked
                for part in among({0: mask}, lanes).values()
            ]
            ready, waiting = among(machine.ready, lanes), among(machine.waiting, lanes)
            if ready or waiting or parked:
                self.rest.append(Group(ready, waiting, parked, {*machine.loose}, lanes is self.groups[-1]))
        self.apart = True
        if self.rest:
            self.take(self.rest.pop(0))

    def join(self) -> None:
        """Join the lanes of all groups."""
        machine = self.machine
        for group in self.rest:
            for own, others in ((machine.ready, group.ready), (machine.waiting, group.waiting)):
                for number, mask in others.items():
                    own[number] = machine.union(mask, own[number]) if number in own else mask
            machine.parked.extend(group.parked)
            machine.loose.update(group.loose)
        self.rest, self.apart = [], False
        machine.asleep.clear()
        machine.held, self.since = (), machine.steps


def among(entries: Lanes, lanes: Array) -> Lanes:
    """Return the lanes at each basic block that are in `lanes` too, without blocks that have none."""
    parts = {number: lanes if mask is None else mask & lanes for number, mask in entries.items()}
    return {number: part for number, part in parts.items() if part.any()}
