"""CUDA source text into records: the kernels of a file, their signatures and the comments above them.

This is a reader, not a compiler. It sees the text before the preprocessor does, so a kernel that a macro writes is
invisible to it; everything that the compiler would have to judge (types, overload resolution) is left to the compiler.
This module is the way in. The reading goes from `tokens` over `signatures` to `kernels`; `named` picks one of them.
"""

from __future__ import annotations

import codecs
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from cudabench.errors import CudabenchError, no_such_file
from cudabench.reading import open_bytes
from cudabench.toolchain import includes, preprocess
from cudabench.toolchain.c_types import numpy_dtype, vector_type
from cudabench.toolchain.comments import first_sentence
from cudabench.toolchain.kernels import KernelSource, SourceFile, parse
from cudabench.toolchain.named import find
from cudabench.toolchain.record import Job
from cudabench.toolchain.signatures import Parameter, pointer_resolved

__all__ = [
    "KernelSource",
    "Parameter",
    "SourceFile",
    "find",
    "first_sentence",
    "numpy_dtype",
    "parse",
    "preprocessed",
    "read",
    "resolved",
    "text_of",
    "vector_type",
    "without_kernels",
]

MOST_BYTES = 16 << 20  # of a source file


def read(path: str | Path) -> SourceFile:
    """Read and parse a file; CudabenchError where it is missing, a directory, unreadable or no text.

    The headers that it includes from its own folder count as read by this command line, too.
    """
    text = text_of(path)
    includes.read(Job(text, str(path), "", (), (str(Path(path).parent),), ()))
    return parse(text, path)


def text_of(path: str | Path) -> str:
    """Return the text of a file; errors as of `read`.

    What is not UTF-8 is taken as Latin-1, whose every byte is a character: such bytes stand in comments and strings.
    """
    path = Path(path)
    try:
        with open_bytes(path) as stream:
            raw = stream.read(MOST_BYTES + 1)
    except FileNotFoundError:
        raise no_such_file(path, "*.cu") from None
    except IsADirectoryError:
        raise CudabenchError(f"{path} is a directory: name a .cu file in it.") from None
    except OSError as error:
        raise CudabenchError(f"{path} cannot be read: {error.strerror or error}.") from None
    if len(raw) > MOST_BYTES:
        raise CudabenchError(f"{path} has over {MOST_BYTES >> 20} MiB: that is no source file.")
    if raw.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        raise CudabenchError(f"{path} is written in UTF-16, which no compiler of CUDA's reads: save it as UTF-8.")
    try:
        text = raw.decode("utf-8-sig")
    except UnicodeDecodeError:
        text = raw.decode("latin-1")
    if "\0" in text:
        raise CudabenchError(f"{path} is not a source file: it holds NUL bytes.")
    return text


def preprocessed(source: SourceFile, defines: Mapping[str, str], folders: Sequence[str | Path] = ()) -> SourceFile:
    """Return a file as the compiler reads it: with the kernels and types that macros, conditions and headers bring.

    `defines` are macros of the command line; the user's own headers are found beside the file and in `folders`. Its
    text is the preprocessor's. Where that leaves no kernel, or its work has no bounds, the file's own reading stands.
    """
    text = preprocess.expand(source.text, source.path, defines, folders)
    found = parse(text, source.path) if text is not None else source
    if not found.kernels:
        return source
    written = {kernel.qualified_name: kernel for kernel in source.kernels}
    kernels = tuple(
        replace(kernel, comment=own.comment, line=own.line) if (own := written.get(kernel.qualified_name)) else kernel
        for kernel in found.kernels
    )
    kernels = tuple(sorted(kernels, key=lambda kernel: kernel.qualified_name not in written))  # headers' behind its own
    return replace(found, kernels=kernels, aliases={**source.aliases, **found.aliases})


def resolved(kernel: KernelSource, aliases: Mapping[str, str]) -> KernelSource:
    """Return a kernel whose parameters are pointers where their type is another name of one, a typedef or a trait."""
    return replace(kernel, parameters=tuple(pointer_resolved(parameter, aliases) for parameter in kernel.parameters))


def without_kernels(text: str, keep: Collection[str]) -> str:
    """Return a file's text with nothing in place of the kernels that are not called so; all else keeps its line."""
    for kernel in reversed(parse(text, "").kernels):
        if kernel.name not in keep:
            gone = text[kernel.start : kernel.end]
            text = text[: kernel.start] + "\n" * gone.count("\n") + text[kernel.end :]
    return text
