"""Lines that users of other tools type first: cudabench does what they mean, or answers with the line to type."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable
from pathlib import Path

import click
import pytest

from cudabench.cli import COMMANDS, group, habits, make_command
from cudabench.cli.help import COMMON, HEADINGS, SCREEN, Headed
from cudabench.errors import UsageError
from cudabench.operations import SUMMARIES
from tests.conftest import Ran

Runner = Callable[..., Ran]
SAXPY = (Path(__file__).resolve().parents[2] / "examples" / "saxpy.cu").read_text()
SMALL = "--size 64 --device sim --no-cpu -q"
ARGUMENTS = "--arg n=1000 --arg a=2 --arg 'x=float32[n]:random' --arg 'y=float32[n]:random' --device sim -q"

# The line, its exit code, a part of the answer.
TYPED = [
    # a file, a kernel or a number in the command's place
    ("saxpy.cu", 2, "write: cudabench run saxpy.cu --kernel saxpy"),
    ("saxpy.cu 256", 2, "a number has a name, as in --block 256"),
    ("saxpy.cu 256", 2, "write: cudabench run saxpy.cu"),
    ("nofile.cu", 2, "nofile.cu: no such file"),
    ("r.json", 2, "write: cudabench report r.json -o r.html"),
    ("smem-pad", 2, "'smem-pad' is a kernel of transpose; write: cudabench transpose smem-pad"),
    ("smem-pad --block 32 8", 2, "write: cudabench transpose smem-pad --block 32 8"),
    ("smem", 2, "write: cudabench transpose smem, or cudabench blur smem"),
    ("explain smem-pad", 2, "write: cudabench explain transpose smem-pad"),
    ("explain smem", 2, "'smem' is a kernel of 2 operations"),
    ("sweep smem-pad", 2, "write: cudabench sweep transpose smem-pad"),
    ("ab smem smem-pad", 2, "write: cudabench ab transpose -k smem -k smem-pad"),
    ("transpose_smem_pad", 2, "write: cudabench transpose"),
    ("3 32 8", 2, "write: cudabench transpose 3 32 8"),
    ("-k smem transpose", 2, "write: cudabench transpose -k smem"),
    ("list transpose smem", 0, "smem"),
    (f"TRANSPOSE smem {SMALL}", 0, ""),
    (f"transpose SMEM-PAD {SMALL}", 0, ""),
    (f"transpose smem smem-pad {SMALL}", 0, ""),
    (f"run transpose smem {SMALL}", 0, ""),
    ("transpose --smem-pad", 2, "write: cudabench transpose --kernel smem-pad"),
    ("transpose 12 256", 2, "write 12 --block 256"),
    ("sweep transpose smem-pad -D IPAD=0,1 --block 32 8 --size 64 -d sim -q", 0, ""),
    ("sweep transpose", 2, "write cudabench sweep transpose"),
    ("saxpy", 2, "write: cudabench run saxpy.cu --kernel saxpy"),
    ("saxpy.cu --help", 0, "Usage: cudabench run"),
    # commands of other tools
    ("ncu --set full transpose", 2, "write: cudabench explain transpose"),
    ("bench", 2, "write: cudabench run FILE.cu"),
    ("bench transpose", 2, "write: cudabench transpose"),
    ("profile", 2, "write: cudabench explain transpose smem"),
    ("profile transpose naive-row", 2, "write: cudabench explain transpose naive-row"),
    ("test", 2, "write: cudabench check FILE.cu"),
    ("memcheck saxpy.cu", 2, "write: cudabench check saxpy.cu --kernel saxpy"),
    ("check transpose", 2, "write cudabench transpose --device sim"),
    ("ls transpose", 2, "write: cudabench list transpose"),
    ("gpus", 2, "write: cudabench info"),
    ("version", 0, "cudabench, version"),
    ("-V", 0, "cudabench, version"),
    ("help transpose", 0, "Usage: cudabench transpose"),
    ("help", 0, "Usage: cudabench"),
    ("transpose --list", 2, "write: cudabench list transpose"),
    ("transpose --explain", 2, "write: cudabench explain transpose"),
    # a kernel's arguments
    ("run saxpy.cu --n 1000", 2, "--arg n=1000 --arg a=2.5 --arg 'x=float32[n]:random'"),
    ("run saxpy.cu -n 1000", 2, "--arg n=1000 --arg a=2.5 --arg 'x=float32[n]:random'"),
    ("run saxpy.cu -n1000", 2, "--arg n=1000 --arg a=2.5"),
    ("check saxpy.cu --n=1000", 2, "write: cudabench check saxpy.cu --kernel saxpy"),
    ("run saxpy.cu n=1000", 2, "'n=1000' is given with --arg"),
    ("run saxpy.cu x y", 2, "'x' is a parameter, and its value is --arg x=..."),
    ("run saxpy.cu saxpy", 2, "'saxpy' is a kernel, given with --kernel"),
    ("run saxpy.cu '<<<4, 256>>>'", 2, "write: cudabench run saxpy.cu --kernel saxpy --grid 4 --block 256"),
    ("run saxpy.cu --args n=1000", 2, "'--args' is --arg n=1000 here"),
    (f"run saxpy.cu {ARGUMENTS} --grid 4 --block 256 --expect 'lambda x: 2*x'", 2, "write --expect 'NAME=2*x'"),
    # numbers
    (f"transpose smem-pad --block 256x2 {SMALL}", 0, ""),
    (f"transpose smem-pad --block 32,8 {SMALL}", 0, ""),
    (f"transpose smem-pad --block 32 8 {SMALL}", 0, ""),
    (f"run saxpy.cu {ARGUMENTS} --grid 4x1 --block 256x1", 0, ""),
    (f"run saxpy.cu {ARGUMENTS} --grid 4,1 --block 256,1", 0, ""),
    (f"run saxpy.cu {ARGUMENTS} --grid 4 1 --block 256 1", 0, ""),
    ("explain transpose smem-pad --block 32x8 --size 64 -q", 0, ""),
    ("sweep transpose smem-pad --block 32x8 --size 64 -d sim -q", 0, ""),
    ("sweep transpose smem-pad --block 32,8 --size 64 -d sim -q", 0, ""),
    ("sweep transpose smem-pad --block 32", 2, "takes 2 ranges"),
    ("transpose --size 1k", 2, "--size 1k means 1,024 or 1,000: write --size 1024 or --size 1000"),
    ("transpose smem --size 1<<5 --device sim -q", 0, ""),
    ("transpose smem --size 2**5 64 --device sim -q", 0, ""),
    ("vecadd 0 --size 1e3 --device sim -q", 0, ""),
    ("vecadd 0 --size 1_000 --device sim -q", 0, ""),
    ("vecadd 0 --size 1Ki --device sim -q", 0, ""),
    # where results go
    ("transpose -o r.json", 2, "write: cudabench transpose --json r.json"),
    ("transpose -o r.html", 2, "write: cudabench transpose --report r.html"),
    ("transpose --csv", 2, "write: cudabench transpose --json results.json && cudabench export results.json --to csv"),
    ("transpose --output r.csv --size 64", 2, "--json r.json --size 64 && cudabench export r.json --to csv -o r.csv"),
    ("transpose -o r.png", 2, "--json r.json && cudabench plot r.json -o r.png"),
    ("transpose --report r.pdf", 2, "write --report r.html"),
    ("report r.json -o r.pdf", 2, "the page is HTML, and a browser prints it; write --output r.html"),
    ("report r.json", 2, "write: cudabench report r.json -o r.html"),
    ("plot r.json -o r.html", 2, "write cudabench report RESULTS.json -o r.html"),
    ("export r.json -o r.csv", 0, ""),
    ("export r.json --csv", 2, "write: cudabench export r.json --to csv"),
    ("export r.json", 2, "write cudabench export r.json --to csv"),
    ("export r.json -o r.html", 2, "write cudabench report r.json -o r.html"),
    ("export r.json --to html", 2, "write: cudabench report r.json -o r.html"),
    ("report", 2, "write: cudabench report RESULTS.json -o report.html"),
    ("compare h100", 2, "write cudabench compare h100 h200"),
    ("compare r.json", 2, "write cudabench compare r.json NEW.json"),
    ("compare saxpy.cu saxpy.cu", 2, "write cudabench diff OLD.cu NEW.cu"),
    ("compare transpose smem swizzle", 2, "write cudabench transpose -k smem -k swizzle"),
    ("transpose smem --json=- --size 64 -d sim", 0, '"schema"'),
    ("run saxpy.cu -arch=sm_80", 2, "'x=float32[n]:random' --arg 'y=float32[n]:random' --device sim:sm_80"),
    ("run saxpy.cu -gencode arch=compute_90,code=sm_90", 2, "'-gencode' is --device sim:sm_90 here"),
    ("run saxpy.cu -lineinfo -G", 2, "'-lineinfo' is left out"),
    ("run saxpy.cu -std=c++17", 2, "'-std' is --std c++17 here"),
    ("run saxpy.cu --use_fast_math", 2, "call __expf and similar functions"),
    ("run saxpy.cu -Xptxas -v", 2, "'diff' shows registers and spills"),
    ("run saxpy.cu --maxrregcount=32", 2, "__launch_bounds__"),
    # ncu, nvbench, hyperfine, pytest
    ("transpose --kernel-name regex:smem", 2, "write: cudabench transpose --kernel smem"),
    ("transpose --set full", 2, "write: cudabench transpose"),
    ("transpose --metrics dram__bytes.sum --csv", 2, "cudabench export results.json --to csv"),
    ("transpose --launch-count 1", 2, "every launch is counted"),
    ("transpose --devices 0", 2, "write: cudabench transpose --device cuda:0"),
    ("transpose --gpu 0", 2, "write: cudabench transpose --device cuda:0"),
    ("ceilings --only memory --device sm_x", 2, "sm_x"),
    ("transpose --axis TILE=8,16", 2, "cudabench sweep transpose -D TILE=8,16"),
    ("transpose --stopping-criterion entropy", 2, "write: cudabench transpose"),
    ("transpose --warmup 3 --runs 10", 2, "write: cudabench transpose --min-samples 10"),
    ("transpose --export-json r.json", 2, "write: cudabench transpose --json r.json"),
    ("transpose --export-markdown r.md", 2, "cudabench export r.json --to markdown -o r.md"),
    ("transpose --debug", 2, "'--debug' is left out: 'explain' shows more; write: cudabench transpose"),
    ("transpose -n auto", 2, "write: cudabench transpose"),
    ("transpose --collect-only", 2, "write: cudabench list transpose"),
    ("transpose --dtype half --size 64 -k smem -d sim -q", 0, ""),
    ("transpose --float16", 2, "write: cudabench transpose --dtype float16"),
    ("transpose smem --device sm_80 --size 64 -q", 0, ""),
    ("transpose --threads 256", 2, "write: cudabench transpose --block 256"),
    ("transpose --shape 64", 2, "write: cudabench transpose --size 64"),
    ("transpose --help-all", 0, "--cpu-threads"),
    ("transpose --nonsense", 2, "'cudabench transpose --help-all' shows all options"),
    ("nonsense", 2, "is neither an operation nor a command"),
]


@pytest.fixture
def folder(cudabench: Runner, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Runner:
    """Change to a folder with a kernel and a results file."""
    monkeypatch.chdir(tmp_path)
    Path("saxpy.cu").write_text(SAXPY)
    assert cudabench("vecadd", "--size", 33, "-d", "sim", "-q", "--json", "r.json").code == 0
    return cudabench


@pytest.mark.sampled(32)
@pytest.mark.parametrize(("line", "code", "piece"), TYPED)
def test_typed(folder: Runner, line: str, code: int, piece: str) -> None:
    """The line gives its exit code and a part of the answer; a refusal is one line, writes no file, and offers lines
    that parse."""
    before = {path.name for path in Path().iterdir()}
    ran = folder(*shlex.split(line))
    assert (ran.code, piece in ran.out + ran.err) == (code, True), ran.out + ran.err
    if code:
        assert (ran.out, ran.err.count("\n")) == ("", 1)
        assert {path.name for path in Path().iterdir()} == before
        for offered in re.findall(r"write: (cudabench .*?)(?:, or (?=cudabench)|$)", ran.err.strip()):
            for one in offered.split(" && "):
                assert habits.parsed(group, shlex.split(one)[1:]) is not None


def test_a_function_is_named(folder: Runner) -> None:
    """The name of a kernel's function, in any case, selects the kernel."""
    from cudabench import operations

    kernel = operations.get("transpose").kernels[3]
    assert f"write: cudabench transpose {kernel.function}" in folder(kernel.function).err
    assert folder("transpose", kernel.function.upper(), *shlex.split(SMALL)).code == 0


def every_command() -> list[tuple[str, click.Command]]:
    """Return every command with its path, subcommands too."""
    found: list[tuple[str, click.Command]] = [("", group)]
    for name in (*SUMMARIES, *COMMANDS):
        command = make_command(name)
        found.append((name, command))
        if isinstance(command, click.Group):
            context = click.Context(command)
            found += [(f"{name} {one}", command.get_command(context, one)) for one in command.list_commands(context)]
    return found


@pytest.mark.parametrize(("path", "command"), every_command(), ids=lambda part: part if isinstance(part, str) else "")
def test_help_fits_a_screen(path: str, command: click.Command) -> None:
    """Help fits on a screen of 80 columns; --help-all has every option, each under a heading."""
    assert isinstance(command, Headed)
    context = click.Context(command, info_name=f"cudabench {path}".strip(), terminal_width=80)
    short, whole = command.get_help(context), command.help_all(context)
    assert short.count("\n") < SCREEN
    for param in command.params:
        if isinstance(param, click.Option):
            assert max(param.opts, key=len) in whole
    sections = command.sections_of()
    if not path.startswith("fleet") and path not in ("", "setup-gpu", "ceilings", "info"):
        assert not sections["Options"], path
    assert sum(map(len, sections.values())) == sum(isinstance(param, click.Option) for param in command.params)


def test_headings_name_options() -> None:
    """The help's headings name only options that some command has, and each of them once."""
    known = {str(param.name) for _, command in every_command() for param in command.params}
    named = " ".join(HEADINGS.values()).split()
    assert len(named) == len({*named})
    assert {*named} - known <= {"price", "prices"}
    assert {*COMMON.split()} <= {*named}


@pytest.mark.parametrize("habit", habits.HABITS, ids=lambda habit: habit.options)
def test_habits_hold(habit: habits.Habit) -> None:
    """A habit has a replacement that some command accepts, or a reason; no habit is an option of an operation."""
    own = {spelling for _, command in every_command() for param in command.params for spelling in param.opts}
    assert habit.why or habit.instead
    assert not habit.instead or habit.instead.split()[0] in own
    params = make_command("transpose").params
    spellings = {spelling for param in params for spelling in param.opts}
    assert not {*habit.options.split()} & spellings


def test_sizes_in_words() -> None:
    """A number such as 1M is refused with both of its meanings; powers of two are exact."""
    from cudabench.cli.arguments import Numbers, whole

    assert [whole(word) for word in ("1<<20", "2^20", "2**20", "1Mi", "1_048_576")] == [1 << 20] * 5
    assert [whole(word) for word in ("1k", "1<<99", "x", "1__0", "9" * 19)] == [None] * 5
    with pytest.raises(UsageError, match="1,048,576 or 1,000,000"):
        Numbers(2).convert("1M", None, None)
