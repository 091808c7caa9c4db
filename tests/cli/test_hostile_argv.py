"""Any command line ends with a documented exit code and a message: no defect, no traceback, no control codes."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from cudabench import cli, operations, text

CODES = {0, 1, 2, 3, 4, 5}
INSTALLING = {"setup-gpu"}  # setup-gpu changes the environment that the tests run in
KERNEL = "__global__ void k(float *x, int n) { int i = blockIdx.x * blockDim.x + threadIdx.x; if (i < n) x[i] *= 2; }\n"

# Values of careless or hostile users. Sizes between a thousand and 2^31 are not here, since they would run for long.
NASTY = (
    "",
    " ",
    "-",
    "--",
    "0",
    "-1",
    "1",
    "3",
    "33",
    "32",
    "8,4",
    "1,1,1",
    "1e999",
    "nan",
    "inf",
    "-inf",
    "0x10",
    "1_0",
    "²",
    "٣",
    "9" * 25,
    "9" * 5000,
    str(2**31),
    str(2**63),
    "1:",
    ":",
    "1:2:0",
    "8:64:-8",
    "*",
    "[",
    "[!",
    "smem*",
    "all",
    "k",
    "k.cu",
    "no.cu",
    "r.json",
    "t.toml",
    ".",
    "..",
    "out.csv",
    "n" * 300,
    "a=b",
    "=",
    "=1",
    "n=",
    "n=4",
    "n=4=4",
    "x=float32[n]:random",
    "x=float32[-1]",
    "x=float32[9**99]",
    "x=@k.cu",
    "x=@r.json",
    "x=x",
    "x=2*x0",
    "x=x0[",
    "x=np",
    "x=np.ones(10**12)",
    "round(n,-10**9)",
    "cdiv(n,0)",
    "n",
    "n**n**n",
    "(" * 200,
    "sim",
    "sim:sm_90",
    "sim:sm_1",
    "cuda:٣",
    "cuda:-1",
    "auto:1",
    "float32",
    "float31",
    "cold",
    "csv",
    "markdown",
    "::error::x",
    "\x1b[31m",
    "\u202e",
    "$\\frac$",
    "%s%n",
    "{0}",
    "é",
    "\udcff",
)
WORDS = st.one_of(
    st.sampled_from(NASTY), st.text(st.characters(exclude_characters="/\0", exclude_categories=["Cs"]), max_size=6)
)


def commands() -> dict[tuple[str, ...], list[str]]:
    """Return every command, subcommands too, with the spellings of its options."""
    found: dict[tuple[str, ...], list[str]] = {}
    for name in (*operations.SUMMARIES, *cli.COMMANDS):
        if name in (*INSTALLING, "exec", "nvcc"):  # the last two return their program's exit code
            continue
        command = cli.make_command(name)
        inner = {(name,): command}
        if isinstance(command, click.Group):
            context = click.Context(command)
            inner = {(name, sub): command.get_command(context, sub) for sub in command.list_commands(context)}
        for words, one in inner.items():
            assert one is not None
            found[tuple("k.cu" if word == "FILE.cu" else word for word in words)] = [
                spelling for param in one.params if isinstance(param, click.Option) for spelling in param.opts
            ]
    return found


COMMANDS = commands()


@st.composite
def command_lines(draw: st.DrawFn) -> list[str]:
    """Draw a command line: a command, some of its options, other words, and values that may fit or not."""
    words = draw(st.sampled_from(sorted(COMMANDS)))
    line = [*words]
    for _ in range(draw(st.integers(0, 5))):
        kind = draw(st.integers(0, 9))
        if kind < 7:
            line.append(draw(st.sampled_from(COMMANDS[words] or ["--help"])))
            if draw(st.booleans()) and line[-1].startswith("--"):
                line[-1] += f"={draw(WORDS)}"
                continue
        line.append(draw(WORDS))
    device = ["--device", "sim"] if "--device" in COMMANDS[words] and "--device" not in " ".join(line) else []
    limit = ["--timeout", "5"] if "--timeout" in COMMANDS[words] and "--timeout" not in " ".join(line) else []
    size = ["--size", "3"] if "--size" in COMMANDS[words] and not {"-s", "--size"} & {*line} else []
    return [*line, *device, *limit, *size]


@pytest.fixture
def folder(cudabench: Callable[..., Any]) -> Callable[..., Any]:
    """Write the files that the command lines name."""
    Path("k.cu").write_text(KERNEL)
    Path("t.toml").write_text('file = "k.cu"\n[k]\ngrid = 1\nblock = 32\narg = ["x=float32[4]:ones", "n=4"]\n')
    assert cudabench("vecadd", "--size", 33, "-d", "sim", "-q", "--json", "r.json").code == 0
    return cudabench


def check(line: list[str], ran: Any) -> None:
    """Check that a command line ended with a documented exit code, and with a message where it failed."""
    said = ran.out + ran.err
    assert ran.code in CODES, (line, ran.code, ran.err[:500])
    assert "defect" not in ran.err, (line, ran.err[:500])
    assert "Traceback" not in said, (line, said[:500])
    assert not text.HARMFUL.search(said), (line, said[:500])
    if ran.code:
        assert ran.err.strip() or ran.out.strip(), line
        assert all(len(word) <= 1000 for word in ran.err.split()), line


@pytest.mark.slow
@settings(max_examples=10, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(line=command_lines())
def test_any_command_line_ends_well(folder: Callable[..., Any], line: list[str]) -> None:
    """Ten random command lines end well; each run of the test draws other lines."""
    check(line, folder(*line))


@pytest.mark.long
@settings(max_examples=200, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(line=command_lines())
def test_hundreds_of_command_lines_end_well(folder: Callable[..., Any], line: list[str]) -> None:
    """Two hundred random command lines end well."""
    check(line, folder(*line))


@pytest.mark.parametrize(
    ("line", "code", "said"),
    [
        (["transpose", "-k", "²"], 2, "lacks a kernel '²'"),
        (["transpose", "--size", "9" * 5000], 2, "5000 digits"),
        (["transpose", "--seed", "9" * 5000], 2, "5000 characters"),
        (["transpose", "-k", "smem-pad", "-D", f"IPAD={'9' * 5000}"], 2, "needs a whole number"),
        (["transpose", "-k", "smem-pad", "-D", f"IPAD={'(' * 5000}"], 2, "needs a whole number"),
        (["vecadd", "--size", "8", "--json", "n" * 300], 1, "too long"),
        (["matvec", "--size", "2147483647", "2147483647"], 1, "18446744099 GB"),
        (["solve", "--size", "1000000"], 1, "8001 GB"),
    ],
    ids=lambda part: " ".join(part)[:40] if isinstance(part, list) else None,
)
def test_input_that_was_called_a_defect(cudabench: Callable[..., Any], line: list[str], code: int, said: str) -> None:
    """Each of these inputs gives a short error about the input."""
    ran = cudabench(*line, "--device", "sim")
    check(line, ran)
    assert ran.code == code
    assert said in ran.err
    assert len(ran.err) < 600


@pytest.mark.slow
def test_lists_and_help_in_one_process(cudabench: Callable[..., Any]) -> None:
    """The command `list`, whose module has a builtin's name, leaves later commands of the same process working."""
    assert [cudabench(*words).code for words in (["list"], ["--help"], ["list", "vecadd"], ["info"])] == [0] * 4


def test_a_long_word_is_repeated_in_part(cudabench: Callable[..., Any]) -> None:
    """An error shows the first 80 characters of a word of thousands of characters, and its length."""
    ran = cudabench("no" * 3000)
    assert ran.code == 2
    assert re.search(r"(no){40}\.\.\. \(6000 characters\)", ran.err)
