"""The frozen past: what users rely on is as it was written down. `python -m tests.frozen` compares more, and writes.

The quick core is here, the rest is slow. A refactoring compares all of it with the revision before:
`python -m tests.frozen compare machine_code --against REV`.
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

SAMPLE = ("vecadd",)  # of the counts
MOST_BYTES = 1 << 20  # of all results files
CORPORA = ("advised", "right", "wrong", "files")  # of hundreds of kernels


def marked(names: list[str]) -> list[Any]:
    """Return names as parameters: a ladder's are slow, a corpus takes minutes."""
    marks = {name: pytest.mark.long if name in CORPORA else pytest.mark.slow for name in names}
    return [pytest.param(name, marks=mark, id=name) for name, mark in marks.items()]


@pytest.fixture(scope="module")
def here() -> Iterator[Shell]:
    """Give a shell of this checkout."""
    with shell() as one:
        yield one


def holds(here: Shell, part: str, name: str) -> None:
    """Hold a name against what was written; skip what another version of the compiler wrote."""
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
    """Commands print what they printed, and exit as they did."""
    if name == "no_gpu" and (Path("/dev/nvidiactl").exists() or Path("/dev/dxg").exists()):
        pytest.skip("this machine has a GPU")
    holds(here, "outputs", name)


@pytest.mark.parametrize("name", ["python", "schema"])
def test_api(here: Shell, name: str) -> None:
    """No name, argument, default, type or key is gone or changed."""
    holds(here, "api", name)


@pytest.mark.sampled(60)
@pytest.mark.parametrize("name", parts.results())
def test_results(here: Shell, name: str) -> None:
    """Each view reads an old file, or says that it has nothing to show, as it did."""
    holds(here, "results", name)


@pytest.mark.slow
def test_old_files_follow_the_schema(here: Shell) -> None:
    """The schema accepts every old results file, all of them are one version's, and they are small."""
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
    """The counts and hazards of a sample are what they were."""
    holds(here, "counts", name)


@pytest.mark.parametrize("name", marked([name for name in parts.groups() if name not in SAMPLE]))
def test_all_counts(here: Shell, name: str) -> None:
    """So are all others."""
    holds(here, "counts", name)


@pytest.mark.parametrize("name", marked(list(parts.groups())))
def test_machine_code(here: Shell, name: str) -> None:
    """The machine code of each rung and of each kernel of the corpora is what it was, for four architectures."""
    holds(here, "machine_code", name)
