"""Words of host code: what commas part, what a cast stands before, what a literal says."""

from __future__ import annotations

import re
from collections.abc import Sequence

from cudabench.toolchain.c_types import numpy_dtype, vector_type
from cudabench.toolchain.tokens import closing_bracket, spell

NAME = re.compile(r"[^\W\d]\w*")


def commas(words: list[str]) -> list[list[str]]:
    """Split at commas outside brackets, also where `<` compares."""
    parts: list[list[str]] = [[]]
    depth = 0
    for word in words:
        depth += (word in ("(", "[", "{")) - (word in (")", "]", "}"))
        if word == "," and depth == 0:
            parts.append([])
        else:
            parts[-1].append(word)
    return [part for part in parts if part]


def without_cast(words: list[str]) -> list[str]:
    """Return an expression without the casts, the brackets and the `&` before it."""
    for _ in range(8):
        if words[:1] == ["&"]:
            words = words[1:]
        elif words[:1] == ["("] and closing_bracket(words, 0) == len(words) - 1:
            words = words[1:-1]
        elif words[:1] == ["("] and is_type(words[1 : (end := closing_bracket(words, 0))]) and end + 1 < len(words):
            words = words[end + 1 :]
        elif words[:1] in (["static_cast"], ["reinterpret_cast"], ["const_cast"]) and "(" in words:
            words = words[words.index("(") + 1 : -1]
        else:
            break
    return words


def last_name(words: list[str]) -> str:
    """Return the name of an array: `d_a`, `data.d_a`, `&d_a[0]` without what follows it."""
    names = [word for word in words if NAME.fullmatch(word)]
    return names[-1] if names and "(" not in words else ""


def pointed(words: list[str]) -> str:
    """Return the name of the array that a pointer points into: `d + n`, `raw_pointer_cast(&v[0])`, `v.data().get()`."""
    words = without_cast(words)
    for at, word in enumerate(words):
        if word == "raw_pointer_cast" and words[at + 1 : at + 2] == ["("]:
            return pointed(words[at + 2 : at + 1 + closing_bracket(words[at + 1 :], 0)])
    for member in ("data", "begin", "get", "ptr"):
        if member in words[2:] and words[words.index(member) - 1] in (".", ">"):
            words = words[: words.index(member) - (1 if words[words.index(member) - 1] == "." else 2)]
    name = next((word for word in words if NAME.fullmatch(word)), "")
    if words[1:2] == ["."] or words[1:3] == ["-", ">"]:
        return last_name(words)
    return "" if words[1:2] == ["("] else name


def is_type(words: Sequence[str]) -> bool:
    """Return whether words name a pointer, or a type of a number or vector."""
    bare = [word for word in words if word not in ("*", "const", "struct", "&", "::")]
    if not bare or not all(NAME.fullmatch(word) for word in bare):
        return False
    return words[-1] == "*" or numpy_dtype(spell(bare)) is not None or vector_type(spell(bare)) is not None


def literal(word: str) -> int | float:
    """Return a literal's value: `0x1F`, `1024u`, `1e-3f`, `1'000`."""
    text = word.replace("'", "").lower()
    if text.startswith("0x"):
        return int(text.rstrip("ul"), 16)
    if re.fullmatch(r"\d+[ul]*", text):
        return int(text.rstrip("ul"), 8 if re.match(r"0\d", text) else 10)
    return float(text.rstrip("fl"))
