"""Makes the JSON Schema of the results file, and a Markdown page of the file's keys, both from the records alone.

The meaning of a key is the text in its field's `Annotated`. The unit of a key follows from the key's name.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import fields, is_dataclass
from typing import Annotated, Any, Literal, get_args, get_origin, get_type_hints

from cudabench.records.decode import ESSENTIAL
from cudabench.records.file import SCHEMA, ResultsFile
from cudabench.records.launch import Dim
from cudabench.records.plan import Settings
from cudabench.records.results import DeviceInfo, Warning
from cudabench.results.warnings import KINDS

FIRST_DEVICE = "The device, or the first of several; null if the run ended before the device was ready."
DIALECT = "https://json-schema.org/draft/2020-12/schema"

# Top-level keys that are left out of the file if they are empty.
SOMETIMES = ("devices", "diff", "ceilings", "listings", "ab", "fleet", "program")

UNITS = (
    (r"(.*_)?bytes", "bytes"),
    (r".*_s|min_time|max_time|timeout", "s"),
    (r".*_gbps", "GB/s"),
    (r"gflops", "GFLOP/s"),
    (r"(.*_)?fraction|relative_ci|footprint_over_l2|speedup_vs_cpu", "ratio"),
)

# The JSON type of each Python type.
SCALARS: dict[Any, dict[str, Any]] = {
    str: {"type": "string"},
    int: {"type": "integer"},
    bool: {"type": "boolean"},
    # JSON has no NaN and no infinity, so the file contains them as text.
    float: {"type": ["number", "string"], "pattern": "^(nan|inf|-inf)$"},
    Any: {},
}


def unit(key: str) -> str | None:
    """Return the unit that a key's name implies, or None."""
    return next((name for pattern, name in UNITS if re.fullmatch(pattern, key)), None)


def schema(strict: bool = False) -> dict[str, Any]:
    """Return the JSON Schema of a results file.

    By default it accepts every file of its major version: keys may be missing or unknown. With `strict` it accepts only
    files with exactly the keys that this version writes.
    """
    definitions: dict[str, Any] = {}
    keys = {key: _described(key, hint, definitions, strict) for key, hint in _top()}
    keys["settings"] = {**keys["settings"], "properties": _record(Settings, definitions, False)["properties"]}
    required = [key for key in keys if key not in SOMETIMES] if strict else ["results"]
    return {
        "$schema": DIALECT,
        "title": f"Results file of cudabench, {SCHEMA}",
        "description": "Times in seconds, bandwidth in GB/s with GB = 10^9 bytes. What was not measured is null.",
        "type": "object",
        "properties": {"schema": {"const": SCHEMA, "description": "Name and version of this schema."}, **keys},
        "required": ["schema", *required],
        **({"additionalProperties": False} if strict else {}),
        "$defs": dict(sorted(definitions.items())),
    }


def _top() -> Iterator[tuple[str, Any]]:
    """Yield (key, type) for each key at the top level of the file: the fields of the record, and `device`."""
    hints = get_type_hints(ResultsFile, include_extras=True)
    for spec in fields(ResultsFile):
        if spec.name == "devices":
            yield "device", Annotated[DeviceInfo | None, FIRST_DEVICE]
        yield spec.name, hints[spec.name]


def _described(key: str, hint: Any, definitions: dict[str, Any], strict: bool) -> dict[str, Any]:
    """Return the schema of a key with its meaning and unit."""
    description = dict(_type(hint, definitions, strict))
    meaning = str(get_args(hint)[1]) if get_origin(hint) is Annotated else ""
    if hint == get_type_hints(Warning, include_extras=True)["code"]:
        meaning = f"{meaning} Today: {', '.join(KINDS)}."
    if meaning:
        description["description"] = meaning
    if unit(key):
        description["unit"] = unit(key)
    return description


def _type(hint: Any, definitions: dict[str, Any], strict: bool) -> dict[str, Any]:
    """Return the schema of a Python type; for a record, a reference to its schema, which is put into `definitions`."""
    origin, arguments = get_origin(hint), get_args(hint)
    if origin is Annotated:
        return _type(arguments[0], definitions, strict)
    if hint in SCALARS:
        return SCALARS[hint]
    if type(None) in arguments:
        (inner,) = (argument for argument in arguments if argument is not type(None))
        return _or_null(_type(inner, definitions, strict))
    if isinstance(hint, type) and is_dataclass(hint):
        if hint.__name__ not in definitions:
            # An entry made in advance ends the recursion for a record that contains itself.
            definitions[hint.__name__] = {}
            definitions[hint.__name__] = _record(hint, definitions, strict)
        return {"$ref": f"#/$defs/{hint.__name__}"}
    if origin is Literal:
        return {"enum": list(arguments)}
    if hint == Dim:
        return {"type": "array", "items": {"type": "integer"}, "minItems": 3, "maxItems": 3}
    if origin in (tuple, list):
        return {"type": "array", "items": _type(arguments[0], definitions, strict)}
    if origin is not None and issubclass(origin, Mapping):
        values = _type(arguments[1], definitions, strict)
        return {"type": "object", **({"additionalProperties": values} if values else {})}
    raise TypeError(f"{hint} lacks a JSON type: add it to results/schema.py")


def _or_null(kind: dict[str, Any]) -> dict[str, Any]:
    if "enum" in kind:
        return {"enum": [*kind["enum"], None]}
    if "type" in kind:
        kinds = kind["type"] if isinstance(kind["type"], list) else [kind["type"]]
        return {**kind, "type": [*kinds, "null"]}
    return {"anyOf": [kind, {"type": "null"}]} if kind else {}


def _record(kind: type, definitions: dict[str, Any], strict: bool) -> dict[str, Any]:
    hints = get_type_hints(kind, include_extras=True)
    names = [spec.name for spec in fields(kind)]
    required = names if strict else [name for name in names if name in ESSENTIAL.get(kind, ())]
    return {
        "type": "object",
        "description": _sentence(kind),
        "properties": {name: _described(name, hints[name], definitions, strict) for name in names},
        **({"required": required} if required else {}),
        **({"additionalProperties": False} if strict else {}),
    }


def _sentence(kind: type) -> str:
    return " ".join((kind.__doc__ or "").split("\n\n")[0].split()).replace("None", "null")


OPENING = f"""# The results file

`--json FILE` writes the results of a run, again after every kernel; `--json -` prints them. `compare`, `export`,
`plot` and `report` read the file, and so can a script: the keys below keep their meaning, and new keys may be added.
`cudabench schema` prints them as a JSON Schema (2020-12). A page of `--report` holds the results too, in its script
elements of class `cudabench-results`, without keys that are null and, if they are many, without samples and pictures.

Its schema is `{SCHEMA}`. Times are in seconds, bandwidth in GB/s with GB = 10^9 bytes, blocks and grids x first. A
value that was not measured is `null`: the simulator never gives a time or a bandwidth. JSON lacks NaN and infinities:
they are the texts `"nan"`, `"inf"` and `"-inf"`.

This page is printed by `cudabench schema --markdown`.
"""


def reference() -> str:
    """Return the keys of the results file as a Markdown page with one table for each record."""
    document = schema()
    lines = [OPENING, "## Top level", "", *_table(document["properties"])]
    lines += ["## Settings", "", "The request is here too, by the names of its options:", ""]
    lines += _table(document["properties"]["settings"]["properties"])
    for name, record in _in_order(document):
        lines += [f"## {name}", "", record["description"], "", *_table(record["properties"])]
    lines += ["## Codes of warnings", "", "| code | meaning | repair |", "| :-- | :-- | :-- |"]
    lines += [f"| `{code}` | {kind.meaning} | `{kind.option}` |" for code, kind in KINDS.items()]
    return "\n".join(lines) + "\n"


def _in_order(document: dict[str, Any]) -> list[tuple[str, dict[str, Any]]]:
    """Return the records in the order in which the page mentions them."""
    records: dict[str, dict[str, Any]] = {}

    def visit(value: Any) -> None:
        if isinstance(value, dict):
            name = str(value.get("$ref", "")).rpartition("/")[2]
            if name and name not in records:
                records[name] = document["$defs"][name]
                visit(records[name])
            for item in value.values():
                visit(item)
        elif isinstance(value, list):
            for item in value:
                visit(item)

    visit(document["properties"])
    return list(records.items())


def _table(keys: Mapping[str, Any]) -> list[str]:
    lines = ["| key | type | unit | meaning |", "| :-- | :-- | :-- | :-- |"]
    for key, value in keys.items():
        meaning = value.get("description", "").replace("|", "\\|")
        lines.append(f"| `{key}` | {_type_text(value)} | {value.get('unit', '')} | {meaning} |")
    return [*lines, ""]


def _type_text(value: Mapping[str, Any]) -> str:
    """Return a type in words: 'list of [Access](#access) or null'."""
    if "$ref" in value:
        name = value["$ref"].rpartition("/")[2]
        return f"[{name}](#{name.lower()})"
    if "const" in value:
        return f"`{value['const']}`"
    if "enum" in value:
        return " or ".join("null" if item is None else f"`{item}`" for item in value["enum"])
    if "anyOf" in value:
        return " or ".join(map(_type_text, value["anyOf"]))
    kinds = value.get("type", "anything")
    kinds = [kinds] if isinstance(kinds, str) else kinds
    # Leave out "string" for numbers: the beginning of the page says that a number may be the text "nan".
    return " or ".join(_kind_text(kind, value) for kind in kinds if kind != "string" or "number" not in kinds)


def _kind_text(kind: str, value: Mapping[str, Any]) -> str:
    if kind == "array":
        items = _type_text(value["items"])
        return f"{value['minItems']} x {items}" if "minItems" in value else f"list of {items}"
    if kind == "object" and "additionalProperties" in value:
        return f"object of {_type_text(value['additionalProperties'])}"
    return kind
