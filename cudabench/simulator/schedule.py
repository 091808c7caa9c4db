"""Orders in which the blocks of a grid can run, other than the default order. By default the chunks run one after
another, and the blocks of a chunk run together, one instruction at a time.

`reverse` begins with the last chunk, and `random:SEED` shuffles the chunks. Within a chunk the order of the blocks is
reversed (with `random` only along some axes), so that another block executes an atomic first, or a store last. Blocks
that may read results of other blocks do not run together. They run in groups, and a group runs until all its lanes
wait. The last group also stops where it may have released other groups (with `random` only sometimes), so that the
released groups run before the next accesses of the last group. If blocks wait for each other, chunks keep the default
order, because a block may wait for an earlier one.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from cudabench.simulator.check.members import release_complete
from cudabench.simulator.errors import LaunchError
from cudabench.simulator.program.code import Barrier, Op
from cudabench.simulator.values import Array, Chunk, Index3

if TYPE_CHECKING:
    from cudabench.simulator.machine import Machine

Lanes = dict[int, Array | None]  # masks of lanes, by the basic block that the lanes run next
# (basic block after the barrier, mask of the waiting lanes, the barrier's instruction, the barrier).
Parked = tuple[int, Array | None, Op, Barrier]
GROUPS = 4  # in random order, a chunk has at most this many groups of blocks


class Schedule(NamedTuple):
    """An order of blocks. `seed`: the seed of the random order; None for the reverse order."""

    seed: int | None

    @classmethod
    def of(cls, text: str) -> Schedule:
        """Return the order that 'reverse' or 'random:SEED' names. Raises LaunchError for any other text."""
        match = re.fullmatch(r"reverse|random:(\d+)", text)
        if match is None:
            raise LaunchError(f"the order of blocks '{text}' is not known: use reverse or random:SEED.")
        return cls(None if match[1] is None else int(match[1]))

    def arrange(self, chunks: list[tuple[Index3, Chunk]], waits: bool, may_reverse: bool) -> list[tuple[Index3, Chunk]]:
        """Return the chunks in this order.

        `waits`: whether blocks wait for other blocks. `may_reverse`: whether the order of the blocks in a chunk may be
        reversed; with clusters it may not.
        """
        generator = np.random.default_rng(self.seed)
        if may_reverse:
            for chunk in {id(chunk): chunk for _, chunk in chunks}.values():
                chunk.reverse((True, True, True) if self.seed is None else generator.random(3) < 0.5)
        if waits:
            return chunks
        return chunks[::-1] if self.seed is None else [chunks[place] for place in generator.permutation(len(chunks))]

    def groups(self, chunk: Chunk) -> list[Array]:
        """Divide a chunk's blocks into two or more groups; return a mask of shape (blocks, threads) for each group.

        In reverse order the groups are the first block, the blocks between, and the last block. In random order, each
        block is in a random group.
        """
        number = np.arange(chunk.blocks)
        if self.seed is None:
            group = np.clip(number, 0, 1) + (number == chunk.blocks - 1)
        else:
            generator = np.random.default_rng(self.seed)
            drawn = np.sort(generator.integers(0, GROUPS, chunk.blocks))
            drawn[:2] = 0, GROUPS - 1  # the first and the last group get a block, so that there are at least two groups
            group = generator.permutation(drawn)
        return [chunk.real((group == index).reshape(-1, 1)) for index in sorted(set(group.tolist()))]


class Group(NamedTuple):
    """The control state of the lanes of one group of blocks; the fields are those of `Machine`. `last`: whether this is
    the last group of the chunk."""

    ready: Lanes
    waiting: Lanes
    parked: list[Parked]
    loose: set[int]
    last: bool


class GroupScheduler:
    """Switches between the groups of a chunk's blocks: the machine runs one group, and `rest` has the other groups.

    `apart`: whether the lanes are divided into groups at present. `last`: whether the running group is the chunk's last
    one.
    """

    def __init__(self, machine: Machine, schedule: Schedule, chunk: Chunk) -> None:
        self.machine, self.groups = machine, schedule.groups(chunk)
        self.generator = None if schedule.seed is None else np.random.default_rng(schedule.seed)
        self.rest: list[Group] = []
        self.apart = False
        # `started`: the machine's step count when the running group began to run.
        self.last, self.started = False, 0

    def step(self) -> None:
        """Switch to the next group if the running group has ended, has polled in vain, or may have released other
        groups.

        While the machine checks for a launch that never ends, all blocks run together.
        """
        machine = self.machine
        if machine.hang_check is not None:
            if self.apart:
                self.join()
        elif not self.apart:
            self.divide()
        elif not machine.ready:
            if not machine.waiting and not machine.parked:
                self.switch()
        elif machine.ready.keys() <= machine.asleep:
            if release_complete(machine) or (machine.parked and machine.barriers.release(spinning=True)):
                return
            self.switch()
        elif self.last and machine.steps > self.started and not machine.code.signs.isdisjoint(machine.ready):
            self.started = machine.steps
            if self.generator is None or self.generator.random() < 0.5:
                self.switch()

    def switch(self) -> None:
        """Let the next group run; the group that ran so far goes to the end of the queue."""
        machine = self.machine
        # A new interval begins, because within an interval the race checks need the accesses in program order.
        machine.end_interval()
        if machine.ready or machine.waiting or machine.parked:
            self.rest.append(Group(machine.ready, machine.waiting, machine.parked, machine.loose, self.last))
        if self.rest:
            self.load(self.rest.pop(0))

    def load(self, group: Group) -> None:
        """Load a group's state into the machine, so that the group runs."""
        machine = self.machine
        machine.ready, machine.waiting, machine.parked, machine.loose, self.last = group
        machine.asleep.clear()
        self.started = machine.steps
        machine.suspended = tuple(
            block for other in self.rest for block in (*other.ready, *other.waiting, *(i for i, *_ in other.parked))
        )

    def divide(self) -> None:
        """Divide the machine's lanes into groups, and let the first group run."""
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
            self.load(self.rest.pop(0))

    def join(self) -> None:
        """Put the lanes of all groups back into the machine, so that they run together."""
        machine = self.machine
        for group in self.rest:
            for own, more in ((machine.ready, group.ready), (machine.waiting, group.waiting)):
                for number, mask in more.items():
                    own[number] = machine.union(mask, own[number]) if number in own else mask
            machine.parked.extend(group.parked)
            machine.loose.update(group.loose)
        self.rest, self.apart = [], False
        machine.asleep.clear()
        machine.suspended, self.started = (), machine.steps


def among(entries: Lanes, lanes: Array) -> Lanes:
    """Return the masks in `entries` reduced to the lanes in `lanes`, without the empty ones."""
    parts = {number: lanes if mask is None else mask & lanes for number, mask in entries.items()}
    return {number: part for number, part in parts.items() if part.any()}
