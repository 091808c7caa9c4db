"""The command line: exit codes, messages, streams. The tests need no GPU and run kernels in the simulator."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path

import pytest

from cudabench import cli, operations
from cudabench.measure import session
from tests.conftest import Ran

Runner = Callable[..., Ran]
SMALL = ("--size", "33", "127", "--device", "sim", "--no-cpu")


def test_help_names_every_operation(cudabench: Runner) -> None:
    """--help names all operations and has a line for each command; --help-all also has a line for each operation."""
    ran = cudabench("--help")
    assert ran.code == 0
    assert all(name in ran.out for name in operations.SUMMARIES)
    whole = cudabench("--help-all").out
    for name in [*operations.SUMMARIES, *cli.COMMANDS]:
        assert f"  {name} " in whole
        assert name in operations.SUMMARIES or f"  {name} " in ran.out


@pytest.mark.parametrize("name", operations.SUMMARIES)
def test_list_shows_the_ladder(cudabench: Runner, name: str) -> None:
    """`list` shows every kernel with its id, its idea and its default block."""
    ran = cudabench("list", name)
    assert ran.code == 0
    rows = [line.split() for line in ran.out.splitlines()]
    for at, kernel in enumerate(operations.get(name).kernels):
        row = next(row for row in rows if row[:2] == [str(at), kernel.name])
        assert row[2] == str(kernel.block[0])
        assert len(row) > 6


@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        (["transpoze"], 2, "Did you mean 'transpose'?"),
        (["list", "transpoze"], 2, "Did you mean 'transpose'?"),
        (["transpose", "3", "32"], 2, "give KERNEL_ID alone, or KERNEL_ID DIMX DIMY"),
        (["transpose", "3", "32", "8", "1"], 2, "are 4 arguments"),
        (["transpose", "3", "x", "8"], 2, "not a pair of whole numbers"),
        (["transpose", "3", "--kernel", "smem"], 2, "Two kernels are named"),
        (["transpose", "3", "32", "8", "--block", "32", "8"], 2, "Two blocks are given"),
        (["transpose", "-k", "smem-pda"], 2, "Did you mean 'smem-pad'?"),
        (["transpose", "-b", "0", "8"], 2, "at least 1"),
        (["transpose", "-b", "-32", "8"], 2, "at least 1"),
        (["transpose", "-b", "64", "32"], 2, "2048 threads; CUDA allows 1024"),
        (["transpose", "-b", "x"], 2, "'x' is not a whole number"),
        (["transpose", "-k", "1", "-g", "1", "1"], 2, "it takes 128 x 512"),
        (["transpose", "-s", "0", "5"], 2, "out of range"),
        (["transpose", "-s", "-4"], 2, "out of range"),
        (["transpose", "-s", "many", "5"], 2, "'many' is not a whole number"),
        (["transpose", "-t", "float31"], 2, "Did you mean 'float32'?"),
        (["transpose", "-t", "uint8"], 2, "lacks kernels for 'uint8'"),
        (["transpose", "--source", "none.cu"], 1, "none.cu: no such file"),
        (["transpose", "--json", "no/r.json"], 1, "the folder no does not exist"),
        (["transpose", "-D", "2=3"], 2, "does not name a macro"),
        (["transpose", "-d", "tpu"], 2, "'tpu' is not a device"),
        (["transpose", "-d", "sim:x"], 2, "'x' is not an architecture"),
        (["transpose", "-d", "sim", "--min-bandwidth", "5"], 5, "needs a GPU"),
        (["transpose", "--cache", "warm"], 2, "'warm' is not one of 'cold', 'hot'"),
        (["transpose", "--min-samples", "0"], 2, "--min-samples"),
        (["transpose", "--nonsense"], 2, "--nonsense"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else None,
)
def test_bad_input(cudabench: Runner, words: list[str], code: int, message: str) -> None:
    """Each mistake gives one line on standard error, its exit code, and an empty standard output."""
    ran = cudabench(*words)
    assert (ran.code, ran.out) == (code, "")
    assert message in ran.err
    assert ran.err.startswith("Error: ")
    assert ran.err.count("\n") == 1


def test_unusable_gpu(cudabench: Runner, monkeypatch: pytest.MonkeyPatch) -> None:
    """--device cuda without a driver has exit code 5 and says what to do."""
    from cudabench.devices import probe

    lack = probe.Component("driver", problem="this machine lacks an NVIDIA driver", repair="install NVIDIA's driver")
    monkeypatch.setattr(probe, "driver", lambda: lack)
    ran = cudabench("transpose", "--device", "cuda")
    assert (ran.code, ran.out) == (5, "")
    assert "this machine lacks an NVIDIA driver; install NVIDIA's driver, or simulate with --device sim" in ran.err


def test_driver_without_pycuda_is_no_silent_simulation(cudabench: Runner, monkeypatch: pytest.MonkeyPatch) -> None:
    """With a driver but no PyCUDA, auto is an error that says what to install."""
    from cudabench.devices import probe

    monkeypatch.setattr(probe, "driver", lambda: probe.Component("driver", version="1", device_count=1))
    monkeypatch.setattr(probe, "find_spec", lambda name: None)
    ran = cudabench("transpose")
    assert (ran.code, ran.out) == (5, "")
    assert "PyCUDA is not installed; install it with cudabench setup-gpu" in ran.err


def test_driver_without_compiler(cudabench: Runner, monkeypatch: pytest.MonkeyPatch) -> None:
    """NVRTC alone is enough for a GPU if it supports the architecture; without both compilers the GPU is unusable."""
    from cudabench.compile import compiler, toolkit
    from cudabench.devices import choose, probe
    from cudabench.records.results import DeviceInfo

    monkeypatch.setattr(probe, "driver", lambda: probe.Component("driver", version="1", device_count=1))
    monkeypatch.setattr(probe, "pycuda", lambda: probe.Component("PyCUDA", version="1"))
    monkeypatch.setattr(
        probe, "nvcc", lambda: probe.Component("nvcc", problem="nvcc is not on PATH", repair="install it")
    )
    monkeypatch.setattr(probe, "gpu", lambda index: DeviceInfo("Old", "cuda", "3.5"))
    monkeypatch.setattr(toolkit, "nvcc", lambda: None)
    monkeypatch.setattr(compiler, "supported_architectures", lambda backend: ("sm_35", "sm_90"))
    monkeypatch.setattr(probe, "nvrtc", lambda: probe.Component("NVRTC", version="13.5"))
    assert choose("auto").name == "cuda:0"
    monkeypatch.setattr(compiler, "supported_architectures", lambda backend: ("sm_75", "sm_90"))
    ran = cudabench("transpose")
    assert ran.code == 5
    assert "NVRTC 13.5 does not compile for cuda:0 (Old, compute capability 3.5), only for sm_75 to sm_90" in ran.err
    lack = probe.Component("NVRTC", problem="NVRTC is not installed", repair="install NVRTC")
    monkeypatch.setattr(probe, "nvrtc", lambda: lack)
    ran = cudabench("transpose")
    assert (ran.code, ran.out) == (5, "")
    assert "There is a GPU, but nvcc is not on PATH and NVRTC is not installed; install NVRTC, or install it" in ran.err


def test_no_compiler_for_the_simulator(cudabench: Runner, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without NVRTC the simulator cannot run: exit code 5, and the error gives the command that installs it."""
    from cudabench.compile import compiler

    monkeypatch.setattr(compiler, "nvrtc_version", lambda: None)
    ran = cudabench("transpose", "--device", "sim")
    assert (ran.code, ran.out) == (5, "")
    assert "install it with pip install nvidia-cuda-nvrtc" in ran.err


def test_auto_without_driver_says_so_first(cudabench: Runner, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a driver the first line of output says that the simulator runs."""
    from cudabench.devices import probe

    monkeypatch.setattr(
        probe, "driver", lambda: probe.Component("driver", problem="this machine lacks an NVIDIA driver", repair="-")
    )
    ran = cudabench("transpose", "-k", "smem-pad", "--size", "33", "127", "--no-cpu")
    assert ran.code == 0
    assert "lacks an NVIDIA driver" in ran.out.splitlines()[0]
    assert "simulator" in ran.out.splitlines()[0]


def test_positional_form_equals_options(cudabench: Runner) -> None:
    """`3 16 4` is `--kernel smem-pad --block 16 4`."""
    short = cudabench("transpose", 3, 16, 4, *SMALL, "--json", "-")
    long = cudabench("transpose", "--kernel", "smem-pad", "--block", 16, 4, *SMALL, "--json", "-")
    assert short.code == long.code == 0
    assert short.json["results"] == long.json["results"]
    assert short.json["results"][0]["block"] == [16, 4, 1]


@pytest.mark.parametrize("block", [("-b", "16", "4"), ("-b", "16,4"), ("--block=16,4",), ("--block", "16x4")])
def test_spellings_of_a_block(cudabench: Runner, block: tuple[str, ...]) -> None:
    """A block may be two words, one word with a comma or an x, or a word joined to the option."""
    ran = cudabench("transpose", *block, "smem", *SMALL, "--json", "-")
    assert [r["block"] for r in ran.json["results"]] == [[16, 4, 1]]


def test_json_on_standard_output_stands_alone(cudabench: Runner) -> None:
    """With --json - standard output holds only the results file."""
    ran = cudabench("transpose", "smem", *SMALL, "--json", "-")
    assert ran.json["schema"] == "cudabench/1"
    assert "smem" in ran.err


def test_quiet_prints_nothing(cudabench: Runner) -> None:
    """With -q both streams are empty; the results file is still written."""
    ran = cudabench("transpose", "smem", *SMALL, "-q", "--json", "r.json")
    assert (ran.code, ran.out, ran.err) == (0, "", "")
    assert json.loads(Path("r.json").read_text())["results"][0]["kernel"] == "smem"


def test_quiet_never_hides_that_no_gpu_was_used(capsys: pytest.CaptureFixture[str]) -> None:
    """With -q, the note that no GPU is used goes to standard error."""
    from cudabench.cli.output import Output, announce
    from cudabench.devices import Choice

    announce([Choice("sim", architecture="sm_90", note="No GPU is used: none is there.")], Output.of(None, True))
    seen = capsys.readouterr()
    assert (seen.out, seen.err) == ("", "No GPU is used: none is there.\n")


def test_simulator_has_no_time(cudabench: Runner) -> None:
    """A simulated result has counts and neither time nor bandwidth."""
    (result,) = cudabench("transpose", "naive-row", *SMALL, "--json", "-").json["results"]
    assert result["status"] == "ok"
    assert (result["time"], result["bandwidth_gbps"], result["copy_gbps"]) == (None, None, None)
    assert {a["op"] for a in result["access"]} == {"load", "store"}
    assert result["hazards"] == []
    assert result["verification"]["checked"] == ["simulated"]


def test_wrong_kernel(cudabench: Runner, tmp_path: Path) -> None:
    """A wrong kernel has exit code 3, and the report names the first wrong element."""
    (tmp_path / "wrong.cu").write_text(
        "__global__ void copies(const float *in, float *out, int nx, int ny)\n"
        "{ int x = blockIdx.x * blockDim.x + threadIdx.x, y = blockIdx.y * blockDim.y + threadIdx.y;\n"
        "  if (x < nx && y < ny) out[y * nx + x] = in[y * nx + x]; }\n"
    )
    ran = cudabench("transpose", "--source", "wrong.cu", *SMALL)
    assert ran.code == 3
    assert "WRONG" in ran.out
    assert "first out[0, 1]" in ran.out


def test_race_is_wrong_although_the_numbers_match(cudabench: Runner, tmp_path: Path) -> None:
    """A missing barrier is a race with its lines and fails the run, although lock-step execution gives the right
    output."""
    (tmp_path / "race.cu").write_text(
        "__global__ void race(const float *in, float *out, int nx, int ny)\n"
        "{\n"
        "    __shared__ float tile[32][33];\n"
        "    int x = blockIdx.x * 32 + threadIdx.x, y = blockIdx.y * 32 + threadIdx.y;\n"
        "    if (x < nx && y < ny) tile[threadIdx.y][threadIdx.x] = in[y * nx + x];\n"
        "    x = blockIdx.y * 32 + threadIdx.x, y = blockIdx.x * 32 + threadIdx.y;\n"
        "    if (x < ny && y < nx) out[y * ny + x] = tile[threadIdx.x][threadIdx.y];\n"
        "}\n"
    )
    ran = cudabench(
        "transpose", "--source", "race.cu", "--size", 64, 64, "-b", 32, 32, "-d", "sim", "--no-cpu", "--json", "-"
    )
    assert ran.code == 3
    (result,) = ran.json["results"]
    assert {h["kind"] for h in result["hazards"]} == {"race"}
    assert {h["line"] for h in result["hazards"]} <= {5, 7}


def test_compiler_error_names_the_users_line(cudabench: Runner, tmp_path: Path) -> None:
    """A compiler error shows the user's file name and line, exit code 1."""
    (tmp_path / "broken.cu").write_text(
        "__global__ void broken(const float *in, float *out, int nx, int ny)\n{\n  out[0] = nonsense;\n}\n"
    )
    ran = cudabench("transpose", "--source", "broken.cu", *SMALL)
    assert ran.code == 1
    assert "broken.cu:3: error" in ran.out + ran.err
    assert "Traceback" not in ran.err


def test_ladder_skips_what_cannot_run(cudabench: Runner) -> None:
    """In a ladder, a kernel that cannot run with the given grid is skipped; the others run."""
    ran = cudabench(
        "transpose", "-k", "smem*", "--size", 64, 64, "-b", 8, 8, "-g", 4, 8, "-d", "sim", "--no-cpu", "--json", "-"
    )
    states = {r["kernel"]: r["status"] for r in ran.json["results"]}
    assert states == {"smem": "skipped", "smem-pad": "skipped", "smem-unroll-pad": "ok"}
    assert ran.code == 0


def test_info_in_json(cudabench: Runner) -> None:
    """`info --json` lists the parts that a run may need."""
    names = {part["name"] for part in cudabench("info", "--json").json["parts"]}
    assert names == {"driver", "nvcc", "PyCUDA", "NVML", "NVRTC", "engine", "runtime"}


def test_module_runs_as_a_program(tmp_path: Path) -> None:
    """`python -m cudabench --version` works from any folder."""
    root = str(Path(__file__).resolve().parents[2])
    ran = subprocess.run(
        [sys.executable, "-m", "cudabench", "--version"],
        cwd=tmp_path,
        env={"PYTHONPATH": root, "PATH": ""},
        capture_output=True,
        text=True,
        check=True,
    )
    assert ran.stdout.startswith("cudabench, version ")


@pytest.mark.slow
def test_closed_pipe_is_no_error(tmp_path: Path) -> None:
    """A reader that closes the pipe early, such as `| head`, causes no traceback."""
    root = str(Path(__file__).resolve().parents[2])
    ran = subprocess.run(
        f'"{sys.executable}" -m cudabench list | head -n 1',
        shell=True,
        cwd=tmp_path,
        env={"PYTHONPATH": root, "PATH": "/usr/bin:/bin"},
        capture_output=True,
        text=True,
        check=True,
    )
    assert "Traceback" not in ran.stderr
    assert "BrokenPipe" not in ran.stderr


def test_all_gpus_in_one_table(cudabench: Runner, monkeypatch: pytest.MonkeyPatch) -> None:
    """--device all runs each GPU in turn, prints one table, and names the card that is slower than the others."""
    from cudabench.devices import probe
    from cudabench.measure import context
    from cudabench.records.plan import Case
    from cudabench.records.results import DeviceInfo, Result
    from cudabench.results import stats
    from tests import sessions

    monkeypatch.setattr(probe, "driver", lambda: probe.Component("driver", version="1", device_count=2))
    monkeypatch.setattr(probe, "pycuda", lambda: probe.Component("PyCUDA", version="1"))
    monkeypatch.setattr(probe, "gpu_compiler", lambda: probe.Component("nvcc", version="1"))

    def result(session: sessions.Invented, case: Case) -> Result:
        seconds = 1e-4 * (1.10 if session.choice.index == 1 and case.kernel == "smem" else 1.0)
        timing = stats.summarize([seconds] * 10, "cold")
        return replace(context.describe(case, session.choice.name), time=timing, bandwidth_gbps=1.0)

    sessions.invent(
        monkeypatch,
        lambda choice: DeviceInfo("Fake", "cuda", "9.0", index=choice.index, uuid=f"GPU-{choice.index}"),
        result,
    )
    ran = cudabench("transpose", "-k", "smem", "-k", "vector", "--device", "all", "--json", "r.json")
    assert ran.code == 0
    rows = [line.split() for line in ran.out.splitlines() if "cuda:" in line]
    ids = [str(operations.get("transpose").kernel_id(name)) for name in ("smem", "vector")]
    assert [row[1:3] for row in rows if row[0] in ids] == [
        ["smem", "cuda:0"],
        ["smem", "cuda:1"],
        ["vector", "cuda:0"],
        ["vector", "cuda:1"],
    ]
    assert "cuda:1 is slower than the fastest card: smem 10.0%" in ran.out
    document = json.loads(Path("r.json").read_text())
    assert [device["index"] for device in document["devices"]] == [0, 1]
    assert [result["device"] for result in document["results"]] == ["cuda:0", "cuda:0", "cuda:1", "cuda:1"]


@pytest.mark.parametrize(("level", "named"), [(1e-4, True), (4e-6, False)])
def test_short_kernels_put_no_card_out_of_line(level: float, named: bool) -> None:
    """A card that is 6% slower is named for a long kernel, but not for a kernel so short that its time varies by as
    much."""
    from cudabench.results import stats
    from cudabench.views import table
    from tests.results.test_compare import RECORDED

    results = [
        replace(RECORDED.results[0], device=f"cuda:{at}", time=stats.summarize([seconds] * 10, "cold"))
        for at, seconds in enumerate((level, 1.06 * level))
    ]
    assert bool(table.straggler_lines(results)) is named


def test_two_warnings_of_one_code_are_both_said() -> None:
    """Two warnings of one kernel with the same code and different messages are two lines."""
    from cudabench.records.results import Warning
    from cudabench.views import table
    from tests.results.test_compare import RECORDED

    warnings = (Warning("constant", "it reads a"), Warning("constant", "it reads b"))
    lines = table.warning_lines([replace(RECORDED.results[0], kernel="smem", warnings=warnings)])
    assert lines == ["Warning: smem: it reads a.", "Warning: smem: it reads b."]


def test_missed_threshold_reaches_the_export(cudabench: Runner, monkeypatch: pytest.MonkeyPatch) -> None:
    """A missed threshold gives exit code 4, is in the results file, and is a failure in its JUnit export."""
    from cudabench.devices import probe
    from cudabench.measure import context
    from cudabench.records.plan import Case
    from cudabench.records.results import DeviceInfo, Result, Verification
    from cudabench.results import stats
    from tests import sessions

    monkeypatch.setattr(probe, "driver", lambda: probe.Component("driver", version="1", device_count=1))
    monkeypatch.setattr(probe, "pycuda", lambda: probe.Component("PyCUDA", version="1"))
    monkeypatch.setattr(probe, "gpu_compiler", lambda: probe.Component("nvcc", version="1"))

    def result(session: sessions.Invented, case: Case) -> Result:
        right = Verification(0, None, 0.0, 0.0, ("before", "after"))
        timing = stats.summarize([1e-4] * 10, "cold")
        blank = context.describe(case, session.choice.name)
        return replace(blank, time=timing, bandwidth_gbps=50.0, verification=right)

    sessions.invent(monkeypatch, lambda choice: DeviceInfo("Fake", "cuda", "9.0", index=0), result)
    ran = cudabench("transpose", "smem", "--min-bandwidth", 100, "--json", "r.json")
    assert ran.code == 4
    assert "smem reached 50 GB/s, under --min-bandwidth 100." in ran.err
    assert json.loads(Path("r.json").read_text())["settings"]["min_bandwidth"] == 100
    exported = cudabench("export", "r.json", "--to", "junit")
    assert "smem reached 50 GB/s, under --min-bandwidth 100" in exported.out


# Command lines -------------------------------------------------------------------------------------------------------

LONG = "9" * 5000


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("transpose --size 64 --size 128", "--size is given 2 times, 64 and 128; it takes one value: keep one."),
        ("transpose --size 64 64 -s 3", "--size is given 2 times, 64,64 and 3"),
        ("transpose -b 8 8 -qb4,4", "--block is given 2 times, 8,8 and 4,4"),
        ("transpose --json a --json=b", "--json is given 2 times, a and b"),
        ("transpose -d sim --device sim --device sim", "--device is given 3 times"),
        ("explain transpose --seed 1 --seed 2", "--seed is given 2 times"),
        ("explain x.cu --bytes 1 --bytes 2", "--bytes is given 2 times"),
        ("run x.cu -g 1 --grid 2", "--grid is given 2 times"),
        ("sweep transpose -k smem -k vector", "--kernel is given 2 times, smem and vector"),
        ("sweep transpose -k smem -b 8 8 -b 16 16", "--block is given 2 times, 8 8 and 16 16"),
        ("compare a b --noise 1% --noise 2%", "--noise is given 2 times, 1% and 2%"),
        ("export a --to csv --to csv", "--to is given 2 times, csv and csv"),
        ("plot a -o a.svg -o b.svg", "--output is given 2 times, a.svg and b.svg"),
    ],
)
def test_one_value_twice(cudabench: Runner, words: str, message: str) -> None:
    """An option of one value that is given twice is a usage error, in every command."""
    ran = cudabench(*words.split())
    assert (ran.code, ran.out) == (2, "")
    assert message in ran.err
    assert ran.err.count("\n") == 1


def test_repeatable_options_repeat(cudabench: Runner) -> None:
    """-k and -D may be repeated, and so may flags; a value that looks like an option is not counted as one."""
    ran = cudabench(
        "transpose", "-k", "smem", "-k", "naive-row", "-D", "IPAD=1", "-D", "UNROLL=2", *SMALL, "-qq", "--json", "-"
    )
    assert ran.code == 0
    assert [result["kernel"] for result in ran.json["results"]] == ["smem", "naive-row"]
    assert cudabench("transpose", "--size", "3", "--size", "4", "--help").code == 0


@pytest.mark.parametrize(
    "words",
    [
        ["transpose", "-k", LONG],
        ["transpose", "-k", "²"],
        ["transpose", "²", "32", "8"],
        ["transpose", "3", LONG, "8"],
        ["transpose", "3", "²", "8"],
        ["transpose", "--size", LONG],
        [f"transpose --block={LONG}"],
        ["transpose", f"--block={LONG}"],
        ["transpose", "--grid", "²"],
        ["transpose", "--seed", LONG],
        ["transpose", "--device", f"cuda:{LONG}"],
        ["transpose", "--device", "cuda:²"],
        ["transpose", "--min-time", LONG],
        ["transpose", "--min-time", "nan"],
        ["sweep", "transpose", "-k", "3", "-b", LONG, "8"],
        ["blur", "--radius", LONG],
        ["list", LONG],
        [LONG],
    ],
    ids=lambda words: " ".join(words)[:40],
)
def test_numbers_that_are_none(cudabench: Runner, words: list[str]) -> None:
    """Numbers of thousands of digits, and characters that only look like digits, are usage errors of one short line."""
    ran = cudabench(*words)
    assert (ran.code, ran.out) == (2, "")
    assert ran.err.count("\n") == 1
    assert "defect" not in ran.err
    assert len(ran.err) < 500


def test_a_long_name_is_shortened(cudabench: Runner) -> None:
    """An error shows only the first 80 characters of a long word, and its length."""
    ran = cudabench("transpose", "-k", "x" * 5000)
    assert f"lacks a kernel '{'x' * 80}... (5000 characters)'." in ran.err


def test_alone_it_says_what_to_do_first(cudabench: Runner) -> None:
    """Without arguments the tool shows a few commands, which all exist."""
    ran = cudabench()
    assert (ran.code, ran.err) == (0, "")
    named = [line.split()[1] for line in ran.out.splitlines() if line.startswith("  cudabench")]
    assert {"info", "list", "transpose", "explain", "run"} <= {*named} <= {*operations.SUMMARIES, *cli.COMMANDS}
    assert "cudabench --help" in ran.out


def test_help_after_list(cudabench: Runner) -> None:
    """The module of the command `list` does not hide Python's builtin `list` from the help in the same process."""
    assert cudabench("list", "vecadd").code == 0
    for words in (["--help"], ["explain", "--help"], ["sweep", "--help"]):
        ran = cudabench(*words)
        assert (ran.code, ran.err) == (0, "")
        assert "vecadd" in ran.out


def test_every_command_has_a_module() -> None:
    """Each command in the help loads, and each command's module is in the help."""
    for name in [*operations.SUMMARIES, *cli.COMMANDS]:
        assert cli.make_command(name).name == name
    modules = {path.stem for path in Path(str(cli.__file__)).parent.glob("*.py")}
    beside = {
        "__init__", "arguments", "complete", "groups", "habits", "help", "operation", "options", "output", "pricing",
        "process",
    }  # fmt: skip
    assert modules - beside == {cli.TOGETHER.get(name, name.replace("-", "_")) for name in cli.COMMANDS}


@pytest.mark.parametrize(
    ("words", "started"),
    [
        (["transpose", "--kernel", "nosuch"], (0, False)),
        (["transpose", "--kernel", "nosuch", "-d", "cuda:2"], (2, False)),
        (["transpose", "--kernel", "nosuch", "--device=1", "--peer", "cublas"], (1, True)),
        (["run", "nosuch.cu", "-dcuda"], (0, False)),
        (["ab", "transpose", "-k", "nosuch", "--device", "all"], (0, False)),
        (["sweep", "transpose", "nosuch"], (0, False)),
        (["transpose", "--kernel", "nosuch", "-d", "sim"], None),
        (["transpose", "--kernel", "nosuch", "-d", "sm_80"], None),
        (["transpose", "--kernel", "nosuch", "--on", "h100"], None),
        (["transpose", "--help"], None),
        (["run", "-h"], None),
        (["explain", "transpose", "nosuch"], None),
        (["list", "transpose"], None),
        ([], None),
    ],
)
def test_which_lines_start_a_worker_ahead(
    cudabench: Callable[..., Ran], monkeypatch: pytest.MonkeyPatch, words: list[str], started: tuple[int, bool] | None
) -> None:
    """A command line that measures on a GPU starts a worker early, with the GPU's number and whether a library is
    called."""
    begun: list[tuple[int, bool]] = []

    def early_worker(index: int, *, primary: bool) -> nullcontext[None]:
        begun.append((index, primary))
        return nullcontext()

    monkeypatch.setattr(session, "early_worker", early_worker)
    cudabench(*words)
    assert begun == [started] * (started is not None)
