"""The code blocks of the documents show what the tool prints, and commands that it accepts.

Each block has a language. A comment above it, such as `<!-- needs a GPU -->`, names what the block requires.
tests/project/test_blocks.py tests each kind of block. A console block begins with `$ cudabench ...`, followed by the
output; a line of `...` stands for omitted lines. The tests run the blocks of the simulator. `benchmarks/results` has
the output of blocks that need a GPU. `python -m tests.consoles` rewrites the simulator's blocks;
`python -m tests.consoles --gpu`, on a machine with a GPU, rewrites the GPU's blocks and their records.
"""

from __future__ import annotations

import io
import os
import re
import shlex
import sys
import tempfile
import textwrap
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
RESULTS = ROOT / "benchmarks" / "results"
DOCUMENTS = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))]
PROGRESS = re.compile(r"\d+ s: \d+ of \d+ done\b")
BLOCK = re.compile(r"```console\n\$ (?P<command>cudabench .*)\n(?P<shown>(?:(?!```).*\n)*)```")
FENCE = re.compile(
    r"(?:^ *<!-- needs (?P<needs>.+) -->\n)?^ *(?P<fence>```)(?P<language>.*)\n(?P<text>(?:(?! *```).*\n)*) *```$", re.M
)


@dataclass(frozen=True)
class Console:
    """A console block: its document, its command line, and the shown output."""

    document: Path
    command: str
    shown: str

    @property
    def on_gpu(self) -> bool:
        """Whether the block shows output of a GPU."""
        return self.shown.startswith("NVIDIA")


def consoles() -> list[Console]:
    """Return the console blocks of all documents."""
    return [
        Console(document, match["command"], match["shown"])
        for document in DOCUMENTS
        for match in BLOCK.finditer(document.read_text(encoding="utf-8"))
    ]


@dataclass(frozen=True)
class Block:
    """A fenced block: document, line, language, what it needs besides this tool, and text."""

    document: Path
    line: int
    language: str
    needs: str
    text: str

    @property
    def file(self) -> str:
        """The file name in the first line, or in the line after `#!`; empty if there is none."""
        named = re.match(r"(?:#!.*\n)?(?://|#) ([\w./-]+\.(?:cu|toml|sh))(?=[:\n])", self.text)
        return named[1] if named else ""

    def __str__(self) -> str:
        return f"{self.document.name}:{self.line}"


def blocks() -> list[Block]:
    """Return the fenced blocks of all documents, in order."""
    found = []
    for document in DOCUMENTS:
        text = document.read_text(encoding="utf-8")
        for match in FENCE.finditer(text):
            line = text[: match.start("fence")].count("\n") + 1
            inner = textwrap.dedent(match["text"])
            found.append(Block(document, line, match["language"], match["needs"] or "", inner))
    return found


def printed(command: str) -> str:
    """Return what a command prints to a pipe, without progress lines and trailing blanks."""
    from cudabench import cli
    from cudabench.views import console

    console.out.cache_clear()
    out = io.StringIO()
    with redirect_stdout(out), redirect_stderr(out):
        cli.invoke(shlex.split(command)[1:])
    console.out.cache_clear()
    return "".join(f"{line.rstrip()}\n" for line in out.getvalue().splitlines() if not PROGRESS.match(line))


def agrees(shown: str, text: str) -> bool:
    """Return whether a text has the shown lines in order, with gaps only at `...`."""
    parts = re.split(r"^ ?\.\.\.\n", shown, flags=re.MULTILINE)
    return re.search(".*?".join(map(re.escape, parts)), text, re.DOTALL) is not None


def renew() -> None:
    """Write the simulator's output into the documents."""
    for document in DOCUMENTS:
        text = document.read_text(encoding="utf-8")

        def fresh(match: re.Match[str], document: Path = document) -> str:
            console = Console(document, match["command"], match["shown"])
            if console.on_gpu:
                return match[0]
            text = printed(console.command)  # a block with omitted lines stays unchanged as long as it agrees
            return match[0] if agrees(console.shown, text) else f"```console\n$ {console.command}\n{text}```"

        new = BLOCK.sub(fresh, text)
        if new != text:
            document.write_text(new, encoding="utf-8")


def renew_on_gpu() -> None:
    """Run the blocks that need a GPU, and write their output into the records and the documents."""
    for console in consoles():
        if not console.on_gpu:
            continue
        text = printed(console.command)
        if not text.startswith("NVIDIA"):
            raise SystemExit(f"{console.command} does not begin with a card: {text.partition(chr(10))[0]}")
        for record in sorted(RESULTS.glob("*.md")):
            old = record.read_text(encoding="utf-8")
            new = rerecorded(old, console.command, text)
            if new != old:
                record.write_text(new, encoding="utf-8")
        document = console.document.read_text(encoding="utf-8")
        console.document.write_text(document.replace(console.shown, reshown(console.shown, text)), encoding="utf-8")


def rerecorded(record: str, command: str, text: str) -> str:
    """Return a record with new output in the block below the command."""
    block = re.compile(rf"(^`{re.escape(command)}`\n+```\n)(?:(?!```).*\n)*", re.MULTILINE)
    return block.sub(lambda match: match[1] + text, record)


def reshown(shown: str, text: str) -> str:
    """Return the shown lines with values from a new output; lines are matched by their first words."""

    def key(line: str) -> list[str]:
        words = line.split()
        return words[:2] if words and words[0].isdigit() else words[:1]

    found = []
    for line in shown.splitlines():
        if not line.strip() or "..." in line:
            found.append(line)
            continue
        fresh = next((one for one in text.splitlines() if key(one) == key(line)), None)
        if fresh is None:
            raise SystemExit(f"The output has no line that begins like this one: {line}")
        found.append(fresh)
    return "".join(f"{line}\n" for line in found)


if __name__ == "__main__":
    os.environ["TERM"] = "dumb"
    here = os.getcwd()
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        renew_on_gpu() if "--gpu" in sys.argv[1:] else renew()
        os.chdir(here)
