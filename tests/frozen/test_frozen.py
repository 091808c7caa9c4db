"""The frozen copies: what users rely on is as it was written. `python -m tests.frozen` compares more, and writes.

The quick part of the comparison is in the fast tests, the rest in slow ones. After a refactoring, compare everything
with the revision before it: `python -m tests.frozen compare machine_code --against REV`.
"""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.frozen import parts
from tests.frozen.shell import DATA, Shell, shell

SAMPLE = ("vecadd",)  # the operations whose counts are compared in the faster tests
MOST_BYTES = 1 << 20  # limit for all results files together
CORPORA = ("advised", "right", "wrong", "files")  # groups of many kernels


def marked(names: list[str]) -> list[Any]:
    """Return names as test parameters: a ladder is slow, a corpus takes minutes."""
    marks = {name: pytest.mark.long if name in CORPORA else pytest.mark.slow for name in names}
    return [pytest.param(name, marks=mark, id=name) for name, mark in marks.items()]


@pytest.fixture(scope="module")
def here() -> Iterator[Shell]:
    """Return a shell of this checkout."""
    with shell() as one:
        yield one


def holds(here: Shell, part: str, name: str) -> None:
    """Compare a name with its written text; skip the test if another version of the compiler wrote it."""
    old, now = parts.stored(part, name), parts.made(here, part, name)
    if parts.PARTS[part].compiled(name) and old.partition("\n")[0] != now.partition("\n")[0]:
        pytest.skip(parts.other_compiler(old, now))
    found = parts.difference(part, name, old, now)
    assert not found, f"\n{found}"


@pytest.mark.sampled(4)
@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[pytest.mark.slow] * (name == "compiled")) for name in parts.transcripts()]
)
def test_output(here: Shell, name: str) -> None:
    """Commands print the same text and return the same exit code as before."""
    if name == "no_gpu" and (Path("/dev/nvidiactl").exists() or Path("/dev/dxg").exists()):
        pytest.skip("this machine has a GPU")
    holds(here, "outputs", name)


@pytest.mark.parametrize("name", ["python", "schema"])
def test_api(here: Shell, name: str) -> None:
    """Every name, argument, default, type and key of the API still exists unchanged."""
    holds(here, "api", name)


@pytest.mark.sampled(60)
@pytest.mark.parametrize("name", parts.results())
def test_results(here: Shell, name: str) -> None:
    """Each view of an old results file has the same exit code as before, and the same error if it cannot show the
    file."""
    holds(here, "results", name)


@pytest.mark.slow
def test_old_files_follow_the_schema(here: Shell) -> None:
    """The schema accepts every old results file; all have the same schema version, and together they are small."""
    import jsonschema_rs

    validator = jsonschema_rs.Draft202012Validator(json.loads(here.run("schema").out))
    paths = sorted((DATA / "results").glob("*.json.gz"))
    made = [line.partition(": ")[0] for line in (DATA / "results.txt").read_text().splitlines() if line[0] != "#"]
    assert {*made, "ladder_h200.json", "ceilings_h100.json", "ab.json", "shard0.json"} <= {*parts.results()}
    for path in paths:
        document = json.loads(gzip.decompress(path.read_bytes()))
        validator.validate(document)
        assert document["schema"] == "cudabench/1", path.name
    assert sum(path.stat().st_size for path in paths) < MOST_BYTES


@pytest.mark.slow
@pytest.mark.parametrize("name", SAMPLE)
def test_counts(here: Shell, name: str) -> None:
    """The counts and hazards of a sample are the same as before."""
    holds(here, "counts", name)


@pytest.mark.parametrize("name", marked([name for name in parts.groups() if name not in SAMPLE]))
def test_all_counts(here: Shell, name: str) -> None:
    """The counts and hazards of all other operations and groups are the same as before."""
    holds(here, "counts", name)


@pytest.mark.parametrize("name", marked(list(parts.groups())))
def test_machine_code(here: Shell, name: str) -> None:
    """The machine code of each kernel is the same as before: of the ladders for four architectures, of the files for
    sm_90."""
    holds(here, "machine_code", name)
