"""`--const NAME=...`: the `__constant__` variables of a source, which host code would set before the launch."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from cudabench.errors import UsageError, did_you_mean
from cudabench.plan import constants as macros
from cudabench.plan.constants import Constants, NotANumber
from cudabench.toolchain import reached, source
from cudabench.toolchain.source import KernelSource, SourceFile
from cudabench.toolchain.tokens import Scan, opens_scope, spell, split
from cudabench.userkernel import arguments, expressions, inits
from cudabench.userkernel.by_value import layout_of
from cudabench.userkernel.pointers import uniform_struct
from cudabench.userkernel.values import Array, load, numbers_of

FIRST_STREAM = 1 << 20  # of random numbers, beyond those of the arguments

_CONSTANT = re.compile(r"\b(?:const|constexpr)\b[^;=(){}]*\b(\w+)\s*[={]\s*([\w\s()+*/-]+?)\s*[;,}]")
_SPECIFIERS = frozenset(
    ["__constant__", "static", "const", "volatile", "extern", "struct", "__device__", "constexpr", "inline"]
)


def declared(file: SourceFile) -> dict[str, tuple[str, str, bool]]:
    """Return the `__constant__` variables of a file by name: type, extents as written, whether they start as
    something."""
    scan = Scan(file.text)
    scan.leave_out(scan.hidden_spans())
    found: dict[str, tuple[str, str, bool]] = {}
    position = 0
    while position < len(scan.words):
        words, stop = scan.head(position)
        brace = stop < len(scan.words) and scan.words[stop] == "{"
        if "__constant__" in words and "__global__" not in words:
            found.update(_variables(words, brace))
        scope = brace and opens_scope(words)
        position = (scan.matching(stop) if brace and not scope else stop) + 1
    return found


def _variables(words: list[str], brace: bool) -> Iterator[tuple[str, tuple[str, str, bool]]]:
    """The variables of one declaration: `__constant__ float a[4][4], b = 1` up to its ';' or its '{'."""
    parts = split(words, ",")
    ctype = ""
    for at, part in enumerate(parts):
        starts = "=" in part or (brace and at == len(parts) - 1)
        part = part[: part.index("=")] if "=" in part else part
        part = part[: part.index("(")] if "(" in part and at else part
        cut = part.index("[") if "[" in part else len(part)
        named = [word for word in part[:cut] if word not in _SPECIFIERS]
        while "__align__" in named or "alignas" in named:
            word = next(word for word in named if word in ("__align__", "alignas"))
            opening = named.index(word)
            del named[opening : opening + 4]
        if not named or not re.fullmatch(r"[^\W\d]\w*", named[-1]):
            continue
        ctype = ctype if at else spell(named[:-1])
        yield named[-1], (ctype, "".join(part[cut:]), starts)


def read(
    texts: Sequence[str], file: SourceFile, aliases: Mapping[str, str], numbers: Mapping[str, Any]
) -> tuple[Array, ...]:
    """Return the variables that --const sets, each as an array. Raises UsageError for an unknown name."""
    known = declared(file)
    made: list[Array] = []
    for text in texts:
        name, value = arguments.named(text, "--const", "'c=float32[16]:random', c=@c.npy or c=2.5")
        where = f"--const {name}={value}"
        plain = name.rpartition("::")[2]
        if plain not in known:
            have = ", ".join(known) or "none"
            raise UsageError(f"{where}: {file.path} has no __constant__ variable '{name}', it has {have}."
                             f"{did_you_mean(plain, known)}")  # fmt: skip
        if name in [one.name for one in made]:
            raise UsageError(f"--const {name}=... is given twice: keep one.")
        made.append(_one(name, value, known[plain][0], known[plain][1], where, aliases, numbers, file))
    return tuple(made)


def _one(
    name: str, text: str, ctype: str, extents: str, where: str, aliases: Mapping[str, str], numbers: Mapping[str, Any],
    file: SourceFile,
) -> Array:  # fmt: skip
    if text.startswith("@"):
        array = numbers_of(load(text[1:], where))
        return Array(name, array.dtype.name, tuple(array.shape) or (1,), "file", text[1:], True)
    wanted = source.numpy_dtype(ctype, aliases)
    vector = source.vector_type(ctype, aliases)
    element = wanted or (vector[0] if vector else None)
    parts = arguments.array_parts(text)
    if parts:
        dtype, shape_text, how = parts
        arguments.check_type(dtype, where)
        if element not in (None, dtype) and ctype not in ("__nv_bfloat16", "nv_bfloat16"):
            raise UsageError(f"{where}: {name} is {ctype}{extents} in {file.path}: give {element}[...], not {dtype}.")
        shape = arguments.extents_of(shape_text, where, numbers)
        rule = inits.read(how, dtype, shape, where, numbers)
        if rule.word == "empty":
            raise UsageError(f"{where}: a constant that starts empty is poison: use random, zeros, ones or a value.")
        return Array(name, dtype, shape, rule.word, None, True, rule)
    if extents or wanted is None:
        layout = layout_of(ctype, file.text, aliases)
        size = f"uint8[{layout.size}]" if layout else "uint8[BYTES]"
        like = f"{element or size}[{re.sub(r'[^0-9,]', '', extents.replace('][', ',')) or 'N'}]" if element else size
        raise UsageError(
            f"{where}: {name} is '{ctype} {name}{''.join(extents.split())}' in {file.path}, not a single number: write "
            f"--const '{name}={like}:random' or --const {name}=@FILE.npy."
        )
    value = expressions.parse(text, where, numbers).evaluate(numbers)
    rule = inits.read(f"full({text})", wanted, (1,), where, numbers)
    del value
    return Array(name, wanted, (1,), "full", None, True, rule)


def like(name: str, file: SourceFile, aliases: Mapping[str, str]) -> str:
    """Return a value that --const would take for a variable: random contents for an array."""
    ctype, extents, _ = declared(file)[name]
    dtype, vector = source.numpy_dtype(ctype, aliases), source.vector_type(ctype, aliases)
    parts = [part for part in re.split(r"[\[\]]+", extents) if part]
    numbers = [whole_number(part, file.text, aliases) for part in parts]
    shape = ",".join(part if number is None else str(number) for part, number in zip(parts, numbers, strict=True))
    if dtype and not extents:
        return "2.5" if np.dtype(dtype).kind == "f" else "1"
    if dtype:
        return f"{dtype}[{shape}]:random"
    one, many = vector or uniform_struct(ctype, aliases) or ("", 0)
    if many:
        return f"{one}[{f'{shape},' if shape else ''}{many}]:random"
    layout = layout_of(ctype, file.text, aliases)
    return f"uint8[{f'{shape},' if shape else ''}{layout.size if layout else 'BYTES'}]:zeros"


def whole_number(words: str, text: str, aliases: Mapping[str, str]) -> int | None:
    """Return the whole number that an expression of literals, macros and constants of a text is, None for another."""

    def size(match: re.Match[str]) -> str:
        dtype = source.numpy_dtype(match[1], aliases)
        return str(np.dtype(dtype).itemsize) if dtype else match[0]

    words = re.sub(r"\bsizeof\s*\(\s*([\w ]+?)\s*\)", size, words)
    given = {name: meaning for name, meaning in aliases.items() if meaning[:1].isdigit()}  # of -D
    values = {**dict(_CONSTANT.findall(text)), **given}
    try:
        return Constants(macros.read(text), values, 0).evaluate(words)
    except NotANumber:
        return None


def contents(constants: Sequence[Array], seed: int) -> dict[str, np.ndarray]:
    """Return the variables' values."""
    return {one.name: one.make(seed, FIRST_STREAM + at) for at, one in enumerate(constants)}


def unset(file: SourceFile, kernel: KernelSource, given: Sequence[Array]) -> list[str]:
    """Return the variables that start as zeros, that a kernel or a function that it calls reads, and that --const
    leaves alone."""
    names = [name for name, (_, _, starts) in declared(file).items() if not starts]
    if not names:
        return []
    set_ = {one.name.rpartition("::")[2] for one in given}
    read_ = reached.names(file.text, kernel)
    return [name for name in names if name not in set_ and name in read_]


def options(file: SourceFile, kernel: KernelSource, given: Sequence[Array], aliases: Mapping[str, str]) -> list[str]:
    """Return `unset`, each as --const would take it."""
    return [f"{name}={like(name, file, aliases)}" for name in unset(file, kernel, given)]
