"""Sessions with invented results."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from cudabench.devices import Choice
from cudabench.measure import session
from cudabench.records.plan import Case, Settings
from cudabench.records.results import DeviceInfo, Result


def invent(
    monkeypatch: pytest.MonkeyPatch,
    device: Callable[[Choice], DeviceInfo],
    result: Callable[[Invented, Case], Result],
) -> list[Invented]:
    """Replace sessions by invented ones; return those that were started, in order."""
    begun: list[Invented] = []

    class Own(Invented):
        def __init__(self, choice: Choice, settings: Settings, **how: Any) -> None:
            super().__init__(choice, settings, **how)
            self.info, self.invented = device(choice), result
            begun.append(self)

    monkeypatch.setattr(session, "Session", Own)
    return begun


class Invented(session.Session):
    """A session that runs no kernel; `ran` are its cases, `known` is the CPU time at its start."""

    info: DeviceInfo
    invented: Callable[[Invented, Case], Result]

    def __init__(self, choice: Choice, settings: Settings, **how: Any) -> None:
        super().__init__(choice, settings, **how)
        self.how, self.known = how, self.cpu
        self.ran: list[Case] = []
        self.closed = False

    def _start(self) -> None:
        self._set_device(self.info)

    def _begin(self, cases: Any) -> None:
        self._start()

    def run_in_worker(self, task: Any, lost: Any, end: float = 0.0) -> Any:
        """Return the invented result."""
        (case,) = task.cases
        self.show_progress(case.kernel, "timing", 0.5)
        self.ran.append(case)
        found = self.invented(self, case)
        self._shown.finished(f"said by {case.kernel}")
        return found

    def end(self) -> None:
        """Record the end."""
        self.closed = True
