"""Launches a kernel in the simulator, with the arrays and time limits of its run."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

from cudabench.cards.load import Card, default_card
from cudabench.devices import sim
from cudabench.devices.sim import SimDevice
from cudabench.measure.context import Arrays, InputSet, RunContext
from cudabench.measure.counting import arrays_of
from cudabench.records.plan import Case
from cudabench.records.results import Watch


@dataclass
class SimulatedLaunches(RunContext):
    """The methods to launch kernels in the simulator, which `simulated_run` and `further_runs` both use."""

    device: SimDevice

    def launch(
        self, case: Case, arrays: Arrays, phase: str = "simulating", *, trace: Watch = False, **how: Any
    ) -> sim.Run:
        """Run a case on arrays, which the case may change, and return the run. `phase`: the phase that the progress
        shows. `how`: further arguments of `SimDevice.run`."""
        how = {"seconds": self.seconds(), "schedule": self.settings.schedule, "card": self.card, **how}
        return self.device.run(case, arrays, trace=trace, progress=partial(self.progress, phase), **how)

    @property
    def card(self) -> Card | None:
        """The card that decides how many blocks run at once: of the cards with the device's architecture, the one with
        the fewest multiprocessors; without such a card the default card."""
        mine = [card for card in self.cards if card.architecture == self.device.architecture]
        return min(mine, key=lambda card: card.device.sm_count or 0, default=default_card(self.device.architecture))

    def seconds(self) -> float:
        """Return the seconds that a kernel may be simulated: --timeout, or the rest of --budget if that is less."""
        left = math.inf if self.until is None else max(self.until - time.monotonic(), 0.0)
        return min(self.settings.timeout, left)

    def arrays(self, case: Case, inputs: InputSet, done: Mapping[str, Any] = {}) -> Arrays:
        """Return the arrays of a problem by name: inputs, and poisoned outputs; `done`: see `arrays_of`."""
        poison, _ = inputs.poisons(case.expects)
        buffers = self.operation.buffers(self.problem)
        return arrays_of(buffers, inputs.arrays, poison, kept=case.source.builtin, done=done)
