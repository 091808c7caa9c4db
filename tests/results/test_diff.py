"""`cudabench diff`: two versions compared by machine code, with git revisions, counts, gates and formats."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from cudabench import cli
from cudabench.compile import compiler
from cudabench.errors import CudabenchError, most_serious
from cudabench.explain.code import SourceLine, source_lines_of
from cudabench.occupancy import occupancy
from cudabench.plan.revisions import checked_out
from cudabench.records import file as results
from cudabench.records.revisions import CodeDifference, CodeFigures
from cudabench.results import diff
from cudabench.views.export import difference
from tests.conftest import Ran

pytestmark = pytest.mark.machine_code

SAXPY = """__global__ void saxpy(int n, float a, const float *x, float *y) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n)
        y[i] = a * x[i] + y[i];
}
"""
STRIDED = SAXPY.replace("x[i]", "x[i * 8 % n]")
LAUNCH = ["--arg", "n=4096", "--arg", "a=2", "--arg", "x=float32[n]:random", "--arg", "y=float32[n]:random"]
LAUNCH += ["--grid", "cdiv(n,256)", "--block", "256"]


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Change to a new folder with old.cu and new.cu."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("GITHUB_STEP_SUMMARY", raising=False)
    (tmp_path / "old.cu").write_text(SAXPY)
    (tmp_path / "new.cu").write_text(STRIDED)
    return tmp_path


def records(*words: str, code: int = 0) -> list[CodeDifference]:
    """Return the records of a comparison that ends with this exit code, as a new process would produce them."""
    compiler._compile.cache_clear()  # a process compiles a file only once, even if its headers change
    assert cli.invoke(["diff", *words, "-q", "--json", "out.json"]) == code
    return results.load("out.json").diff


@pytest.mark.slow
def test_the_same_code_is_called_so(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Comments, names of local variables and the file's name do not change the code, and the output says so."""
    (here / "new.cu").write_text(
        "// a comment\n\n" + SAXPY.replace("int i ", "int at ").replace("(i ", "(at ").replace("[i]", "[at]")
    )
    assert cli.invoke(["diff", "old.cu", "new.cu", "--arch", "sm_80,sm_90", "--fail-on", "code"]) == 0
    shown = capsys.readouterr().out
    assert "same code" in shown
    assert "there is nothing to measure" in shown


@pytest.mark.slow
def test_what_changed_is_told_by_line(here: Path) -> None:
    """The record has the registers and instructions of both sides, the line whose code grew, and the first different
    instruction."""
    (each,) = records("old.cu", "new.cu", "--arch", "sm_90")
    assert each.verdict == "changed"
    assert each.old
    assert each.new
    assert {"code", "registers", "instructions"} <= set(each.changed)
    assert each.new.registers > each.old.registers
    (line, *_) = each.lines
    assert (line.old_line, line.new_line) == (4, 4)
    assert "i * 8 % n" in line.source
    assert line.new_instructions > line.old_instructions
    assert sum(row.new_instructions - row.old_instructions for row in each.lines) == (each.new.instructions or 0) - (
        each.old.instructions or 0
    )
    assert each.first
    assert each.first.old != each.first.new
    assert each.first.line in (2, 3, 4)


@pytest.mark.slow
def test_a_launch_counts_sectors(here: Path) -> None:
    """With the arguments of `run`, both versions are simulated: with a stride of eight floats, each lane of a load
    needs another sector."""
    (each,) = records("old.cu", "new.cu", "--arch", "sm_90", *LAUNCH, "--fail-on", "sectors", code=4)
    assert each.old
    assert each.new
    assert each.old.status == each.new.status == "ok"
    assert each.old.sectors == 3 * 4096 * 4 // 32
    assert each.new.sectors == each.old.sectors - 512 + 4096
    assert "sectors" in each.changed
    (line,) = [line for line in each.lines if line.new_sectors != line.old_sectors]
    assert (line.new_line, line.old_sectors, line.new_sectors) == (4, each.old.sectors, each.new.sectors)


@pytest.mark.slow
def test_a_kernel_that_turns_wrong_exits_3(here: Path) -> None:
    """If the old version is right and the new one is wrong, the exit code is 3 without any option."""
    right = ["--expect", "y=a*x+y0"]
    (each,) = records("old.cu", "new.cu", "--arch", "sm_90", *LAUNCH, *right, code=3)
    assert each.old
    assert each.new
    assert (each.old.status, each.new.status) == ("ok", "wrong")


@pytest.mark.slow
def test_a_constant_that_changed_is_no_same_code(here: Path) -> None:
    """A kernel whose constant table changed is changed; a kernel that does not read the table is the same."""
    text = """__constant__ float table[2] = {1, 2};
__global__ void reads(float *y) { y[threadIdx.x] *= table[threadIdx.x & 1]; }
__global__ void does_not(float *y) { y[threadIdx.x] *= 2; }
"""
    (here / "old.cu").write_text(text)
    (here / "new.cu").write_text(text.replace("{1, 2}", "{1, 3}"))
    found = {each.kernel: each for each in records("old.cu", "new.cu", "--arch", "sm_90")}
    assert found["reads"].verdict == "changed"
    assert found["reads"].changed == ("data",)
    assert found["does_not"].verdict == "same"


def test_a_file_of_templates_says_how_to_name_an_instance(here: Path, cudabench: Callable[..., Ran]) -> None:
    """Without --kernel, a file that has only templates gives a sentence with an instance, and no other command."""
    text = "template <class T, int K> __global__ void scale(T *y) { y[threadIdx.x] *= K; }\n"
    for name in ("old.cu", "new.cu"):
        (here / name).write_text(text)
    for words in ((), ("-k", "scale"), ("-k", "all")):
        ran = cudabench("diff", "old.cu", "new.cu", *words)
        assert ran.code == 2
        assert ran.err.endswith("is a template: name an instantiation, such as 'scale<float, 32>'.\n")


@pytest.mark.slow
def test_templates_defines_and_renamed_kernels(here: Path) -> None:
    """Template instances are compiled by name, with the same defines on both sides; if each side has a single kernel,
    it may be renamed."""
    text = "template <class T> __global__ void scale(T *y) { y[threadIdx.x] *= FACTOR; }\n"
    (here / "old.cu").write_text(text)
    (here / "new.cu").write_text(text)
    (each,) = records("old.cu", "new.cu", "-k", "scale<double>", "-D", "FACTOR=3", "--arch", "sm_80")
    assert (each.kernel, each.verdict) == ("scale<double>", "same")
    (here / "old.cu").write_text(SAXPY)
    (here / "new.cu").write_text(SAXPY.replace("saxpy", "axpy"))
    (each,) = records("old.cu", "new.cu", "--arch", "sm_80")
    assert (each.kernel, each.verdict) == ("saxpy -> axpy", "same")


@pytest.mark.slow
def test_kernels_of_one_side_are_added_or_removed(here: Path) -> None:
    """A kernel that only one side has is added or removed; `--fail-on code` fails for a removed one."""
    extra = SAXPY.replace("saxpy", "more")
    (here / "new.cu").write_text(SAXPY + extra)
    found = records("old.cu", "new.cu", "--arch", "sm_80", "--fail-on", "code")
    assert [(each.kernel, each.verdict) for each in found] == [("saxpy", "same"), ("more", "added")]
    found = records("new.cu", "old.cu", "--arch", "sm_80", "--fail-on", "code", code=4)
    assert [each.verdict for each in found] == ["same", "removed"]


@pytest.mark.slow
def test_one_architecture_that_refuses_a_kernel_takes_no_other_along(here: Path) -> None:
    """A kernel that compiles on neither side is unsupported for that architecture; one that only the new side lacks
    fails with exit code 1."""
    tensor = """#include <cuda_bf16.h>
__global__ void half_of(__nv_bfloat16 *y) { asm("fma.rn.bf16 %0, %0, %0, %0;" : "+h"(*(unsigned short *)y)); }
"""
    (here / "old.cu").write_text(tensor + SAXPY)
    (here / "new.cu").write_text(tensor + STRIDED)
    found = {(each.kernel, each.arch): each.verdict for each in records("old.cu", "new.cu", "--arch", "sm_75,sm_80")}
    assert found == {
        ("half_of", "sm_75"): "unsupported",
        ("half_of", "sm_80"): "same",
        ("saxpy", "sm_75"): "changed",
        ("saxpy", "sm_80"): "changed",
    }
    (here / "new.cu").write_text(SAXPY.replace("a * x", "b * x"))
    (here / "old.cu").write_text(SAXPY)
    (each,) = records("old.cu", "new.cu", "--arch", "sm_80", code=1)
    assert each.verdict == "failed"
    assert each.reason
    assert each.reason.startswith("new.cu:4: error")


def git(*words: str) -> None:
    """Run git with a fixed author, independent of the user's settings."""
    if shutil.which("git") is None:
        pytest.skip("needs git")
    who = ("-c", "user.name=a", "-c", "user.email=a@b.c", "-c", "commit.gpgsign=false")
    subprocess.run(["git", *who, *words], check=True, capture_output=True)


@pytest.mark.slow
def test_a_revision_has_its_own_headers(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """HEAD:k.cu uses the headers of that revision, also from -I; messages name the revision and no temporary folder."""
    monkeypatch.setenv("CUDABENCH_CACHE", str(here / "cache"))
    (here / "include").mkdir()
    (here / "include" / "factor.h").write_text("#define FACTOR 2\n")
    (here / "own.cuh").write_text('#include "factor.h"\n__device__ float f(float x) { return FACTOR * x; }\n')
    (here / "k.cu").write_text('#include "own.cuh"\n__global__ void k(float *y) { y[threadIdx.x] = f(y[0]); }\n')
    git("init", "-q")
    git("add", "k.cu", "own.cuh", "include")
    git("commit", "-qm", "first")
    command = ["HEAD:k.cu", "k.cu", "-I", "include", "--arch", "sm_90"]
    assert [each.verdict for each in records(*command)] == ["same"]
    (here / "include" / "factor.h").write_text("#define FACTOR 5\n")
    (each,) = records(*command)
    assert each.verdict == "changed"
    assert each.first
    assert each.first.file == "own.cuh"
    (here / "k.cu").write_text("__global__ void k(float *y) { y[0] = none; }\n")
    git("commit", "-qam", "second")
    (here / "k.cu").write_text("__global__ void k(float *y) { y[0] = nothing; }\n")
    (each,) = records("HEAD:k.cu", "k.cu", "--arch", "sm_90", code=1)
    assert each.verdict == "unsupported"
    assert str(here / "cache") not in str(each.reason)
    document = json.loads((here / "out.json").read_text())
    assert str(here / "cache") not in json.dumps(document)


def test_a_revision_reaches_no_file_outside_the_tree(here: Path) -> None:
    """A symbolic link in a revision is followed inside the repository, and not out of it."""
    outside = here / "secret.h"
    outside.write_text("#define SECRET 1\n")
    folder = here / "repo"
    folder.mkdir()
    os.chdir(folder)
    (folder / "real.h").write_text("#define REAL 1\n")
    os.symlink("real.h", folder / "link.h")
    os.symlink("../secret.h", folder / "out.h")
    (folder / "k.cu").write_text('#include "link.h"\n#include "out.h"\n#include "../secret.h"\n' + SAXPY)
    git("init", "-q")
    git("add", ".")
    git("commit", "-qm", "first")
    with checked_out("HEAD:k.cu") as found:
        names = {path.name for path in Path(found.path).parent.iterdir()}
        assert (Path(found.path).parent / "link.h").read_text() == "#define REAL 1\n"
    assert names == {"k.cu", "link.h"}


@pytest.mark.parametrize(
    ("spec", "said"),
    [
        ("none:k.cu", "is not a revision"),
        ("HEAD:other.cu", "the file does not exist at that revision"),
        ("HEAD:x/k.cu", "HEAD:k.cu"),
    ],
)
def test_revisions_that_are_not_there(here: Path, spec: str, said: str) -> None:
    """A wrong revision or path gives one message, with the nearest existing path."""
    (here / "k.cu").write_text(SAXPY)
    git("init", "-q")
    git("add", "k.cu")
    git("commit", "-qm", "first")
    with pytest.raises(CudabenchError, match=said), checked_out(spec):
        pass


@pytest.mark.slow
def test_formats(here: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """Markdown, GitHub annotations with the job summary, SARIF and JSON report the same changes at the same line."""
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(here / "summary.md"))
    command = ["diff", "old.cu", "new.cu", "--arch", "sm_80,sm_90"]
    assert cli.invoke([*command, "--to", "github", "-q", "--fail-on", "registers"]) == 4
    lines = capsys.readouterr().out.splitlines()
    error = next(line for line in lines if line.startswith("::error"))
    assert error.startswith("::error file=new.cu,line=4,title=cudabench%3A registers::saxpy: registers ")
    assert "(sm_80" in error
    assert "sm_90)" in error
    assert any(line.startswith("::warning") and "instructions" in line for line in lines)
    assert "| saxpy |" in (here / "summary.md").read_text()
    assert cli.invoke([*command[:-1], "sm_90", "--to", "markdown"]) == 0
    assert "| kernel | architecture | verdict |" in capsys.readouterr().out
    assert cli.invoke([*command[:-1], "sm_90", "--to", "sarif", "-o", "out.sarif"]) == 0
    (log,) = json.loads((here / "out.sarif").read_text())["runs"]
    found = {result["message"]["text"].split()[1] for result in log["results"]}
    assert {"registers", "instructions"} <= found
    assert {result["ruleId"] for result in log["results"]} == {"code-regression"}
    capsys.readouterr()
    assert cli.invoke([*command, "--to", "json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert [each["arch"] for each in document["diff"]] == ["sm_80", "sm_90"]
    assert document["diff"][0]["lines"][0]["new_line"] == 4


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["old.cu"], "two files"),
        (["old.cu", "new.cu", "--arch", "sm_12"], "--arch 'sm_12'"),
        (["old.cu", "new.cu", "--fail-on", "register"], "Did you mean 'registers'?"),
        (["old.cu", "new.cu", "--fail-on", "sectors"], "--arg"),
        (["old.cu", "new.cu", "-k", "none", "--arch", "sm_80"], "lacks a kernel 'none'"),
    ],
)
def test_what_cannot_be_is_a_usage_error(
    here: Path, words: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Each mistake gives one message with the value and the repair, and exit code 2."""
    assert cli.invoke(["diff", *words]) == 2
    assert said in capsys.readouterr().err


def figures(**changes: object) -> CodeFigures:
    """Return the figures of a small kernel, with changes."""
    return replace(CodeFigures("a", 32, 0, 0, 100, 0, ("float32",), occupancy("9.0", 256, 32), 10, 10, 10), **changes)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("metric", "worse", "better"),
    [
        ("registers", {"registers": 40}, {"registers": 24}),
        ("spills", {"spill_bytes": 8}, {}),
        ("shared", {"shared_bytes": 1024}, {}),
        ("occupancy", {"occupancy": occupancy("9.0", 256, 128)}, {}),
        ("sectors", {"sectors": 11}, {"sectors": 9}),
        ("arithmetic", {"arithmetic": ("tf32",)}, {}),
    ],
)
def test_a_gate_stops_what_grew(metric: str, worse: dict[str, object], better: dict[str, object]) -> None:
    """A gate fails if its figure grew (occupancy: fell; arithmetic: changed), and passes if it is equal or smaller."""

    def code(new: CodeFigures) -> int:
        each = CodeDifference("k", "sm_90", "changed", 1, 256, figures(), new)
        return most_serious(one.code for one in diff.failures([each], [metric]))

    assert code(figures(**worse)) == 4
    assert code(figures(**better)) == 0
    assert diff.failures([CodeDifference("k", "sm_90", "changed", 1, 256, figures(), figures(**worse))], []) == []


def test_lines_are_followed_through_a_change() -> None:
    """A moved line keeps its partner, a rewritten line is paired with the new line, and a deleted line has no
    partner."""
    assert diff.aligned(["a", "b", "c", "d"], ["new", "a", "B", "c"]) == {1: 2, 2: 3, 3: 4}


def test_places_of_ptx() -> None:
    """A PTX line has the place of the `.loc` before it, with the header's name; a line outside a function has no
    place."""
    ptx = ('.file 1 "k.cu"', '.file 2 "in/h.cuh"', ".entry k(", ".loc 1 3 5", "add;", ".loc 2 7 1", "mul;", "}", "x")
    assert source_lines_of(ptx, "k.cu") == {5: SourceLine("", 3), 7: SourceLine("h.cuh", 7)}


def test_architectures_that_differ_alike_are_one_row() -> None:
    """Architectures with equal figures share a row; same code shows the range of its figures."""
    same = [
        CodeDifference("k", arch, "same", 1, 256, figures(registers=n), figures(registers=n))
        for arch, n in (("sm_75", 30), ("sm_80", 32), ("sm_90", 28))
    ]
    (row,) = difference.groups(same)
    assert row.architectures == "all 3"
    texts = {column.heading: column.text(row) for column in difference.columns([row])}
    assert texts["registers"] == "28 .. 32"
    assert difference.summary(same) == "1 kernel for 3 architectures: 3 same code; there is nothing to measure."
