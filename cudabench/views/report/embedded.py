"""The results that a page embeds: the whole results file, or a part of it if the page would be too large."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields, replace
from itertools import count
from typing import Any

from cudabench import text
from cudabench.explain.accesses import by_line
from cudabench.records.file import ResultsFile, finite, parse
from cudabench.records.results import Result, Timing

MOST_TEXT = 400  # the last step cuts every text to this many characters
MOST_SAMPLES = 2_400  # the largest number of samples of all kernels; more samples are thinned before all steps


@dataclass(frozen=True)
class EmbeddedFiles:
    """The files that a page embeds. `files`: the results files, some parts of which may be removed; `texts`: these
    files as JSON, which cannot end the script element that contains it; `left_out`: descriptions of what was removed.
    """

    files: tuple[ResultsFile, ...]
    texts: tuple[str, ...]
    left_out: tuple[str, ...]


def embed(files: Sequence[ResultsFile], most: int) -> EmbeddedFiles:
    """Return the files as JSON for a page, together at most `most` characters if possible.

    Data that only pictures need are removed first; counts and statistics are kept. Each step of the reduction has a
    text that describes which data it removes.
    """
    left_out: list[str] = []
    samples = sum(len(result.time.samples_s) for file in files for result in file.results if result.time)
    # The stride must be odd: neighbouring samples often alternate between two levels, and an even stride would drop one
    # level.
    stride = math.ceil(samples / MOST_SAMPLES) | 1
    if stride > 1:
        files = [_changed(file, lambda r: thinned(r, stride)) for file in files]
        left_out.append(f"all but one in {stride} of {samples} samples, whose medians and quartiles are of all")
    texts = [_dumped(file) for file in files]
    for change, loss in STEPS:
        if sum(map(len, texts)) <= most:
            break
        smaller = [change(file) for file in files]
        if smaller != list(files):
            left_out.append(loss)
            files, texts = smaller, [_dumped(file) for file in smaller]
    return EmbeddedFiles(tuple(files), tuple(texts), tuple(left_out))


def thinned(result: Result, stride: int) -> Result:
    """Return a copy of a result with about every `stride`-th sample, in order.

    A kernel is measured with its arrays at several places in memory; some samples of each place are kept.
    """
    time = result.time
    if time is None:
        return result
    step = next(step for step in count(stride, 2) if math.gcd(step, time.places) == 1)
    lists = {name: getattr(time, name)[::step] for name in ("samples_s", "samples_place", "samples_sm_mhz")}
    return replace(result, time=replace(time, **lists))


def _changed(file: ResultsFile, change: Callable[[Result], Result]) -> ResultsFile:
    return replace(file, results=[change(result) for result in file.results])


def _without(key: str) -> Callable[[ResultsFile], ResultsFile]:
    return lambda file: _changed(file, lambda result: replace(result, **{key: None}))  # type: ignore[arg-type]


def _with_code(most: int) -> Callable[[ResultsFile], ResultsFile]:
    """Return the function that keeps at most `most` machine instructions of each source line."""

    def cut(result: Result) -> Result:
        lines = result.lines
        return replace(result, lines=tuple(replace(line, code=line.code[:most]) for line in lines)) if lines else result

    return lambda file: _changed(file, cut)


def _with_short_texts(file: ResultsFile) -> ResultsFile:
    """Return a copy of a file in which long texts, such as generated names of thousands of characters, are cut."""

    def cut(value: Any) -> Any:
        if isinstance(value, dict):
            return {key: cut(item) for key, item in value.items()}
        if isinstance(value, list):
            return [cut(item) for item in value]
        return f"{value[:MOST_TEXT]}..." if isinstance(value, str) and len(value) > MOST_TEXT else value

    document = json.loads(file.text())
    # the source texts are not cut, because an earlier step has removed them completely
    listings = document.pop("listings", None)
    document = cut(document)
    return parse(json.dumps({**document, **({"listings": listings} if listings else {})}), "page")


# The fields of a result that hold a list or a mapping. If such a field is missing in a file, it is read as empty.
EMPTY = {
    field.name
    for record in (Result, Timing)
    for field in fields(record)
    if field.default == () or field.default_factory is dict
}
STEPS: tuple[tuple[Callable[[ResultsFile], ResultsFile], str], ...] = (
    (_without("threads"), "single accesses of threads (--threads)"),
    (
        lambda file: _changed(file, lambda r: replace(r, access=tuple(by_line(r.access))) if r.access else r),
        "accesses by instruction, which are summed by line",
    ),
    (_with_code(12), "the machine code of a line from its 13th instruction on"),
    (lambda file: _changed(file, lambda r: thinned(r, 3)), "two thirds of the remaining samples"),
    (_with_code(4), "the machine code of a line from its 5th instruction on"),
    (_without("steps"), "the pictures of threads"),
    (_with_code(0), "the machine code"),
    (_without("banks"), "the pictures of banks"),
    (lambda file: _changed(file, lambda r: thinned(r, 7)), "most of the remaining samples"),
    (lambda file: replace(file, listings={}), "the text of the sources"),
    (_without("lines"), "the counts of machine code by line"),
    (_without("branches"), "the counts of branches"),
    (_with_short_texts, "the ends of long texts"),
)


def _dumped(file: ResultsFile) -> str:
    document = file.document()
    document["results"] = [_filled(result) for result in document["results"]]
    return escaped(json.dumps(finite(document), separators=(",", ":")))


def escaped(dumped: str) -> str:
    """Return JSON in which no text can end the script element around it or begin a comment."""
    return text.json(dumped).replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def _filled(value: Any) -> Any:
    """Return a record without null values, empty texts, and those empty lists that are read as empty if missing."""
    if isinstance(value, dict):
        filled = {key: item for key, item in value.items() if item is not None and item != ""}
        return {key: _filled(item) for key, item in filled.items() if item or key not in EMPTY}
    return [_filled(item) for item in value] if isinstance(value, (list, tuple)) else value
