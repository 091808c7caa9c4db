"""A decoded instruction, before the number of its operation is known."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass
class Row:
    """One decoded instruction, from which a record of `layout.INSTRUCTION` is made.

    `name`: the name of the operation; `fields`, `mode`, `predicates`, `sources`, `conditions`: fields of the record.
    `reads`: the numbers of the registers and predicates on which the instruction's value depends; `decides`: of those
    on which its path or its address depends; `writes`: of those that it writes (see `unknown.predicate`). `schedule`:
    the instruction's schedule, and the clocks until its result is ready, 0 for a load.
    """

    name: str
    fields: dict[str, int] = field(default_factory=dict)
    mode: list[int] = field(default_factory=list)
    predicates: list[int] = field(default_factory=list)
    sources: list[tuple[int, int, int, int, int]] = field(default_factory=list)
    conditions: list[tuple[int, int]] = field(default_factory=list)
    reads: list[int] = field(default_factory=list)
    decides: list[int] = field(default_factory=list)
    writes: list[int] = field(default_factory=list)
    schedule: tuple[int, int, int, int] = (1, 0, -1, 0)
