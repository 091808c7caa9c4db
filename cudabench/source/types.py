"""Converts C types to the NumPy types with the same bits."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping

from cudabench.source.words import join_words, words_of

_DTYPES = {
    ctype: dtype
    for dtype, ctypes in {
        "bool": "bool",
        "int8": "char|signed char|int8_t",
        "uint8": "unsigned char|uchar|u_char|u_int8_t|uint8_t",
        "int16": "short|int16_t",
        "uint16": "unsigned short|ushort|u_short|u_int16_t|uint16_t",
        "int32": "int|int32_t",
        "uint32": "unsigned|uint|u_int|u_int32_t|uint32_t",
        # The sizes are those of 64-bit Linux, where long has 8 bytes (on Windows, long has 4 bytes).
        "int64": "long|long long|ptrdiff_t|ssize_t|intptr_t|clock_t|time_t|off_t|intmax_t|int64_t",
        "uint64": "unsigned long|unsigned long long|size_t|uintptr_t|uintmax_t|ulong|u_long|u_int64_t|uint64_t",
        "float16": "half|__half|c10::Half|at::Half|torch::Half",
        "float32": "float|cufftReal",
        "float64": "double|cufftDoubleReal",
        "complex64": "cuComplex|cuFloatComplex|cufftComplex",
        "complex128": "cuDoubleComplex|cufftDoubleComplex",
    }.items()
    for ctype in ctypes.split("|")
}
# Typedefs that keep their own name, because it says more than the type itself: complex numbers and handles.
NAMED = frozenset(
    [
        *(name for name, dtype in _DTYPES.items() if dtype.startswith("complex")),
        "cudaTextureObject_t", "cudaSurfaceObject_t", "CUtensorMap",
    ]
)  # fmt: skip


def bytes_of(dtype: str) -> int:
    """Return the size in bytes of a number of this NumPy type."""
    return int(re.sub(r"\D", "", dtype) or 8) // 8


SPECIFIERS = frozenset(
    ["signed", "unsigned", "char", "short", "int", "long", "float", "double", "bool", "void", "auto", "__int128"]
)
_VECTOR = re.compile(r"(u?)(char|short|int|long|longlong|float|double|half|__half)([1-4])")


def numpy_type(ctype: str, aliases: Mapping[str, str] | None = None) -> str | None:
    """Return the NumPy name of a C type ('uint8' for 'unsigned char'), or None if NumPy lacks the type.

    `aliases`: the types of names that a file (`SourceFile.types`) or the command line defines; these names are tried
    before the built-in names.
    """
    return _DTYPES.get(canonical(ctype, aliases))


def vector_type(ctype: str, aliases: Mapping[str, str] | None = None) -> tuple[str, int] | None:
    """Return (NumPy name of an element, number of elements) of a CUDA vector: ('float32', 4) for 'float4'; else
    None."""
    match = _VECTOR.fullmatch(canonical(ctype, aliases))
    if match is None:
        return None
    dtype = numpy_type(("unsigned " if match[1] else "") + match[2].replace("longlong", "long long"))
    return (dtype, int(match[3])) if dtype else None


def canonical(ctype: str, aliases: Mapping[str, str] | None = None) -> str:
    """Return a type in the only spelling that compares equal for equal types.

    This spelling has no const, no needless spaces and no aliases: 'long unsigned int' becomes 'unsigned long'.
    """
    for _ in range(8):  # an alias may stand for another alias; the limit ends the loop if aliases form a cycle
        words = [word for word in words_of(ctype) if word not in ("const", "volatile", "struct", "enum", "typename")]
        if words[:2] == ["std", "::"] and len(words) == 3:
            words = words[2:]
        if words[:1] == ["::"]:
            words = words[1:]
        meaning = (aliases or {}).get(words[0], ctype) if len(words) == 1 else ctype
        if meaning == ctype:
            break
        ctype = meaning
    stars = [word for word in words if word == "*"]
    base = [word for word in words if word != "*"]
    if base and set(base) <= SPECIFIERS:
        count = Counter(base)
        kind = next((word for word in base if word in ("char", "short", "float", "double", "bool", "void", "auto")), "")
        kind = " ".join(["long"] * count["long"] + [kind] * bool(kind)) or "int"
        sign = "unsigned" if count["unsigned"] else "signed" if count["signed"] and kind == "char" else ""
        kind = "" if sign and kind == "int" else kind
        return f"{sign} {kind}".strip() + "*" * len(stars)
    return join_words(words)
