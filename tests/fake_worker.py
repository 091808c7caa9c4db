"""A worker without a GPU: the name of a case's kernel decides how it ends. The session runs it in a separate
process."""

from __future__ import annotations

import os
import signal
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import replace

from cudabench.errors import OutOfMemory
from cudabench.measure.context import describe
from cudabench.measure.session import FinishedEvent, Task
from cudabench.measure.worker import ReportProgress, finished_event, serve
from cudabench.records.plan import Case
from cudabench.records.results import DeviceInfo, Result


class FakeDevice:
    """A GPU that does not start if the environment says so; its context lives until a kernel spoils it."""

    def __init__(self, index: int, *, primary: bool) -> None:
        if os.environ.get("FAKE_WORKER") == "no-start":
            print("the driver is asleep", file=sys.stderr)
            os._exit(7)
        self.info = DeviceInfo("Fake", "cuda", "9.0", index=index)
        self.spoilt = False

    def __enter__(self) -> FakeDevice:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def alive(self) -> bool:
        """Return whether the context is alive."""
        return not self.spoilt


def working(device: FakeDevice, report_progress: ReportProgress) -> Callable[[Task], FinishedEvent]:
    """Return the function that runs a task, in which each kernel ends as its name says."""

    def end(case: Case, at: int) -> Result:
        report_progress(case.kernel, "timing", 0.5, at)
        print(f"printed by {case.kernel}", flush=True)
        tempfile.mkdtemp()
        print("library noise", file=sys.stderr, flush=True)
        if case.kernel == "dies":
            os._exit(9)
        if case.kernel == "killed":
            os.kill(os.getpid(), signal.SIGKILL)
        if case.kernel == "hangs":
            time.sleep(60)
        if case.kernel == "refuses":
            raise OutOfMemory("too large")
        device.spoilt = case.kernel == "spoils"
        return replace(describe(case, "cuda:0"), status="failed" if device.spoilt else "ok")

    def run_task(task: Task) -> FinishedEvent:
        found = [end(case, at) for at, case in enumerate(task.cases)]
        return finished_event(device, found if len(found) > 1 else found[0], device.spoilt)

    return run_task


if __name__ == "__main__":
    serve(sys.argv[1:], working, FakeDevice)
