"""The commands as Python functions: the same records, lazy imports, and display in notebooks."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from xml.etree import ElementTree

import pytest

import cudabench as package
from cudabench import cli
from cudabench.api import Report
from cudabench.errors import CudabenchError, DeviceUnusable, UsageError
from cudabench.measure.provenance import COMMAND
from tests.conftest import Ran

ROOT = Path(__file__).resolve().parent.parent
Runner = Callable[..., Ran]
PASSING = ("utc", "command", "git", "seconds")  # keys of the provenance that differ between runs


@pytest.fixture(scope="module")
def pair() -> Report:
    """Return two simulated kernels; one warp of the first was watched."""
    found = package.simulate("transpose", ["smem", "smem-pad"], block=(32, 8), size=(64, 64), watch=(0, 0))
    assert isinstance(found, Report)
    return found


def test_import_stays_light() -> None:
    """Importing the package imports none of its modules, and an unknown name raises AttributeError."""
    code = (
        "import sys, cudabench\n"
        "assert not {m for m in sys.modules if m.startswith('cudabench.') or m == 'numpy'}\n"
        "assert {'bench', 'simulate'} <= set(dir(cudabench))\n"
        "cudabench.nothing\n"
    )
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, cwd=ROOT)
    assert ran.stderr.strip().endswith("AttributeError: module 'cudabench' has no attribute 'nothing'")


def test_every_name_is_there() -> None:
    """Every public name exists and has a docstring."""
    for name in package.__all__:
        assert getattr(package, name).__doc__, name


@pytest.mark.slow
@pytest.mark.machine_code
def test_records_are_the_commands(pair: Report, cudabench: Runner, tmp_path: Path) -> None:
    """A run from Python gives the command's results file, except date, command and processes, and prints the same."""
    words = ["transpose", "-k", "smem", "-k", "smem-pad", "--block", 32, 8, "--size", 64, 64, "-d", "sim", "--no-cpu"]
    ran = cudabench(*words, "--json", tmp_path / "r.json")
    written = json.loads((tmp_path / "r.json").read_text())
    ours = package.simulate("transpose", ["smem", "smem-pad"], block=(32, 8), size=(64, 64)).document()
    ours = json.loads(json.dumps(ours))
    for document in (written, ours):
        for key in PASSING:
            del document["provenance"][key]
        del document["settings"]["jobs"]  # one process from Python, one per core from the command line
    assert ours == written
    assert COMMAND.get() == tuple(map(str, [*words, "--json", tmp_path / "r.json"])), "the caller's command is its own"
    shown = "".join(line for line in ran.out.splitlines(keepends=True) if not line.startswith("More: "))  # a command
    assert str(pair).split() == shown.split()


def test_report(pair: Report, tmp_path: Path) -> None:
    """A report gives results by kernel name, and can be written and read; its provenance says that it comes from
    Python."""
    assert pair.ok
    assert [result.kernel for result in pair.results] == ["smem", "smem-pad"]
    assert pair["smem"].verification is not None
    with pytest.raises(KeyError, match="Did you mean 'smem-pad'"):
        pair["smem-pda"]
    pair.write(tmp_path / "r.json")
    read = package.load(tmp_path / "r.json")
    assert read.results[1].access == pair.results[1].access
    assert "| smem-pad" in str(read)
    assert pair.document()["provenance"]["command"] == ["cudabench", "(from Python)"]


def test_explanation(pair: Report) -> None:
    """explanation() shows accesses with advice, for one kernel or all, with the banks if they were watched."""
    assert "8-way bank conflict" in pair.explanation("smem")
    assert "8-way bank conflict" not in pair.explanation("smem-pad")
    assert "wavefront 8" in pair.explanation("smem", banks=True)
    assert pair.explanation().count("transpose smem") == 2


def test_notebook(pair: Report) -> None:
    """A notebook gets escaped HTML, and pictures in SVG."""
    shown = pair._repr_html_()
    assert shown.startswith("<pre")
    assert "smem-pad" in shown
    assert "<script>" not in package.api.Text("<script>")._repr_html_()
    assert ElementTree.fromstring(pair.picture()._repr_svg_()).tag.endswith("svg")


@pytest.mark.slow
def test_sweep_draws_a_map() -> None:
    """sweep() returns a result per block, names the best, and draws a map."""
    swept = package.sweep("transpose", "smem", [(32, 8), (16, 16), (8, 8)], size=(32, 32), device="sim")
    assert sorted(result.block[:2] for result in swept.results) == [(8, 8), (16, 16), (32, 8)]
    assert "Best of the 3 points tried: 8 x 8" in str(swept)
    assert "svg" in swept.picture().svg
    told = swept.file.settings["sweep"]
    assert (told["blocks"], told["fixed"]["kernels"]) == (["32,8,1", "16,16,1", "8,8,1"], ["smem"])


@pytest.mark.slow
@pytest.mark.parametrize("older", [False, True])
def test_the_command_goes_on_with_a_sweep(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, older: bool) -> None:
    """--resume continues a file of `sweep`, also in the older format, and does not simulate a block again."""
    monkeypatch.chdir(tmp_path)
    swept = package.sweep("transpose", "smem", [(32, 8), (16, 16)], size=(32, 32), device="sim")
    swept.write("s.json")
    document = json.loads(Path("s.json").read_text())
    if older:
        document["settings"]["sweep"] = [[32, 8, 1], [16, 16, 1]]
        Path("s.json").write_text(json.dumps(document))
    words = ["--block", "8:32", "8:16", "--size", "32", "32", "-d", "sim", "-q", "--resume", "s.json"]
    assert cli.invoke(["sweep", "transpose", "smem", *words]) == 0
    after = json.loads(Path("s.json").read_text())["results"]
    assert after[:2] == document["results"]
    assert len(after) > 2


@pytest.mark.slow
def test_run_a_file(tmp_path: Path) -> None:
    """run() accepts the argument texts of the command line; a wrong result is a status, not an exception."""
    (tmp_path / "twice.cu").write_text(
        "__global__ void twice(int n, float *y) {\n"
        "    int i = blockIdx.x * blockDim.x + threadIdx.x; if (i < n) y[i] *= 2; }\n"
    )
    given = {"grid": "cdiv(n,64)", "block": 64, "args": {"n": 100, "y": "float32[n]:random"}, "device": "sim"}
    assert package.run(tmp_path / "twice.cu", expect={"y": "2*y0"}, bytes="8*n", **given).ok
    wrong = package.run(tmp_path / "twice.cu", expect={"y": "3*y0"}, **given)
    assert not wrong.ok
    assert wrong["twice"].status == "wrong"


def test_compare(pair: Report, tmp_path: Path) -> None:
    """compare() takes reports or files, returns a verdict per kernel, and lists what a gate would fail."""
    pair.write(tmp_path / "base.json")
    worse = package.simulate("transpose", ["smem", "smem-pad"], block=(32, 8), size=(64, 64), defines={"IPAD": 0})
    found = package.compare(tmp_path / "base.json", worse)
    assert {row.key.kernel: row.verdict for row in found.rows} == {
        "smem": "same",
        "smem-pad": "mixed",
    }  # more wavefronts, fewer instructions
    assert [failure.row.key.kernel for failure in found.failures(0.0)] == ["smem-pad"]
    assert "base.json" in str(found)
    assert not package.compare(pair, pair).failures(0.0)


@pytest.mark.parametrize(
    ("call", "error", "said"),
    [
        (lambda: package.bench("transpoze"), UsageError, "Did you mean 'transpose'"),
        (lambda: package.simulate("transpose", "smem-pda"), UsageError, "smem-pad"),
        (lambda: package.simulate("transpose", min_tme=1), UsageError, "Did you mean 'min_time'"),
        (lambda: package.simulate("transpose", block=(0, 8)), UsageError, "positive"),
        (lambda: package.simulate("transpose", block=(8, 8, 8)), UsageError, "1 to 2"),
        (lambda: package.simulate("blur", options={"radios": 3}), UsageError, "Did you mean 'radius'"),
        (lambda: package.simulate("transpose", device="cuda"), UsageError, "not a simulator"),
        (lambda: package.bench("transpose", device="cuda:99"), DeviceUnusable, "GPU"),
        (lambda: package.load("none.json"), CudabenchError, "no such file"),
    ],
)
def test_errors(call: Callable[[], object], error: type[CudabenchError], said: str) -> None:
    """A wrong call raises the error with the message and exit code of the command."""
    with pytest.raises(error, match=said) as caught:
        call()
    assert caught.value.exit_code == error.exit_code


@pytest.mark.gpu
def test_on_a_gpu() -> None:
    """On a GPU a result has a time; an explanation is refused with a reference to `simulate`."""
    found = package.bench("vecadd", 0, size=1 << 20, max_time=1.0, cpu=False, device="cuda")
    assert found.ok
    assert found["naive"].time is not None
    with pytest.raises(UsageError, match="simulate"):
        found.explanation()
