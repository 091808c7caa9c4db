"""Another order of a grid's blocks than the simulator's own, in which chunks come by number and their blocks in step.

`reverse` begins with the last block, and `random:SEED` shuffles. Chunks come in that order, and within a chunk blocks
stand the other way round, so that another is first at an atomic and last at a store. Blocks that may learn what others
did do not run in step, either. They run in groups, each of which goes on until it waits; the last of them also stops
where it may have let others go on (in random order now and then), so that these get ahead of what it does next. Where
blocks wait for each other, chunks keep their own order, for a block may wait for an earlier one.
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
        """Return the chunks in this order. waits: blocks wait for others; turned: the blocks of a chunk may stand the
        other way round, which those of a cluster may not."""
        generator = np.random.default_rng(self.seed)
        if turned:
            for chunk in {id(chunk): chunk for _, chunk in chunks}.values():
                x, y, z = (True, True, True) if self.seed is None else generator.random(3) < 0.5
                chunk.turned = bool(x), bool(y), bool(z)
        if waits:
            return chunks
        return chunks[::-1] if self.seed is None else [chunks[place] for place in generator.permutation(len(chunks))]

    def groups(self, chunk: Chunk) -> list[Array]:
        """Return the lanes (blocks, threads) of each group of a chunk's blocks, which are two at least.

        They are the first block, the last one, and all between; in random order they are drawn.
        """
        number = np.arange(chunk.blocks)
        if self.seed is None:
            group = np.clip(number, 0, 1) + (number == chunk.blocks - 1)
        else:
            generator = np.random.default_rng(self.seed)
            drawn = np.sort(generator.integers(0, GROUPS, chunk.blocks))
            drawn[:2] = 0, GROUPS - 1  # two groups at least
            group = generator.permutation(drawn)
        return [chunk.real((group == one).reshape(-1, 1)) for one in sorted(set(group.tolist()))]


class Group(NamedTuple):
    """Where the lanes of some blocks are, as the machine has it; last: whether these blocks are the last ones."""

    ready: Lanes
    waiting: Lanes
    parked: list[Parked]
    loose: set[int]
    last: bool


class Turns:
    """The groups of a chunk's blocks: one of them is in the machine's hands, the others are kept here."""

    def __init__(self, machine: Machine, schedule: Schedule, chunk: Chunk) -> None:
        self.machine, self.groups = machine, schedule.groups(chunk)
        self.chance = None if schedule.seed is None else np.random.default_rng(schedule.seed)
        self.rest: list[Group] = []
        self.apart = False
        self.last, self.since = False, 0  # of the group in hand: the steps at which its turn began

    def step(self) -> None:
        """Let the next group go on where the one in hand has ended, or has looked in vain for what it waits for.

        While the machine looks whether anything ends the launch, all blocks run in step.
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
        """Take the next group in hand; the one that was comes last now."""
        machine = self.machine
        # Accesses of two groups are in no order in which the checks of one interval could take them.
        machine.end_interval()
        if machine.ready or machine.waiting or machine.parked:
            self.rest.append(Group(machine.ready, machine.waiting, machine.parked, machine.loose, self.last))
        if self.rest:
            self.take(self.rest.pop(0))

    def take(self, group: Group) -> None:
        """Take a group in hand."""
        machine = self.machine
        machine.ready, machine.waiting, machine.parked, machine.loose, self.last = group
        machine.asleep.clear()
        self.since = machine.steps
        machine.held = tuple(
            number for one in self.rest for number in (*one.ready, *one.waiting, *(place for place, *_ in one.parked))
        )

    def part(self) -> None:
        """Take the lanes apart by their groups."""
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
        """Put the lanes of all groups together."""
        machine = self.machine
        for one in self.rest:
            for mine, others in ((machine.ready, one.ready), (machine.waiting, one.waiting)):
                for number, mask in others.items():
                    mine[number] = machine.union(mask, mine[number]) if number in mine else mask
            machine.parked.extend(one.parked)
            machine.loose.update(one.loose)
        self.rest, self.apart = [], False
        machine.asleep.clear()
        machine.held, self.since = (), machine.steps


def among(entries: Lanes, lanes: Array) -> Lanes:
    """Return of the lanes at each block of code those that are among some, where there are any."""
    parts = {number: lanes if mask is None else mask & lanes for number, mask in entries.items()}
    return {number: part for number, part in parts.items() if part.any()}
