"""Gets a source file, named as in `HEAD~1:k.cu`, from a git revision, with the headers that the file includes.

As in git, the path is relative to the top of the repository; after `./`, as in `HEAD~1:./k.cu`, it is relative to the
current folder. Unlike git, a path that does not exist from the top is also searched in the current folder.
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
MOST_LINKS = 8  # a chain of at most this many symbolic links is followed
_HEADERS = (".h", ".hh", ".hpp", ".hxx", ".h++", ".cuh", ".inl", ".inc", ".ipp", ".tpp", ".cu", ".def")


@dataclass(frozen=True)
class Checkout:
    """A source file on disk. `path`: the path of the file; `label`: the name that the user gave; `include`: the folders
    with headers. `root`: the folder with the revision's files, laid out as in the repository; None for a plain file.
    """

    path: str
    label: str
    include: tuple[str, ...]
    root: str | None = None


@contextlib.contextmanager
def checked_out(spec: str, include: Sequence[str] = ()) -> Iterator[Checkout]:
    """Context manager that gives the file named by `spec` (a path, or REVISION:PATH with the revision's headers).

    Folders of `include` that are in the repository are taken from the revision too. The files are written to the user's
    cache, in a folder whose name is a hash of their contents, so that the compile cache recognizes equal files; without
    a cache, in a temporary folder. Raises CudabenchError if the file, revision or repository does not exist, and
    UsageError if git is not installed.
    """
    revision, colon, path = spec.partition(":")
    if not colon or os.path.exists(spec) or not revision or not path:
        yield Checkout(spec, spec, tuple(include))
        return
    tree = _Tree(revision, spec)
    name = tree.find(path, spec)
    inside = {folder: path_inside for folder in include if (path_inside := tree.path_in_repository(folder)) is not None}
    files = tree.closure(name, list(inside.values()))
    with ExitStack() as stack:
        root = _write(files, stack)
        for path_inside in inside.values():
            os.makedirs(os.path.join(root, path_inside), exist_ok=True)
        headers = tuple(os.path.join(root, inside[folder]) if folder in inside else folder for folder in include)
        yield Checkout(os.path.join(root, name), spec, headers, root)


@contextlib.contextmanager
def user_names_in_errors(checkouts: Sequence[Checkout]) -> Iterator[None]:
    """Context manager that changes the messages of errors: a file of a revision gets the name that the user gave, in
    place of its path in the cache."""
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
    """The files of a revision in the git repository that contains the current folder.

    `entries`: git's mode and hash of each file, by its path from the repository's top folder. `top`: the top folder;
    `prefix`: the path from the top folder to the current folder.
    """

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
                "HEAD~1:k.cu; in a CI job, check out the whole history (fetch-depth: 0)."
            ) from None
        self.entries: dict[str, tuple[str, str]] = {}
        for row in _git(["-C", self.top, "ls-tree", "-r", "-z", "--full-tree", commit.strip()]).split(b"\0")[:-1]:
            head, _, path = row.partition(b"\t")
            mode, _, digest = head.decode().split(" ")
            self.entries[os.fsdecode(path)] = (mode, digest)

    def find(self, path: str, spec: str) -> str:
        """Return the path, relative to the repository's top, of a file that the user named. Raises CudabenchError."""
        in_folder = os.path.normpath(os.path.join(self.prefix, path))
        candidates = [in_folder] if path.startswith(("./", "../")) else [os.path.normpath(path), in_folder]
        for candidate in candidates:
            if self.follow_links(candidate) is not None:
                return candidate
        near = sorted(name for name in self.entries if PurePosixPath(name).name == PurePosixPath(path).name)
        hint = f" Did you mean '{spec.partition(':')[0]}:{near[0]}'?" if near else ""
        raise CudabenchError(f"{spec}: the file does not exist at that revision.{hint}")

    def path_in_repository(self, folder: str) -> str | None:
        """Return a folder's path relative to the repository's top, or None if it is outside of the repository."""
        relative = os.path.relpath(os.path.realpath(folder), os.path.realpath(self.top))
        return None if relative.startswith("..") else "" if relative == "." else relative

    def follow_links(self, path: str) -> str | None:
        """Follow symbolic links from a path, and return the path of the file, or None if the revision lacks it."""
        for _ in range(MOST_LINKS):
            kind = self.entries.get(path, ("", ""))[0]
            if kind != "120000":
                return path if kind.startswith("100") else None
            path = os.path.normpath(os.path.join(os.path.dirname(path), os.fsdecode(self.content(path))))
        return None

    def content(self, path: str) -> bytes:
        """Return the content of the file at a path; for a symbolic link, the link's target."""
        return _git(["-C", self.top, "cat-file", "blob", self.entries[path][1]])

    def closure(self, name: str, folders: Sequence[str]) -> dict[str, bytes]:
        """Return the contents of a file and of all headers that it may include, by path from the repository's top.

        Headers that are included in any branch of an #if are returned. If an #include has a macro instead of a name,
        all headers of the revision are returned.
        """
        contents: dict[str, bytes] = {}
        pending = {name}
        while pending:
            path = pending.pop()
            target = None if path in contents or path.startswith(("/", "../")) else self.follow_links(path)
            if target is None:
                continue
            contents[path] = self.content(target)
            text = re.sub(r"\\\r?\n", "", contents[path].decode("utf-8", "replace"))
            included, unclear = includes.included_names(text)
            if unclear:
                pending |= {entry for entry in self.entries if entry.endswith(_HEADERS)}
            # A header that is a symbolic link may include files from the folder of the link, or from the folder of the
            # link's target.
            neighbours = {os.path.dirname(path), os.path.dirname(target), os.path.dirname(name)}
            targets = (os.path.normpath(os.path.join(*pair)) for pair in product((*neighbours, *folders), included))
            pending |= {header for header in targets if header in self.entries}
        return contents


def _write(files: Mapping[str, bytes], stack: ExitStack) -> str:
    """Write files to a folder in the cache, or to a temporary folder that `stack` deletes; return the folder's path."""
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
    """A git command failed; the message is the first line of git's message."""


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
