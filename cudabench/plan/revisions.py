"""A source file at a git revision, `HEAD~1:k.cu`, with the headers that it includes.

Names are git's: a path is relative to the top of the repository or, with `./` before it, to this folder, as in
`HEAD~1:./k.cu`. A path that does not exist at the top is searched in this folder too.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import subprocess
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from itertools import product
from pathlib import Path, PurePosixPath

from cudabench.compile import cache, includes
from cudabench.errors import CudabenchError, UsageError, no_such_file
from cudabench.system.folders import cache_folder

TIMEOUT_S = 60
MOST_LINKS = 8  # links in a chain to a header
_HEADERS = (".h", ".hh", ".hpp", ".hxx", ".h++", ".cuh", ".inl", ".inc", ".ipp", ".tpp", ".cu", ".def")


@dataclass(frozen=True)
class Checkout:
    """A source file on disk: its path, the user's name of it, and its folders of headers.

    root: the folder that replaces the top of the repository; None for a plain file.
    """

    path: str
    label: str
    include: tuple[str, ...]
    root: str | None = None


@contextlib.contextmanager
def checked_out(spec: str, include: Sequence[str] = ()) -> Iterator[Checkout]:
    """Give the file of `spec`: a path, or REVISION:PATH with the headers of that revision.

    Folders of `include` in the repository are taken from the revision too. Files of a revision are kept in the user's
    cache, by their content, so that compiled results are found again; without a cache, in a temporary folder.

    Raises CudabenchError for a missing file, revision or repository, UsageError if git is not installed.
    """
    revision, colon, path = spec.partition(":")
    if not colon or os.path.exists(spec) or not revision or not path:
        yield Checkout(spec, spec, tuple(include))
        return
    tree = _Tree(revision, spec)
    name = tree.find(path, spec)
    inside = {folder: path_inside for folder in include if (path_inside := tree.inside(folder)) is not None}
    files = tree.closure(name, list(inside.values()))
    with ExitStack() as stack:
        root = _written(files, stack)
        for path_inside in inside.values():
            os.makedirs(os.path.join(root, path_inside), exist_ok=True)
        headers = tuple(os.path.join(root, inside[folder]) if folder in inside else folder for folder in include)
        yield Checkout(os.path.join(root, name), spec, headers, root)


@contextlib.contextmanager
def named_as_given(checkouts: Sequence[Checkout]) -> Iterator[None]:
    """Let errors use the user's names of a revision's files and headers, not their places in the cache."""
    try:
        yield
    except CudabenchError as error:
        message = str(error)
        for checkout in checkouts:
            if checkout.root is not None:
                message = message.replace(checkout.path, checkout.label)
                message = message.replace(f"{checkout.root}{os.sep}", f"{checkout.label.partition(':')[0]}:")
        raise type(error)(message) if message != str(error) else error from None


class _Tree:
    """The files of a revision of this folder's repository: kind and hash by path from the top."""

    def __init__(self, revision: str, spec: str) -> None:
        try:
            self.top, self.prefix = _git(["rev-parse", "--show-toplevel", "--show-prefix"]).decode().split("\n")[:2]
        except _GitError as error:
            raise (
                no_such_file(spec, "*.cu")
                if not os.path.isdir(".git") and "not a git repository" in str(error)
                else CudabenchError(f"{spec} cannot be read: {error}.")
            ) from None
        try:
            commit = _git(["rev-parse", "--verify", "--quiet", "--end-of-options", f"{revision}^{{commit}}"]).decode()
        except _GitError:
            raise CudabenchError(
                f"{spec}: '{revision}' is not a revision of {self.top}: write a commit, branch or tag, as in "
                "HEAD~1:k.cu."
            ) from None
        self.entries: dict[str, tuple[str, str]] = {}
        for row in _git(["-C", self.top, "ls-tree", "-r", "-z", "--full-tree", commit.strip()]).split(b"\0")[:-1]:
            head, _, path = row.partition(b"\t")
            mode, _, digest = head.decode().split(" ")
            self.entries[os.fsdecode(path)] = (mode, digest)

    def find(self, path: str, spec: str) -> str:
        """Return the path from the top of a file that the user named."""
        in_folder = os.path.normpath(os.path.join(self.prefix, path))
        candidates = [in_folder] if path.startswith(("./", "../")) else [os.path.normpath(path), in_folder]
        for candidate in candidates:
            if self.followed(candidate) is not None:
                return candidate
        near = sorted(name for name in self.entries if PurePosixPath(name).name == PurePosixPath(path).name)
        hint = f" Did you mean '{spec.partition(':')[0]}:{near[0]}'?" if near else ""
        raise CudabenchError(f"{spec}: the file does not exist at that revision.{hint}")

    def inside(self, folder: str) -> str | None:
        """Return a folder's path from the top, or None outside of the repository."""
        relative = os.path.relpath(os.path.realpath(folder), os.path.realpath(self.top))
        return None if relative.startswith("..") else "" if relative == "." else relative

    def followed(self, path: str) -> str | None:
        """Return the file that a path leads to through links, or None outside of the tree."""
        for _ in range(MOST_LINKS):
            kind = self.entries.get(path, ("", ""))[0]
            if kind != "120000":
                return path if kind.startswith("100") else None
            path = os.path.normpath(os.path.join(os.path.dirname(path), os.fsdecode(self.content(path))))
        return None

    def content(self, path: str) -> bytes:
        """Return the tree's content at a path."""
        return _git(["-C", self.top, "cat-file", "blob", self.entries[path][1]])

    def closure(self, name: str, folders: Sequence[str]) -> dict[str, bytes]:
        """Return the contents of a file and of all its includes, by path from the top.

        Both branches of a condition are followed. If a text has a computed include, all headers are taken.
        """
        contents: dict[str, bytes] = {}
        pending = {name}
        while pending:
            path = pending.pop()
            target = None if path in contents or path.startswith(("/", "../")) else self.followed(path)
            if target is None:
                continue
            contents[path] = self.content(target)
            included, unclear = includes.names_in(re.sub(r"\\\r?\n", "", contents[path].decode("utf-8", "replace")))
            if unclear:
                pending |= {entry for entry in self.entries if entry.endswith(_HEADERS)}
            # A header behind a link may include neighbours of the link or of the target.
            neighbours = {os.path.dirname(path), os.path.dirname(target), os.path.dirname(name)}
            targets = (os.path.normpath(os.path.join(*pair)) for pair in product((*neighbours, *folders), included))
            pending |= {header for header in targets if header in self.entries}
        return contents


def _written(files: Mapping[str, bytes], stack: ExitStack) -> str:
    """Write files into a folder and return it."""
    cache_root = cache_folder()
    digest = hashlib.sha256(repr(sorted((p, hashlib.sha256(c).digest()) for p, c in files.items())).encode())
    if cache_root is not None:
        folder = cache_root / "revisions" / digest.hexdigest()[:32]
        with contextlib.suppress(OSError):
            _fill(folder, files)
            return str(folder)
    temporary = stack.enter_context(tempfile.TemporaryDirectory(prefix="cudabench-"))
    _fill(Path(temporary), files)
    return temporary


def _fill(folder: Path, files: Mapping[str, bytes]) -> None:
    for path, content in files.items():
        target = folder / path
        if target.is_symlink() or not target.is_file() or target.read_bytes() != content:
            cache.put(target, content)


class _GitError(Exception):
    """The first line of git's error."""


def _git(arguments: Sequence[str]) -> bytes:
    try:
        process = subprocess.run(
            ["git", *arguments], capture_output=True, timeout=TIMEOUT_S, env={**os.environ, "LC_ALL": "C"}
        )
    except FileNotFoundError:
        raise UsageError("git is not installed, so revisions cannot be read: give two files.") from None
    except subprocess.TimeoutExpired:
        raise CudabenchError(f"git {arguments[0]} took longer than {TIMEOUT_S} s: try again.") from None
    if process.returncode:
        lines = process.stderr.decode(errors="replace").strip().splitlines()
        raise _GitError(lines[0].removeprefix("fatal: ") if lines else f"exit code {process.returncode}")
    return process.stdout
