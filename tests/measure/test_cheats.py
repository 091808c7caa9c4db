"""Kernels that cheat: each is refused, named, or timed at the cost of its honest twin; every honest twin passes without
remarks.

tests/cheats/README.md says what the lines at the head of each kernel file mean.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from cudabench.compile import nvdisasm
from cudabench.compile.compiler import compile_ptx, nvrtc_version
from cudabench.source.files import read_file as read
from tests.conftest import Ran

Runner = Callable[..., Ran]

FOLDER = Path(__file__).parents[1] / "cheats"
FILES = sorted(FOLDER.glob("*.cu"))
EXIT = {"ok": 0, "honest-cost": 0, "failed": 1, "wrong": 3, "unsupported": 5}
NAMED = {"warning", "state", "arithmetic", "inputs"}
HONEST_COST = 0.8  # of the twin's median: a shorter time means that the cheat succeeded

pytestmark = pytest.mark.skipif(nvrtc_version() is None, reason="needs NVRTC")


# What a file says ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Cheat:
    """The head of a kernel file: how to run it, and the expected result on each device."""

    path: Path
    heads: dict[str, str]

    @property
    def name(self) -> str:
        """The file's name without its suffix."""
        return self.path.stem

    def expected(self, device: str) -> list[list[str]]:
        """Return the alternatives for 'gpu' or 'sim'; in one alternative, all words must hold."""
        return [alternative.split(", ") for alternative in self.heads[device].split(" or ")]

    @property
    def caches(self) -> list[str]:
        """The states of the L2 cache in which a GPU measures it."""
        return self.heads.get("caches", "cold").split()

    @property
    def may(self) -> set[str]:
        """The remarks that the honest twin may get, like the cheat."""
        return set(self.heads.get("honest-may", "").split())

    def words(self, device: str, *, honest: bool = False, fuzzed: bool = False) -> list[str]:
        """Return the command line for 'gpu', 'sim' or 'driver' (a GPU whose launches are simulated, at the simulator's
        sizes)."""
        text = self.heads["run"]
        if "size" in self.heads:
            sizes = dict(pair.split("=") for pair in self.heads["size"].split())
            text = text.replace("{size}", sizes["gpu" if device == "gpu" else "sim"])
        operation, *options = shlex.split(text)
        file = [str(self.path)] if operation == "run" else ["--source", str(self.path)]
        words = [operation, *file, *options, "--device", "sim" if device == "sim" else "cuda"]
        words += ["--no-cpu", "--json", "-", *(["-D", "HONEST"] if honest else [])]
        return words + (["--fuzz", self.heads["fuzz"]] if fuzzed and "fuzz" in self.heads else [])


def parse(path: Path) -> Cheat:
    """Return the machine-readable lines of a file; several `run` lines are joined."""
    heads: dict[str, str] = {}
    for name, value in re.findall(
        r"^// (run|size|fuzz|caches|gpu|sim|honest-may|defence): (.+)$", path.read_text(), re.M
    ):
        heads[name] = f"{heads[name]} {value}" if name == "run" and name in heads else value
    return Cheat(path, heads)


CHEATS = [parse(path) for path in FILES]
FUZZED = [cheat for cheat in CHEATS if "fuzz" in cheat.heads]


# What the simulator does not detect yet; remove an entry when the simulator detects it.
NOT_YET = {
    "local_leftover": "local memory that was never written raises no hazard",
}
SLOW = (  # in the simulator
    "approximate", "asm_half", "constant_mean", "float_in_double", "half_matmul", "histogram_100", "int8_matmul",
    "sampled_mean", "seed_answer",
)  # fmt: skip


def marked(cheats: list[Cheat], not_yet: dict[str, str], slow: tuple[str, ...] = ()) -> list[Any]:
    """Return the cheats as test parameters; those in `not_yet` are marked as expected failures, with the reason."""
    return [
        pytest.param(
            cheat,
            id=cheat.name,
            marks=[pytest.mark.xfail(strict=True, reason=not_yet[cheat.name])]
            if cheat.name in not_yet
            else [pytest.mark.slow]
            if cheat.name in slow
            else [],
        )
        for cheat in cheats
    ]


def holds(word: str, ran: Ran, result: dict[str, Any], twin_s: float | None = None) -> bool:
    """Return whether one word of an expectation holds; `twin_s` is the honest twin's median time."""
    name, _, value = word.partition(":")
    if name == "warning":
        return value in [warning["code"] for warning in result.get("warnings", [])]
    if name == "state":
        return value in [kept["variable"] for kept in result.get("state") or []]
    if name == "arithmetic":
        return value in re.split(r"[^\w]+", str((result.get("machine_code") or {}).get("arithmetic")))
    if name == "inputs":
        return bool(result.get("inputs") == value)
    if ran.code != EXIT[name]:
        return False
    if name == "honest-cost":
        assert twin_s is not None
        return bool(result["time"]["median_s"] >= HONEST_COST * twin_s)
    return name == "unsupported" or result.get("status") == name


def results(ran: Ran) -> dict[str, Any]:
    """Return the single result of a run; {} if the run was refused."""
    if not ran.out.strip():
        return {}
    found = ran.json["results"]
    assert len(found) <= 1
    return dict(found[0]) if found else {}


def unfounded(cheat: Cheat, ran: Ran, result: dict[str, Any]) -> list[str]:
    """Return the remarks about an honest twin that only the cheat should get."""
    words = {word for device in ("gpu", "sim") for all_of in cheat.expected(device) for word in all_of}
    named = {word for word in words if word.partition(":")[0] in NAMED} - cheat.may
    return sorted(word for word in named if holds(word, ran, result))


def story(ran: Ran, result: dict[str, Any]) -> str:
    """Return the details of a run that a failed test prints."""
    said = {key: result.get(key) for key in ("status", "reason", "warnings", "state", "inputs")}
    median = (result.get("time") or {}).get("median_s")
    return f"exit {ran.code}; {said}; median {median}; {ran.err[-600:]}"


# The files -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("cheat", CHEATS, ids=lambda cheat: cheat.name)
def test_a_file_says_what_it_is(cheat: Cheat) -> None:
    """Each file begins with prose, has a command, an expectation for each device and a defence, and a row in the
    README."""
    lines = cheat.path.read_text().splitlines()
    prose = [line for line in lines[:4] if re.match(r"// [A-Z]", line) or re.match(r"// [a-z][^:]*$", line)]
    assert 1 <= len(prose) <= 4
    assert {"run", "gpu", "sim", "defence"} <= set(cheat.heads)
    assert ("size" in cheat.heads) == ("{size}" in cheat.heads["run"])
    for device in ("gpu", "sim"):
        words = [word for all_of in cheat.expected(device) for word in all_of]
        assert words == ["none"] or all(w in EXIT or w.partition(":")[0] in NAMED for w in words), words
    row = rf"^\| `{cheat.name}` \| .+ \| {re.escape(cheat.heads['defence'])} \|$"
    assert re.search(row, (FOLDER / "README.md").read_text(), re.M)


def test_the_readme_names_no_file_that_is_not_there() -> None:
    """The README's table has exactly one row for each file."""
    _, ways = (FOLDER / "README.md").read_text().split("## The ways")
    rows = re.findall(r"^\| `(\w+)` \|", ways, re.M)
    assert sorted(rows) == [cheat.name for cheat in CHEATS]


@pytest.mark.slow
@pytest.mark.parametrize("cheat", CHEATS, ids=lambda cheat: cheat.name)
def test_both_twins_compile_and_differ(cheat: Cheat) -> None:
    """NVRTC compiles cheat and honest twin for sm_80, and their PTX differs."""
    assert read(cheat.path).kernels
    code = [
        re.sub(r"^\s*(//|\.loc|\.file).*$|\.section.*\Z", "", compiled.ptx, flags=re.M)
        for defines in ({}, {"HONEST": "1"})
        for compiled in [compile_ptx(cheat.path.read_text(), cheat.path.name, arch="sm_80", defines=defines)]
    ]
    assert code[0] != code[1]


def test_words_are_judged_by_what_a_run_says() -> None:
    """Status and exit code must agree, a cost counts as honest from 0.8 of the twin's time on, and no remark holds by
    default."""
    fine = {"status": "ok", "time": {"median_s": 0.8}, "warnings": [{"code": "state", "message": ""}]}
    told = fine | {"state": [{"variable": "kept", "line": 3}], "machine_code": {"arithmetic": "float32, tf32"}}
    ran, refused = Ran(0, "", ""), Ran(3, "", "")
    assert holds("ok", ran, fine)
    assert not holds("ok", refused, fine)
    assert holds("wrong", refused, {"status": "wrong"})
    assert not holds("wrong", refused, {"status": "failed"})
    assert not holds("wrong", ran, fine)
    assert holds("honest-cost", ran, fine, 1.0)
    assert not holds("honest-cost", ran, fine, 1.01)
    assert not holds("honest-cost", refused, fine, 1.0)
    assert holds("unsupported", Ran(5, "", ""), {})
    for word in ("state:kept", "arithmetic:tf32"):
        assert holds(word, ran, told)
        assert not holds(word, ran, fine)
    assert not holds("arithmetic:float16", ran, told)
    assert holds("warning:state", ran, fine)
    assert not holds("warning:malloc", ran, fine)
    assert holds("inputs:fixed", ran, fine | {"inputs": "fixed"})
    assert not holds("inputs:fixed", ran, fine)


# In the simulator ----------------------------------------------------------------------------------------------------


@pytest.fixture
def read_where_named(cheat: Cheat, monkeypatch: pytest.MonkeyPatch) -> None:
    """Read the machine code, which takes half a second, only if the cheat's expectation mentions arithmetic."""
    if not any("arithmetic" in word for device in ("gpu", "sim") for word in cheat.heads[device].split()):
        monkeypatch.setattr(nvdisasm, "path", lambda: None)


@pytest.mark.sampled(72)
@pytest.mark.parametrize("cheat", marked([c for c in CHEATS if c.heads["sim"] != "none"], NOT_YET, SLOW))
@pytest.mark.machine_code
@pytest.mark.usefixtures("read_where_named")
def test_simulated(cheat: Cheat, cudabench: Runner) -> None:
    """The simulator's result for each cheat is what the file expects."""
    ran = cudabench(*cheat.words("sim", fuzzed=True))
    result = results(ran)
    assert any(all(holds(word, ran, result) for word in all_of) for all_of in cheat.expected("sim")), story(ran, result)


@pytest.mark.slow
@pytest.mark.machine_code
@pytest.mark.usefixtures("read_where_named")
@pytest.mark.parametrize("cheat", CHEATS, ids=lambda cheat: cheat.name)
def test_honest_twin_simulated(cheat: Cheat, cudabench: Runner) -> None:
    """The honest twin is right, has no hazard, and gets no remark that is meant for the cheat."""
    ran = cudabench(*cheat.words("sim", honest=True))
    result = results(ran)
    assert (ran.code, result.get("status"), result.get("hazards")) == (0, "ok", []), story(ran, result)
    assert unfounded(cheat, ran, result) == []


@pytest.mark.sampled(4)
@pytest.mark.machine_code
@pytest.mark.usefixtures("read_where_named")
@pytest.mark.parametrize("cheat", FUZZED, ids=lambda cheat: cheat.name)
def test_one_seed_shows_nothing(cheat: Cheat, cudabench: Runner) -> None:
    """A cheat that only --fuzz finds passes with the default values, sizes and seed."""
    ran = cudabench(*cheat.words("sim"))
    assert (ran.code, results(ran).get("status")) == (0, "ok"), story(ran, results(ran))


@pytest.mark.slow
def test_the_seed_is_recognised(cudabench: Runner) -> None:
    """The kernel that recognises seed 0 executes under 1% of the instructions that another seed needs."""
    cheat = next(cheat for cheat in CHEATS if cheat.name == "seed_recognised")
    known, other = (results(cudabench(*cheat.words("sim"), "--seed", seed))["instructions"] for seed in (0, 1))
    assert known < other / 100


@pytest.mark.slow
@pytest.mark.machine_code
@pytest.mark.usefixtures("read_where_named")
@pytest.mark.parametrize("cheat", FUZZED, ids=lambda cheat: cheat.name)
def test_honest_twin_fuzzed(cheat: Cheat, cudabench: Runner) -> None:
    """The honest twin passes the fuzz cases that reveal the cheat."""
    ran = cudabench(*cheat.words("sim", honest=True, fuzzed=True))
    assert ran.code == 0, story(ran, results(ran))


# Between kernels ----------------------------------------------------------------------------------------------------

# The first kernel leaves its result in a variable and on the device's heap; the second takes it from there.
TWO = """
__device__ float kept[1 << 16];
__device__ unsigned filled;
extern "C" __global__ void honest(int n, const float *x, float *y)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n)
        y[i] = kept[i] = 2 * x[i];
    if (i == 0)
        filled = 1;
}
extern "C" __global__ void heir(int n, const float *x, float *y)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n && filled)
        y[i] = kept[i];
}
"""
BOTH = ("-k", "honest", "-k", "heir", "--grid", "64", "--block", "1024", "--arg", "n=65536", "--no-cpu", "--json", "-")
ARRAYS = ("--arg", "x=float32[n]:random", "--arg", "y=float32[n]:empty", "--expect", "y=2*x")
WHERE = ["sim", pytest.param("cuda", marks=[pytest.mark.gpu, pytest.mark.driver])]


@pytest.mark.parametrize("device", WHERE)
def test_a_kernel_finds_nothing_of_the_one_before(device: str, cudabench: Runner) -> None:
    """Two kernels of one file that run in one process each get fresh device variables."""
    Path("two.cu").write_text(TWO)
    ran = cudabench("run", "two.cu", *BOTH, *ARRAYS, "--min-time", "0.05", "--device", device)
    assert [(one["kernel"], one["status"]) for one in ran.json["results"]] == [("honest", "ok"), ("heir", "wrong")]


# On a GPU ------------------------------------------------------------------------------------------------------------


@pytest.mark.gpu
@pytest.mark.parametrize(
    ("cheat", "cache"),
    [pytest.param(cheat, cache, id=f"{cheat.name}-{cache}") for cheat in CHEATS for cache in cheat.caches],
)
def test_measured(cheat: Cheat, cache: str, cudabench: Runner) -> None:
    """On a GPU each cheat is refused, named, or as slow as its twin; the twin is right and gets no remark."""
    hold_up(cheat, "gpu", cudabench, "--cache", cache, "--min-time", "0.2")


def hold_up(cheat: Cheat, device: str, cudabench: Runner, *timing: str) -> None:
    """Measure a cheat and its twin, and check both results against the head of the file."""
    honest = cudabench(*cheat.words(device, honest=True), *timing)
    twin = results(honest)
    assert (honest.code, twin.get("status")) == (0, "ok"), story(honest, twin)
    assert unfounded(cheat, honest, twin) == []
    ran = cudabench(*cheat.words(device, fuzzed=True), *timing)
    result = results(ran)
    median = twin["time"]["median_s"]
    assert any(all(holds(word, ran, result, median) for word in all_of) for all_of in cheat.expected("gpu")), (
        f"twin's median {median}; {story(ran, result)}"
    )


# Only a real GPU shows these: in the simulator the clock restarts in each launch, all blocks run on one multiprocessor,
# and no time is impossibly short.
OF_A_CARD = {"lottery_clock", "lottery_globaltimer", "noisy_lottery", "smid_idle", "pi_closed_form"}
# One of each kind; the others take minutes.
OF_EACH_KIND = {
    "before_copy-cold", "evict_last-cold", "guard_jump-cold", "infinite_output-cold", "input_mark-hot",
    "key_of_poison-cold", "neighbour_row-cold", "one_in_four-cold", "poison_teller-hot", "state_static_local-cold",
    "table-cold", "tf32_matmul-cold",
}  # fmt: skip
SIMULATED = [
    pytest.param(
        cheat,
        cache,
        id=f"{cheat.name}-{cache}",
        marks=[] if f"{cheat.name}-{cache}" in OF_EACH_KIND else pytest.mark.slow,
    )
    for cheat in CHEATS
    if cheat.name not in OF_A_CARD
    for cache in cheat.caches
]


@pytest.mark.machine_code
@pytest.mark.driver
@pytest.mark.parametrize(("cheat", "cache"), SIMULATED)
def test_measured_through_the_simulated_driver(cheat: Cheat, cache: str, cudabench: Runner) -> None:
    """The rules that catch a cheat on a GPU also catch it through the simulated driver, at small sizes."""
    hold_up(cheat, "driver", cudabench, "--cache", cache, "--min-time", "0", "--max-time", "0.4")


@pytest.mark.machine_code
@pytest.mark.driver
@pytest.mark.parametrize("name", ["scan_transpose", "scan_vecadd"])
def test_a_scan_that_knows_where_all_places_lie(name: str, cudabench: Runner) -> None:
    """A kernel that scans the outputs of all buffer sets finds no result to copy, and takes as long as its twin."""
    cheat = next(cheat for cheat in CHEATS if cheat.name == name)
    short = ("--min-time", "0", "--max-time", "0.4")
    honest = cudabench(*cheat.words("driver", honest=True), "-D", "TELL", *short)
    at = {int(found) for found in re.findall(r"^at (\d+)$", honest.err, re.M)}
    assert len(at) == 8
    ran = cudabench(*cheat.words("driver"), "-D", f"LOW={min(at)}ull", "-D", f"HIGH={max(at)}ull", *short)
    median = results(honest)["time"]["median_s"]
    assert holds("honest-cost", ran, results(ran), median), f"twin's median {median}; {story(ran, results(ran))}"


# Variables at addresses that are not multiples of 16 bytes (ptxas packs them), and constant memory.
ODD = """
__device__ int first = 3;
__device__ float seven[7] = {1};
__device__ char bytes[33] = {2};
__constant__ float factors[5] = {2, 2, 2, 2, 2};
extern "C" __global__ void twice(int n, const float *x, float *y)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n)
        y[i] = factors[i % 5] * x[i] + (first - 3) + (seven[i % 7] - !(i % 7)) + (bytes[i % 33] - 2 * !(i % 33));
    if (i == n) {
        first = 4;
        seven[6] = 1;
        bytes[32] = 1;
    }
}
"""


@pytest.mark.gpu
@pytest.mark.driver
def test_variables_at_any_address(cudabench: Runner) -> None:
    """A correct kernel whose variables lie at odd addresses is right; the result names no state."""
    Path("odd.cu").write_text(ODD)
    ran = cudabench(
        *("run", "odd.cu", "--grid", "64", "--block", "1024", "--arg", "n=65536", *ARRAYS),
        *("--no-cpu", "--min-time", "0.05", "--device", "cuda", "--json", "-"),
    )
    result = results(ran)
    assert (ran.code, result["status"], result["state"]) == (0, "ok", []), story(ran, result)
