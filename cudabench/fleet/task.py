"""A task of a submission: it measures one card, or all cards that its job may use.

Slurm may give the same card to several jobs of an array, one after the other, and another card to none. A finished task
therefore keeps its card until every task has started, or until no task has started for `hold_s` seconds. A task that
gets a card that another task has measured records this and does not measure.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from cudabench.errors import EXIT_OK, EXIT_TERMINATED, CudabenchError
from cudabench.fleet import shard
from cudabench.fleet.shard import Plan
from cudabench.system import outputs
from cudabench.system.reading import open_bytes, parse_json

# the subfolder, in the folder of shards, that holds the state of the submission; reports do not read it
STATE = ".fleet"
POLL_S = 0.5
MOST_BYTES = 1 << 20


@dataclass(frozen=True)
class Task:
    """One of the `tasks` tasks of a submission. The task is pickled and sent to its job, which calls it.

    `number`: the number of the task, from 0; `card`: the UUID of the GPU to use, if the engine does not choose one;
    `name`: the simulator's name.
    """

    plan: Plan
    number: int
    tasks: int
    hold_s: float
    card: str | None = None
    name: str | None = None

    def __call__(self) -> int:
        """Measure, write this task's state into the folder, keep the card while other tasks may wait for a card, and
        return the exit code."""
        if self.card is not None:
            os.environ["CUDA_VISIBLE_DEVICES"] = self.card
        # The plan is made anew, so that it holds the host and rack of this job instead of the submitting process's.
        plan = replace(Plan(self.plan.folder, self.plan.words, self.plan.device, self.plan.quiet), name=self.name)
        cards = [target.id for target in shard.visible_cards(plan)]
        note = {"host": plan.host, "cards": cards, "exit_code": None, "repeated": False, "job": _job()}
        taken = {card for number in range(self.tasks) if number != self.number for card in self._cards(number)}
        repeated = bool(cards) and {*cards} <= taken
        self._write_state({**note, "cards": [] if repeated else cards})
        code = EXIT_OK if repeated else shard.measure_cards(plan)
        if code == EXIT_TERMINATED:
            # no exit code is written to the task's state, so the submission knows that this task is not finished
            sys.exit(code)
        self._write_state({**note, "cards": [] if repeated else cards, "exit_code": code, "repeated": repeated})
        if not repeated:
            hold_card(
                lambda: sum(last_state(self.plan.folder, number) is not None for number in range(self.tasks)), self
            )
        return code

    def _cards(self, number: int) -> list[str]:
        cards = (last_state(self.plan.folder, number) or {}).get("cards")
        return [card for card in cards if isinstance(card, str)] if isinstance(cards, list) else []

    def _write_state(self, note: dict[str, Any]) -> None:
        outputs.write_own_file(state_path(self.plan.folder, self.number), json.dumps(note).encode())


def hold_card(started: Callable[[], int], task: Task) -> None:
    """Wait until all tasks have started, or no task has started for `hold_s` seconds.

    `started()` counts the started tasks.
    """
    count, since = started(), time.monotonic()
    while count < task.tasks and time.monotonic() - since < task.hold_s:
        time.sleep(POLL_S)
        now = started()
        if now > count:
            count, since = now, time.monotonic()


def _job() -> str:
    array, element = os.environ.get("SLURM_ARRAY_JOB_ID"), os.environ.get("SLURM_ARRAY_TASK_ID")
    return f"{array}_{element}" if array else os.environ.get("SLURM_JOB_ID", "")


def state_path(folder: Path, number: int) -> Path:
    """Return the path of the file with a task's state."""
    return folder / STATE / "tasks" / f"{number}.json"


def last_state(folder: Path, number: int) -> dict[str, Any] | None:
    """Return the state that a task recorded last; None before the task has started."""
    with suppress(OSError, ValueError, RecursionError), open_bytes(state_path(folder, number)) as stream:
        document = parse_json(stream.read(MOST_BYTES))
        return document if isinstance(document, dict) else None
    return None


def delete_state(folder: Path, number: int) -> None:
    """Delete a task's state, before the task is submitted again. Raises CudabenchError if it cannot be deleted."""
    try:
        state_path(folder, number).unlink(missing_ok=True)
    except OSError as error:
        raise CudabenchError(f"{state_path(folder, number)} cannot be deleted: {error.strerror}.") from None
