"""What a kernel does with its arrays, as far as its text shows: for lines that messages suggest.

Arrays that it only writes, adds to or counts with start as zeros. What it reads holds data, in place too: of zeros
alone a sort moves nothing, and a branch on data is never taken.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from cudabench.toolchain.kernels import KernelSource
from cudabench.userkernel.suggested.reach import closing, joined

_DEPTH = 4  # of pointers into pointers
_QUALIFIERS = r"(?:(?:const|volatile|__restrict__|__restrict|restrict) )*"


@dataclass(frozen=True)
class Uses:
    """How often a text reads and writes an array's elements; `adds`: `+=` and its like, `++` too; `indexes`: whether
    what is read there says which element of an array is meant; `passed`: whether a function is given the array."""

    reads: int = 0
    writes: int = 0
    adds: int = 0
    atomics: int = 0
    indexes: bool = False
    passed: bool = False

    def __add__(self, other: Uses) -> Uses:
        return Uses(
            self.reads + other.reads,
            self.writes + other.writes,
            self.adds + other.adds,
            self.atomics + other.atomics,
            self.indexes or other.indexes,
            self.passed or other.passed,
        )


def outputs(kernel: KernelSource) -> set[str]:
    """Return the arrays that a kernel writes and does not read, or adds to; where its text shows none, the last one
    that it may write and of which the text shows no plain read."""
    names = [one.name for one in kernel.parameters if one.pointer and not one.const and one.name]
    body = joined(kernel.text.partition("{")[2])
    found = {name: _uses(name, body, 0) for name in names}
    sure = {name for name, uses in found.items() if uses.atomics or (uses.writes and not uses.reads)}
    if sure or not names:
        return sure
    last = found[names[-1]]
    if last.passed or not last.reads or (last.writes and last.indexes):
        return {names[-1]}
    return set()


def numbers_by_pointer(kernel: KernelSource) -> set[str]:
    """Return the pointers that a kernel reads one number through, `*n`, and does nothing else with."""
    body = joined(kernel.text.partition("{")[2])
    names = [one.name for one in kernel.parameters if one.pointer and one.name]
    other = r"(?<![\w.>]){0} ?\[|& ?{0}\b|(?<![\w.*])(?<!\* ){0} ?[+-]"
    alone = [name for name in names if not re.search(other.format(name), body)]
    return {name for name in alone if (uses := _uses(name, body, 0)).reads and uses == Uses(reads=uses.reads)}


def _uses(name: str, body: str, depth: int) -> Uses:
    """Return what a text does with an array, through pointers into it and references to its elements too."""
    total = Uses()
    for match in re.finditer(rf"(?<![\w.]){name}\b(?! ?\()", body):
        if body[: match.start()].endswith(("->", ". ")):
            continue
        total += _use(name, body, match.start(), match.end())
    if depth < _DEPTH:
        for alias in _pointers_into(name, body):
            total += _uses(alias, body, depth + 1)
        for alias in _references_into(name, body):
            for match in re.finditer(rf"(?<![\w.>&] )(?<![\w.>&]){alias}\b(?! ?\()", body):
                behind = re.sub(r"^ ?(?:(?:->|\.) ?\w+ ?)*", "", body[match.end() :])
                total += _of_element(body[max(0, match.start() - 200) : match.start()].rstrip(), behind, body, True)
    return total


def _use(name: str, body: str, start: int, end: int) -> Uses:
    """Return what a text does with an array where its name stands."""
    before, behind = body[max(0, start - 200) : start].rstrip(), body[end:].lstrip()
    if re.search(r"\w+ ?\*$|[\w>] ?\* ?(?:const|__restrict__)$", before) and re.match(r"=(?!=)|[;,]", behind):
        declared = re.search(r"(?:^|[;{}(,]) ?(?:const )?[\w:]+(?: \w+)* ?\*(?: ?(?:const|__restrict__))*$", before)
        if declared:
            return Uses()  # its declaration
    if not re.match(r"\[|->", behind) and not before.endswith("*"):
        if re.match(r"[+)]", behind) and re.search(r"\* ?\((?: ?\([\w ]+\*\) ?)? ?$", before):  # *(name + i)
            at = closing("(" + body[start:], "(", ")")
            return _of_element(before[: before.rfind("*")].rstrip(), body[start + at :].lstrip(), body, at > 0)
        if re.match(r"[,+]", behind) and re.search(r"\batomic\w+ ?\(?(?: ?\([^()]*\) ?)? ?\($", before):
            return Uses(atomics=1)
        if re.match(r"[,)]", behind) and re.search(r"[(,]$", before) and not re.search(r"\b(?:if|while) ?\($", before):
            return Uses(passed=True)
        return Uses()
    if before.endswith("*") and not behind.startswith("["):
        return _of_element(before[:-1].rstrip(), behind, body, True)
    while match := re.match(r"(\[)|(?:->|\.) ?\w+ ?", behind):
        length = closing(behind, "[", "]") + 1 if match[1] else match.end()
        if length <= 0:
            return Uses(reads=1)
        behind = behind[length:].lstrip()
    return _of_element(before, behind, body, True)


def _of_element(before: str, behind: str, body: str, whole: bool) -> Uses:
    """Return what is done with an element between two parts of a text; whole: whether its end was found."""
    if not whole:
        return Uses(reads=1)
    if re.search(r"\batomic\w+ ?\((?: ?\([^()]*\) ?)? ?&? ?\(?$", before):
        return Uses(atomics=1)
    if before.endswith("&") and not before.endswith("&&") and re.search(r"[=(,] ?(?:\([\w ]+\*? ?\) ?)?&$", before):
        handed = re.search(r"[(,] ?&$", before) and re.match(r"[,)]", behind)
        return Uses(passed=bool(handed))
    if re.search(r"[\w>] ?& ?\w+ ?=$", before):
        return Uses()  # a reference, whose own uses count
    if re.match(r"=(?!=)", behind):
        return Uses(writes=1)
    if re.match(r"(?:[*/%&]|<<|>>)=(?!=)", behind):  # of zeros it leaves zeros
        return Uses(reads=1, writes=1)
    if re.match(r"[-+|^]=(?!=)|\+\+|--", behind) or before.endswith(("++", "--")):
        return Uses(adds=1)
    return Uses(reads=1, indexes=_is_index(before, behind, body))


def _is_index(before: str, behind: str, body: str) -> bool:
    """Return whether an element stands as an index, or alone as what a name is set to that stands in one."""
    if before.endswith("["):
        return True
    named = re.search(r"(\w+) ?=(?: ?\([\w ]+\))?$", before)
    return bool(named and behind.startswith(";") and re.search(rf"\[[^\[\];]*\b{named[1]}\b[^\[\];]*\]", body))


def _pointers_into(name: str, body: str) -> list[str]:
    """Return the pointers into an array that a text declares or sets."""
    cast = r"(?:\([\w: ]+\*(?: ?__restrict__)? ?\) ?|(?:reinterpret|static|const)_cast ?< ?[\w: ]+\* ?> ?\( ?)*"
    pointer = rf"(?:\* ?{_QUALIFIERS}|\bauto ?\*? )(\w+) ?= ?{cast}(?:&? ?\(? ?{name} ?[+\[;,)])"
    return [one for one in dict.fromkeys(re.findall(pointer, body)) if one != name]


def _references_into(name: str, body: str) -> list[str]:
    """Return the references to an array's elements that a text declares."""
    found = re.findall(rf"[\w>] ?& ?(\w+) ?= ?\*? ?{name} ?[\[;-]", body)
    return [one for one in dict.fromkeys(found) if one != name]
