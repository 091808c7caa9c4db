"""Types as C spells them, and the NumPy types that have their bits."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping

from cudabench.source.words import spell, words_of

_DTYPES = {
    "float": "float32",
    "double": "float64",
    "bool": "bool",
    "half": "float16",
    "__half": "float16",
    "char": "int8",
    "signed char": "int8",
    "unsigned char": "uint8",
    "short": "int16",
    "unsigned short": "uint16",
    "int": "int32",
    "unsigned": "uint32",
    # CUDA on 64-bit Linux: long has 8 bytes (on Windows 4).
    "long": "int64",
    "unsigned long": "uint64",
    "long long": "int64",
    "unsigned long long": "uint64",
    "size_t": "uint64",
    "ptrdiff_t": "int64",
    "ssize_t": "int64",
    "intptr_t": "int64",
    "uintptr_t": "uint64",
    "clock_t": "int64",
    "time_t": "int64",
    "off_t": "int64",
    "intmax_t": "int64",
    "uintmax_t": "uint64",
    "uchar": "uint8",
    "ushort": "uint16",
    "uint": "uint32",
    "ulong": "uint64",
    "u_char": "uint8",
    "u_short": "uint16",
    "u_int": "uint32",
    "u_long": "uint64",
    **{f"u_int{bits}_t": f"uint{bits}" for bits in (8, 16, 32, 64)},
    "cuComplex": "complex64",
    "cuFloatComplex": "complex64",
    "cuDoubleComplex": "complex128",
    "cufftReal": "float32",
    "cufftDoubleReal": "float64",
    "cufftComplex": "complex64",
    "cufftDoubleComplex": "complex128",
    **dict.fromkeys(("c10::Half", "at::Half", "torch::Half"), "float16"),
    **{f"{u}int{bits}_t": f"{u}int{bits}" for u in ("", "u") for bits in (8, 16, 32, 64)},
}
# Names that say more than what they stand for: numbers of two parts, and handles that are whole numbers.
NAMED = frozenset(
    [
        *(name for name, dtype in _DTYPES.items() if dtype.startswith("complex")),
        "cudaTextureObject_t", "cudaSurfaceObject_t", "CUtensorMap",
    ]
)  # fmt: skip
# How many bytes a number of each has.
BYTES = {
    "bool": 1, "int8": 1, "uint8": 1, "int16": 2, "uint16": 2, "float16": 2, "int32": 4, "uint32": 4, "float32": 4,
    "int64": 8, "uint64": 8, "float64": 8,
}  # fmt: skip
SPECIFIERS = frozenset(
    ["signed", "unsigned", "char", "short", "int", "long", "float", "double", "bool", "void", "auto", "__int128"]
)
_VECTOR_BASES = {
    **{base: base for base in ("char", "short", "int", "long", "float", "double")},
    **{"u" + base: "unsigned " + base for base in ("char", "short", "long")},
    "uint": "unsigned",
    "longlong": "long long",
    "ulonglong": "unsigned long long",
    "half": "half",
    "__half": "half",
}


def numpy_type(ctype: str, aliases: Mapping[str, str] | None = None) -> str | None:
    """Return the NumPy name of a C type ('unsigned char' -> 'uint8'), None where NumPy has none.

    `aliases` are the names that a file (`SourceFile.aliases`) or the command line defines; they win over the built-in.
    """
    words = canonical(ctype, aliases)
    return _DTYPES.get(words)


def vector_type(ctype: str, aliases: Mapping[str, str] | None = None) -> tuple[str, int] | None:
    """Return the element's NumPy name and the number of elements of a CUDA vector type ('float4' -> 'float32', 4)."""
    match = re.fullmatch(r"(\w*[a-z])([1-4])", canonical(ctype, aliases))
    if match and match[1] in _VECTOR_BASES:
        return _DTYPES[_VECTOR_BASES[match[1]]], int(match[2])
    return None


def canonical(ctype: str, aliases: Mapping[str, str] | None = None) -> str:
    """One spelling for each type: no const, 'long unsigned int' -> 'unsigned long', aliases followed, no spaces."""
    for _ in range(8):  # an alias of an alias; the bound ends a circle
        words = [word for word in words_of(ctype) if word not in ("const", "volatile", "struct", "enum", "typename")]
        if words[:2] == ["std", "::"] and len(words) == 3:
            words = words[2:]
        if words[:1] == ["::"]:
            words = words[1:]
        if aliases and len(words) == 1 and words[0] in aliases and aliases[words[0]] != ctype:
            ctype = aliases[words[0]]
            continue
        break
    stars = [word for word in words if word == "*"]
    base = [word for word in words if word != "*"]
    if base and set(base) <= SPECIFIERS:
        count = Counter(base)
        kind = next((word for word in base if word in ("char", "short", "float", "double", "bool", "void", "auto")), "")
        kind = " ".join(["long"] * count["long"] + [kind] * bool(kind)) or "int"
        sign = "unsigned" if count["unsigned"] else "signed" if count["signed"] and kind == "char" else ""
        kind = "" if sign and kind == "int" else kind
        return f"{sign} {kind}".strip() + "*" * len(stars)
    return spell(words)
