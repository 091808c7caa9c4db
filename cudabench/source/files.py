"""Reads CUDA sources into records: a file with its headers, as the compiler sees it, or a text alone."""

from __future__ import annotations

import codecs
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path

from cudabench.errors import CudabenchError
from cudabench.source import clang_parse
from cudabench.source.records import SourceFile, Task
from cudabench.system.reading import content

MOST_BYTES = 16 << 20  # the largest size of a source file


def read_file(
    path: str | Path,
    defines: Mapping[str, str] | None = None,
    folders: Sequence[str | Path] = (),
    std: str | None = None,
) -> SourceFile:
    """Read a file as the compiler does: with macros, conditions and the user's headers.

    `defines`: macros of the command line. Headers are searched beside the file and in `folders`, and are registered as
    files that this command reads. Raises CudabenchError for a missing or unreadable file, a directory, or a file that
    is not text.
    """
    task = Task(
        str(path), text_of(path).replace("\r\n", "\n"), str(Path(path).parent), tuple(map(str, folders)),
        tuple((defines or {}).items()), std,
    )  # fmt: skip
    return clang_parse.read(task).file


def parse_text(text: str, path: str | Path) -> SourceFile:
    """Return the declarations of a text; its includes are not read, and `path` is only recorded."""
    return clang_parse.read(Task(str(path), text.replace("\r\n", "\n"))).file


def text_of(path: str | Path) -> str:
    """Return the text of a file. Raises as `read_file`.

    A file that is not UTF-8 is read as Latin-1, in which every byte is a character. This does no harm, because such
    bytes occur only in comments and strings.
    """
    path = Path(path)
    raw = content(path, "*.cu", "a .cu file", MOST_BYTES, f"has over {MOST_BYTES >> 20} MiB: a source file has less.")
    if raw.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        raise CudabenchError(f"{path} is written in UTF-16, which CUDA's compilers cannot read: save it as UTF-8.")
    try:
        text = raw.decode("utf-8-sig")
    except UnicodeDecodeError:
        text = raw.decode("latin-1")
    if "\0" in text:
        raise CudabenchError(f"{path} is not a source file: it holds NUL bytes.")
    return text


def without_kernels(text: str, keep: Collection[str]) -> str:
    """Return a file's text with only those kernels whose names are in `keep`; all other text keeps its line."""
    kernels = parse_text(text, "").kernels
    # kernels that one macro makes have the same position, so positions are compared, not names
    kept = {(kernel.start, kernel.end) for kernel in kernels if kernel.name in keep}
    for start, end in sorted({(kernel.start, kernel.end) for kernel in kernels} - kept, reverse=True):
        text = text[:start] + "\n" * text.count("\n", start, end) + text[end:]
    return text
