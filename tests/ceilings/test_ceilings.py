"""Ceilings: machine code of the chapter, results in the simulator, and the code path of a GPU on a simulated GPU."""

from __future__ import annotations

import csv
import io
import json
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from cudabench import cards
from cudabench import ceilings as package
from cudabench.cards import KINDS, Ceiling
from cudabench.cards.load import load_file_or_card
from cudabench.ceilings import arithmetic, benchmark, chapter, code, gpu, latency, run
from cudabench.ceilings.benchmark import Extent
from cudabench.compile import compiler
from cudabench.compile.record import Compiled
from cudabench.devices import nvml, probe
from cudabench.errors import CompilerError, CudabenchError, DeviceUnusable, UsageError
from cudabench.occupancy import capability
from cudabench.records.file import ResultsFile, load, parse
from cudabench.records.results import DeviceInfo
from cudabench.results import ceilings as results
from cudabench.system import outputs
from cudabench.views import plot
from tests.ceilings_device import INFO, SimulatedGpu, scale
from tests.conftest import Ran
from tests.ladders import needs_compiler

Runner = Callable[..., Ran]
OF_KERNELS = tuple(chapter.BY_NAME)
QUICK = replace(gpu.TIMING, min_time=0.0, max_time=9.0, min_samples=1)
H200 = replace(INFO, name="NVIDIA H200", sm_count=132, l2_bytes=60 << 20, peak_gbps=4814.0)

pytestmark = [needs_compiler, pytest.mark.machine_code]


def compiled(arch: str, text: str | None = None, backend: Any = None) -> Compiled:
    """Return the chapter, or another text, compiled."""
    source = benchmark.source()
    return compiler.compile_cubin(
        text or source.text, "ceilings.cu", arch=arch, backend=backend, include_dirs=source.folders
    )


# Machine code --------------------------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("backend", ["nvrtc", "nvcc"])
@pytest.mark.parametrize("arch", ["sm_90", "sm_75", "sm_80", "sm_87", "sm_89", "sm_100", "sm_120"])
def test_every_loop_is_what_it_claims(arch: str, backend: Any) -> None:
    """On each architecture and with each compiler, a ceiling's loop has the claimed number of counted instructions."""
    try:
        if arch not in compiler.supported_architectures(backend):
            pytest.skip(f"{backend} does not compile for {arch}")
    except DeviceUnusable as error:
        pytest.skip(str(error))
    made = compiled(arch, backend=backend)
    assert made.cubin is not None
    for one in chapter.BY_NAME.values():
        if not one.missing_feature(arch):
            found = code.check_loop(made.cubin, made.entry(one.function), chapter.claim_of(one, capability(arch)))
            assert found.split()[0].isdigit(), one.name


OTHER = {  # for each ceiling: a change to the chapter, and the error about the machine code
    "fp32": ("step < STEPS; step++", "step < STEPS - 1; step++", "504 FFMA, not 512"),
    "memory-read": ("x[v] = in[i + v * BDIMX];", "x[v] = in[i];", "1 LDG.128, not 4"),
    "l2-latency": ("ld.global.cg.u64", "ld.global.cg.u64 %0, [%0]; ld.global.cg.u64", "32 LDG.64, not 16"),
    "shared-read": ("sum += sum_of(x);", 'sum += sum_of(x); asm volatile("membar.cta;");', "other instructions"),
}


@pytest.mark.slow
def test_other_code_is_refused() -> None:
    """If the compiler made a different loop from the claimed one, the check fails and its reason gives the counts."""
    text = benchmark.source().text
    for old, new, _ in OTHER.values():
        assert old in text
        text = text.replace(old, new)
    made = compiled("sm_90", text)
    for name, (_, _, why) in OTHER.items():
        with pytest.raises(code.UnexpectedCode, match=why):
            code.check_loop(made.cubin or b"", chapter.BY_NAME[name].function, chapter.BY_NAME[name].claim)
    with pytest.raises(code.UnexpectedCode, match="lacks the kernel nothing"):
        code.check_loop(made.cubin or b"", "nothing", chapter.BY_NAME["fp32"].claim)


# The simulator -------------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_simulator(cudabench: Runner) -> None:
    """In the simulator every kernel runs and is right, no ceiling has a value, and the command ends well."""
    ran = cudabench("ceilings", "-d", "sim", "--json", "file.json")
    assert (ran.code, ran.err) == (0, "")
    found = parse(Path("file.json").read_text(), "file.json").ceilings
    assert [one.name for one in found] == [name for name, kind in KINDS.items() if kind.group != "energy"]
    assert {one.status for one in found if one.name in OF_KERNELS} == {"ok"}
    assert {one.status for one in found if one.group == "host"} == {"skipped"}
    assert {one.value for one in found} == {None}
    of_code = [(one.sha256, chapter.BY_NAME[one.name].function) for one in found if one.name in OF_KERNELS]
    assert len(set(of_code)) == len({code for code, _ in of_code}) == len({function for _, function in of_code})
    assert None not in {code for code, _ in of_code}
    assert "memory-copy" in ran.out


def test_what_a_card_lacks(cudabench: Runner) -> None:
    """Tensor cores without the needed mma.sync shapes are skipped, which is not a failure; wgmma needs capability
    9.0."""
    ran = cudabench("ceilings", "-d", "sim:sm_75", "--only", "tensor", "--json", "-", "-q")
    assert ran.code == 0
    assert {one["status"] for one in ran.json["ceilings"]} == {"skipped"}
    for one in ran.json["ceilings"]:
        why = (
            "exists only on compute capability 9.0"
            if one["name"].startswith("wgmma")
            else "needs compute capability 8.0 or later"
        )
        assert f"{why}; this card has 7.5" in one["reason"]
    assert chapter.BY_NAME["wgmma-bf16"].missing_feature("10.0")
    assert not chapter.BY_NAME["tensor-bf16"].missing_feature("10.0")


@pytest.mark.parametrize("steps", [0, 1, 2, 63, 1 << 20])
def test_expected_numbers(steps: int) -> None:
    """The host's formula for the end of a chain gives the same result as a plain loop."""
    few = min(steps, 200)
    x = np.array([0.25, -1.5, 0.0], np.float16)
    a = np.array(arithmetic.HALF_A, np.uint16).view(np.float16)
    plain = x.copy()
    for _ in range(few):
        plain = (plain.astype(np.float64) ** 2 + np.float64(a)).astype(np.float16)
    assert np.array_equal(arithmetic.orbit(x, a, few), plain)
    following = latency.chain(64)
    assert sorted(following) == list(range(64))
    node = 0
    for _ in range(few):
        node = int(following[node])
    assert latency.node_after(following, few) == node
    assert benchmark.pattern_sum(5, few) == int(benchmark.pattern(5, few).astype(object).sum()) % 2**32


# A GPU ---------------------------------------------------------------------------------------------------------------


@pytest.fixture
def no_warm_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """Set the warm-up time to zero."""
    monkeypatch.setattr(gpu, "WARM_UP_S", 0.0)


def measured(device: SimulatedGpu, *names: str, **how: Any) -> list[Ceiling]:
    """Measure ceilings on a simulated GPU."""
    owner = gpu.Ceilings(device, QUICK, scale=scale(), **how)  # type: ignore[arg-type]
    return [owner.measure(name) for name in names]


@pytest.mark.slow
@pytest.mark.usefixtures("no_warm_up")
def test_whole_path(cudabench: Runner, monkeypatch: pytest.MonkeyPatch) -> None:
    """On a GPU, through its worker, every ceiling has a value, and the file names the card."""
    as_if_there_were_a_gpu(monkeypatch)
    ran = cudabench("ceilings", "-d", "cuda", "--json", "card.json")
    file = parse(Path("card.json").read_text(), "card.json")
    assert (ran.code, [(one.name, one.reason) for one in file.ceilings if one.status != "ok"]) == (0, [])
    assert file.device == INFO
    assert file.provenance["sources"].keys() == {"kernels_cu/ceilings.cu", "kernels_cu/ceilings_hopper.cuh"}
    for one in file.ceilings:
        assert one.value is not None, one
        assert one.low is not None, one
        assert one.high is not None, one
        assert 0 < one.low <= one.value <= one.high, one
        assert one.method, one
        assert bool(one.code) == (one.group != "host"), one
        assert bool(one.sha256) == bool(one.ptx_sha256) == (one.group != "host"), one
        assert (one.fraction is None) == (one.theoretical is None), one
    fp32 = next(one for one in file.ceilings if one.name == "fp32")
    # A launch takes 0.4 ms: 2 SMs with 8 blocks of 256 threads, 8 chains, 2 passes of 64 steps, two operations each.
    assert fp32.value == pytest.approx(2 * 2 * 8 * 256 * 8 * 128 / 4e-4)
    assert fp32.theoretical == pytest.approx(2 * 2 * 128 * 1980e6)
    assert "fp32" in ran.out


@pytest.mark.slow
@pytest.mark.usefixtures("no_warm_up")
def test_one_that_kills_the_context(cudabench: Runner, monkeypatch: pytest.MonkeyPatch) -> None:
    """A kernel that breaks the context is failed; a new worker measures the other ceilings, and the exit code is 1."""
    as_if_there_were_a_gpu(monkeypatch)
    monkeypatch.setenv("CEILINGS_DIE", "shared_read")
    only = [word for name in ("memory-read", "shared-read", "fp32") for word in ("--only", name)]
    ran = cudabench("ceilings", *only, "-d", "cuda", "--json", "-", "-q")
    status = {one["name"]: one["status"] for one in ran.json["ceilings"]}
    assert status == {"memory-read": "ok", "shared-read": "failed", "fp32": "ok"}
    assert ran.code == 1
    assert "shared-read failed: CUDA failed" in ran.err


@pytest.mark.slow
@pytest.mark.usefixtures("no_warm_up")
def test_the_clock_is_that_of_a_sample() -> None:
    """The clock of the tensor cores is counted in the last timed launch, not in an additional one."""

    class Slowing(SimulatedGpu):
        def bind(self, *_: Any) -> Callable[[], None]:
            return lambda: None

        def sample(self, *_: Any) -> float:
            self.seconds *= 1.5
            return self.seconds

        def download(self, pointer: int, array: np.ndarray) -> None:
            array[:] = 7

    device = Slowing()
    owner = gpu.Ceilings(device, QUICK, scale=scale())  # type: ignore[arg-type]
    right = replace(chapter.BY_NAME["tensor-fp64"], wrong=lambda extent, look: None, work_of_launch=lambda extent: 1.0)
    found = owner._measure_kernel(right, Ceiling("tensor-fp64", "tensor", None, "FLOP/s"))
    assert (found.samples, found.clock_mhz) == (1, pytest.approx(7e-6 / device.seconds))
    assert found.value == pytest.approx(1 / device.seconds), "the value is of another launch than the clock"


def as_if_there_were_a_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make the command find a GPU, with the tests' worker."""
    monkeypatch.setattr(probe, "driver", lambda: probe.Component("driver", "580", device_count=1))
    monkeypatch.setattr(probe, "pycuda", lambda: probe.Component("PyCUDA", "1"))
    monkeypatch.setattr(probe, "gpu_compiler", lambda: probe.Component("nvcc", "13.0"))
    monkeypatch.setattr(run, "WORKER", "tests.ceilings_device")
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).resolve().parents[2]))


def spoil(name: str, at: int = 0) -> Callable[[dict[str, np.ndarray]], None]:
    """Return a fault that flips a bit of an array."""

    def fault(arrays: dict[str, np.ndarray]) -> None:
        arrays[name].view(np.uint8)[at] ^= 0x40

    return fault


@pytest.mark.slow
@pytest.mark.usefixtures("no_warm_up")
@pytest.mark.parametrize(
    ("name", "array", "at"),
    [
        ("memory-copy", "out", 4464), ("memory-write", "out", -1), ("memory-read", "total", 0),
        ("l2-read", "total", 3), ("shared-read", "out", 4), ("issue", "rotated", 2), ("fp32", "out", 6),
        ("int32", "out", 0), ("half2", "out", 8), ("xu", "out", 2), ("tensor-fp16", "out", 6), ("wgmma-int8", "out", 6),
        ("l2-latency", "end", 1), ("shared-latency", "end", 0), ("global-atomic-same", "words", 0),
        ("shared-atomic-same", "out", 4), ("constant-miss", "out", 4),
    ],
)  # fmt: skip
def test_a_wrong_result_has_no_value(name: str, array: str, at: int) -> None:
    """If one bit of a kernel's output is wrong, the ceiling has no value, only the reason."""
    device = SimulatedGpu()
    device.faults[chapter.BY_NAME[name].function] = spoil(array, at)
    (one,) = measured(device, name)
    assert (one.status, one.value) == ("wrong", None)
    assert "before timing" in one.reason
    assert device.memory == {}  # all memory is freed


@pytest.mark.slow
@pytest.mark.usefixtures("no_warm_up")
def test_one_that_stays_undone() -> None:
    """A launch that does nothing is wrong, since its output still holds poison, although an earlier launch was
    right."""

    class Idle(SimulatedGpu):
        def bind(self, module: Any, launches: Any, pointers: Any) -> Callable[[], None]:
            idle = [one for one in launches if one.function != "fp64_fma"]
            return super().bind(module, idle, pointers)

    (one,) = measured(Idle(), "fp64")
    assert one.status == "wrong"


@pytest.mark.usefixtures("no_warm_up")
def test_a_compiler_that_refuses() -> None:
    """A kernel that does not compile fails each of its ceilings with the compiler's message, and is compiled once;
    copies still run."""

    class Refusing(SimulatedGpu):
        def load(self, *words: Any) -> Any:
            self.texts.append("")
            raise CompilerError("ceilings.cu(1): error: no.")

    device = Refusing()
    found = measured(device, "fp32", "xu", "device-to-host-pinned")
    assert [(one.status, one.reason) for one in found[:2]] == [("failed", "ceilings.cu(1): error: no")] * 2
    assert (found[2].status, len(device.texts)) == ("ok", 1)


@pytest.mark.slow
@pytest.mark.usefixtures("no_warm_up")
def test_energy(monkeypatch: pytest.MonkeyPatch) -> None:
    """Energy is the board's energy above idle, divided by the work; without NVML's counter it is skipped."""
    (skipped,) = measured(SimulatedGpu(), "energy-per-byte")
    assert (skipped.status, "NVML" in skipped.reason) == ("skipped", True)
    device = SimulatedGpu()
    device.seconds = 0.05
    # Readings: is there a counter; idle before and after; running before and after.
    joules = iter([0.0, 0.0, 0.01, 1000.0, 9000.0] * 2)
    monkeypatch.setattr(nvml, "energy_j", lambda handle: next(joules))
    monkeypatch.setattr(gpu, "IDLE_S", 0.1)
    monkeypatch.setattr(gpu, "ENERGY_S", 0.001)
    one, other = measured(device, "energy-per-byte", "energy-per-flop")
    assert one.status == other.status == "ok", one.reason
    # 8000 J, less at most a tenth of a watt when idle, in launches that each read and write 64 KiB; one launch or two.
    launches = int(re.search(r"over (\d+) launches", one.method)[1])
    assert one.value == pytest.approx(8000 / (2 * 65536 * launches), rel=1e-3)
    assert "idle" in one.method


@pytest.mark.slow
def test_calibration_reaches_the_length_of_a_sample() -> None:
    """A loop that is short compared with a launch gets more passes, at most as many as keep its numbers exact."""

    class Clocked(SimulatedGpu):
        def bind(self, module: Any, launches: Any, pointers: Any) -> Any:
            self.passes = int(launches[0].arguments[-1])
            return lambda: None

        def sample(self, works: Any, cache: str, before: Any = ()) -> float:
            return 1e-6 + 4e-7 * self.passes

    device = Clocked()
    owner = gpu.Ceilings(device, QUICK, scale=replace(scale(), most_passes=1 << 14))  # type: ignore[arg-type]
    trial = gpu._Trial(owner, chapter.BY_NAME["fp32"], Extent(owner.sizes, 16, 1), {})
    trial.prepare()
    assert gpu.SAMPLE_S / 2 <= trial.seconds <= 2 * gpu.SAMPLE_S
    assert 1 < trial.extent.passes < 1 << 14


def test_sums_stay_exact() -> None:
    """With the most passes, every compared number is still an integer that its type holds exactly."""
    most = Extent(benchmark.on_gpu(132, 60 << 20, 1 << 37, "9.0"), 1, 1 << 14)
    assert most.scale.most_passes == most.passes
    steps = most.passes * benchmark.STEPS
    assert benchmark.CHAINS * (steps + benchmark.WARP + benchmark.CHAINS) < 1 << 24
    assert 16 * 2 * most.passes * arithmetic.MMA_STEPS + 32 < 1 << 24


# Theory --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("memory-copy", 4814), ("shared-read", 33454), ("issue", 1.04544e12), ("fp32", 66.908e12), ("fp64", 33.454e12),
        ("int32", 33.454e12), ("xu", 4.1818e12), ("half2", 133.8e12), ("tensor-fp64", 66.908e12),
        ("tensor-tf32", 535.3e12), ("tensor-bf16", 1070.5e12), ("tensor-int8", 2141.1e12),
        ("host-to-device-pinned", 63.02), ("l2-read", None), ("l2-latency", None), ("launch-gap", None),
    ],
)  # fmt: skip
def test_theory_of_an_h200(name: str, value: float | None) -> None:
    """The theoretical values of an H200 are those of its datasheet at 1980 MHz, or None where the datasheet has no
    value."""
    found, why = chapter.theoretical(name, KINDS[name].group, H200, (5, 16))
    assert found == (None if value is None else pytest.approx(value, rel=1e-3))
    assert why


def test_theory_of_an_unknown_card() -> None:
    """A card of an unknown compute capability has theoretical values for the memory only, and reasons for all."""
    info = replace(H200, compute_capability="13.7")
    for name, kind in KINDS.items():
        value, why = chapter.theoretical(name, kind.group, info, None)
        assert (value is not None) == name.startswith("memory-") or kind.group == "latency"
        assert why
    assert chapter.theoretical("fp32", "arithmetic", DeviceInfo("x", "cuda", "9.0"), None)[0] is None


# The command ---------------------------------------------------------------------------------------------------------


def test_without_a_gpu(cudabench: Runner, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a GPU the command does not simulate: exit code 5, with the remedy."""
    none = probe.Component("driver", problem="this machine lacks an NVIDIA driver", repair="install NVIDIA's driver")
    monkeypatch.setattr(probe, "driver", lambda: none)
    ran = cudabench("ceilings", "--json", "no.json")
    assert (ran.code, ran.out) == (5, "")
    assert "install NVIDIA's driver, or simulate with --device sim" in ran.err
    assert not Path("no.json").exists()


def test_only() -> None:
    """--only selects groups and names, energy is measured only on request, and a misspelt name gets a suggestion."""
    assert "energy-per-byte" not in run.chosen_names((), False)
    assert run.chosen_names((), True) == tuple(KINDS)
    assert run.chosen_names(("latency", "fp32"), False) == ("fp32", "memory-latency", "l2-latency", "shared-latency")
    assert run.chosen_names(("energy",), False) == ("energy-per-byte", "energy-per-flop")
    with pytest.raises(UsageError, match="Did you mean 'memory'"):
        run.chosen_names(("memry",), False)


def test_every_kind_is_measured() -> None:
    """Every ceiling has a microbenchmark, except copies to the host and energies."""
    for name, kind in KINDS.items():
        assert (name in chapter.BY_NAME) != (kind.group in ("host", "energy"))
    assert package.__doc__


# Files ---------------------------------------------------------------------------------------------------------------


def card(name: str, factor: float = 1.0, **changes: Any) -> ResultsFile:
    """Return the file of a card with `factor` times the memory speed and `factor` times the latencies."""
    found = []
    for kind_name, kind in KINDS.items():
        value = factor if kind.group in ("memory", "latency") else 1.0
        top = 2.0 if kind.group == "memory" else None
        found.append(Ceiling(kind_name, kind.group, value, kind.unit, top, value / top if top else None))
    return ResultsFile({}, {}, {}, [replace(INFO, name=name, uuid=name)], ceilings=found, **changes)


@pytest.fixture
def two(tmp_path: Path) -> tuple[Path, Path]:
    """Return the files of two cards."""
    paths = tmp_path / "a.json", tmp_path / "b.json"
    card("Card A").write(paths[0])
    card("Card B", 1.5).write(paths[1])
    return paths


def test_compare_two_cards(cudabench: Runner, two: tuple[Path, Path]) -> None:
    """Each group has the geometric mean of its ratios, above 1 if the second card is better; a sentence names the
    better card."""
    ran = cudabench("compare", *two, "--json", "c.json")
    assert ran.code == 0
    assert "Card B is ahead in memory (1.50x); Card A is ahead in latency (1.50x); both are within 2% in" in ran.out
    (comparison,) = json.loads(Path("c.json").read_text())["comparisons"]
    assert comparison["geometric_means"]["memory"] == pytest.approx(1.5)
    assert comparison["geometric_means"]["latency"] == pytest.approx(1 / 1.5)
    assert "| memory-copy | " in cudabench("compare", *two, "--to", "markdown").out
    assert cudabench("compare", *two, "--to", "junit").code == 2


def test_compare_as_a_gate(cudabench: Runner, two: tuple[Path, Path], tmp_path: Path) -> None:
    """A ceiling that is worse by more than allowed gives exit code 4; with --strict so does a ceiling that lost its
    value."""
    ran = cudabench("compare", *two, "--fail-on-regression", "5%")
    assert ran.code == 4
    assert "l2-latency is worse by 50.0%, more than 5%" in ran.err
    assert cudabench("compare", *two, "--fail-on-regression", "60%").code == 0
    slower = card("Card A")
    slower.ceilings[:] = [
        replace(one, value=one.value / 2) if one.value and one.name.endswith("pageable") else one
        for one in slower.ceilings
    ]
    slower.write(tmp_path / "slower.json")
    assert any(one.name.endswith("pageable") and one.value for one in slower.ceilings)
    assert cudabench("compare", two[0], tmp_path / "slower.json", "--fail-on-regression", "5%").code == 0
    lost = card("Card A")
    lost.ceilings[0] = replace(lost.ceilings[0], value=None, status="failed", reason="it broke")
    lost.write(tmp_path / "lost.json")
    assert cudabench("compare", two[0], tmp_path / "lost.json").code == 0
    strict = cudabench("compare", two[0], tmp_path / "lost.json", "--strict")
    assert (strict.code, "memory-copy lost its value: it broke" in strict.err) == (4, True)
    first = cudabench("compare", tmp_path / "none.json", two[0])
    assert (first.code, "first run" in first.err) == (0, True)


def test_groups_hold_what_has_one_mean(cudabench: Runner) -> None:
    """The mean of the group "memory" has only memory ceilings, also for old files that counted other ceilings in it."""
    shipped = Path(cards.__file__).parent
    base, new = (load(shipped / f"{name}.json") for name in ("h100", "h200"))
    older = replace(new, ceilings=[replace(one, group="memory") for one in new.ceilings])
    for file in (new, older):
        made = results.compare(base, file)
        memory = [row for row in made.rows if row.group == "memory"]
        assert [row.name for row in memory] == ["memory-copy", "memory-read", "memory-write"]
        assert made.means["memory"] == pytest.approx(np.prod([row.better for row in memory]) ** (1 / 3))
        assert 1.38 < made.means["memory"] < 1.44
        assert {row.name for row in made.rows if row.group == "constants"} == {"constant-hit", "constant-miss"}


@pytest.mark.parametrize(
    ("fraction", "clock_mhz", "said"),
    [
        (1.02, None, "102% of what 2 SMs allow: its clock was not counted"),
        (1.02, 2019.6, "102% of what 2 SMs allow: it ran at 2020 MHz, more than the driver's clock"),
        (1.02, 1980.0, "and 102% of the 100.0 GFLOP/s that they allow at the 1980 MHz counted in one launch"),
        (1.0004, None, ""),
        (0.6, 1200.0, ""),
    ],
)
def test_over_all_that_units_allow(fraction: float, clock_mhz: float | None, said: str) -> None:
    """A figure over 100% gets a sentence with the known cause; other figures get no sentence."""
    one = Ceiling(
        "tensor-fp64", "tensor", fraction * 1e11, "FLOP/s", 1e11, fraction, clock_mhz=clock_mhz,
        reason="2 SMs; it ran at 1200 MHz; more than that: the card's clock is above what the driver names",
    )  # fmt: skip
    notes = results.notes_of([one], INFO)
    assert (said in notes[0] and len(notes) == 1) if said else notes == []
    assert results.is_over(one) == bool(said)
    assert results.at_its_clock(one, 1980)[1] == (
        None if clock_mhz is None else pytest.approx(fraction * 1980 / clock_mhz)
    )


@pytest.mark.parametrize("figure", [float("nan"), float("inf"), -1.0, 0.0])
def test_figures_that_no_card_has(figure: float) -> None:
    """An impossible clock, theoretical value or fraction in a file causes no error and is not shown."""
    one = Ceiling("tensor-fp64", "tensor", 5e12, "FLOP/s", 4e12, 1.25, clock_mhz=1980.0, reason="2 SMs")
    assert len(results.notes_of([one], INFO)) == 1
    for changed in (replace(one, clock_mhz=figure), replace(one, theoretical=figure)):
        assert results.at_its_clock(changed, 1980) == (None, None)
        assert [column.text(changed) for column in results.clock_columns(1980)][1] == "-"
        assert "was not counted" in results.notes_of([changed], INFO)[0]
    strange = replace(one, fraction=figure)
    assert results.notes_of([strange], INFO) == []
    assert (results.percent_text(figure) == "-") == (not np.isfinite(figure))


def test_what_does_not_go_together(cudabench: Runner, two: tuple[Path, Path], tmp_path: Path) -> None:
    """Ceilings beside kernels' results, and two files without a common ceiling, are refused with an error."""
    recorded = Path(__file__).parents[1] / "data" / "h200.json"
    for words in (("compare", two[0], recorded), ("export", two[0], recorded, "--to", "csv")):
        ran = cudabench(*words)
        assert (ran.code, "name files of one kind" in ran.err) == (2, True)
    card("Empty", float("nan")).write(tmp_path / "nan.json")
    nothing = [replace(one, value=None) for one in card("None").ceilings]
    replace(card("None"), ceilings=nothing).write(tmp_path / "none.json")
    assert "share no ceiling" in cudabench("compare", two[0], tmp_path / "none.json").err
    assert cudabench("compare", two[0], tmp_path / "nan.json").code == 0
    sheet = [replace(one, value=one.theoretical, source="datasheet") for one in card("Sheet").ceilings]
    replace(card("Sheet"), ceilings=sheet).write(tmp_path / "sheet.json")
    ran = cudabench("compare", two[0], tmp_path / "sheet.json")
    assert (ran.code, "what clocks and units of both cards allow is compared" in ran.out) == (0, True)
    replace(card("Sheet"), ceilings=[replace(one, theoretical=None) for one in sheet]).write(tmp_path / "sheet.json")
    bare = [replace(one, theoretical=None) for one in card("Bare").ceilings]
    replace(card("Bare"), ceilings=bare).write(tmp_path / "bare.json")
    ran = cudabench("compare", tmp_path / "bare.json", tmp_path / "sheet.json")
    assert (ran.code, "measured ceilings, the other a datasheet's" in ran.err) == (2, True)
    replace(card("Part"), ceilings=[*sheet[:1], *card("Part").ceilings[1:]]).write(tmp_path / "part.json")
    row = next(
        line for line in cudabench("compare", two[0], tmp_path / "part.json").out.splitlines() if sheet[0].name in line
    )
    assert row.split()[1:] == ["2.000", "GB/s", "2.000", "GB/s", "1.00x", "1.000", "GB/s"]


def test_export(cudabench: Runner, two: tuple[Path, Path]) -> None:
    """CSV and Markdown contain every ceiling; other formats say that they cannot."""
    rows = list(csv.DictReader(io.StringIO(cudabench("export", *two, "--to", "csv").out)))
    assert [row["name"] for row in rows] == [*KINDS, *KINDS]
    assert {(row["device_name"], row["file"]) for row in rows} == {("Card A", str(two[0])), ("Card B", str(two[1]))}
    assert float(rows[len(KINDS)]["value"]) == 1.5
    assert "| memory-copy | 1.000 GB/s | 2.000 GB/s | 50.0% |" in cudabench("export", two[0], "--to", "markdown").out
    for target in ("junit", "sarif", "bencher", "github-benchmark"):
        ran = cudabench("export", two[0], "--to", target)
        assert (ran.code, "holds ceilings" in ran.err) == (1, True)


def test_no_plot_of_what_does_not_compare() -> None:
    """A measured card and a datasheet's card cannot be plotted together, with an error; two measured cards are both
    named."""
    h200, h100, a100 = map(load_file_or_card, ("h200", "h100", "a100"))
    with pytest.raises(CudabenchError, match="not compared with a datasheet's"):
        plot.draw([h200, a100], ["h200.json", "a100.json"])
    title = plot.draw([h200, h100], ["h200.json", "h100.json"]).get_suptitle()
    assert all(file.device is not None and file.device.name in title for file in (h200, h100))


@pytest.mark.slow
def test_plot(cudabench: Runner, two: tuple[Path, Path]) -> None:
    """One card is drawn against its theoretical values, two cards against each other; a kind of plot for kernels is
    refused."""
    assert cudabench("plot", two[0], "-o", "one.svg").code == 0
    assert cudabench("plot", *two, "-o", "two.svg").code == 0
    assert Path("one.svg").read_bytes() != Path("two.svg").read_bytes()
    assert cudabench("plot", two[0], "--kind", "ladder", "-o", "x.svg").code == 2


@pytest.mark.slow
def test_cards_by_name(cudabench: Runner, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A known card is read by its name, unless a file has that name."""
    monkeypatch.chdir(tmp_path)
    compared = cudabench("compare", "H100", "h200")
    assert (compared.code, "1.42x" in compared.out) == (0, True), compared.out + compared.err
    rows = list(csv.DictReader(io.StringIO(cudabench("export", "h100", "h200", "--to", "csv").out)))
    assert {"NVIDIA H100 80GB HBM3", "NVIDIA H200"} <= {value for row in rows for value in row.values()}
    assert cudabench("plot", "h100", "h200", "-o", tmp_path / "c.svg").code == 0
    (tmp_path / "h100").write_text("{}")
    assert cudabench("compare", "h100", "h200").code == 1, "a file of that name comes first"
    assert cudabench("compare", "h1000", "h200").code == 0, "no card and no file: a first run, which passes"


def test_hostile_file(cudabench: Runner, tmp_path: Path) -> None:
    """Names, units and reasons in a file are shown without control codes; ceilings that are not a list are refused."""
    evil = Ceiling("a\x1b[31m$x$|b", "me\nmory", 1.0, "GB/s", 2.0, 0.5, reason="::error::x\x07")
    file = replace(card("=Card\x1b]0;x\x07"), ceilings=[evil, replace(evil, name="c", status="failed", value=None)])
    file.write(tmp_path / "evil.json")
    for words in (("export", "--to", "csv"), ("export", "--to", "markdown")):
        out = cudabench(words[0], tmp_path / "evil.json", *words[1:]).out
        assert "\x1b" not in out
        assert "\x07" not in out
        assert not any(line.startswith("::") for line in out.splitlines())
    ran = cudabench("compare", tmp_path / "evil.json", tmp_path / "evil.json")
    assert (ran.code, "\x1b" in ran.out) == (0, False)
    assert cudabench("plot", tmp_path / "evil.json", "-o", tmp_path / "evil.svg").code == 0
    document = json.loads((tmp_path / "evil.json").read_text())
    outputs.write_whole(tmp_path / "bad.json", json.dumps({**document, "ceilings": {"a": 1}}).encode())
    ran = cudabench("export", tmp_path / "bad.json", "--to", "csv")
    assert (ran.code, "ceilings is" in ran.err) == (1, True)


@pytest.mark.parametrize(
    ("amount", "unit", "text"),
    [
        (4240.3, "GB/s", "4.240 TB/s"), (55.0, "GB/s", "55.00 GB/s"), (61.73e12, "FLOP/s", "61.73 TFLOP/s"),
        (33e12, "op/s", "33.00 T op/s"), (6.4e-7, "s", "640.0 ns"), (1.42e-11, "J/byte", "14.20 pJ/byte"),
        (None, "s", "-"), (float("nan"), "GB/s", "-"), (0.5, "op/s", "0.500 op/s"),
    ],
)  # fmt: skip
def test_units(amount: float | None, unit: str, text: str) -> None:
    """Values are printed in common units."""
    assert results.value(amount, unit) == text


# On a GPU ------------------------------------------------------------------------------------------------------------


@pytest.mark.gpu
def test_on_a_gpu(cudabench: Runner) -> None:
    """On a GPU every ceiling is measured or skipped, and those that only keep a unit busy reach 90% of the theoretical
    value."""
    ran = cudabench("ceilings", "-d", "cuda", "--json", "-", "-q")
    assert ran.code == 0, ran.err
    found = {one["name"]: one for one in ran.json["ceilings"]}
    assert {one["status"] for one in found.values()} <= {"ok", "skipped"}
    for name in ("issue", "fp32", "fp64", "int32", "xu", "shared-read"):
        fraction = found[name]["fraction"]
        if fraction is not None:
            assert fraction > 0.9, name
    assert found["l2-latency"]["value"] < found["memory-latency"]["value"]
    assert found["shared-latency"]["value"] < found["l2-latency"]["value"]
    assert found["memory-copy"]["fraction"] is None or 0.7 < found["memory-copy"]["fraction"] < 1
