"""An output never replaces a file that the same command line reads or that another of its options writes."""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from cudabench import cli
from tests.conftest import Ran

SOURCE = "__global__ void k(float *x, int n) { int i = threadIdx.x; if (i < n) x[i] *= 2; }\n"
RUN = ("k.cu", "--grid", "1", "--block", "32", "--arg", "x=@x.npy", "--arg", "n=8", "-d", "sim", "-q")
SIMULATED = ("-d", "sim", "-q")


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a source, an array and a results file."""
    folder = tmp_path_factory.mktemp("inputs")
    (folder / "k.cu").write_text(SOURCE)
    (folder / "link.cu").symlink_to("k.cu")
    (folder / "with.cu").write_text('#include "half.h"\n' + SOURCE)
    (folder / "half.h").write_text("static const float half_of_one = 0.5f;\n")
    (folder / "far.cu").write_text('#include "far.h"\n' + SOURCE)
    (folder / "inc").mkdir()
    (folder / "inc" / "far.h").write_text("static const float half_of_one = 0.5f;\n")
    (folder / "shards").mkdir()
    np.save(folder / "x.npy", np.ones(8, np.float32))
    assert cli.invoke(["vecadd", "-k", "naive", "-s", "64", *SIMULATED, "--json", str(folder / "base.json")]) == 0
    shutil.copy(folder / "base.json", folder / "shards" / "one.json")
    return folder


def contents(folder: Path) -> dict[str, bytes]:
    """Return the content of each file below a folder."""
    return {str(path.relative_to(folder)): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


@pytest.mark.sampled(8)
@pytest.mark.parametrize(
    "words",
    [
        ("run", *RUN, "--json", "k.cu"),
        ("run", *RUN, "--json", "link.cu"),
        ("run", *RUN, "--report", "k.cu"),
        ("run", *RUN, "--save", "x=k.cu"),
        ("run", *RUN, "--save", "x=x.npy"),
        ("run", "with.cu", *RUN[1:5], "--arg", "x=@x.npy", "--arg", "n=8", *SIMULATED, "--json", "half.h"),
        (
            "run",
            "far.cu",
            "-I",
            "inc",
            *RUN[1:5],
            "--arg",
            "x=@x.npy",
            "--arg",
            "n=8",
            *SIMULATED,
            "--json",
            "inc/far.h",
        ),
        ("fleet", "report", "shards", "--json", "shards/one.json"),
        ("check", *RUN, "--json", "./k.cu"),
        ("explain", *RUN[:-1], "--json", "k.cu"),
        ("vecadd", "--source", "k.cu", "-s", "64", *SIMULATED, "--json", "k.cu"),
        ("export", "base.json", "--to", "csv", "-o", "base.json"),
        ("compare", "base.json", "base.json", "--to", "markdown", "-o", "base.json"),
        ("compare", "base.json", "base.json", "--json", "base.json"),
        ("report", "base.json", "-o", "base.json"),
        ("diff", "k.cu", "x.npy", "-o", "k.cu"),
        ("diff", "k.cu", "k.cu", "--json", "k.cu"),
        ("run", *RUN, "--json", "new", "--save", "x=new"),
        ("diff", "k.cu", "k.cu", "--json", "new", "--report", "./new"),
    ],
    ids=" ".join,
)
def test_an_output_replaces_no_input(
    whole: Path, tmp_path: Path, words: tuple[str, ...], cudabench: Callable[..., Ran], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The command is refused with an error about the overwrite, and all files keep their content."""
    folder = tmp_path / "there"
    shutil.copytree(whole, folder, symlinks=True)
    monkeypatch.chdir(folder)
    before = contents(folder)
    ran = cudabench(*words)
    assert ran.code == 2, ran.err
    assert re.search("would replace a file|writes too|name the same file|the page is HTML", ran.err), ran.err
    assert contents(folder) == before
