"""Fat binaries: containers with the PTX and the machine code of several architectures.

A container has a header of 16 bytes (magic, version, header size, size of the entries), and then entries. Each entry
has its own header: kind, header size, content size, stored size, architecture, flags.
"""

from __future__ import annotations

import ctypes
import struct
from collections.abc import Iterator
from operator import itemgetter
from typing import NamedTuple

from cudabench.compile import cubin as cubins
from cudabench.programs.link import link

MAGIC, ELF = 0xBA55ED50, b"\x7fELF"
PTX_KIND, ELF_KIND = 1, 2
_HEADER = struct.Struct("<IHHQ")
# an entry's header up to the field with the uncompressed size; the later fields are not needed
_ENTRY = struct.Struct("<HHIQIIHHIIIQQQ")
LZ4, ZSTD = 0x2000, 0x8000
REBUILD = "build the program with cudabench-nvcc, or by nvcc with --no-compress"


class Entry(NamedTuple):
    """The PTX or the machine code for one architecture; `kind`: PTX_KIND or ELF_KIND; `architecture`: 90 for sm_90."""

    kind: int
    architecture: int
    content: bytes


def entries(image: bytes) -> list[Entry]:
    """Return the entries of one container, or of several that follow each other.

    Raises LookupError for compressed content that this machine cannot decompress.
    """
    parsed: list[Entry] = []
    at = 0
    while at + _HEADER.size <= len(image):
        magic, _, header, nbytes = _HEADER.unpack_from(image, at)
        if magic != MAGIC:
            at += 8  # skips the padding between two containers
            continue
        parsed += _entries(image, at + header, at + header + nbytes)
        at += header + nbytes
    return parsed


def _entries(image: bytes, at: int, end: int) -> Iterator[Entry]:
    while at + _ENTRY.size <= end:
        kind, _, header, nbytes, stored, _, _, _, architecture, _, _, flags, _, plain = _ENTRY.unpack_from(image, at)
        content = image[at + header : at + header + nbytes]
        if flags & (LZ4 | ZSTD):
            content = _decompressed(content[: stored or nbytes], plain, flags)
        if kind in (PTX_KIND, ELF_KIND):
            yield Entry(kind, architecture, content)
        at += header + nbytes


def _decompressed(content: bytes, nbytes: int, flags: int) -> bytes:
    """Decompress an entry's content to `nbytes` bytes; `flags` name the compression."""
    if flags & LZ4:
        return _lz4(content, nbytes)
    try:
        # nearly every Linux has this library; Python has a zstd module only from version 3.14 on
        library = ctypes.CDLL("libzstd.so.1")
    except OSError:
        raise LookupError(f"its device code is compressed by zstd: {REBUILD}") from None
    buffer = ctypes.create_string_buffer(nbytes)
    library.ZSTD_decompress.restype = ctypes.c_size_t
    library.ZSTD_decompress.argtypes = [ctypes.c_char_p, ctypes.c_size_t, ctypes.c_char_p, ctypes.c_size_t]
    if library.ZSTD_decompress(buffer, nbytes, content, len(content)) != nbytes:
        raise LookupError(f"its device code cannot be unpacked: {REBUILD}")
    return buffer.raw


def _lz4(content: bytes, nbytes: int) -> bytes:
    """Decompress an LZ4 block to `nbytes` bytes."""
    output, at = bytearray(), 0

    def length(number: int) -> int:
        nonlocal at
        while number >= 15:
            at += 1
            number += content[at - 1]
            if content[at - 1] != 255:
                break
        return number

    while at < len(content):
        token, at = content[at], at + 1
        literals = length(token >> 4)
        output += content[at : at + literals]
        at += literals
        if at >= len(content) or len(output) >= nbytes:
            break
        back, at = content[at] | content[at + 1] << 8, at + 2
        count = length(token & 15) + 4
        piece = output[len(output) - back :][:count]
        output += (piece * (count // len(piece) + 1))[:count]
    return bytes(output)


def choose_code(image: bytes, architecture: str) -> tuple[str, bytes | None]:
    """Return (PTX for the simulator, machine code for the architecture or None) from an image that a program loads.

    The image can be containers, machine code or PTX; `architecture` is like sm_90. If the image has the PTX of several
    translation units, their PTX is linked to one text, and there is no machine code. Raises LookupError without PTX.
    """
    number = int("".join(filter(str.isdigit, architecture)) or 0)
    if image.startswith(ELF):
        parsed = [Entry(ELF_KIND, number, image)]
    elif image[:4] == MAGIC.to_bytes(4, "little"):
        parsed = entries(image)
    else:
        parsed = [Entry(PTX_KIND, number, image)]
    own = next((entry.content for entry in parsed if entry.kind == ELF_KIND and entry.architecture == number), None)
    texts = [(abs(entry.architecture - number), entry.content) for entry in parsed if entry.kind == PTX_KIND]
    texts.sort(key=itemgetter(0))
    # This PTX is preferred to the PTX that machine code contains, because that copy lacks the source lines.
    nearest = [content.rstrip(b"\0").decode("utf-8", "replace") for far, content in texts if far == texts[0][0]]
    if len(nearest) > 1:
        return link(nearest), None
    text = nearest[0] if nearest else ""
    if not text.strip():
        text = next((cubins.ptx(entry.content) for entry in parsed if entry.kind == ELF_KIND), "")
    if not text.strip():
        raise LookupError("the machine code carries no PTX, which the simulator needs: compile with -lineinfo")
    return text, own
