"""What a kernel needs that no header here has: a namespace of a library whose headers are missing.

However much of a file is left out, such a kernel is refused; it saves many compiles to know that at once.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping
from itertools import pairwise

from cudabench.toolchain.declarations import blanked, declarations
from cudabench.toolchain.host_code import Macros
from cudabench.toolchain.kernels import KernelSource, parse
from cudabench.toolchain.tokens import Scan, is_name

# Words before a type's name; behind any other name it would be a variable's.
_BEFORE_TYPES = frozenset(["const", "volatile", "static", "constexpr", "typename", "return", "__shared__"])


def needs(space: str, texts: Iterable[str], kept: Collection[str], macros: Macros) -> bool:
    """Return whether a kernel that is called as one of `kept` uses a namespace, or a type that is taken from it alone.

    Not where one of the texts declares it, and a use that macros or conditions may leave out is none.
    """
    texts = list(texts)
    if any(_declares(Scan(text).words, space) for text in texts if space in text):
        return False
    kernels = [kernel for text in texts if "__global__" in text for kernel in parse(text, "").kernels]
    types = _types_of(space, texts)
    return any(_uses(kernel, space, types, macros) for kernel in kernels if kernel.name in kept)


def _declares(words: list[str], space: str) -> bool:
    """Return whether a name stands where no `name::` and no `using namespace name` is."""
    words = ["", "", *words, ""]
    places = [at for at, word in enumerate(words) if word == space]
    return not all(words[at + 1] == "::" or words[at - 2 : at] == ["using", "namespace"] for at in places)


def _types_of(space: str, texts: Iterable[str]) -> set[str]:
    """Return the types that `using` and `typedef` take from a namespace, and nothing else declares."""
    whole = "\n".join(texts)
    member = rf"(?:::\s*)?{space}\s*::"
    own = rf"\busing\s+(\w+)\s*=\s*{member}|\btypedef\s+(?:const\s+)?{member}[^;]*?(\w+)\s*;"
    found = ["".join(match) for match in re.findall(own, whole)]
    every = (
        r"\busing\s+{0}\s*=|\b(?:struct|class|union|enum)\s+(?:class\s+)?{0}\b|\btypedef\b[^;]*\b{0}\s*;"
        r"|#[ \t]*define[ \t]+{0}\b"
    )
    return {name for name in found if len(re.findall(every.format(name), whole)) == found.count(name)}


def _uses(kernel: KernelSource, space: str, types: Collection[str], macros: Macros) -> bool:
    scan = Scan(kernel.text)
    if any(one.word != "pragma" for one in scan.directives):
        return False
    words = ["", *scan.words, ""]
    variables = {word for before, word in pairwise(words) if before in ("*", "&", ">") or _is_type(before)}
    meant = set(types) - variables - {one.name for one in kernel.template_parameters}
    opened: list[str] = []  # what stands before the brackets around a word
    for at in range(1, len(words) - 1):
        word, before = words[at], words[at - 1]
        if word == "(":
            opened.append(before)
        elif word == ")" and opened:
            opened.pop()
        used = (word in meant and before not in (".", ">", "::")) or (word == space and words[at + 1] == "::")
        if used and not any(one in macros or one.isupper() for one in (*opened, before)):
            return True
    return False


def _is_type(word: str) -> bool:
    return is_name(word) and word not in _BEFORE_TYPES


def asking(space: str, files: Mapping[str, str], macros: Macros) -> tuple[dict[str, str], str, int]:
    """Return headers and a source that ask a compiler for a namespace, and the line of the question.

    `files` are the headers by name, and under '' the source. All that they declare is left out, which is not the
    namespace: a compiler that finds too many faults would not come to the end.
    """
    texts = {
        name: blanked(text, [(one.start, one.end) for one in declarations(text, macros)])
        for name, text in files.items()
    }
    source = texts.pop("") + f"\nusing {space}::cudabench_asks;\n"
    return texts, source, source.count("\n")
