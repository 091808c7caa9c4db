"""Finds the chapters of `kernels_cu/`: inside the package of a wheel, at the top level of a checkout."""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path

from cudabench.records.launch import Source
from cudabench.records.planned import Operation


def folder() -> Path:
    """Return the folder with the chapters."""
    package = Path(__file__).parent.parent
    inside = package / "kernels_cu"
    return inside if inside.is_dir() else package.parent / "kernels_cu"


def ideas(operation: Operation, *, whole: bool = False) -> dict[str, str]:
    """Return the first sentence of each kernel of a ladder by the kernel's name, in order, without detours; with
    `whole` the whole comments, with detours. Empty without a chapter."""
    from cudabench.source.comments import first_sentence
    from cudabench.source.files import parse_text

    if operation.source != f"{operation.name}.cu":
        return {}
    parsed = parse_text(read(operation.source).text, operation.source)
    said = {kernel.name: kernel.comment if whole else first_sentence(kernel.comment) for kernel in parsed.kernels}
    return {
        kernel.name: said[kernel.function]
        for kernel in operation.kernels
        if (whole or not kernel.detour) and kernel.function in said
    }


def read(name: str) -> Source:
    """Return a chapter, named as messages show it."""
    path = folder() / name
    file = path.stat()
    return Source(f"kernels_cu/{name}", _text(path, file.st_mtime_ns, file.st_size))


@lru_cache(maxsize=32)  # each kernel of a ladder needs it
def _text(path: Path, changed_ns: int, nbytes: int) -> str:
    """Return a file's text; its time of change and its size identify the version."""
    return path.read_text(encoding="utf-8")
