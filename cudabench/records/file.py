"""The results file: its schema, writing it so that nothing is ever half there, reading it back.

Reading is lenient where nothing is lost: unknown keys are ignored and missing ones take their empty value, so that
files of older schemas and of hand are read. What decides a comparison must be there and of its type.

Schema history
1  first version
"""

from __future__ import annotations

import functools
import json
import re
import types
from collections.abc import Mapping, Sequence
from dataclasses import MISSING, Field, asdict, dataclass, field, fields, is_dataclass, replace
from pathlib import Path
from typing import Annotated, Any, Literal, get_args, get_origin, get_type_hints

from cudabench import __version__
from cudabench.cards import Ceiling
from cudabench.cards.load import MEASURED, known_as, measured_file, shipped
from cudabench.errors import CudabenchError, no_such_file
from cudabench.records.fleet import Card, Fleet, Group, SlowCard
from cudabench.records.launch import Dim
from cudabench.records.results import DeviceInfo, Result, Timing
from cudabench.records.revisions import Ab, CodeDifference
from cudabench.system.outputs import write_whole
from cudabench.system.reading import open_bytes, parse_json
from cudabench.text import json as json_text

SCHEMA = "cudabench/1"
MOST_BYTES = 256 << 20  # of a file that is read: a thousand kernels with a thousand samples each have 20 MB

# A page of `cudabench report`, and the results in it, in which '<' is written as \\u003c.
PAGE = re.compile(r"\s*<!doctype html", re.IGNORECASE)
HELD = re.compile(r'<script type="application/json" class="cudabench-results">([^<]*)</script>')

# Keys without which a record says nothing; every other missing key is empty.
ESSENTIAL: dict[type, frozenset[str]] = {
    Result: frozenset({"operation", "kernel", "status"}),
    Timing: frozenset({"median_s"}),
    DeviceInfo: frozenset({"name", "kind"}),
    CodeDifference: frozenset({"kernel", "arch", "verdict"}),
    Ceiling: frozenset({"name", "group", "unit"}),
    Ab: frozenset({"old", "new", "verdict"}),
    Card: frozenset({"id", "status"}),
    Group: frozenset({"kind", "name"}),
    SlowCard: frozenset({"id", "cause"}),
}


@dataclass
class ResultsFile:
    """Everything that one run leaves behind; `write` may be called after every kernel.

    `devices` are several for a run on all cards of a machine, and none before the first is ready.
    """

    settings: Annotated[Mapping[str, Any], "What was asked for: the rule of measuring and the request."]
    tool: Annotated[Mapping[str, Any], "Name and version of this tool and of what took part."]
    host: Annotated[Mapping[str, Any], "The machine."]
    devices: Annotated[list[DeviceInfo], "All devices, where a run is on several."] = field(default_factory=list)
    results: Annotated[list[Result], "One entry a kernel."] = field(default_factory=list)
    provenance: Annotated[
        dict[str, Any], "When, by which command, of which sources and compiler, in what state the card was."
    ] = field(default_factory=dict)
    diff: Annotated[list[CodeDifference], "Of cudabench diff: one entry a kernel and architecture."] = field(
        default_factory=list
    )
    listings: Annotated[
        dict[str, str], "Text of the sources by their names, with --report; of a long one the first 64,000 characters."
    ] = field(default_factory=dict)
    ceilings: Annotated[list[Ceiling], "Of cudabench ceilings: one entry for each thing that a card can do."] = field(
        default_factory=list
    )
    fleet: Annotated[Fleet | None, "Of cudabench fleet: the card of a shard, or the findings of a report."] = None

    ab: Annotated[list[Ab], "Of cudabench ab: the two sides with their ratio."] = field(default_factory=list)

    def measured(self, name: str) -> ResultsFile:
        """Return this file, called `name`, as one that has results to compare or to show. Raises CudabenchError for
        the record of another command, which has none, with what can be done with it."""
        if self.ab and not self.results:
            raise CudabenchError(
                f"{name} is of 'cudabench ab' and holds its verdict on two kernels, not results to compare: 'cudabench "
                f"export {name} --to markdown' shows it; 'cudabench run --json' writes results."
            )
        if self.diff and not self.results:
            raise CudabenchError(
                f"{name} is of 'cudabench diff' and holds machine code, not results: 'cudabench diff --to markdown' "
                "shows it; 'cudabench run --json' writes results."
            )
        return self

    @property
    def device(self) -> DeviceInfo | None:
        """The device, or the first of several; None where the run ended before it was ready."""
        return self.devices[0] if self.devices else None

    def device_of(self, result: Result) -> DeviceInfo | None:
        """Return the device that a result is of."""
        return next((d for d in self.devices if result.device == d.label), self.device)

    def by_device(self) -> list[ResultsFile]:
        """Return a file for each device; this one where there is one device or none."""
        if len(self.devices) < 2:
            return [self]
        return [
            replace(self, devices=[d], results=[r for r in self.results if self.device_of(r) == d])
            for d in self.devices
        ]

    def document(self) -> dict[str, Any]:
        """Return the file's content as plain values."""
        return {
            "schema": SCHEMA,
            "tool": {"name": "cudabench", "version": __version__, **self.tool},
            "host": dict(self.host),
            "device": asdict(self.device) if self.device else None,
            **({"devices": [asdict(device) for device in self.devices]} if len(self.devices) > 1 else {}),
            "settings": dict(self.settings),
            "provenance": self.provenance,
            "results": [_plain(result) for result in self.results],
            **({"diff": [asdict(each) for each in self.diff]} if self.diff else {}),
            **({"listings": self.listings} if self.listings else {}),
            **({"ceilings": [asdict(each) for each in self.ceilings]} if self.ceilings else {}),
            **({"ab": [_plain_ab(each) for each in self.ab]} if self.ab else {}),
            **({"fleet": asdict(self.fleet)} if self.fleet else {}),
        }

    def text(self) -> str:
        """Return the file's text: one line a value, but lists of samples on one line."""
        return document_text(self.document())

    def write(self, path: Path) -> None:
        """Write the file whole; see `write_whole`."""
        write_whole(path, self.text().encode())


def document_text(document: Mapping[str, Any]) -> str:
    """Return plain values as the text of a results file."""
    return json_text(_dump(document)) + "\n"


def _plain(result: Result) -> dict[str, Any]:
    """Return a result under the keys of the schema, in its order."""
    values = asdict(result)
    if values["time"]:
        values["time"]["samples_s"] = [float(f"{sample:.7g}") for sample in values["time"]["samples_s"]]
    return values


def _plain_ab(each: Ab) -> dict[str, Any]:
    return {**asdict(each), "old": _plain(each.old), "new": _plain(each.new)}


def _dump(value: Any, indent: str = "") -> str:
    """Return JSON with short lists on one line: a thousand samples would otherwise be a thousand lines."""
    inner = indent + "  "
    if isinstance(value, Mapping) and value:
        rows = (f"{inner}{json.dumps(str(key))}: {_dump(item, inner)}" for key, item in value.items())
        return "{\n" + ",\n".join(rows) + f"\n{indent}}}"
    if isinstance(value, Sequence) and not isinstance(value, str) and any(isinstance(i, Mapping) for i in value):
        return "[\n" + ",\n".join(f"{inner}{_dump(item, inner)}" for item in value) + f"\n{indent}]"
    return json.dumps(_finite(value))


def _finite(value: Any) -> Any:
    """Return a value with NaN and infinities as text, which JSON lacks."""
    if isinstance(value, float) and (value != value or value in (float("inf"), float("-inf"))):
        return str(value)
    if isinstance(value, (list, tuple)):
        return [_finite(item) for item in value]
    return value


# Reading -------------------------------------------------------------------------------------------------------------


def load(path: str | Path) -> ResultsFile:
    """Read a results file of this schema or an older one, or the one that a report's page holds.

    Raises CudabenchError, with one sentence, for a file that is missing, unreadable, cut off, no JSON, no results file,
    of a newer schema, or a page of several.
    """
    found = load_all(path)
    if len(found) > 1:
        raise CudabenchError(
            f"{path} is a page of {len(found)} results files: name a file of --json, or a page of one."
        )
    return found[0]


def under_another_roof(file: ResultsFile, result: Result) -> bool:
    """Whether a result is a bound on another card than the one whose roofs the file has."""
    roof = file.settings.get("on")
    return not result.time and isinstance(roof, dict) and result.limits_on not in (None, roof.get("card"))


def load_named(name: str) -> ResultsFile:
    """Return what a card of this name can do where the package knows one and no file is called so, else read the
    results file. Raises CudabenchError as `load` does."""
    known = known_card(name)
    if known in MEASURED:
        return load(measured_file(known))
    if known:
        card = shipped(known)
        return ResultsFile({}, {}, {}, devices=[card.device], ceilings=[*card.ceilings.values()])
    return load(name)


def known_card(name: str) -> str | None:
    """Return the card of the package that a name means where no file is called so, None for every other name."""
    return None if Path(name).exists() else known_as(name)


def load_all(path: str | Path) -> list[ResultsFile]:
    """Read a results file, or all that a report's page holds. Raises CudabenchError as `load` does."""
    path = Path(path)
    text = _read(path)
    if not PAGE.match(text):
        return [parse(text, str(path))]
    held = [match[1] for match in HELD.finditer(text)]
    if not held:
        raise CudabenchError(f"{path} is an HTML page without results: name one of 'cudabench report', or a JSON file.")
    return [parse(each, str(path)) for each in held]


def parse(text: str, name: str) -> ResultsFile:
    """Return the content of a results file; `name` is what errors call it. Raises CudabenchError as `load` does."""
    try:
        document = parse_json(text)
    except json.JSONDecodeError as error:
        if not text.strip():
            raise CudabenchError(f"{name} is empty: the run that should have written it left nothing.") from None
        cut_off = error.pos >= len(text.rstrip()) or error.msg.startswith("Unterminated")
        if cut_off and text.lstrip().startswith("{"):
            raise CudabenchError(
                f"{name} is cut off at line {error.lineno}: it is no whole JSON; copy it again or measure anew."
            ) from None
        raise CudabenchError(f"{name} is no JSON (line {error.lineno}: {error.msg}): name a file of --json.") from None
    except RecursionError:
        raise CudabenchError(f"{name} is no cudabench results file: its JSON is nested too deeply.") from None
    except ValueError as error:
        raise CudabenchError(f"{name} is no cudabench results file: {error}.") from None
    if not isinstance(document, dict) or not isinstance(document.get("schema"), str):
        raise CudabenchError(f'{name} is no cudabench results file: it has no "schema"; name a file of --json.')
    schema = document["schema"]
    match = re.fullmatch(r"cudabench/(\d+)", schema)
    if not match:
        raise CudabenchError(f"{name} is no cudabench results file: its schema is '{schema}', not '{SCHEMA}'.")
    if int(match[1]) > int(SCHEMA.partition("/")[2]):
        raise CudabenchError(
            f"{name} has schema {schema}; cudabench {__version__} reads up to {SCHEMA}: upgrade cudabench."
        )
    if not isinstance(document.get("results"), list):
        raise CudabenchError(f'{name} is no cudabench results file: it has no list "results".')
    try:
        device = _decode(DeviceInfo | None, document.get("device"), "device")
        devices = [_decode(DeviceInfo, d, f"devices[{at}]") for at, d in enumerate(document.get("devices") or [])]
        settings = _mapping(document.get("settings"), "settings")
        _mapping(settings.get("options"), "settings.options")
        return ResultsFile(
            settings=settings,
            tool=_mapping(document.get("tool"), "tool"),
            host=_mapping(document.get("host"), "host"),
            devices=devices or ([device] if device else []),
            provenance=_mapping(document.get("provenance"), "provenance"),
            results=[_decode(Result, value, f"results[{at}]") for at, value in enumerate(document["results"])],
            diff=[_decode(CodeDifference, each, f"diff[{at}]") for at, each in enumerate(document.get("diff") or [])],
            listings=_decode(dict[str, str], document.get("listings") or {}, "listings"),
            ceilings=[_decode(Ceiling, each, f"ceilings[{at}]") for at, each in enumerate(_list(document, "ceilings"))],
            ab=[_decode(Ab, each, f"ab[{at}]") for at, each in enumerate(document.get("ab") or [])],
            fleet=_decode(Fleet | None, document.get("fleet"), "fleet"),
        )
    except _Misfit as error:
        raise CudabenchError(f"{name} does not follow {schema}: {error}.") from None


def _read(path: Path) -> str:
    try:
        with open_bytes(path) as stream:
            content = stream.read(MOST_BYTES + 1)
        if len(content) > MOST_BYTES:
            raise CudabenchError(f"{path} is no cudabench results file: it has over {MOST_BYTES >> 20} MiB.")
        return content.decode("utf-8-sig")
    except FileNotFoundError:
        raise no_such_file(path, "*.json") from None
    except IsADirectoryError:
        raise CudabenchError(f"{path} is a directory: name a results file in it.") from None
    except UnicodeDecodeError:
        raise CudabenchError(f"{path} is no cudabench results file: it is not UTF-8 text.") from None
    except OSError as error:
        raise CudabenchError(f"{path} cannot be read: {error.strerror or error}.") from None


class _Misfit(Exception):
    """A value that is not of its key's type: which key, and what it is instead."""


def _list(document: Mapping[str, Any], key: str) -> list[Any]:
    value = document.get(key) or []
    if not isinstance(value, list):
        raise _Misfit(f"{key} is {_shown(value)}, not a list")
    return value


def _mapping(value: Any, where: str) -> dict[str, Any]:
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise _Misfit(f"{where} is {_shown(value)}, not an object")
    return value


def _decode(hint: Any, value: Any, where: str) -> Any:
    """Return a JSON value as the type that a record's annotation asks for."""
    origin, arguments = get_origin(hint), get_args(hint)
    if hint is Any:
        return value
    if origin in (types.UnionType,) or type(None) in arguments:
        return None if value is None else _decode(next(a for a in arguments if a is not type(None)), value, where)
    if is_dataclass(hint) and isinstance(hint, type):
        return _record(hint, _object(value, where), where)
    if origin is Literal:
        if value not in arguments:
            raise _Misfit(f"{where} is {_shown(value)}, not one of {', '.join(arguments)}")
        return value
    if origin is tuple:
        if not isinstance(value, list):
            raise _Misfit(f"{where} is {_shown(value)}, not a list")
        if hint == Dim:
            value = [*value, 1, 1, 1][:3]
        return tuple(_decode(arguments[0], item, f"{where}[{at}]") for at, item in enumerate(value))
    if hint == Mapping[str, float]:
        # A size is of whole numbers, but for a user's own kernel, whose scalars it holds: what is whole stays so.
        return {
            key: _scalar(int if isinstance(item, int) else float, item, f"{where}.{key}")
            for key, item in _object(value, where).items()
        }
    if origin is not None and issubclass(origin, Mapping):
        return {str(key): _decode(arguments[1], item, f"{where}.{key}") for key, item in _object(value, where).items()}
    return _scalar(hint, value, where)


def _scalar(hint: type, value: Any, where: str) -> Any:
    """Return a number or text; NaN and infinities were written as text."""
    if hint is float and (isinstance(value, (int, float)) or value in ("nan", "inf", "-inf")):
        if not isinstance(value, bool):
            return float(value)
    elif hint is int and isinstance(value, float) and value.is_integer():
        return int(value)
    elif isinstance(value, hint) and not (hint is int and isinstance(value, bool)):
        return value
    names = {float: "a number", int: "a whole number", str: "text", bool: "true or false"}
    raise _Misfit(f"{where} is {_shown(value)}, not {names.get(hint, hint.__name__)}")


def _record(kind: type, value: dict[str, Any], where: str) -> Any:
    hints = _hints(kind)
    given: dict[str, Any] = {}
    for spec in fields(kind):
        if spec.name in value:
            given[spec.name] = _decode(hints[spec.name], value[spec.name], f"{where}.{spec.name}")
        elif spec.name in ESSENTIAL.get(kind, ()) or _must_be_one_of(spec, hints[spec.name]):
            raise _Misfit(f'{where} has no "{spec.name}"')
        elif spec.default is MISSING and spec.default_factory is MISSING:
            given[spec.name] = _empty(hints[spec.name])
    if kind is Timing:
        _check_times(given, where)
    return kind(**given)


@functools.cache
def _hints(kind: type) -> dict[str, Any]:
    """The types of a record's keys, evaluated once: a file has thousands of records."""
    return get_type_hints(kind)


def _must_be_one_of(spec: Field[Any], hint: Any) -> bool:
    """Whether a key has no empty value: it is one of some words, none of which is the one that means nothing."""
    return get_origin(hint) is Literal and spec.default is MISSING and spec.default_factory is MISSING


def _check_times(given: Mapping[str, Any], where: str) -> None:
    """Refuse what no clock gives: what is below zero, infinite or no number."""
    samples = given.get("samples_s", ())
    for name, value in [*given.items(), *(("samples_s", sample) for sample in samples)]:
        if name.endswith("_s") and isinstance(value, float) and not 0 <= value < float("inf"):
            raise _Misfit(f"{where}.{name} is {value:g}, no time")


def _empty(hint: Any) -> Any:
    if type(None) in get_args(hint):
        return None
    if hint == Dim:
        return (0, 0, 0)
    return (get_origin(hint) or hint)() if get_origin(hint) is not Mapping else {}


def _object(value: Any, where: str) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise _Misfit(f"{where} is {_shown(value)}, not an object")
    return value


def _shown(value: Any) -> str:
    text = json.dumps(value)
    return text if len(text) <= 40 else text[:37] + "..."
