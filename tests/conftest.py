"""What the tests share: a device with a clock of its own, a command-line runner, the GPU marker."""

from __future__ import annotations

import io
import json
import os
import tempfile
from collections.abc import Callable, Mapping, Sequence
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from cudabench.devices import probe
from cudabench.model import DeviceInfo, Launch, Source
from cudabench.results.file import ResultsFile
from cudabench.toolchain.record import Resources

os.environ["TERM"] = "dumb"  # rich then writes no escapes
os.environ.pop("FORCE_COLOR", None)
os.environ.pop("CUDABENCH_COMPILER", None)
if "PYTEST_XDIST_WORKER" not in os.environ:  # a cache of this run's own, which its workers share
    _CACHE = tempfile.TemporaryDirectory(prefix="cudabench-tests-")
    os.environ["CUDABENCH_CACHE"] = _CACHE.name


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Skip what needs a GPU where there is none, with the reason."""
    parts = [probe.driver(), probe.pycuda(), probe.gpu_compiler()]
    lack = next((part.problem for part in parts if not part.usable), None)
    if lack:
        for item in items:
            if "gpu" in item.keywords:
                item.add_marker(pytest.mark.skip(reason=lack))


@dataclass
class Ran:
    """What a command line gave."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        """Standard output as JSON."""
        return json.loads(self.out)


@pytest.fixture
def cudabench(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Ran]:
    """Run a command line in this process, from an empty folder."""
    from cudabench import cli
    from cudabench.render import console

    monkeypatch.chdir(tmp_path)

    def run(*words: object) -> Ran:
        console.out.cache_clear()
        console.err.cache_clear()
        out, err = io.StringIO(), io.StringIO()
        with redirect_stdout(out), redirect_stderr(err):
            code = cli.invoke([str(word) for word in words])
        console.out.cache_clear()
        console.err.cache_clear()
        return Ran(code, out.getvalue(), err.getvalue())

    return run


FAKE = DeviceInfo(
    name="Fake", kind="cuda", compute_capability="9.0", sm_count=132, l2_bytes=1 << 20, peak_gbps=4000.0, index=0
)


@dataclass
class FakeDevice:
    """A device in host memory: `kernel` does the work on the buffers, `seconds` gives the samples in turn.

    Poisoning, copying and faults are real, so that the protocol can be seen at work; only time is invented.
    """

    kernel: Callable[[dict[str, np.ndarray]], None]
    seconds: Callable[[int], float] = lambda at: 1e-4
    copy_seconds: float = 8e-5
    free: int = 1 << 40
    info: DeviceInfo = FAKE
    log: list[str] = field(default_factory=list)
    memory: dict[int, np.ndarray] = field(default_factory=dict)
    samples: int = 0
    clocks: list[int] = field(default_factory=list)

    def load(self, source: Source, defines: Mapping[str, str], names: Sequence[str] = ()) -> Any:
        """Return a module whose kernels take 32 registers."""
        self.log.append("compile")

        class Module:
            def resources(self, name: str) -> Resources:
                return Resources(32, 1024, 0)

            def max_threads(self, name: str) -> int:
                return 1024

        return Module()

    def free_bytes(self) -> int:
        """Return what was set."""
        return self.free

    def allocate(self, nbytes: int, *, own_page: bool = False) -> int:
        """Return the address of zeroed host memory."""
        pointer = 1 + max(self.memory, default=0)
        self.memory[pointer] = np.zeros(nbytes, np.uint8)
        return pointer

    def release(self, pointer: int) -> None:
        """Free."""
        del self.memory[pointer]

    def upload(self, pointer: int, array: np.ndarray) -> None:
        """Copy in."""
        self.memory[pointer][:] = np.frombuffer(array.tobytes(), np.uint8)

    def download(self, pointer: int, array: np.ndarray) -> None:
        """Copy out."""
        self.log.append("download")
        array.reshape(-1).view(np.uint8)[:] = self.memory[pointer][: array.nbytes]

    def poison(self, pointer: int, nbytes: int) -> None:
        """Fill with 0xFF."""
        self.log.append("poison")
        self.memory[pointer][:nbytes] = 0xFF

    def bind(self, module: Any, launches: Sequence[Launch], pointers: Mapping[str, int]) -> Callable[[], None]:
        """Return the kernel on the named buffers."""
        return lambda: self.kernel({name: self.memory[pointer] for name, pointer in pointers.items()})

    def use_stream(self, number: int) -> None:
        """Do nothing: all streams of a host are one."""

    def copy(self, source: int, target: int, nbytes: int) -> Callable[[], None]:
        """Return a copy, marked so that it is timed as one."""

        def work() -> None:
            self.memory[target][:nbytes] = self.memory[source][:nbytes]

        work.is_copy = True  # type: ignore[attr-defined]
        return work

    def run(self, work: Callable[[], None], doing: str) -> None:
        """Run at once."""
        self.log.append("run")
        work()

    def sample(
        self,
        work: Callable[[], None],
        cache: str,
        runs: int = 1,
        before: Callable[[], None] | None = None,
    ) -> float:
        """Run, and return an invented time."""
        if before is not None:
            before()
        work()
        if getattr(work, "is_copy", False):
            self.log.append("copy")
            return self.copy_seconds
        self.log.append(cache)
        self.samples += 1
        return self.seconds(self.samples)

    def sm_clock_mhz(self) -> int | None:
        """Return the clocks set, in turn."""
        return self.clocks.pop(0) if self.clocks else None


def on_cards(file: ResultsFile, *uuids: str) -> ResultsFile:
    """Return a run as `--device all` writes it of cards with these UUIDs, in their order."""
    assert file.device is not None
    devices = [replace(file.device, uuid=uuid, index=at) for at, uuid in enumerate(uuids)]
    found = [replace(result, device=f"cuda:{device.index}") for device in devices for result in file.results]
    return replace(file, devices=devices, results=found)
