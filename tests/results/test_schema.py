"""The schema of the results file: it is valid, describes what the tool writes, and generates docs/results.md."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Annotated, Any

import jsonschema_rs
import pytest

from cudabench.records.file import ResultsFile, parse
from cudabench.records.results import Result
from cudabench.results import schema as schemas
from cudabench.results.warnings import KINDS, warning
from tests.conftest import Ran, on_cards
from tests.records.test_results_file import file as measured
from tests.results.test_compare import DATA, RECORDED, simulated

Runner = Callable[..., Ran]
ROOT = Path(__file__).resolve().parents[2]


def valid(document: object, *, strict: bool = False) -> bool:
    """Return whether a document follows the schema."""
    return jsonschema_rs.Draft202012Validator(schemas.schema(strict)).is_valid(document)


@pytest.mark.parametrize("strict", [False, True])
def test_schema_is_one(strict: bool) -> None:
    """The schema is valid in its dialect, and every reference in it exists."""
    schema = schemas.schema(strict)
    jsonschema_rs.meta.validate(schema)
    text = json.dumps(schema)
    for name in schema["$defs"]:
        assert f'"#/$defs/{name}"' in text
    assert text.count('"$ref"') == sum(text.count(f'"#/$defs/{name}"') for name in schema["$defs"])


def keys(value: Any, path: str = "") -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield every key of a schema with its definition."""
    for name, found in value.get("properties", {}).items():
        yield f"{path}.{name}", found
        yield from keys(found, f"{path}.{name}")
    for name, record in value.get("$defs", {}).items():
        yield from keys(record, name)


def test_every_key_is_described() -> None:
    """Every key has a description that ends with a full stop."""
    for path, found in keys(schemas.schema()):
        assert found.get("description", "").endswith("."), path


@pytest.mark.sampled(2)
@pytest.mark.parametrize(
    ("key", "unit"),
    [
        ("median_s", "s"), ("samples_s", "s"), ("bandwidth_gbps", "GB/s"), ("gflops", "GFLOP/s"), ("bytes", "bytes"),
        ("l2_bytes", "bytes"), ("copy_fraction", "ratio"), ("registers", None), ("samples", None),
    ],
)  # fmt: skip
def test_units(key: str, unit: str | None) -> None:
    """The unit of a key follows from its name."""
    found = [value.get("unit") for path, value in keys(schemas.schema()) if path.endswith(f".{key}")]
    assert found
    assert set(found) == {unit}


def test_what_is_written_is_valid() -> None:
    """Results files of a GPU, the simulator, several GPUs and no device follow the strict schema."""
    for file in (measured(), simulated(hazards=3), on_cards(measured(), "a", "b"), replace(measured(), devices=[])):
        document = json.loads(file.text())
        jsonschema_rs.Draft202012Validator(schemas.schema(strict=True)).validate(document)


def test_what_was_written_stays_valid() -> None:
    """A file of an earlier version follows the schema and is read."""
    text = (DATA / "h200.json").read_text()
    assert valid(json.loads(text))
    assert parse(text, "h200.json").results == RECORDED.results


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"schema": "cudabench/2"}, "another schema"),
        ({"results": None}, "no list"),
        ({"results": [{"operation": "transpose"}]}, "an essential key is missing"),
        ({"device": {"name": "x", "kind": "tpu"}}, "an unknown kind"),
    ],
)
def test_what_is_no_results_file(change: dict[str, Any], why: str) -> None:
    """The schema refuses what the reader refuses."""
    assert not valid({**json.loads(measured().text()), **change}), why


SPOILED: dict[str, Any] = {
    "block": [32, 8],
    "grid": [1, 2, "3"],
    "status": "fine",
    "registers": 1.5,
    "bytes": "many",
    "size": {"n": "4"},
    "warnings": [{"code": 1, "message": ""}],
    "access": [{"line": "1"}],
    "time": {"median_s": None},
}


@pytest.mark.sampled(2)
@pytest.mark.parametrize(("key", "value"), list(SPOILED.items()))
def test_wrong_types_are_refused(key: str, value: Any) -> None:
    """The schema refuses a value of a wrong type."""
    document = json.loads(measured().text())
    document["results"][0][key] = value
    assert not valid(document)


def test_schema_grows() -> None:
    """A key of a later version passes the schema, but not the strict schema."""
    document = json.loads(measured().text())
    document["results"][0]["later"] = 1
    assert valid(document)
    assert not valid(document, strict=True)
    del document["results"][0]["later"], document["results"][0]["occupancy"]
    assert valid(document)
    assert not valid(document, strict=True)


def test_numbers_that_json_lacks() -> None:
    """NaN and infinity are written as text, and other text is not a number."""
    document = json.loads(replace(measured(), results=[replace(measured().results[0], gflops=float("nan"))]).text())
    assert document["results"][0]["gflops"] == "nan"
    assert valid(document, strict=True)
    document["results"][0]["gflops"] = "fast"
    assert not valid(document)


@dataclass(frozen=True)
class Later:
    """A record that a later version adds."""

    spent_s: Annotated[tuple[float, ...], "Seconds."] = ()


@dataclass
class LaterFile(ResultsFile):
    """A results file with an additional key."""

    later: Annotated[Later | None, "What is new."] = field(default=None)


def test_schema_follows_from_the_records(monkeypatch: pytest.MonkeyPatch) -> None:
    """A new record appears in the schema and on the page without further code."""
    monkeypatch.setattr(schemas, "ResultsFile", LaterFile)
    schema = schemas.schema()
    assert schema["properties"]["later"]["anyOf"][0] == {"$ref": "#/$defs/Later"}
    assert schema["$defs"]["Later"]["properties"]["spent_s"]["unit"] == "s"
    assert "| `spent_s` | list of number | s | Seconds. |" in schemas.reference()


def test_page_is_up_to_date() -> None:
    """docs/results.md is what `cudabench schema --markdown -o docs/results.md` writes."""
    assert (ROOT / "docs" / "results.md").read_text(encoding="utf-8") == schemas.reference()


def test_only_a_warning_has_the_codes_of_warnings() -> None:
    """Only the record Warning lists warning codes for its key `code`; other records use `code` differently."""
    told = {
        name: "imprecise" in str(record["properties"]["code"].get("description"))
        for name, record in schemas.schema()["$defs"].items()
        if "code" in record.get("properties", {})
    }
    assert len(told) > 1
    assert [name for name, codes in told.items() if codes] == ["Warning"]


def test_page_names_every_key() -> None:
    """The page has a row for every key of a result, and every link leads to a heading."""
    page = schemas.reference()
    for name in Result.__dataclass_fields__:
        assert f"| `{name}` |" in page
    for target in set(page.split("](#")[1:]):
        assert f"\n## {target.partition(')')[0]}\n" in page.lower()


def test_command(cudabench: Runner, tmp_path: Path) -> None:
    """`cudabench schema` prints the schema, -o writes it to a file, --markdown prints the page."""
    ran = cudabench("schema")
    assert (ran.code, ran.err) == (0, "")
    assert ran.json == schemas.schema()
    assert cudabench("schema", "-o", "schema.json").out == ""
    assert (tmp_path / "schema.json").read_text() == ran.out
    assert cudabench("schema", "--markdown").out == schemas.reference()


# Warnings ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("code", KINDS)
def test_warnings_name_their_option(code: str) -> None:
    """Each warning's sentence names the option that fixes it, which exists, and has no final full stop."""
    from cudabench.cli import group

    kind = KINDS[code]
    assert kind.option in kind.sentence or "{larger}" in kind.sentence  # a user's kernel has another text
    assert not kind.sentence.endswith(".")
    assert kind.meaning.endswith(".")
    options = set()
    for name in ("transpose", "run"):
        command = group.get_command(None, name)  # type: ignore[arg-type]
        assert command is not None
        options |= {option for param in command.params for option in param.opts}
    assert kind.option in options or not kind.option  # some warnings need a change of the source


def test_warning() -> None:
    """A warning is its sentence with the figures filled in; an unknown code or a missing figure raises KeyError."""
    made = warning("partial-warp", threads="48 threads", leave="leave", idle=16, warp=32)
    assert made.code == "partial-warp"
    assert made.message == "48 threads a block leave 16 lanes of the last warp idle: make --block a multiple of 32"
    with pytest.raises(KeyError):
        warning("partial-warp")
    with pytest.raises(KeyError):
        warning("no-such-code")


def test_every_warning_is_of_the_registry() -> None:
    """Only the registry and the record create warnings: no other module contains ` Warning(`."""
    for path in (ROOT / "cudabench").rglob("*.py"):
        if path.name not in ("model.py", "warnings.py"):
            assert " Warning(" not in path.read_text(encoding="utf-8"), path
