"""Reads the values that a report needs from the shards. A file in the folder may be invalid.

Many machines write into the folder over a network, so it may hold truncated files, files that are not JSON, files of
gigabytes, and pipes. Each such file is reported with the reason, and the other files are read. Only the needed values
are decoded and checked, because decoding whole records takes too long for a hundred thousand files.
"""

from __future__ import annotations

import contextlib
import json
import os
import stat
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple, get_args

import numpy as np
from numpy.typing import NDArray

from cudabench.cards import KINDS
from cudabench.errors import CudabenchError
from cudabench.records import file as files
from cudabench.records.fleet import Card, CardStatus, Damaged, Health, Load
from cudabench.records.launch import dim_text
from cudabench.results.units import size_text
from cudabench.system import children, outputs

parse: Callable[[bytes], Any] = json.loads
# orjson reads a text in a third of the time of json. Texts that only json accepts, for example with NaN, are read by
# json.
with contextlib.suppress(ImportError):
    import orjson

    parse = orjson.loads

# the largest file that is read as a shard, in bytes; 13 kernels with 10,000 samples each take 2 MB
MOST_BYTES = 16 << 20
MOST_TEXT = 200  # a name is cut to this many characters
MOST_NAMES = 20  # at most this many parameters of a kernel's size, and variables of Slurm, are read
MOST_NAMED = 5  # a reason lists at most this many kernels by name
MOST_KERNELS = 10_000  # at most this many results, and ceilings, of a shard are read
LEAST_VALUE = 1e-30  # the smallest valid value; the inverse of every larger value is finite
CHUNK_FILES = 500  # how many files a process reads before it returns their rows
PARALLEL_FILES = 2_000  # with at least this many files, several processes read them
STATUSES: tuple[CardStatus, ...] = get_args(CardStatus)
# The statuses from the best to the worst. A card gets the worst status of two: the status in its record, and the worst
# status of its results.
STATUS_ORDER = ("ok", "unverified", "wrong", "missing", "failed")


class Label(NamedTuple):
    """The kernel and its problem, or the ceiling, that a value was measured for.

    The values of different cards are compared if their labels are equal.
    """

    operation: str
    kernel: str
    problem: str
    unit: str
    less_is_better: bool


# The label of a kernel or ceiling, and its measured value as a cost: a larger cost means a slower card. A value such as
# a bandwidth, where more is better, is inverted.
Value = tuple[Label, float]


@dataclass(frozen=True)
class Shard:
    """The record of one card in one file.

    `utc`: the time of the run; `values`: the costs of the kernels on this card; later, the costs are moved into the
    columns of a chunk.
    """

    file: str
    card: Card
    simulated: bool
    utc: str
    values: tuple[Value, ...] = ()


@dataclass(frozen=True)
class Chunk:
    """The content of some files. The costs are in columns, which are sent between processes ten times as fast as
    records.

    `cards`: the cards without their values; `counts`: for each card, the number of its costs; `damaged`: the files that
    are not shards; `label`: for each cost, an index into `labels`; `cost`: the costs of all cards, one after the other.
    """

    cards: list[Shard]
    counts: list[int]
    damaged: list[Damaged]
    labels: list[Label]
    label: NDArray[np.int64]
    cost: NDArray[np.float64]


class Unreadable(Exception):
    """A file is not a shard. The message is the reason, without the file's name and without a period."""


# A folder ------------------------------------------------------------------------------------------------------------


def shard_names(folder: Path) -> list[str]:
    """Return the sorted names of a folder's files that end in .json and are not hidden.

    Raises CudabenchError if the folder does not exist or cannot be read.
    """
    try:
        with os.scandir(folder) as entries:
            return sorted(e.name for e in entries if e.name.endswith(".json") and not e.name.startswith("."))
    except FileNotFoundError:
        raise CudabenchError(f"{folder} does not exist: 'cudabench fleet shard' makes a folder of shards.") from None
    except NotADirectoryError:
        raise CudabenchError(f"{folder} is a file: name the folder of the shards.") from None
    except OSError as error:
        raise CudabenchError(f"{folder} cannot be read: {error.strerror or error}.") from None


def read_shards(folder: Path, names: Sequence[str]) -> Iterator[Chunk]:
    """Yield the content of a folder's files, CHUNK_FILES files at a time. Several processes read them if there are
    many.

    Raises UsageError if an option, such as --output, names a shard as the file to write.
    """
    from concurrent.futures.process import BrokenProcessPool

    chunks = [(str(folder), names[at : at + CHUNK_FILES]) for at in range(0, len(names), CHUNK_FILES)]
    processes = 1 if len(names) < PARALLEL_FILES else min(children.processors(), len(chunks))
    try:
        with children.on_processes(_read_chunk, chunks, processes) as results:
            for chunk in results:
                outputs.note_shards(folder, (card.file for card in chunk.cards))
                yield chunk
    except BrokenProcessPool:
        raise CudabenchError(
            f"A process that read shards of {folder} was ended, probably for lack of memory: try again with more."
        ) from None


def _read_chunk(chunk: tuple[str, Sequence[str]]) -> Chunk:
    folder, names = chunk
    cards: list[Shard] = []
    damaged: list[Damaged] = []
    for name in names:
        try:
            cards += shards(name, content(os.path.join(folder, name)))
        except Unreadable as error:
            damaged.append(Damaged(name, str(error)))
    values = [value for card in cards for value in card.values]
    numbers: dict[Label, int] = {}
    number = np.array([numbers.setdefault(label, len(numbers)) for label, _ in values], np.int64)
    cost = np.array([cost for _, cost in values], np.float64)
    counts = [len(card.values) for card in cards]
    return Chunk([replace(card, values=()) for card in cards], counts, damaged, [*numbers], number, cost)


def content(path: str) -> bytes:
    """Return the bytes of a file. Raises Unreadable if it cannot be read, is not a regular file, or is too large."""
    try:
        # Opening a pipe that has no writer would block without O_NONBLOCK.
        number = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0))
    except OSError as error:
        raise Unreadable(f"it cannot be opened: {error.strerror}") from None
    try:
        state = os.fstat(number)
        if not stat.S_ISREG(state.st_mode):
            raise Unreadable("it is not a regular file")
        if state.st_size > MOST_BYTES:
            raise Unreadable(f"it has {state.st_size:,} bytes; a shard has at most {MOST_BYTES:,}")
        with open(number, "rb", closefd=False) as stream:
            # the size is given, so that Python reserves a buffer of the file's size at once
            return stream.read(state.st_size + 1)
    except OSError as error:
        raise Unreadable(f"it cannot be read: {error.strerror}") from None
    finally:
        os.close(number)


# A file --------------------------------------------------------------------------------------------------------------


def shards(name: str, text: bytes) -> list[Shard]:
    """Return the cards of a shard or of a results file; an empty list for a file written by 'fleet report'.

    Raises Unreadable.
    """
    document = _document(text)
    fleet = _object(document.get("fleet"))
    if _object(fleet.get("rule")):
        return []  # the file is a report that was written into the folder of shards
    devices = [row for row in _list(document.get("devices")) if isinstance(row, dict)]
    devices = devices or [_object(document.get("device"))]
    utc = _text(_object(document.get("provenance")).get("utc")) or ""
    host = _text(_object(document.get("host")).get("name"))
    results = [row for row in _list(document["results"])[:MOST_KERNELS] if isinstance(row, dict)]
    ceilings = [row for row in _list(document.get("ceilings"))[:MOST_KERNELS] if isinstance(row, dict)]
    cards = []
    for device in devices:
        simulated = device.get("kind") in ("sim", "simulated")
        label = f"{'sim' if device.get('kind') == 'sim' else 'cuda'}:{device.get('index')}"
        own_results = [r for r in results if len(devices) < 2 or r.get("device") == label]
        given = _object(fleet.get("card")) if len(devices) == 1 else {}
        card = _card(given, device, host, name.removesuffix(".json"))
        status, reason = status_of([*own_results, *ceilings])
        if STATUS_ORDER.index(status) > STATUS_ORDER.index(card.status):
            card = replace(card, status=status, reason=reason)
        values = () if simulated else (*_times(own_results), *_ceilings(ceilings))
        cards.append(Shard(name, card, simulated, utc, values))
    return cards


def _document(text: bytes) -> dict[str, Any]:
    try:
        try:
            document = files.check_schema(parse(text), "it")
        except (ValueError, RecursionError):
            document = files.document_of(text.decode(), "it")
    except UnicodeDecodeError:
        raise Unreadable("it is not UTF-8 text") from None
    except CudabenchError as error:
        raise Unreadable(str(error).removesuffix(".")) from None
    if not isinstance(document.get("results"), list):
        raise Unreadable("it is not a results file of cudabench")
    return document


def status_of(rows: Sequence[Mapping[str, Any]]) -> tuple[CardStatus, str | None]:
    """Return the worst status among a card's results or ceilings, and the reason: the kernels that have this status."""
    named: dict[Any, list[str]] = {}
    for row in rows:
        status = row.get("status") if isinstance(row.get("status"), str) else ""
        if status == "ok" and "unit" not in row and not _object(row.get("verification")):
            status = "unverified"
        named.setdefault(status, []).append(_text(row.get("kernel")) or _text(row.get("name")) or "?")
    worst: dict[CardStatus, str] = {"wrong": "wrong", "failed": "failed", "unverified": "not compared"}
    for status, word in worst.items():
        if names := named.get(status):
            return status, f"{word}: {', '.join(names[:MOST_NAMED])}{', ...' * (len(names) > MOST_NAMED)}"
    return "ok", None


def _card(given: Mapping[str, Any], device: Mapping[str, Any], host: str | None, stem: str) -> Card:
    status = given.get("status")
    slurm = {name[:MOST_TEXT]: _word(value) for name, value in [*_object(given.get("slurm")).items()][:MOST_NAMES]}
    return Card(
        id=_text(given.get("id")) or _text(device.get("uuid")) or stem[:MOST_TEXT],
        status=status if status in STATUSES else "ok",
        reason=_text(given.get("reason"), 500),
        model=_text(given.get("model")) or _text(device.get("name")),
        host=_text(given.get("host")) or host,
        **{name: _text(given.get(name)) for name in ("rack", "pci_address", "serial")},
        exit_code=_whole(given.get("exit_code")),
        load=_plain_record(Load, given.get("load")),
        health=_plain_record(Health, given.get("health")),
        slurm=slurm,
    )


def _plain_record(kind: type, given: Any) -> Any:
    """Return a record of class `kind` from a JSON object; None if `given` is not an object.

    Fields are numbers, flags and lists of text; a value of another type becomes None, 0 or an empty list.
    """
    if not isinstance(given, dict):
        return None
    values: dict[str, Any] = {}
    for spec in fields(kind):
        value, hint = given.get(spec.name), str(spec.type)
        if "tuple" in hint:
            values[spec.name] = tuple(text for item in _list(value)[:20] if (text := _text(item)))
        elif "bool" in hint:
            values[spec.name] = value if isinstance(value, bool) else None
        elif "float" in hint:
            values[spec.name] = _number(value)
        else:
            values[spec.name] = _whole(value) if "None" in hint else _whole(value) or 0
    return kind(**values)


# Values --------------------------------------------------------------------------------------------------------------


def _times(results: Sequence[Mapping[str, Any]]) -> Iterator[Value]:
    """Yield (label, median time in seconds) of each correct result; results that were not verified are left out."""
    for result in results:
        time = result.get("time")
        if result.get("status") != "ok" or not isinstance(time, dict) or not _object(result.get("verification")):
            continue
        seconds = _number(time.get("median_s"))
        if seconds and seconds > LEAST_VALUE:
            size = _object(result.get("size"))
            label = _label(
                _text(result.get("operation")) or "?",
                _text(result.get("kernel")) or "?",
                tuple((name[:MOST_TEXT], _word(value)) for name, value in [*size.items()][:MOST_NAMES]),
                _text(result.get("dtype")) or "",
                tuple(n for n in _list(result.get("block"))[:3] if isinstance(n, int)),
                _text(time.get("cache")) or "",
            )
            yield label, seconds


@lru_cache(maxsize=10_000)
def _label(
    operation: str, kernel: str, size: tuple[tuple[str, str], ...], dtype: str, block: tuple[int, ...], cache: str
) -> Label:
    """Return the label of a measurement.

    Calls with equal arguments return the same object, which is sent between processes only once.
    """
    threads = f"block {dim_text(block, 2)}" if block else ""
    parts = [size_text(operation, size), dtype, threads, cache if cache != "cold" else ""]
    return Label(operation, kernel, " ".join(part for part in parts if part)[:MOST_TEXT], "s", True)


def _ceilings(ceilings: Sequence[Mapping[str, Any]]) -> Iterator[Value]:
    for row in ceilings:
        name, unit, value = _text(row.get("name")) or "?", _text(row.get("unit")) or "", _number(row.get("value"))
        if (
            row.get("status", "ok") == "ok"
            and row.get("source", "measured") == "measured"
            and value
            and value > LEAST_VALUE
        ):
            kind = KINDS.get(name)
            less = kind.less_is_better if kind else unit == "s" or unit.startswith("J/")
            yield Label("ceilings", name, "", unit, less), value if less else 1 / value


def _object(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def _text(value: Any, most: int = MOST_TEXT) -> str | None:
    return value[:most] if isinstance(value, str) and value else None


def _word(value: Any) -> str:
    """Return a text, number or flag as text; '?' for other values, such as lists, which may be nested deeply."""
    return str(value)[:MOST_TEXT] if isinstance(value, (str, int, float)) else "?"


def _number(value: Any) -> float | None:
    # the comparison is False for NaN
    known = isinstance(value, (int, float)) and not isinstance(value, bool) and abs(value) < 1 / LEAST_VALUE
    return float(value) if known else None


def _whole(value: Any) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) and abs(value) < 1 << 62 else None
