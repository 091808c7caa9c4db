"""Runs command lines of a tree's `cudabench` in a separate folder."""

from __future__ import annotations

import gzip
import json
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent
DATA = HERE / "data"

# Text that differs between runs, machines and versions.
PLACEHOLDERS = (
    (r"(?<=cudabench )\d+\.\d+\.\d+\w*|(?<=cudabench, version )\S+", "VERSION"),
    (r'(?<="name": "cudabench",)(\s+"version": )"[^"]+"', r'\1"VERSION"'),
    (r"\b\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d[\d.:+Z-]*", "UTC"),
    (r"NVRTC \d+\.\d+|(?<=nvrtc )\d+\.\d+", "NVRTC"),
    (r"(?m)^\d+ s: .*\n", ""),  # progress lines of a long run
)


@dataclass(frozen=True)
class Ran:
    """The exit code and output of a command line."""

    code: int
    out: str
    err: str


class Shell:
    """Runs command lines of the `cudabench` in a tree, from a folder with the files that they name.

    The folder has the examples, `files/`, the frozen results files under their names, and this checkout's corpora, so
    that the inputs are the same for every tree.
    """

    def __init__(self, tree: Path, folder: Path) -> None:
        self.tree, self.folder = tree, folder
        self._documents: dict[tuple[str, ...], Any] = {}
        for name, place in (
            ("examples", ROOT / "examples"),
            ("files", HERE / "files"),
            ("corpus", ROOT / "tests" / "corpus"),
        ):
            (folder / name).symlink_to(place)
        (folder / "results").mkdir()
        for path in sorted((DATA / "results").glob("*.gz")):
            (folder / "results" / path.stem).write_bytes(gzip.decompress(path.read_bytes()))
        (folder / "shards").mkdir()
        for path in (folder / "results").glob("shard*.json"):
            (folder / "shards" / path.name).symlink_to(path)
        foreign = ("CUDABENCH_", "GITHUB_", "SLURM_")
        environment = {key: text for key, text in os.environ.items() if not key.startswith(foreign)}
        environment.pop("FORCE_COLOR", None)
        environment |= {"PYTHONPATH": str(tree), "COLUMNS": "80", "NO_COLOR": "1", "TERM": "dumb", "LC_ALL": "C.UTF-8"}
        # This checkout uses the tests' cache; another tree has its own, so that it does not find this checkout's
        # compiles.
        cache = os.environ.get("CUDABENCH_CACHE") if tree == ROOT else None
        environment["CUDABENCH_CACHE"] = cache or str(folder / "cache")
        if tree != ROOT and (tree / "cudabench" / "system" / "native.py").exists():
            build = [sys.executable, "-m", "cudabench.system.native"]
            subprocess.run(build, cwd=tree, env=environment, capture_output=True, check=False)
        self._server = subprocess.Popen(
            [sys.executable, str(HERE / "serve.py")],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=folder, env=environment,
        )  # fmt: skip
        assert str(tree) in self._answer(), f"the cudabench of {tree} is not the first on the path"

    def _answer(self) -> Any:
        assert self._server.stdout is not None
        return json.loads(self._server.stdout.readline())

    def run(self, *words: object) -> Ran:
        """Run a command line."""
        assert self._server.stdin is not None
        self._server.stdin.write(json.dumps([str(word) for word in words]) + "\n")
        self._server.stdin.flush()
        return Ran(*self._answer())

    def document(self, *words: object) -> Any:
        """Return the results file that a command line writes, or its exit code and message if it writes none."""
        key = tuple(map(str, words))
        if key not in self._documents:
            path = self.folder / "document.json"
            path.unlink(missing_ok=True)
            ran = self.run(*words, "--json", path)
            self._documents[key] = (
                json.loads(path.read_text()) if path.exists() else {"refused": [ran.code, self.plain(ran.err).strip()]}
            )
        return self._documents[key]

    def plain(self, text: str) -> str:
        """Return printed text with placeholders for paths, versions and times."""
        text = text.replace(str(self.folder), "FOLDER").replace(str(self.tree), "TREE").replace(str(ROOT), "TREE")
        for pattern, word in PLACEHOLDERS:
            text = re.sub(pattern, word, text)
        return "".join(line.rstrip() + "\n" for line in text.splitlines())

    def close(self) -> None:
        """End the process."""
        self._server.communicate()


@contextmanager
def shell(tree: Path = ROOT) -> Iterator[Shell]:
    """Yield a shell of a tree."""
    with tempfile.TemporaryDirectory(prefix="frozen-") as folder:
        made = Shell(tree.resolve(), Path(folder).resolve())
        try:
            yield made
        finally:
            made.close()


@contextmanager
def checkout(revision: str) -> Iterator[Path]:
    """Yield the tree of a git revision."""
    with tempfile.TemporaryDirectory(prefix="frozen-") as folder:
        tree = Path(folder).resolve() / "tree"
        git = ["git", "-C", str(ROOT), "worktree"]
        subprocess.run([*git, "add", "--quiet", "--detach", str(tree), revision], check=True)
        try:
            yield tree
        finally:
            subprocess.run([*git, "remove", "--force", str(tree)], check=True)
