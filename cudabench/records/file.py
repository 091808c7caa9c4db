"""Defines the schema of the results file, writes results files (the whole file or nothing), and reads them.

Unknown keys are ignored, and a missing key gets an empty value. So files with older schemas and files written by hand
can be read too. The keys that a comparison needs must exist and have the right type.

Schema history
1  first version
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Annotated, Any, get_type_hints

from cudabench import __version__
from cudabench.cards import Ceiling
from cudabench.errors import CudabenchError
from cudabench.records.decode import DecodeError, decode
from cudabench.records.fleet import Fleet
from cudabench.records.program import Program
from cudabench.records.results import DeviceInfo, Result
from cudabench.records.revisions import Ab, CodeDifference
from cudabench.system.outputs import write_whole
from cudabench.system.reading import content, parse_json
from cudabench.text import json as json_text

SCHEMA = "cudabench/1"
# A file with more bytes is not read. The results of a thousand kernels with a thousand samples each take 20 MB.
MOST_BYTES = 256 << 20

# Patterns that find the results in an HTML page of `cudabench report`. In the page, '<' inside the results is written
# as \\u003c.
PAGE = re.compile(r"\s*<!doctype html", re.IGNORECASE)
EMBEDDED_RESULTS = re.compile(r'<script type="application/json" class="cudabench-results">([^<]*)</script>')


@dataclass
class ResultsFile:
    """The results of one run; `write` may be called after every kernel.

    `devices` is empty until the first device is ready; a run on all cards of a machine has several.
    """

    settings: Annotated[Mapping[str, Any], "The request: how to measure, and what."]
    tool: Annotated[Mapping[str, Any], "Names and versions of this tool and of the programs that it used."]
    host: Annotated[Mapping[str, Any], "The machine."]
    devices: Annotated[list[DeviceInfo], "All devices, if a run uses several."] = field(default_factory=list)
    results: Annotated[list[Result], "One entry for each kernel."] = field(default_factory=list)
    provenance: Annotated[
        dict[str, Any],
        "Time and command of the run, its sources and compiler, the card's state, and where the time went.",
    ] = field(default_factory=dict)
    diff: Annotated[list[CodeDifference], "Of cudabench diff: one entry for each kernel and architecture."] = field(
        default_factory=list
    )
    listings: Annotated[
        dict[str, str], "Text of the sources by name, with --report; only the first 64,000 characters of a long source."
    ] = field(default_factory=dict)
    ceilings: Annotated[list[Ceiling], "Of cudabench ceilings: one entry for each ceiling."] = field(
        default_factory=list
    )
    fleet: Annotated[Fleet | None, "Of cudabench fleet: the card of a shard, or the findings of a report."] = None

    program: Annotated[Program | None, "Of cudabench exec: the program, its launches and its end."] = None

    ab: Annotated[list[Ab], "Of cudabench ab: the two sides with their ratio."] = field(default_factory=list)

    def measured(self, name: str) -> ResultsFile:
        """Return this object if it contains results to compare. Raises CudabenchError if `cudabench ab` or `cudabench
        diff` wrote the file; the message names the command that shows the file. `name`: the file's name in errors."""
        kinds = (
            ("ab", "its verdict on two kernels, not results to compare", f"export {name}"),
            ("diff", "machine code, not results", "diff"),
        )
        for command, holds, shown_by in kinds:
            if getattr(self, command) and not self.results:
                raise CudabenchError(
                    f"{name} was written by 'cudabench {command}' and holds {holds}: 'cudabench {shown_by} --to "
                    "markdown' shows it; 'cudabench run --json' writes results."
                )
        return self

    @property
    def device(self) -> DeviceInfo | None:
        """The device, or the first of several; None if the run ended before the device was ready."""
        return self.devices[0] if self.devices else None

    def device_of(self, result: Result) -> DeviceInfo | None:
        """Return the device that made a result; the first device if the result does not name one."""
        return next((d for d in self.devices if result.device == d.label), self.device)

    def by_device(self) -> list[ResultsFile]:
        """Return one ResultsFile for each device, with the device's results; for at most one device, this object."""
        if len(self.devices) < 2:
            return [self]
        return [
            replace(self, devices=[d], results=[r for r in self.results if self.device_of(r) == d])
            for d in self.devices
        ]

    def document(self) -> dict[str, Any]:
        """Return the file's content as dicts, lists, texts and numbers."""
        return self._document(_plain)

    def _document(self, shown: Callable[[Result], Any]) -> dict[str, Any]:
        of_commands: dict[str, Any] = {
            "diff": [asdict(record) for record in self.diff],
            "listings": self.listings,
            "ceilings": [asdict(record) for record in self.ceilings],
            "ab": [{**asdict(record), "old": _plain(record.old), "new": _plain(record.new)} for record in self.ab],
            "fleet": self.fleet and asdict(self.fleet),
            "program": self.program and asdict(self.program),
        }
        return {
            "schema": SCHEMA,
            "tool": {"name": "cudabench", "version": __version__, **self.tool},
            "host": dict(self.host),
            "device": asdict(self.device) if self.device else None,
            **({"devices": [asdict(device) for device in self.devices]} if len(self.devices) > 1 else {}),
            "settings": dict(self.settings),
            "provenance": self.provenance,
            "results": [shown(result) for result in self.results],
            **{key: value for key, value in of_commands.items() if value},
        }

    def text(self) -> str:
        """Return the file's JSON text: each value on its own line, but each list of numbers on one line."""
        return document_text(self._document(self._text_of))

    def _text_of(self, result: Result) -> _Text:
        """Return the JSON text of a result, cached: the whole file is written again after each kernel."""
        texts: dict[int, tuple[Result, _Text]] = vars(self).setdefault("_texts", {})
        if id(result) not in texts:
            texts[id(result)] = result, _Text(_dump(_plain(result), "    "))
        return texts[id(result)][1]

    def write(self, path: Path) -> None:
        """Write the whole file or, if that fails, nothing; see `write_whole`."""
        write_whole(path, self.text().encode())


def document_text(document: Mapping[str, Any]) -> str:
    """Return the JSON text of a results file from its content, as `ResultsFile.document` returns it."""
    return json_text(_dump(document)) + "\n"


def _plain(result: Result) -> dict[str, Any]:
    """Return a result as a dict with the schema's keys, in the schema's order."""
    values = asdict(result)
    if values["time"]:
        values["time"]["samples_s"] = [float(f"{sample:.7g}") for sample in values["time"]["samples_s"]]
    return values


class _Text(str):
    """JSON text that `_dump` has already produced, and does not quote again."""


def _dump(value: Any, indent: str = "") -> str:
    """Return indented JSON with each list of plain values on one line: a thousand samples need only one line."""
    if isinstance(value, _Text):
        return value
    inner = indent + "  "
    if isinstance(value, Mapping) and value:
        rows = (f"{inner}{json.dumps(str(key))}: {_dump(item, inner)}" for key, item in value.items())
        return "{\n" + ",\n".join(rows) + f"\n{indent}}}"
    if (
        isinstance(value, Sequence)
        and not isinstance(value, str)
        and any(isinstance(i, (Mapping, _Text)) for i in value)
    ):
        return "[\n" + ",\n".join(f"{inner}{_dump(item, inner)}" for item in value) + f"\n{indent}]"
    return json.dumps(finite(value))


def finite(value: Any) -> Any:
    """Return a value in which NaN and infinities, which JSON lacks, are replaced by text."""
    if isinstance(value, float) and (value != value or value in (float("inf"), float("-inf"))):
        return str(value)
    if isinstance(value, dict):
        return {key: finite(item) for key, item in value.items()}
    return [finite(item) for item in value] if isinstance(value, (list, tuple)) else value


# Reading -------------------------------------------------------------------------------------------------------------


def load(path: str | Path) -> ResultsFile:
    """Read a results file of this schema or an older one, or a report's HTML page that contains one results file.

    Raises CudabenchError, with one sentence, if the file is missing, unreadable, cut off, not JSON, not a results file,
    or has a newer schema, and for a page that contains several results files.
    """
    loaded = load_all(path)
    if len(loaded) > 1:
        raise CudabenchError(
            f"{path} is a page of {len(loaded)} results files: name a file of --json, or a page of a single file."
        )
    return loaded[0]


def is_on_another_card(file: ResultsFile, result: Result) -> bool:
    """Return whether a result has no time, and its limits are for another card than the file's --on."""
    roof = file.settings.get("on")
    return not result.time and isinstance(roof, dict) and result.limits_on not in (None, roof.get("card"))


def load_all(path: str | Path) -> list[ResultsFile]:
    """Read a results file, or all results files in a report's HTML page. Raises CudabenchError as `load` does."""
    path = Path(path)
    text = read_text(path)
    if not PAGE.match(text):
        return [parse(text, str(path))]
    embedded = [match[1] for match in EMBEDDED_RESULTS.finditer(text)]
    if not embedded:
        raise CudabenchError(
            f"{path} is an HTML page without results: name a page of 'cudabench report', or a JSON file."
        )
    return [parse(embedded_text, str(path)) for embedded_text in embedded]


def document_of(text: str, name: str) -> dict[str, Any]:
    """Parse the JSON text of a results file into a dict. `name`: the file's name in errors.

    Raises CudabenchError as `load` does.
    """
    try:
        return check_schema(parse_json(text), name)
    except json.JSONDecodeError as error:
        if not text.strip():
            raise CudabenchError(f"{name} is empty: the run did not write it; measure again.") from None
        cut_off = error.pos >= len(text.rstrip()) or error.msg.startswith("Unterminated")
        if cut_off and text.lstrip().startswith("{"):
            raise CudabenchError(
                f"{name} is cut off at line {error.lineno}: its JSON is incomplete; copy it again or measure again."
            ) from None
        raise CudabenchError(f"{name} is not JSON (line {error.lineno}: {error.msg}): name a file of --json.") from None
    except RecursionError:
        raise CudabenchError(f"{name} is not a cudabench results file: its JSON is nested too deeply.") from None
    except ValueError as error:
        raise CudabenchError(f"{name} is not a cudabench results file: {error}.") from None


def check_schema(document: Any, name: str) -> dict[str, Any]:
    """Return the parsed document unchanged if this version can read its schema; else raise CudabenchError."""
    if not isinstance(document, dict) or not isinstance(document.get("schema"), str):
        raise CudabenchError(f'{name} is not a cudabench results file: it lacks "schema"; name a file of --json.')
    schema = document["schema"]
    match = re.fullmatch(r"cudabench/(\d{1,4})", schema, re.ASCII)
    if not match:
        raise CudabenchError(f"{name} is not a cudabench results file: its schema is '{schema}', not '{SCHEMA}'.")
    if int(match[1]) > int(SCHEMA.partition("/")[2]):
        raise CudabenchError(
            f"{name} has schema {schema}; cudabench {__version__} reads up to {SCHEMA}: upgrade cudabench."
        )
    return document


def parse(text: str, name: str) -> ResultsFile:
    """Return the ResultsFile of a JSON text. `name`: the file's name in errors. Raises CudabenchError, see `load`."""
    document = document_of(text, name)
    if not isinstance(document.get("results"), list):
        raise CudabenchError(f'{name} is not a cudabench results file: it lacks the list "results".')
    hints = get_type_hints(ResultsFile).items()
    try:
        values = {key: decode(hint, document[key], key) for key, hint in hints if document.get(key) is not None}
        device = decode(DeviceInfo | None, document.get("device"), "device")
        decode(dict[str, Any] | None, values.get("settings", {}).get("options"), "settings.options")
    except DecodeError as error:
        raise CudabenchError(f"{name} does not follow {document['schema']}: {error}.") from None
    file = ResultsFile(**{"settings": {}, "tool": {}, "host": {}, **values})
    file.devices = file.devices or ([device] if device else [])
    return file


def read_text(path: Path) -> str:
    """Return the text of a file. Raises CudabenchError if it cannot be read."""
    no_file = "is not a cudabench results file: it"
    raw = content(path, "*.json", "a results file", MOST_BYTES, f"{no_file} is over {MOST_BYTES >> 20} MiB.")
    try:
        return raw.decode("utf-8-sig")
    except UnicodeDecodeError:
        raise CudabenchError(f"{path} {no_file} is not UTF-8 text.") from None
