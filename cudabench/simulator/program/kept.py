"""Keeps decoded kernels in the user's cache, so that later commands need not decode them again.

A kernel is kept in the form that the C++ engine needs: its ops have no functions. Before the NumPy engine runs such a
kernel, `complete` decodes it again.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Mapping
from functools import lru_cache
from operator import attrgetter
from pathlib import Path
from typing import Any

from cudabench.compile import cache
from cudabench.simulator.program.code import Block, Code, Op
from cudabench.simulator.program.ptx import Function, Location
from cudabench.system import native

KIND = "decoded"
LEAST_OPS = 64  # a kernel with fewer instructions is decoded faster than its file is found
# Keys in `Code.encoded`: the name under which the kernel is kept; whether its ops lack their functions.
NAME, BARE = "name in the cache", "ops have no functions"
_SIMULATOR = Path(__file__).parent.parent
_FOLDERS = (_SIMULATOR, *(_SIMULATOR / name for name in ("isa", "program", "check", "count", "native")))


def name_of(text: str, kernel: str, symbols: Mapping[str, int]) -> str | None:
    """Return the name under which a kernel is kept, or None without the C++ engine.

    text: the PTX; symbols: the addresses of its module variables.
    """
    library = native.library()
    if library is None or not text:
        return None
    version = cache.version(*_FOLDERS), library._name, os.stat(library._name).st_mtime_ns
    return hashlib.sha256(repr((digest_of(text), kernel, sorted(symbols.items()), version)).encode()).hexdigest()


@lru_cache(4)
def digest_of(text: str) -> bytes:
    """Return the hash of PTX, which all kernels of a module share."""
    return hashlib.sha256(text.encode()).digest()


def read(name: str | None) -> tuple[Code, Function] | None:
    """Return a kept kernel and its function, which has no body; None if the cache lacks it or cannot be used."""
    found = cache.unpickled(KIND, name)
    if found is None:
        return None
    code, blocks, function = found
    return code._replace(blocks=[*map(_block, blocks)], encoded={**code.encoded, NAME: name, BARE: True}), function


def write(code: Code, function: Function) -> None:
    """Keep a kernel whose `encoded` holds what the C++ engine needs."""
    name = code.encoded.pop(NAME, None)
    if name is None or BARE in code.encoded or sum(len(block.ops) for block in code.blocks) < LEAST_OPS:
        return
    encoded = {key: value for key, value in code.encoded.items() if isinstance(key, str)}
    bare = code._replace(blocks=[], encoded=encoded, sampling_history={})
    cache.pickled(KIND, name, (bare, [*map(_fields, code.blocks)], function._replace(body=None)))


def complete(code: Code, decode: Callable[[], Code]) -> None:
    """Give the ops of a kept kernel their functions again; decode: a function that decodes the kernel."""
    if code.encoded.pop(BARE, False):
        whole = decode()
        code.blocks[:], code.initial[:] = whole.blocks, whole.initial


# Plain tuples are read several times faster than objects.
_of_op = attrgetter(
    "kind", "line", "opcode", "guard", "inverted", "defs", "uses", "targets", "selector", "address", "offset",
    "function", "pointer",
)  # fmt: skip
_of_block = attrgetter("number", "successors", "live", "weight", "rank", "lines")


def _fields(block: Block) -> tuple[Any, ...]:
    """Return what is kept of a basic block."""
    ops = [(kind, tuple(line), *rest) for kind, line, *rest in map(_of_op, block.every)]
    return _of_block(block), ops, block.terminator is not None


def _block(fields: tuple[Any, ...]) -> Block:
    """Return a basic block from the value of `_fields`."""
    (number, *rest), rows, ends = fields
    ops = [
        Op(None, kind, Location(*line), opcode, guard, inverted, defs, uses, (), targets, selector, address, offset,
           None, None, function, pointer)
        for kind, line, opcode, guard, inverted, defs, uses, targets, selector, address, offset, function, pointer
        in rows
    ]  # fmt: skip
    return Block(number, ops, ops.pop() if ends else None, *rest)
