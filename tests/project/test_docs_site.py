"""The documentation site builds without a warning, has every page, and shows the tool's real output."""

from __future__ import annotations

import importlib.util
import json
import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest

from cudabench import operations
from tests import consoles
from tests.conftest import Ran

ROOT = Path(__file__).resolve().parents[2]
Runner = Callable[..., Ran]
FOUND = consoles.consoles()
SAXPY = """__global__ void saxpy(int n, float a, const float *x, float *y)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = a * x[i] + y[i];
}
"""


@pytest.fixture(scope="module")
def pages() -> ModuleType:
    """Return the module docs/pages.py."""
    spec = importlib.util.spec_from_file_location("pages", ROOT / "docs" / "pages.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder of a site built with warnings as errors; it simulates only two ladders."""
    folder = tmp_path_factory.mktemp("site")
    environment = {**os.environ, "NO_MKDOCS_2_WARNING": "1", "CUDABENCH_DOCS_LADDERS": "vecadd,transpose"}
    words = [sys.executable, "-m", "mkdocs", "build", "-q", "--strict", "-d", folder]
    ran = subprocess.run(words, capture_output=True, text=True, check=False, cwd=ROOT, env=environment)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    return folder


@pytest.mark.machine_code
@pytest.mark.slow
@pytest.mark.parametrize("console", [one for one in FOUND if not one.on_gpu], ids=lambda one: one.command)
def test_simulated_consoles(console: consoles.Console, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A console block of the simulator shows what the command prints; `python -m tests.consoles` rewrites it."""
    monkeypatch.chdir(tmp_path)
    assert consoles.agrees(console.shown, consoles.printed(console.command)), consoles.printed(console.command)


@pytest.mark.parametrize("console", [one for one in FOUND if one.on_gpu], ids=lambda one: one.command)
def test_recorded_consoles(console: consoles.Console) -> None:
    """A console block of a GPU shows lines of one recorded measurement, in order."""
    lines = [line for line in console.shown.splitlines() if line.strip() not in ("", "...") and "..." not in line]
    wanted = ".*?".join(re.escape(line) for line in lines)
    records = (path.read_text(encoding="utf-8") for path in sorted(consoles.RESULTS.glob("*.md")))
    assert any(re.search(wanted, record, re.DOTALL) for record in records)


def test_recorded_consoles_are_renewed() -> None:
    """A new run's output replaces the recorded output, and its lines replace those shown."""
    (console, *_) = (one for one in FOUND if one.on_gpu)
    record = (consoles.RESULTS / "transpose_h200.md").read_text(encoding="utf-8")
    (text,) = re.findall(rf"^`{re.escape(console.command)}`\n+```\n(.*?)```", record, re.MULTILINE | re.DOTALL)
    slower = text.replace("67.89", "99.99")
    assert slower != text
    assert consoles.rerecorded(record, console.command, slower) == record.replace(text, slower)
    shown = consoles.reshown(console.shown, slower)
    assert "99.99" in shown
    assert shown.replace("99.99", "67.89") == console.shown
    with pytest.raises(SystemExit, match="12  vector"):
        consoles.reshown(console.shown, text.replace("12  vector", "12  other"))


def test_consoles_are_found() -> None:
    """There are blocks of both kinds, and a block that differs in one digit does not agree."""
    assert {one.on_gpu for one in FOUND} == {False, True}
    assert consoles.agrees("a\n...\nd\n", "a\nb\nc\nd\n")
    assert not consoles.agrees("a\nc\n", "a\nb\nc\n")
    assert not consoles.agrees("1.00\n", "1.01\n")


@pytest.mark.slow
def test_python_blocks_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The code blocks of docs/python.md run in order, in one namespace."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "saxpy.cu").write_text(SAXPY)
    text = (ROOT / "docs" / "python.md").read_text(encoding="utf-8")
    cells = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    assert len(cells) >= 4
    names: dict[str, object] = {}
    for cell in cells:
        exec(compile(cell, "python.md", "exec"), names)
    assert (tmp_path / "r.json").exists()


@pytest.mark.slow
def test_notebook(site: Path) -> None:
    """Every cell of the notebook page has an output, the ladder and the heat map are drawn, and notebook.ipynb has the
    same cells."""
    cells = json.loads((site / "notebook.ipynb").read_text(encoding="utf-8"))["cells"]
    code = [cell for cell in cells if cell["cell_type"] == "code"]
    shown = [output["data"] for cell in code for output in cell["outputs"]]
    assert len(shown) == len(code), "each cell shows something"
    assert shown[-1] == {"text/plain": "['smem-pad']"}, "the gate stops the kernel that lost its padding"
    drawn = [data["image/svg+xml"] for data in shown if "image/svg+xml" in data]
    page = (site / "notebook.html").read_text(encoding="utf-8")
    named = re.findall(r'src="(notebook-\d+\.svg)"', page)
    assert [(site / name).read_text(encoding="utf-8") for name in named] == drawn
    assert len(drawn) == 2
    assert all("<svg" in one for one in drawn)
    source = (ROOT / "docs" / "notebook.md").read_text(encoding="utf-8")
    assert re.findall(r"```python\n(.*?)\n```", source, re.DOTALL) == [cell["source"] for cell in code]


def test_a_cell_shows_its_last_line(pages: ModuleType) -> None:
    """A cell's value is its last expression, a statement has None, and names persist from cell to cell."""
    names: dict[str, object] = {}
    assert pages.last_value("x = 2\nx + 1", names) == 3
    assert pages.last_value("y = x", names) is None
    assert names["y"] == 2


@pytest.mark.slow
def test_pictures_of_a_ladder(pages: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    """The page draws the recorded times of both GPUs, and the banks of the kernel with the worst conflict and of one
    without."""
    monkeypatch.setattr(pages, "MOST_ELEMENTS", 64)
    cards = pages.recorded("transpose")
    assert [title.split(",")[0] for title in cards] == ["NVIDIA H100 80GB HBM3", "NVIDIA H200"]
    ladder = {kernel.name for kernel in operations.get("transpose").kernels}
    for times in cards.values():
        assert {"smem", "smem-pad", "vector"} <= set(times) <= ladder
    assert "<svg" in pages.times("transpose")
    (slow, before), (fast, after) = pages.conflict("transpose")
    assert (slow.kernel, len(before.passes)) == ("smem", 8)
    assert (fast.kernel, len(after.passes)) == ("smem-pad", 1)
    assert "36 words" in "".join(pages.conflict_told("transpose"))
    assert "<svg" in pages.banks("transpose")


def test_chapter_pages(pages: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    """A chapter's page has a heading for every kernel, and every line of code."""
    monkeypatch.setenv("CUDABENCH_DOCS_LADDERS", "")
    for name in operations.SUMMARIES:
        page = pages.chapter(name)
        headings = {word for line in re.findall(r"^### (.+)$", page, re.MULTILINE) for word in line.split(", ")}
        assert {kernel.name for kernel in operations.get(name).kernels} <= headings, name
        source = "\n".join((ROOT / "kernels_cu" / file).read_text(encoding="utf-8") for file in pages.files(name))
        code = [line for line in source.splitlines() if line.strip() and not line.startswith("//")]
        assert [line for line in code if line not in page] == []
        assert "## Measured" in page, name


def test_menu_has_every_page(pages: ModuleType) -> None:
    """The menu lists every page once, also a page without a given position, and no page that does not exist."""
    menu = pages.on_config({"docs_dir": str(ROOT / "docs")})["nav"]
    entries = [entry for section in menu for group in section.values() for entry in group]
    listed = [page for entry in entries for page in (entry.values() if isinstance(entry, dict) else [entry])]
    assert {path.name for path in (ROOT / "docs").glob("*.md")} <= set(listed)
    assert len(set(listed)) == len(listed)
    for page in listed:
        folder, _, file = page.rpartition("/")
        assert folder or (ROOT / "docs" / file).exists()


@pytest.mark.slow
def test_site_fetches_nothing(site: Path) -> None:
    """The site has a page and drawings for each chapter, and its pages load nothing from other hosts."""
    pages = sorted(site.rglob("*.html"))
    assert {f"{name}.html" for name in operations.SUMMARIES} <= {path.name for path in pages}
    fetched = re.compile(r"""<(?:script|img|link|iframe)[^>]*(?:src|href)=["']?(?:https?:)?//""")
    for page in pages:
        assert not fetched.search(page.read_text(encoding="utf-8")), page.name
    for drawing in ("vecadd.svg", "vecadd-times.svg", "transpose.svg", "transpose-banks.svg"):
        assert "<svg" in (site / "ladders" / drawing).read_text(encoding="utf-8")


@pytest.mark.slow
@pytest.mark.parametrize("name", operations.SUMMARIES)
def test_a_page_of_every_ladder(pages: ModuleType, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    """Each ladder's page has a drawing of the simulated counts, and a drawing of the banks if a kernel has
    conflicts."""
    monkeypatch.setattr(pages, "_SIMULATED", {})
    monkeypatch.setattr(pages, "MOST_ELEMENTS", 40)
    monkeypatch.setattr(pages, "SMALL", {"matmul": (17, 17, 17), "solve": (7,)})
    page = pages.chapter(name)
    assert "<svg" in pages.picture(name)
    assert f"({name}.svg)" in page
    if pages.conflict(name):
        assert "<svg" in pages.banks(name)
        assert f"({name}-banks.svg)" in page
