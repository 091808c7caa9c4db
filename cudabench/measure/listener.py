"""Who is told what a run does. Nothing else of measuring is imported here, so that a command can start soon."""

from __future__ import annotations


class Listener:
    """Told what a run does; this one ignores it all."""

    def begin(self, kernels: int) -> None:
        """So many kernels will run."""

    def working(self, done: int, kernel: str, phase: str, fraction: float) -> None:
        """A kernel, after `done` others, is in a phase, of which a fraction is done."""

    def printed(self, text: str) -> None:
        """A kernel printed this."""

    def end(self) -> None:
        """No kernel runs any more, whatever the reason."""
