"""`cudabench ab`: pairs of samples and their ratio, the verdict, the protocol for two kernels, and the command."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from cudabench import devices
from cudabench.compile import compiler
from cudabench.compile.compiler import nvrtc_version
from cudabench.devices import Choice
from cudabench.errors import CudabenchError, DeviceUnusable
from cudabench.measure.context import describe
from cudabench.measure.gpu_run import SAME_CODE, GpuRun
from cudabench.records.launch import Launch
from cudabench.records.plan import Settings
from cudabench.records.results import Result
from cudabench.results import ab, stats
from cudabench.userkernel import plan
from cudabench.userkernel.plan import pair
from cudabench.userkernel.request import UserRequest
from tests.conftest import FakeDevice, Ran

Runner = Callable[..., Ran]
# `double_` and `double_late` compile to the same code; `double_far` accesses memory with a stride of STEP.
BODIES = {
    "double_": "if (i < n) y[i] = 2 * x[i];",
    "double_slow": "if (i < n) y[i] = x[i] + x[i];",
    "double_late": "if (i < n) y[i] = x[i] + x[i];",
    "double_far": "if (i < n) y[i * STEP % n + i * STEP / n] = 2 * x[i * STEP % n + i * STEP / n];",
    "double_wrong": "if (i < n) y[i] = 3 * x[i];",
    "double_dies": "if (i < n) y[i + (1ll << 31)] = 2 * x[i];",
}
SOURCE = "#ifndef STEP\n#define STEP 8\n#endif\n" + "\n".join(
    f"__global__ void {name}(const float *x, float *y, int n) {{ int i = blockIdx.x * blockDim.x + threadIdx.x;"
    f" {body} }}"
    for name, body in BODIES.items()
)
ARGUMENTS = ("x=float32[n]:random", "y=float32[n]:empty", "n=1000")
WORDS = (
    *("--grid", "cdiv(n,256)", "--block", "256", "--expect", "y=2*x", "--bytes", "8*n"),
    *(word for text in ARGUMENTS for word in ("--arg", text)),
    *("--min-time", "0.05", "--max-time", "0.4"),
)
FAST = Settings(min_time=0.0, max_time=0.4, min_samples=60, cpu=False)


# The ratio of pairs --------------------------------------------------------------------------------------------------


def drifting(seconds: float, slower: float, seed: int, n: int = 400) -> tuple[np.ndarray, np.ndarray]:
    """Return samples of pairs from a GPU that drifts by percents and disturbs 2% of the samples, with a clock that
    ticks every 32 ns."""
    rng = np.random.default_rng(seed)
    level = seconds * np.exp(0.001 * np.cumsum(rng.standard_normal(n)))

    def side(factor: float) -> np.ndarray:
        disturbed = (rng.random(n) < 0.02) * rng.exponential(0.2, n)
        times: np.ndarray = level * factor * np.exp(0.006 * rng.standard_normal(n) + disturbed)
        return np.round(times / 32e-9) * 32e-9

    return side(1.0), side(1 + slower)


@pytest.mark.parametrize("seconds", [10e-6, 100e-6])
def test_equal_kernels_are_the_same(seconds: float) -> None:
    """For a kernel against itself, no set of pairs gives faster or slower, and the ratio is within 0.2% of 1."""
    found = [ab.pair_ratio(*map(list, drifting(seconds, 0.0, seed))) for seed in range(40)]
    assert all(one.low <= 1 <= one.high and one.reach <= ab.SAME_WITHIN for one in found)
    assert max(abs(one.value - 1) for one in found) < 0.002


@pytest.mark.parametrize("slower", [0.005, 0.01, 0.03, -0.01])
def test_known_changes_are_called(slower: float) -> None:
    """A change of 0.5% or more is reported in its direction, and the interval contains it."""
    for seed in range(20):
        found = ab.pair_ratio(*map(list, drifting(20e-6, slower, seed)))
        assert (found.low > 1) if slower > 0 else (found.high < 1)
        assert found.low <= 1 + slower <= found.high


def test_sides_exchanged() -> None:
    """The ratio of new to old is the inverse of old to new."""
    old, new = map(list, drifting(20e-6, 0.01, 3))
    there, back = ab.pair_ratio(old, new), ab.pair_ratio(new, old)
    assert there.value * back.value == pytest.approx(1, abs=1e-12)
    assert there.low * back.high == pytest.approx(1, abs=2e-4)


def test_short_kernels_have_a_noise_in_time() -> None:
    """Under 10 us the noise between equal kernels is a fixed time: 20 ns, which is 0.5% of 4 us."""
    assert ab.noise_at([4e-6], [4e-6]) == pytest.approx(0.005)
    assert ab.noise_at([4e-5], [4e-5]) == ab.NOISE


def test_a_clock_that_hides_the_difference() -> None:
    """If all samples lie on two neighbouring clock ticks, the interval is at least half a tick wide."""
    old = [1e-5] * 50 + [1e-5 + 32e-9] * 2
    fine = ab.pair_ratio(*map(list, drifting(1e-5, 0, 1)), noise=0)
    coarse = ab.pair_ratio(old, old, noise=0)
    assert coarse.high - 1 > 16e-9 / 1e-5
    assert coarse.high - coarse.value > fine.high - fine.value


def result(samples: list[float] | None = None, **changes: Any) -> Result:
    """Return a result with these samples."""
    series = pair(request("double_"), request("double_"))
    time = stats.summarize(samples, "cold") if samples else None
    return replace(describe(series.cases[0], "cuda:0"), time=time, **changes)


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Give every test the kernels in its folder."""
    (tmp_path / "k.cu").write_text(SOURCE)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def request(kernel: str, **changes: Any) -> UserRequest:
    """Return a request as `run` makes it."""
    asked = UserRequest("k.cu", (kernel,), "cdiv(n,256)", "256", ARGUMENTS, ("y=2*x",), "8*n")
    return replace(asked, **changes)


@pytest.mark.parametrize(
    ("slower", "threshold", "verdict", "code"),
    [(0.0, None, "same", 0), (0.01, None, "slower", 0), (0.01, 0.005, "slower", 4), (0.01, 0.05, "slower", 0),
     (-0.01, 0.0, "faster", 0), (0.0, 0.0, "same", 0)],
)  # fmt: skip
def test_verdicts(slower: float, threshold: float | None, verdict: str, code: int) -> None:
    """A regression is a change that is certainly slower, by more than the threshold."""
    old, new = (result(list(side)) for side in drifting(20e-6, slower, 5))
    record = ab.verdict(old, new, ("old", "new"), threshold)
    assert (record.verdict, ab.exit_code(record, threshold)) == (verdict, code)
    assert record.pairs == 400


def test_too_few_pairs_and_wrong_sides() -> None:
    """Seven pairs give no verdict; a wrong side gives exit code 3 and a failed side 1, and neither has a ratio."""
    few = ab.verdict(result([1e-5] * 7), result([2e-5] * 7), ("a", "b"), 0.01)
    assert (few.verdict, few.ratio, ab.exit_code(few, 0.01)) == ("unclear", None, 0)
    bad = ab.verdict(result(status="skipped"), result(status="wrong", reason="y[0]"), ("a", "b"), None)
    assert (bad.verdict, bad.reason, ab.exit_code(bad, None)) == ("wrong", "b: y[0]", 3)
    failed = ab.verdict(result(status="failed", reason="no"), result(status="skipped"), ("a", "b"), None)
    assert (failed.verdict, failed.reason, ab.exit_code(failed, None)) == ("failed", "a: no", 1)


def test_the_rule_looks_at_the_width_alone() -> None:
    """Sampling stops when the interval is narrow, wherever it lies, and always at the maximum time."""
    for slower in (0.0, 0.5):
        old, new = map(list, drifting(20e-6, slower, 2, n=2000))
        assert not ab.enough_pairs(old[:20], new[:20], 1.0, Settings())
        assert ab.enough_pairs(old, new, 1.0, Settings())
        assert not ab.enough_pairs(old, new, 0.1, Settings())
    assert ab.enough_pairs([1e-5], [1e-5], 10.0, Settings())


# The protocol --------------------------------------------------------------------------------------------------------


class FakeGpu(FakeDevice):
    """Host memory with a clock that drifts and ticks every 32 ns. The kernel's name decides what it does: `double`
    writes 2 * x into y; `double_slow` takes 1% longer; `double_late` is wrong from its 40th launch; `double_wrong` is
    always wrong."""

    def __init__(self) -> None:
        super().__init__(lambda buffers: None)
        self.random = np.random.default_rng(7)
        self.launched = 0

    def bind(self, module: Any, launches: Sequence[Launch], pointers: Mapping[str, int]) -> Callable[[], None]:
        """Return the kernel of the launch's function."""
        name = launches[0].function
        super_bind = super().bind

        def kernel(buffers: dict[str, np.ndarray]) -> None:
            self.launched += 1
            wrong = "wrong" in name or ("late" in name and self.launched > 40)
            buffers["y"].view(np.float32)[:] = (3 if wrong else 2) * buffers["x"].view(np.float32)

        self.kernel = kernel
        inner = super_bind(module, launches, pointers)

        def work() -> None:
            self.kernel = kernel
            inner()

        work.seconds = 20e-6 * (1.01 if "slow" in name else 1.0)  # type: ignore[attr-defined]
        return work

    def sample(
        self, works: Sequence[Callable[[], None]], cache: str, before: Sequence[Callable[[], None]] = ()
    ) -> float:
        """Run the works and return an invented time, which grows by 10% in a thousand samples."""
        for work in (*before, *works):
            work()
        self.samples += 1
        base: float = getattr(works[-1], "seconds", 1e-5)
        level = base * (1 + 1e-4 * self.samples) * (1 + 0.005 * float(self.random.standard_normal()))
        return round(level / 32e-9) * 32e-9


class Watched(FakeGpu):
    """Records the kernel of each sample, its output address, and whether its output was poison before."""

    def __init__(self, codes: dict[str, bytes] | None = None) -> None:
        super().__init__()
        self.order: list[str] = []
        self.places: dict[str, set[int]] = {}
        self.poisoned: list[bool] = []
        self.codes = codes or {}

    def load(self, *words: Any) -> Any:
        """Return a module with the machine code of its kernel."""
        module = super().load(*words)
        module.images = lambda names: [(self.codes[name], [name]) for name in names if name in self.codes]
        return module

    def bind(self, module: Any, launches: Any, pointers: Any) -> Any:
        """Record the output address."""
        name = launches[0].function
        self.places.setdefault(name, set()).add(pointers["y"])
        work = super().bind(module, launches, pointers)
        work.name, work.out = name, pointers["y"]
        return work

    def sample(self, works: Any, cache: str, before: Any = ()) -> float:
        """Record the kernel."""
        for work in before:
            work()
        if hasattr(works[-1], "name"):
            out = self.at(works[-1].out, 4000)
            self.poisoned.append(bool((out == out[0]).all()))
            self.order.append(works[-1].name)
        return super().sample(works, cache)


def measured(device: FakeDevice, *kernels: str, always: bool = False, settings: Settings = FAST) -> list[Result]:
    """Measure two kernels of k.cu as a pair."""
    series = pair(*(request(kernel) for kernel in kernels))
    run = GpuRun(series.make(), series.cases[0].problem, settings, device)
    return run.measure_pair(series.cases, always)


def test_pairs_are_interleaved_at_random_on_the_same_memory() -> None:
    """A pair has one sample of each kernel, in random order; both kernels write to the same addresses, which hold
    poison before."""
    device = Watched()
    old, new = measured(device, "double_", "double_slow")
    assert (old.status, new.status) == ("ok", "ok")
    assert old.time
    assert new.time
    timed = device.order[-2 * old.time.samples :]  # last, after the warm-up
    pairs = [set(timed[at : at + 2]) for at in range(0, len(timed), 2)]
    assert pairs == [{"double_", "double_slow"}] * old.time.samples
    first = timed[::2].count("double_") / old.time.samples
    assert 0.25 < first < 0.75
    assert device.places["double_"] == device.places["double_slow"]
    assert len(device.places["double_"]) == old.time.places > 1
    assert all(device.poisoned)
    assert old.verification
    assert old.verification.checked == ("before", "after")
    assert old.verification.samples == old.time.samples


def test_drift_does_not_decide() -> None:
    """On a GPU that slows down by 10% during the run, a kernel has ratio 1 to itself, and a 1% slower kernel has
    1.01."""
    settings = replace(FAST, min_samples=400, max_time=5.0)
    for name, slower in (("double_", 0.0), ("double_slow", 0.01)):
        old, new = measured(Watched(), "double_", name, always=True, settings=settings)
        assert old.time
        assert new.time
        assert max(old.time.samples_s) > 1.04 * min(old.time.samples_s)
        assert ab.pair_ratio(old.time.samples_s, new.time.samples_s).value == pytest.approx(1 + slower, abs=0.0015)


@pytest.mark.parametrize("kernel", ["double_wrong", "double_late"])
def test_a_wrong_side_takes_both_times(kernel: str) -> None:
    """If a side is wrong, at once or in a timed sample, it is named, and the other side is not timed either."""
    for at in (0, 1):
        names = ["double_", "double_"]
        names[at] = kernel
        found = measured(Watched(), *names, always=True)
        assert [one.status for one in found][at] == "wrong"
        assert (found[1 - at].status, found[1 - at].reason) == (
            "skipped",
            "not timed, because the other side is wrong",
        )
        assert all(one.time is None for one in found)
        assert ("timed sample" in (found[at].reason or "")) == (kernel == "double_late")


@pytest.fixture(scope="module")
def codes() -> dict[str, bytes]:
    """The machine code of two different kernels, and of a third that only differs in its source text."""
    text = 'extern "C" ' + 'extern "C" '.join(
        (
            "__global__ void double_(const float *x, float *y, int n) { if (threadIdx.x < n) y[0] = x[0] * 2; }\n",
            "__global__ void double_slow(const float *x, float *y, int n) { if (threadIdx.x < n) y[0] = x[0] * 3; }\n",
            "__global__ void double_late(const float *x, float *y, int n) { if (n > threadIdx.x) y[0] = 2 * x[0]; }\n",
        )
    )
    compiled = compiler.compile_cubin(text, "c.cu", names=("double_", "double_slow", "double_late"))
    assert compiled.cubin is not None
    return dict.fromkeys(("double_", "double_slow", "double_late"), compiled.cubin)


@pytest.mark.slow
@pytest.mark.skipif(nvrtc_version() is None, reason="needs NVRTC")
def test_same_code_is_not_measured(codes: dict[str, bytes]) -> None:
    """Kernels with the same instructions and launch are not launched, unless --always; different kernels are."""
    device = Watched(codes)
    found = measured(device, "double_", "double_late")
    assert [one.reason for one in found] == [SAME_CODE] * 2
    assert (device.order, device.launched) == ([], 0)
    assert measured(Watched(codes), "double_", "double_slow")[0].time is not None
    assert measured(Watched(codes), "double_", "double_", always=True)[0].time is not None


# Which two -----------------------------------------------------------------------------------------------------------


def test_what_one_may_write_both_may(folder: Path) -> None:
    """An array that is const in only one of the signatures is set back before every sample of both kernels."""
    (folder / "other.cu").write_text("__global__ void f(float *x, float *y, int n) { y[0] = x[0]; }")
    series = pair(request("double_"), request("f", file="other.cu"))
    roles = {one.name: one.role for one in series.make().buffers(series.cases[0].problem)}
    assert roles == {"x": "inout", "y": "out"}
    assert [case.function for case in series.cases] == ["double_", "f"]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"arguments": ("x=float32[n]:random", "y=float32[n]:empty", "n=999")}, "--arg x differs between the sides"),
        ({"arguments": ("x=float32[n]:ones", "y=float32[n]:empty", "n=1000")}, "--arg x differs between the sides"),
        ({"bytes": "4*n"}, "--bytes gives 8000 for the old side and 4000"),
        ({"kernels": ("double_*",)}, "A side is one kernel"),
    ],
)
def test_other_work_is_refused(changes: dict[str, Any], message: str) -> None:
    """Two kernels with different arguments or bytes are refused."""
    with pytest.raises(Exception, match=message):
        pair(request("double_"), request("double_slow", **changes))


# The command ---------------------------------------------------------------------------------------------------------


@pytest.fixture
def gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pretend that the machine has a GPU."""
    monkeypatch.setattr(devices, "choose", lambda text: Choice("cuda"))


@pytest.mark.driver
def test_the_command(cudabench: Runner) -> None:
    """`ab` reports a slow-down through parent, worker and file; the gate gives exit code 4; other commands refuse the
    file."""
    ran = cudabench(
        "ab", "k.cu", "-k", "double_", "-k", "double_far", *WORDS, "--json", "r.json", "--fail-on-regression", "0.5%"
    )
    assert ran.code == 4, ran.err
    assert "Slower: double_far takes" in ran.out
    assert "slower than double_, over 0.005 allowed" in ran.err
    document = json.loads(Path("r.json").read_text())
    (record,) = document["ab"]
    assert document["results"] == []
    assert record["ratio"] > record["ratio_low"] > 1
    origin = document["provenance"]
    assert origin["command"][:3] == ["cudabench", "ab", "k.cu"]
    assert (list(origin["sources"]), origin["compiler"] is not None) == (["k.cu"], True)
    assert len(record["old"]["time"]["samples_s"]) == len(record["new"]["time"]["samples_s"]) == record["pairs"]
    again = ab.pair_ratio(record["old"]["time"]["samples_s"], record["new"]["time"]["samples_s"])
    assert again.value == pytest.approx(record["ratio"], abs=1e-6)
    assert [record[side]["bandwidth_gbps"] for side in ("old", "new")] == [None, None]
    assert "no GPU ran this" in " ".join(ran.err.split())
    shown = cudabench("export", "r.json", "--to", "markdown")
    assert shown.code == 0
    assert "**Slower: double" in shown.out
    assert "GB/s" not in shown.out
    for words in (
        ("compare", "r.json", "r.json"),
        ("export", "r.json", "--to", "csv"),
        ("plot", "r.json", "-o", "r.svg"),
    ):
        refused = cudabench(*words)
        assert refused.code == 1
        assert "r.json was written by 'cudabench ab'" in refused.err


@pytest.mark.driver
def test_macros_of_a_side(cudabench: Runner) -> None:
    """--a and --b set the options of one side: `ab` reports a macro that makes a side slower, and labels the side with
    it."""
    ran = cudabench("ab", "k.cu", "-k", "double_far", "--a", "-D STEP=1", "--b", "-D STEP=8", *WORDS)
    assert ran.code == 0, ran.err
    assert "Slower: -D STEP=8 takes" in ran.out


@pytest.mark.driver
@pytest.mark.parametrize(
    ("old", "new", "code", "said"),
    [
        ("double_", "double_wrong", 3, "Wrong: double_wrong: "),
        ("double_", "double_dies", 1, "Failed: double_dies: CUDA failed while "),
        ("double_dies", "double_", 1, "Failed: double_dies: CUDA failed while "),
    ],
)
def test_the_side_to_blame(cudabench: Runner, old: str, new: str, code: int, said: str) -> None:
    """A side that is wrong or faults is named, whether it is old or new."""
    ran = cudabench("ab", "k.cu", "-k", old, "-k", new, *WORDS)
    assert ran.code == code, ran.err
    assert said in ran.out


@pytest.mark.driver
@pytest.mark.skipif(shutil.which("git") is None, reason="needs git")
def test_revisions_with_their_headers(cudabench: Runner, folder: Path) -> None:
    """HEAD:k.cu uses the header of that revision, so a change in the header alone is measured."""
    (folder / "step.h").write_text("#define STEP 1\n")
    text = '#include "step.h"\n' + next(line for line in SOURCE.splitlines() if "double_far" in line)
    (folder / "k.cu").write_text(text)
    git = ["git", "-c", "user.name=n", "-c", "user.email=e@x", "-c", "commit.gpgsign=false"]
    for words in (["init", "-q"], ["add", "."], ["commit", "-qm", "one"]):
        subprocess.run([*git, *words], check=True, capture_output=True)
    (folder / "step.h").write_text("#define STEP 8\n")
    ran = cudabench("ab", "HEAD:k.cu", "k.cu", *WORDS, "--json", "r.json")
    assert ran.code == 0, ran.err
    assert "Slower: k.cu takes" in ran.out
    record = json.loads(Path("r.json").read_text())["ab"][0]
    assert (record["old"]["function"], record["new"]["function"]) == ("double_far", "double_far")
    assert (record["old"]["source"], record["old_label"]) == ("HEAD:k.cu", "HEAD:k.cu")


@pytest.mark.usefixtures("gpu")
@pytest.mark.skipif(shutil.which("git") is None, reason="needs git")
def test_a_fault_in_a_header_of_a_revision(cudabench: Runner, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An error in a revision's header names the revision, not the temporary folder."""
    (folder / "own.h").write_text("#define STEP 1\n")
    git = ["git", "-c", "user.name=n", "-c", "user.email=e@x", "-c", "commit.gpgsign=false"]
    for words in (["init", "-q"], ["add", "."], ["commit", "-qm", "one"]):
        subprocess.run([*git, *words], check=True, capture_output=True)

    def refuse(old: UserRequest, new: UserRequest) -> None:
        raise CudabenchError(f"{Path(old.file).parent / 'own.h'}:1: refused.")

    monkeypatch.setattr(plan, "pair", refuse)
    ran = cudabench("ab", "HEAD:k.cu", "k.cu", *WORDS)
    assert (ran.code, ran.err) == (1, "Error: HEAD:own.h:1: refused.\n")


@pytest.mark.parametrize("words", [("k.cu", "-k", "double_", "-k", "double_slow"), ("transpose", "-k", "0", "-k", "1")])
def test_without_a_gpu(cudabench: Runner, words: tuple[str, ...], monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a GPU, or with --device sim, `ab` ends with exit code 5 and refers to `diff`."""
    ran = cudabench("ab", *words, "--device", "sim")
    assert ran.code == DeviceUnusable.exit_code
    assert "'cudabench diff OLD NEW'" in ran.err


@pytest.mark.usefixtures("gpu")
@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("k.cu", "-k", "double_"), "Both sides are the same"),
        (("k.cu", "-k", "double_", "-k", "double_slow", "-k", "double_late"), "ab takes two kernels"),
        (("k.cu", "-k", "double_", "--b", "--nonsense 3"), "--b '--nonsense 3': "),
        (("k.cu", "-k", "double_", "--b", "'"), "--b ''' cannot be read"),
        (("k.cu", "-k", "double_", "--b", "-k doubel_slow"), "Did you mean"),
        (("transpose", "-k", "smem*", "--always"), "A side is one kernel"),
        (("transpose", "-k", "smem"), "Both sides are the same"),
        (("transpos", "-k", "smem"), "Did you mean 'transpose'"),
    ],
)
def test_bad_input(cudabench: Runner, words: tuple[str, ...], message: str) -> None:
    """Each mistake gives one message and exit code 2."""
    ran = cudabench("ab", *words, *(WORDS if words[0].endswith(".cu") else ()))
    assert (ran.code, ran.out) == (2, ""), ran.err
    assert message in ran.err


@pytest.mark.gpu
def test_on_a_real_gpu(cudabench: Runner) -> None:
    """A kernel against itself is the same, the faster of two known kernels is faster, and kernels of the same code are
    not measured."""
    same = cudabench("ab", "vecadd", "-k", "0", "--always", "--json", "r.json")
    assert same.code == 0, same.err
    record = json.loads(Path("r.json").read_text())["ab"][0]
    assert record["verdict"] == "same", record["ratio"]
    assert abs(record["ratio"] - 1) < 0.002
    assert "Faster: smem-pad takes" in cudabench("ab", "transpose", "-k", "naive-row", "-k", "smem-pad").out
    Path("copy.cu").write_text("// A comment.\n" + SOURCE)
    again = cudabench("ab", "k.cu", "copy.cu", "-k", "double_", *WORDS)
    assert again.code == 0, again.err
    assert "Same code" in again.out
