"""Links the PTX of several translation units (-rdc=true) to one text; NVIDIA's nvlink can link only machine code."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

_SINGLE_LINE = re.compile(r"\s*\.(file|version|target|address_size|loc)\b")
_FUNCTION = re.compile(r"\.(?:entry|func)\b\s*(?:\([^)]*\)\s*)?([\w$]+)")
_VARIABLE = re.compile(r"([\w$]+)\s*(?:\[[^\]]*\]\s*)*(?:=|;|$)")
_LINKAGE = re.compile(r"\.(?:extern|visible|weak|common)\s+")


def link(texts: Sequence[str]) -> str:
    """Return one PTX text made of several. It has each symbol once: prototypes, then variables, whose values may be
    functions, then functions."""
    header: list[str] = []
    files: list[str] = []
    variables: dict[str, str] = {}
    functions: dict[str, str] = {}
    declared: dict[str, str] = {}
    rest: list[str] = []
    for number, text in enumerate(texts):
        first = len(files)
        renamed = re.sub(r"(\$L__info_string)", rf"\g<1>{number}_", _renumbered(text, first))
        for item in _items(renamed):
            kind = _SINGLE_LINE.match(item)
            if kind and kind[1] == "file":
                files.append(item.strip())
            elif kind:
                header += [item.strip()] * (number == 0)
            elif match := _FUNCTION.search(item):
                (functions if item.rstrip().endswith("}") else declared).setdefault(match[1], item)
            elif re.match(r"\s*\.section\b", item):
                rest.append(item)
            elif ".extern" in item and ".shared" not in item:
                continue  # `.extern` means that another unit defines this variable
            elif match := _VARIABLE.search(item.partition("=")[0].rstrip("; \n")):
                variables.setdefault(match[1], item)
    prototypes = []
    for name, item in declared.items():
        if name in functions:
            own = _LINKAGE.search(functions[name].partition("{")[0])
            item = re.sub(r"\.extern\s+", own[0] if own else "", item, count=1)
        prototypes.append(item)
    return "\n".join([*header, *prototypes, *variables.values(), *functions.values(), *files, *rest, ""])


def _renumbered(text: str, first: int) -> str:
    """Return PTX in which `first` is added to all numbers of files."""

    def renumber(match: re.Match[str]) -> str:
        return f"{match[1]}{int(match[2]) + first}"

    return re.sub(r"(^\s*\.(?:file|loc)\s+|\binlined_at\s+)(\d+)", renumber, text, flags=re.M) if first else text


def _items(text: str) -> Iterator[str]:
    """Split a PTX text; yield the text of each directive, variable, prototype and function."""
    item: list[str] = []
    depth = 0
    for line in re.sub(r"//[^\n]*", "", text).split("\n"):
        if depth == 0 and not item and _SINGLE_LINE.match(line):
            yield line
            continue
        if not item and not line.strip():
            continue
        item.append(line)
        depth += line.count("{") - line.count("}") if '"' not in line else 0
        whole = line.rstrip()
        if depth == 0 and (whole.endswith(";") or (whole.endswith("}") and "=" not in item[0])):
            yield "\n".join(item)
            item = []
    if item:
        yield "\n".join(item)
