"""Shell completion: click's protocol, the scripts, and a real bash."""

from __future__ import annotations

import os
import pty
import select
import shlex
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from cudabench.cli import group, invoke
from cudabench.operations import SUMMARIES
from tests.conftest import Ran

ROOT = Path(__file__).resolve().parents[2]
Runner = Callable[..., Ran]


def offered(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], line: str) -> list[str]:
    """Return the completions of a line's last word for bash, each as 'type,value'."""
    words = line.split(" ")
    monkeypatch.setenv("COMP_WORDS", line)
    monkeypatch.setenv("COMP_CWORD", str(len(words) - 1))
    monkeypatch.setenv("_CUDABENCH_COMPLETE", "bash_complete")
    with pytest.raises(SystemExit) as left:
        invoke([])
    assert left.value.code == 0
    return capsys.readouterr().out.split()


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("cudabench tr", ["plain,transpose"]),
        ("cudabench comp", ["plain,compare", "plain,completion"]),
        ("cudabench transpose -k smem-p", ["plain,smem-pad"]),
        ("cudabench transpose --kernel sw", ["plain,swizzle"]),
        ("cudabench transpose vec", ["plain,vector"]),
        ("cudabench transpose vector 3", []),
        ("cudabench transpose -k al", ["plain,all"]),
        ("cudabench transpose -t floa", ["plain,float32", "plain,float64", "plain,float16"]),
        ("cudabench transpose -b 32 8 --cache ", ["plain,cold", "plain,hot"]),
        ("cudabench pi -d a", ["plain,auto", "plain,all"]),
        ("cudabench pi -d sim:sm_9", ["plain,sim:sm_90"]),
        ("cudabench sweep transpose -k vec", ["plain,vector"]),
        ("cudabench explain transpose -k vec", ["plain,vector"]),
        ("cudabench explain v", ["file,v", "plain,vecadd"]),
        ("cudabench explain x.cu --arg", ["plain,--arg"]),
        ("cudabench list ma", ["plain,matmul", "plain,matvec"]),
        ("cudabench completion z", ["plain,zsh"]),
        ("cudabench nonsense wo", []),
        ("cudabench run sax", ["file,sax"]),
        ("cudabench run x.cu --profile p", ["file,p"]),
        ("cudabench run x.cu -I in", ["dir,in"]),
        ("cudabench transpose --json r", ["file,r"]),
        ("cudabench transpose --source m", ["file,m"]),
        ("cudabench compare a.json b", ["file,b"]),
        ("cudabench plot r", ["file,r"]),
        ("cudabench export r", ["file,r"]),
    ],
    ids=lambda value: value if isinstance(value, str) else None,
)
def test_words(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], line: str, words: list[str]
) -> None:
    """Names of commands, kernels, types and devices complete; in place of a file, the shell completes file names."""
    assert offered(monkeypatch, capsys, line) == words


def test_every_operation_is_offered(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """An empty first word offers all operations and commands."""
    assert {f"plain,{name}" for name in [*SUMMARIES, "run", "info"]} <= {*offered(monkeypatch, capsys, "cudabench ")}


def test_kernels_of_a_file(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """`run FILE.cu -k` completes the file's kernels; without the file it offers nothing."""
    monkeypatch.chdir(tmp_path)
    Path("two.cu").write_text("__global__ void first(int *x) {}\n__global__ void second(int *x) {}\n")
    assert offered(monkeypatch, capsys, "cudabench run two.cu -k ") == ["plain,first", "plain,second"]
    assert offered(monkeypatch, capsys, "cudabench run none.cu -k ") == []


@pytest.mark.parametrize(
    "asked",
    [
        {"_CUDABENCH_COMPLETE": "bash_complete"},
        {"_CUDABENCH_COMPLETE": "zsh_complete", "COMP_WORDS": "cudabench tr"},
        {"_CUDABENCH_COMPLETE": "bash_complete", "COMP_WORDS": "cudabench tr", "COMP_CWORD": "last"},
        {"_CUDABENCH_COMPLETE": "fish_complete", "COMP_WORDS": "cudabench tr"},
        {"_CUDABENCH_COMPLETE": "1", "COMP_WORDS": "cudabench tr", "COMP_CWORD": "1"},
    ],
    ids=lambda asked: " ".join(map("=".join, asked.items())),
)
def test_a_completion_that_no_shell_asks_for(
    cudabench: Runner, monkeypatch: pytest.MonkeyPatch, asked: dict[str, str]
) -> None:
    """Completion variables that were set by hand and only in part give a usage error that names them, not a defect."""
    for name in ("COMP_WORDS", "COMP_CWORD"):
        monkeypatch.delenv(name, raising=False)
    for name, value in asked.items():
        monkeypatch.setenv(name, value)
    ran = cudabench("list")
    assert (ran.code, ran.out) == (2, "")
    assert f"_CUDABENCH_COMPLETE={asked['_CUDABENCH_COMPLETE']} is for a shell's completion" in ran.err


def test_completion_loads_nothing_heavy() -> None:
    """A word that is a command is completed without NumPy, rich or the simulator."""
    code = (
        "import sys\nfrom cudabench import cli\n"
        "try:\n    cli.invoke([])\nexcept SystemExit:\n"
        "    print(sorted({'numpy', 'rich', 'pycuda', 'cudabench.simulator'} & set(sys.modules)))"
    )
    asked = {"COMP_WORDS": "cudabench tr", "COMP_CWORD": "1", "_CUDABENCH_COMPLETE": "bash_complete"}
    ran = subprocess.run(
        [sys.executable, "-c", code], env={**os.environ, **asked}, cwd=ROOT, capture_output=True, text=True
    )
    assert ran.stdout.splitlines() == ["plain,transpose", "[]"]


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_the_script_is_printed(cudabench: Runner, shell: str) -> None:
    """`completion SHELL` prints a script that calls the tool with the variable for that shell."""
    ran = cudabench("completion", shell)
    assert (ran.code, ran.err) == (0, "")
    assert f"_CUDABENCH_COMPLETE={shell}_complete" in ran.out
    assert group.name  # the script is of this group


def test_another_shell_is_refused(cudabench: Runner) -> None:
    """An unknown shell is a usage error, in one line, that lists the known shells."""
    for words in (["tcsh"], []):
        ran = cudabench("completion", *words)
        assert (ran.code, ran.err.count("\n")) == (2, 1)
        assert "fish" in ran.err


@pytest.mark.slow
@pytest.mark.skipif(not shutil.which("bash"), reason="no bash")
def test_in_a_real_bash(tmp_path: Path) -> None:
    """In bash, TAB completes a kernel's name and a file's name."""
    tool = tmp_path / "bin" / "cudabench"
    tool.parent.mkdir()
    root, python = shlex.quote(str(ROOT)), shlex.quote(sys.executable)
    tool.write_text(f'#!/bin/sh\nPYTHONPATH={root} exec {python} -m cudabench "$@"\n')
    tool.chmod(0o755)
    (tmp_path / "saxpy.cu").write_text("__global__ void saxpy(int n) {}\n")
    script = tmp_path / "rc"
    script.write_text('PS1="ready> "\neval "$(cudabench completion bash)"\nbind "set bell-style none"\n')
    pid, terminal = pty.fork()
    if pid == 0:  # pragma: no cover (the child becomes bash)
        os.chdir(tmp_path)
        os.environ.update(PATH=f"{tool.parent}:{os.environ['PATH']}", TERM="dumb", INPUTRC="/dev/null")
        os.execvp("bash", ["bash", "--noprofile", "--rcfile", str(script), "-i"])

    def until(text: str) -> str:
        seen, end = "", time.monotonic() + 120
        while text not in seen:
            assert time.monotonic() < end, seen
            if select.select([terminal], [], [], 1)[0]:
                seen += os.read(terminal, 4096).decode()
        return seen

    try:
        until("ready> ")
        os.write(terminal, b"cudabench run sax\t")
        until("cudabench run saxpy.cu ")
        os.write(terminal, b"-k sa\t")
        until("-k saxpy ")
        os.write(terminal, b"\x15cudabench vecadd -k gri\t")  # Ctrl-U clears the line
        until("-k grid-stride")
    finally:
        os.close(terminal)
        os.kill(pid, 9)
        os.waitpid(pid, 0)
