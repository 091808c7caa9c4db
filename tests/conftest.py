"""Shared fixtures of the tests: a fake device with an invented clock, a command-line runner, and the selection of
tests."""

from __future__ import annotations

import gc
import hashlib
import io
import json
import os
import re
import signal
import subprocess
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import redirect_stderr, redirect_stdout, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import settings

from cudabench import operations
from cudabench.compile import nvdisasm
from cudabench.compile.record import Resources
from cudabench.devices import probe
from cudabench.devices.protocol import Variable
from cudabench.measure import context, provenance, session, timing
from cudabench.measure.buffers import GUARD, ROTATION_BYTES, SMALL_GUARD_BYTES
from cudabench.plan import chapters
from cudabench.records.file import ResultsFile
from cudabench.records.launch import Launch, Source
from cudabench.records.results import DeviceInfo
from cudabench.results import schema
from cudabench.system import native

# Hypothesis has no deadline, because the time of an example depends on the machine.
# CI draws the same examples each time, so that a failure comes from the change; elsewhere the examples are random.
settings.register_profile("untimed", deadline=None)
settings.register_profile("ci", deadline=None, derandomize=True)
settings.load_profile("ci" if os.environ.get("CI") else "untimed")

os.environ["TERM"] = "dumb"  # so that rich writes no escape codes
os.environ.pop("FORCE_COLOR", None)
os.environ.pop("CUDABENCH_COMPILER", None)
os.environ["CUDABENCH_JOBS"] = "1"  # the tests already run in parallel
if "PYTEST_XDIST_WORKER" not in os.environ:  # the workers of a run share a new cache, or one that several runs share
    _CACHE = tempfile.TemporaryDirectory(prefix="cudabench-tests-")
    os.environ["CUDABENCH_CACHE"] = os.environ.get("CUDABENCH_TESTS_CACHE") or _CACHE.name
    with suppress(native.NotBuilt):  # from these sources, for all processes that tests start
        native.build(native.INSTALLED)
    if os.environ.pop("PYTHONDONTWRITEBYTECODE", ""):  # otherwise each process would compile all modules again
        os.environ.setdefault("PYTHONPYCACHEPREFIX", os.path.join(_CACHE.name, "bytecode"))


# Files with few long tests. They start first: files with few tests start last, and the run would wait for them.
FIRST = (
    "test_docs_site.py", "test_hostile_argv.py", "test_hostile_signals.py", "test_machine_code.py", "test_solve.py",
    "test_mutants.py", "test_packaging.py", "test_blocks.py",
)  # fmt: skip


def pytest_configure(config: pytest.Config) -> None:
    """Register a mark for each operation, and let xdist keep the order of `pytest_collection_modifyitems`."""
    config.option.loadscopereorder = False
    for name in operations.SUMMARIES:
        config.addinivalue_line("markers", f"{name}: tests of the operation {name}")


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Give one worker all tests of a file, of an operation's ladder, or of a part of the frozen copies, because they
    share compiled code.

    With another --dist, such as worksteal on a GPU, xdist schedules as usual.
    """
    if config.option.dist != "load":
        return None
    from xdist.scheduler import LoadScopeScheduling

    class ByFile(LoadScopeScheduling):  # type: ignore[misc]
        def _split_scope(self, nodeid: str) -> str:
            path, _, test = nodeid.partition("::")
            if path.endswith("test_frozen.py"):
                return nodeid.partition("[")[0]
            return path + test.partition("[")[2].partition("-")[0] if path.endswith("test_ladders.py") else path

    return ByFile(config, log)


def operation_of(item: pytest.Item) -> str:
    """Return the operation in a test's parameter `name`, or an empty text."""
    name = item.callspec.params.get("name") if isinstance(item, pytest.Function) and hasattr(item, "callspec") else ""
    return name if isinstance(name, str) and name in operations.SUMMARIES else ""


LEAST_RUNS, OF_SLOW = 3, 5  # a slow test with at least 3 runs keeps every fifth run; the others are marked long


def mark_sampled(items: Sequence[pytest.Item]) -> None:
    """Mark as slow all but every n-th run of a test marked `sampled(n)`, per operation; mark most runs of slow tests as
    long."""
    slow = runs_of(items, "slow", "engine", of=lambda item: "")
    for group in runs_of(items, "sampled", "slow", of=operation_of):
        mark = group[0].get_closest_marker("sampled")
        others = all_but_one_of(mark.args[0] if mark else 1, group)
        for item in others:
            item.add_marker("slow")
        slow.append(others)
    for group in slow:
        for item in all_but_one_of(OF_SLOW, group) if len(group) >= LEAST_RUNS else []:
            item.add_marker("long")


def runs_of(
    items: Sequence[pytest.Item], marked: str, *without: str, of: Callable[[pytest.Item], str]
) -> list[list[pytest.Item]]:
    """Return the runs of each test with a mark, grouped by test and by `of`, without tests that need a driver."""
    runs: dict[tuple[str, str], list[pytest.Item]] = {}
    for item in items:
        marks = {mark.name for mark in item.iter_markers()}
        if marked in marks and not marks & {"driver", "gpu", "build", "long", *without}:
            runs.setdefault((item.nodeid.partition("[")[0], of(item)), []).append(item)
    return [*runs.values()]


def all_but_one_of(every: int, group: Sequence[pytest.Item]) -> list[pytest.Item]:
    """Return the runs that a sample leaves out. The sampled position shifts by one every `every` runs, so that each
    value of an inner parameter is sampled."""
    return [item for at, item in enumerate(group) if at % every != at // every % every]


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Mark an operation's tests, deselect slow tests unless requested, and skip GPU tests on a machine without a GPU.

    A test belongs to the operation in its parameter `name`. Slow tests, and those marked `build` or `long`, are
    requested by -m or by the test's name.
    """
    mark_sampled(items)
    for item in items:
        if name := operation_of(item):
            item.add_marker(name)
    asked = config.option.markexpr
    for mark in ("slow", "build", "driver", "long"):
        if mark not in asked and not any("::" in argument for argument in config.args):
            others = {item for item in items if item.get_closest_marker(mark)}
            if re.search(r"\bgpu\b", asked):  # a test that is slow with the simulated driver is fast on a GPU
                others = {item for item in others if not item.get_closest_marker("gpu")}
            config.hook.pytest_deselected(items=others)
            items[:] = [item for item in items if item not in others]
    size = Counter(item.path for item in items)
    items.sort(key=lambda item: (item.path.name not in FIRST, -size[item.path]))
    parts = [probe.driver(), probe.pycuda(), probe.gpu_compiler()]
    lack = next((part.problem for part in parts if not part.usable), None)
    if lack is None and probe.gpu(0).kind == "simulated":
        lack = "the driver is simulated"
    for item in items if lack else ():
        if item.get_closest_marker("gpu") and not item.get_closest_marker("driver"):
            item.add_marker(pytest.mark.skip(reason=str(lack)))


def pytest_collection_finish() -> None:
    """Exempt the thousands of collected tests from garbage collection."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(20_000, 20, 20)


@pytest.fixture(autouse=True, scope="session")
def signals_are_heard() -> Iterator[None]:
    """Restore the default SIGINT handler, which child processes inherit, if a background shell ignored SIGINT."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.fixture(autouse=True, scope="session")
def follows_schema() -> Iterator[None]:
    """Validate every results file that the test process writes with this version's schema."""
    import jsonschema_rs

    validator = jsonschema_rs.Draft202012Validator(schema.schema(strict=True))
    text_of = ResultsFile.text

    def checked(file: ResultsFile) -> str:
        text = text_of(file)
        validator.validate(json.loads(SURROGATE.sub("?", text)))
        return text

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ResultsFile, "text", checked)
        yield


@pytest.fixture(autouse=True, scope="session")
def brief() -> Iterator[None]:
    """Time the CPU baseline only once, and skip the warm-up without a GPU, since the tests do not need precise
    times."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(context, "BASELINE_S", 1e-3)
        if not probe.driver().usable:
            warm_up = timing.warm_up
            patch.setattr(timing, "warm_up", lambda sample, budget_s=0.0: warm_up(sample, 0.0))
        yield


@pytest.fixture(autouse=True, scope="session")
def one_look_at_the_checkout() -> Iterator[None]:
    """Ask git for the checkout's state only once, and once per untracked file, to save two processes in most runs."""
    root = Path(__file__).resolve().parent.parent
    ask, known = provenance.git_state, dict[Path | None, dict[str, Any] | None]()
    words = ["git", "-C", str(root), "ls-files", "-z"]
    listed = subprocess.run(words, capture_output=True, text=True).stdout if (root / ".git").exists() else ""
    held = {root / name for name in listed.split("\0")}

    def git(source: Source) -> dict[str, Any] | None:
        path = chapters.folder() / Path(source.name).name if source.builtin else Path(source.name)
        path = path.resolve()
        if root not in path.parents:
            return ask(source)
        one = None if path in held else path
        if one not in known:
            known[one] = ask(source)
        return known[one]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(provenance, "git_state", git)
        yield


@pytest.fixture(autouse=True)
def unread_machine_code(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Disable nvdisasm, which takes half a second per kernel, unless the test is marked `machine_code` or `gpu`."""
    if request.node.get_closest_marker("machine_code") is None and request.node.get_closest_marker("gpu") is None:
        monkeypatch.setattr(nvdisasm, "path", lambda: None)
        if request.node.get_closest_marker("driver"):
            monkeypatch.setattr(session, "WORKER", "tests.driver.worker")


@dataclass
class Ran:
    """The result of a command line."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        """Standard output, parsed as JSON."""
        return json.loads(self.out)


@pytest.fixture(scope="session", autouse=True)
def no_line_of_a_long_run() -> None:
    """Disable the progress lines of long runs, which would appear in compared output on a slow machine."""
    from cudabench.views import progress

    progress.LOG_INTERVAL_S = 1e6


@pytest.fixture
def cudabench(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Ran]:
    """Run a command line in this process, from an empty folder."""
    from cudabench import cli
    from cudabench.views import console

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


SURROGATE = re.compile(r"\\u[dD][89a-fA-F][0-9a-fA-F]{2}")  # the validator rejects unpaired surrogates
FAKE = DeviceInfo(
    name="Fake", kind="cuda", compute_capability="9.0", sm_count=132, l2_bytes=1 << 20, peak_gbps=4000.0, index=0
)


@dataclass
class FakeDevice:
    """A device in host memory: `kernel` computes on the buffers, `seconds` gives the time of each sample.

    Poison, copies and faults are real, so that tests see the protocol; only the time is invented.
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
    read_only: tuple[str, ...] = ("in", "x")  # buffers of the operations that the tests measure
    others: list[str] = field(default_factory=list)
    # The module's variables with their initial bytes.
    variables: dict[str, bytes] = field(default_factory=dict)
    # The contents of `__constant__` variables, by name.
    constants: dict[str, bytes] = field(default_factory=dict)
    ptx: str = ""
    page_bytes: int = 1

    def load(self, source: Source, defines: Mapping[str, str], names: Sequence[str] = ()) -> Any:
        """Return a module whose kernels take 32 registers."""
        self.log.append("compile")
        fake = self

        class Module:
            ptx = fake.ptx

            def function(self, name: str) -> Any:
                return name

            def images(self, names: Sequence[str]) -> list[tuple[bytes, list[str]]]:
                return []

            variables = tuple(fake._variable(name, first) for name, first in fake.variables.items())

            def set_constant(self, name: str, content: bytes) -> None:
                fake.constants[name] = content

            def resources(self, name: str) -> Resources:
                return Resources(32, 1024, 0, max_threads=1024)

        return Module()

    def begin(self, source: Source, defines: Mapping[str, str], names: Sequence[str] = ()) -> None:
        """Record that these kernels compile in the background."""
        self.log.append(f"begin {' '.join(names)}")

    def _variable(self, name: str, first: bytes) -> Variable:
        pointer = self.allocate(len(first))
        self.at(pointer, len(first))[:] = np.frombuffer(first, np.uint8)
        return Variable(name, 7, pointer, len(first))

    def variable(self, name: str, module_variables: Sequence[Variable]) -> np.ndarray:
        found = next(v for v in module_variables if v.name == name)
        return self.at(found.pointer, found.nbytes)

    def free_bytes(self) -> int:
        return self.free

    def allocate(self, nbytes: int, *, own_page: bool = False) -> int:
        """Return the address of zeroed host memory."""
        pointer = 512 + max((base + array.size for base, array in self.memory.items()), default=0)
        self.memory[pointer] = np.zeros(nbytes, np.uint8)
        return pointer

    def release(self, pointer: int) -> None:
        del self.memory[pointer]

    def at(self, pointer: int, nbytes: int) -> np.ndarray:
        """Return the bytes at an address, which must lie in one allocation."""
        base = max(b for b in self.memory if b <= pointer)
        assert pointer - base + nbytes <= self.memory[base].size
        return self.memory[base][pointer - base : pointer - base + nbytes]

    def upload(self, pointer: int, array: np.ndarray) -> None:
        self.at(pointer, array.nbytes)[:] = np.frombuffer(array.tobytes(), np.uint8)

    def download(self, pointer: int, array: np.ndarray) -> None:
        self.log.append("download")
        array.reshape(-1).view(np.uint8)[:] = self.at(pointer, array.nbytes)

    def fill(self, pointer: int, nbytes: int, byte: int) -> Callable[[], None]:
        """Return a function that fills memory with a byte."""

        def work() -> None:
            self.log.append("fill" if byte == GUARD else "poison")
            self.at(pointer, nbytes)[:] = byte

        return work

    def digest(self, pointer: int, nbytes: int) -> int:
        """Return a digest of host memory."""
        self.log.append("digest")
        return int.from_bytes(hashlib.blake2b(self.at(pointer, nbytes).tobytes(), digest_size=8).digest(), "little")

    def scrub(self, local_bytes: int) -> Callable[[], None]:
        """Return a function that does nothing, since a host has no shared memory."""
        return lambda: None

    def demote(self, pointer: int, nbytes: int) -> Callable[[], None]:
        """Return a function that only records the call, since a host has no L2 cache to control."""
        return lambda: self.log.append("demote")

    def alive(self) -> bool:
        return True

    def bind(self, module: Any, launches: Sequence[Launch], pointers: Mapping[str, int]) -> Callable[[], None]:
        """Return a function that runs the kernel on the named buffers, without guard zones and rotation bytes."""

        def inner(name: str, pointer: int) -> np.ndarray:
            base = max(b for b in self.memory if b <= pointer)
            guard = SMALL_GUARD_BYTES if pointer - base >= SMALL_GUARD_BYTES else 0
            extra = ROTATION_BYTES if name in self.read_only else 0
            return self.at(pointer, self.memory[base].size - 2 * guard - extra)

        return lambda: self.kernel({name: inner(name, pointer) for name, pointer in pointers.items()})

    def use_stream(self, number: int) -> None:
        """Do nothing, since a host has only one stream."""

    def copy(self, source: int, target: int, nbytes: int) -> Callable[[], None]:
        """Return a copy function, marked so that `sample` returns the time of a copy."""

        def work() -> None:
            self.at(target, nbytes)[:] = self.at(source, nbytes)

        work.is_copy = True  # type: ignore[attr-defined]
        return work

    def run(self, work: Callable[[], None], doing: str) -> None:
        self.log.append("run")
        work()

    def sample(
        self,
        works: Sequence[Callable[[], None]],
        cache: str,
        before: Sequence[Callable[[], None]] = (),
    ) -> float:
        """Run the works, and return an invented time."""
        for work in (*before, *works):
            work()
        if getattr(works[0], "is_copy", False):
            self.log.append("copy")
            return self.copy_seconds
        self.log.append(cache)
        self.samples += 1
        return self.seconds(self.samples)

    def other_processes(self) -> list[str]:
        return self.others

    def sm_clock_mhz(self) -> int | None:
        """Return the given clocks in order; the last one repeats."""
        return self.clocks.pop(0) if len(self.clocks) > 1 else next(iter(self.clocks), None)


def on_cards(file: ResultsFile, *uuids: str) -> ResultsFile:
    """Return a results file as `--device all` writes it for GPUs with these UUIDs."""
    assert file.device is not None
    devices = [replace(file.device, uuid=uuid, index=at) for at, uuid in enumerate(uuids)]
    found = [replace(result, device=f"cuda:{device.index}") for device in devices for result in file.results]
    return replace(file, devices=devices, results=found)
