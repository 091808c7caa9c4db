"""Finds and reads the chapters: the files in `kernels_cu/` that contain the built-in kernels.

An operation has one or several chapters; `Kernel.chapter` names the chapter of a kernel. Chapters may include headers
from the same folder.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path

from cudabench.compile import includes
from cudabench.compile.record import Job
from cudabench.plan import constants
from cudabench.plan.constants import Macro
from cudabench.records.launch import Source
from cudabench.records.plan import Kernel, Operation
from cudabench.source import records
from cudabench.source.comments import first_sentence
from cudabench.source.files import read_file


def folder() -> Path:
    """Return the folder with the chapters: inside the package if it was installed, else at the top of the checkout."""
    package = Path(__file__).parent.parent
    packaged = package / "kernels_cu"
    return packaged if packaged.is_dir() else package.parent / "kernels_cu"


def names(operation: Operation) -> list[str]:
    """Return the file names of an operation's chapters, in the ladder's order."""
    return list(dict.fromkeys(name(operation, kernel) for kernel in operation.kernels))


def name(operation: Operation, kernel: Kernel) -> str:
    """Return the file name of a kernel's chapter."""
    return kernel.chapter or operation.source


def chapter_of(operation: Operation, kernel: Kernel) -> Source:
    """Return the chapter of a kernel, as a source."""
    return read_chapter(name(operation, kernel))


def read_chapter(name: str) -> Source:
    """Return the chapter with this file name, as a source."""
    path = folder() / name
    file = path.stat()
    return Source(f"kernels_cu/{name}", _text(path, file.st_mtime_ns, file.st_size), folder=str(folder()))


def functions(name: str) -> dict[str, records.Kernel]:
    """Return the kernels of a chapter, then those of its headers, by function name."""
    return {kernel.name: kernel for kernel in read_file(folder() / name).kernels}


def ideas(operation: Operation, *, whole: bool = False) -> dict[str, str]:
    """Return the comments of a ladder's kernels by kernel name, in order; {} for an operation without a chapter.

    By default, each comment is only its first sentence, and detours are left out.
    """
    if operation.source != f"{operation.name}.cu":
        return {}
    comments = {name: kernel.comment for file in names(operation) for name, kernel in functions(file).items()}
    return {
        kernel.name: comments[kernel.function] if whole else first_sentence(comments[kernel.function])
        for kernel in operation.kernels
        if (whole or not kernel.detour) and kernel.function in comments
    }


def macros(source: Source) -> Mapping[str, Macro]:
    """Return the macros of a source and of the headers that it includes, by name."""
    return constants.read_macros(with_headers(source))


def with_headers(source: Source) -> str:
    """Return the text of a source, followed by the texts of its headers."""
    return "\n".join([source.text, *headers(source).values()])


def headers(source: Source) -> Mapping[str, str]:
    """Return the texts of the headers that a source includes from its folders, by header name."""
    if "#include" not in source.text:
        return {}
    return includes.read(Job(source.text, source.name, "", (), tuple(source.folders), ())).texts


@lru_cache(maxsize=32)  # all kernels of a ladder need the same text
def _text(path: Path, changed_ns: int, nbytes: int) -> str:
    """Return a file's text. `changed_ns`, `nbytes`: only for the cache, which must not return an old text."""
    return path.read_text(encoding="utf-8")
