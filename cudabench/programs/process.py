"""A program's process: ends it early, and describes in words how it ended; the base class for runs of programs."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from cudabench.errors import CudabenchError
from cudabench.measure.run import Listener, RecordedRun
from cudabench.records.file import ResultsFile
from cudabench.records.program import Program

TERMINATE_S = 2.0  # seconds that a program may take to end after SIGTERM; then it gets SIGKILL


class RecordedProgram(RecordedRun):
    """The run of a program, with its results file. `budget`: the value of --budget in seconds, or None."""

    def __init__(
        self, file: ResultsFile, path: Path | None, listener: Listener, shown: tuple[str, ...], budget: float | None
    ) -> None:
        """`shown`: the program and its arguments as the user wrote them."""
        super().__init__(file, path, listener)
        self.budget = budget
        self.exit_code: int | None = None
        self.stopped = ""  # what ended the program early, as the begin of a sentence; empty: nothing did
        # this record is replaced when the program ends
        self.file.program = Program(shown, launches=0, checked=0, exit_code=None)

    def end_of_budget(self) -> str:
        """Return the text for `stopped` if the time of --budget is over."""
        return f"--budget {self.budget:g} s"

    @property
    def program(self) -> Program:
        """The record of the program in the results file."""
        record = self.file.program
        assert record is not None
        return record


def start(
    command: Sequence[str], environment: Mapping[str, str], *, to_stderr: bool, fds: Sequence[int] = ()
) -> subprocess.Popen[bytes]:
    """Start a program. `to_stderr`: whether its output goes to stderr; `fds`: the files that it inherits.

    Raises CudabenchError if it does not start.
    """
    sys.stdout.flush()
    try:
        return subprocess.Popen(
            command, env=environment, pass_fds=fds, stdout=sys.stderr.fileno() if to_stderr else None
        )
    except OSError as error:
        raise CudabenchError(f"{command[0]} does not run: {error.strerror}.") from None


def end(child: subprocess.Popen[bytes]) -> None:
    """End the program if it still runs: with SIGTERM, and with SIGKILL if that does not help."""
    if child.poll() is not None:
        return
    with suppress(OSError):
        child.send_signal(signal.SIGTERM)
    try:
        child.wait(TERMINATE_S)
    except subprocess.TimeoutExpired:
        child.kill()
        child.wait()


def exit_code(child: subprocess.Popen[bytes], timeout: float | None = None) -> int:
    """Wait for the program's end, and return its exit code as a shell does: 128 + N if signal N ended it.

    Raises subprocess.TimeoutExpired after `timeout` seconds.
    """
    code = child.wait(timeout)
    return code if code >= 0 else 128 - code


def ended(code: int) -> str:
    """Return a sentence, without a period, about a program that ended with this exit code."""
    if code > 128:
        with suppress(ValueError):
            return f"The program was ended by {signal.Signals(code - 128).name} (exit code {code})"
    return f"The program ended with exit code {code}"
