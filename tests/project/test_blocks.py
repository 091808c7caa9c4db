"""The code blocks of the documents: the tool accepts every command, and each runs as printed in a copy of the examples.

A block that needs something else says so above it, and runs where that is available. test_docs_site.py runs the console
blocks, which show output.
"""

from __future__ import annotations

import gzip
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from collections import defaultdict
from pathlib import Path

import click
import pytest
import yaml

from cudabench.cli import group
from tests import consoles
from tests.consoles import Block

ROOT = Path(__file__).resolve().parents[2]
BLOCKS = consoles.blocks()
OF_DOCUMENT: dict[str, list[Block]] = defaultdict(list)
for _block in BLOCKS:
    OF_DOCUMENT[_block.document.name].append(_block)
WITH_COMMANDS = [name for name, found in OF_DOCUMENT.items() if any(one.language == "sh" for one in found)]
# A block's need, and the program that it requires; without the program the block is only parsed.
PROGRAMS = {"jq": "jq", "nvcc": "nvcc"}
ELSEWHERE = ("a network", "Slurm", "Ray", "Bencher", "the tests' packages", "nvcc and your Makefile")
RUN_AS_CELLS = ("python.md", "notebook.md")  # by test_docs_site.py
LAUNCHES = {
    path.name: " ".join(re.findall(r"^// {3}(.*)$", path.read_text(), re.M)).replace("\\", "")
    for path in sorted((ROOT / "examples").glob("*.cu"))
}
FOREIGN = ("profile",)  # words of other tools, which print a suggestion only
OTHERS = (
    "bencher", "cmake", "cudabench-nvcc", "jq", "make", "mypy", "pip", "python", "python3", "ruff", "srun",
)  # fmt: skip


def script(folder: Path, blocks: list[Block]) -> str:
    """Return the lines of the command blocks; a block that is a file is written to the folder."""
    lines = []
    for block in blocks:
        if block.file:
            (folder / block.file).parent.mkdir(parents=True, exist_ok=True)
            (folder / block.file).write_text(block.text)
        elif block.language == "sh":
            lines.append(block.text)
    return "".join(lines)


def executable(path: Path, text: str) -> None:
    """Write an executable shell script."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)


def ran(folder: Path, text: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run lines in a shell that has the tool on its PATH and stops at the first failure."""
    tools = folder / ".venv" / "bin"
    executable(tools / "cudabench", f'exec "{sys.executable}" -m cudabench "$@"')
    executable(tools / "cudabench-nvcc", f'exec "{sys.executable}" -m cudabench nvcc "$@"')
    (tools / "activate").touch()
    path = os.pathsep.join([str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])])
    variables = {**os.environ, "PATH": f"{tools}:{os.environ['PATH']}", "PYTHONPATH": path, **environment}
    return subprocess.run(["bash", "-ec", text], cwd=folder, env=variables, capture_output=True, text=True)


def checkout(folder: Path) -> None:
    """Create a folder with the examples and two commits; `origin/main` is the first."""
    shutil.copytree(ROOT / "examples", folder / "examples")
    git = "git -c user.name=a -c user.email=a@example.org -c commit.gpgsign=false"
    history = f"git init -q . && git add examples && {git} commit -qm first && {git} commit -qm more --allow-empty"
    done = ran(folder, f"{history}\ngit update-ref refs/remotes/origin/main HEAD~1")
    assert done.returncode == 0, done.stderr


# The times of two runs, as the scripts in ci.md write them.
BASELINE = """cudabench transpose smem --device cuda --json times-base.json
cudabench transpose smem --device cuda --json times.json
"""


def given(folder: Path, document: str) -> None:
    """Write the files that a page assumes: shards of a fleet."""
    if document != "fleet.md":
        return
    results = ROOT / "tests" / "frozen" / "data" / "results"
    for day in ("monday", "tuesday", "today"):
        (folder / "runs" / day).mkdir(parents=True)
        for path in results.glob("shard*.json.gz"):
            (folder / "runs" / day / path.stem).write_bytes(gzip.decompress(path.read_bytes()))
    shards = [json.loads(path.read_text()) for path in (folder / "runs" / "today").iterdir()]
    (folder / "cards.txt").write_text("".join(f"{shard['device']['uuid']}\n" for shard in shards))


def parse(words: list[str]) -> None:
    """Let click parse a command line without running it; raises click.UsageError."""
    with click.Context(group, info_name="cudabench") as context:
        name, command, rest = group.resolve_command(context, words)
        assert command is not None
        while isinstance(command, click.Group) and rest and not rest[0].startswith("-"):
            name, command, rest = command.resolve_command(click.Context(command, info_name=name), rest)
            assert command is not None
        command.make_context(name or "", rest)


@pytest.mark.parametrize("block", BLOCKS, ids=str)
def test_every_block_is_tried(block: Block) -> None:
    """Each block has a language that some test runs or parses, and names its need if it needs more than this tool."""
    assert not block.needs or block.needs in ("a GPU", *PROGRAMS, *ELSEWHERE)
    if block.language == "console":
        assert consoles.BLOCK.match(f"```console\n{block.text}```"), "it begins with `$ cudabench `"
    elif block.language == "python":
        assert block.needs or block.document.name in RUN_AS_CELLS
        compile(block.text, str(block), "exec")
    elif block.language == "yaml":
        assert [*yaml.safe_load_all(block.text)]
    elif block.language in ("cuda", "toml"):
        commands = "".join(one.text for one in OF_DOCUMENT[block.document.name] if one.language == "sh")
        assert block.file, "its first line names its file"
        assert block.file in commands, "a command takes the file"
    else:
        assert block.language == "sh"


@pytest.mark.parametrize("document", WITH_COMMANDS)
def test_commands_are_taken(document: str, tmp_path: Path) -> None:
    """A shell accepts every line of the documents, and the tool's parser accepts every command line."""
    tools, log = tmp_path / ".venv" / "bin", tmp_path / "log"
    executable(tools / "cudabench", rf"""printf '%s\n' "$@" >> {shlex.quote(str(log))}; printf '\0' >> {log}""")
    for name in OTHERS:
        executable(tools / name, "exit 0")
    (tools / "activate").touch()
    text = script(tmp_path, OF_DOCUMENT[document])
    files = [one.file for one in OF_DOCUMENT[document] if one.file.endswith(".sh")]
    done = subprocess.run(
        ["bash", "-ec", "\n".join([text, *map("sh {}".format, files)])], cwd=tmp_path, capture_output=True, text=True,
        env={"PATH": f"{tools}:{os.environ['PATH']}", "GITHUB_STEP_SUMMARY": str(tmp_path / "summary.md")},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    for words in log.read_text().split("\0")[:-1] if log.exists() else ():
        parse(words.splitlines())


def test_commands_within_sentences_are_taken() -> None:
    """The tool's parser accepts every complete command line between backticks in the text."""
    found = 0
    for document in consoles.DOCUMENTS:
        prose = consoles.FENCE.sub("", document.read_text())
        for line in re.findall(r"`cudabench ([^`]+)`", prose):
            words = shlex.split(line)
            if re.search(r"\.\.\.|\b[A-Z]{2,}", line) or words[0] in FOREIGN:
                continue
            try:
                parse(words)
            except (click.MissingParameter, click.exceptions.NoArgsIsHelpError):
                continue  # a mention of a command, not a whole command line
            except click.UsageError as error:
                pytest.fail(f"{document.name}: cudabench {line}: {error.message}")
            found += 1
    assert found > 20


@pytest.mark.slow
@pytest.mark.parametrize("document", WITH_COMMANDS)
def test_commands_run_as_printed(document: str, tmp_path: Path) -> None:
    """All commands of a page exit with 0, in order, as a reader types them."""
    blocks = [
        one for one in OF_DOCUMENT[document]
        if not one.needs or (one.needs in PROGRAMS and shutil.which(PROGRAMS[one.needs]))
    ]  # fmt: skip
    checkout(tmp_path)
    given(tmp_path, document)
    done = ran(tmp_path, "set -x\n" + script(tmp_path, blocks))
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.gpu
@pytest.mark.parametrize("document", sorted({one.document.name for one in BLOCKS if one.needs == "a GPU"}))
def test_commands_run_as_printed_on_a_gpu(document: str, tmp_path: Path) -> None:
    """The commands that need a GPU run as printed on a GPU."""
    if document == "ceilings.md" and os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1") != "1":
        pytest.skip("it compares two measurements of the card: run it without other tests beside it")
    checkout(tmp_path)
    blocks = [one for one in OF_DOCUMENT[document] if one.needs == "a GPU"]
    before = BASELINE if document == "ci.md" else ""
    summary = str(tmp_path / "summary.md")
    done = ran(tmp_path, f"set -x\n{before}" + script(tmp_path, blocks), GITHUB_STEP_SUMMARY=summary)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.slow
@pytest.mark.parametrize("name", LAUNCHES)
def test_examples_have_their_launch(name: str, tmp_path: Path) -> None:
    """The comment of each example has the command that runs and verifies it."""
    shutil.copytree(ROOT / "examples", tmp_path / "examples")
    assert f"examples/{name}" in LAUNCHES[name]
    if " exec " in LAUNCHES[name] and not shutil.which("nvcc"):
        pytest.skip("nvcc is not on PATH")
    done = ran(tmp_path, LAUNCHES[name])
    assert done.returncode == 0, done.stdout + done.stderr
    assert "all verified" in done.stdout or "5000 numbers, 0 wrong" in done.stdout
