"""Which modules are imported when, and the allowed direction of imports."""

from __future__ import annotations

import ast
import functools
import graphlib
import json
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = ROOT / "cudabench"


def loaded(*words: str) -> set[str]:
    """Return the modules that a command line imports."""
    code = (
        "import sys, json\n"
        "from cudabench import cli\n"
        "import io, contextlib\n"
        "with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):\n"
        f"    cli.invoke({list(words)!r})\n"
        "print(json.dumps(sorted(sys.modules)))\n"
    )
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT)
    return set(json.loads(ran.stdout.splitlines()[-1]))


@pytest.mark.parametrize("words", [["--help"], ["--version"], ["transpoze"]])
def test_help_loads_nothing_heavy(words: list[str]) -> None:
    """--help imports neither NumPy, rich, PyCUDA nor the simulator."""
    assert not {"numpy", "rich", "pycuda", "cudabench.simulator", "cudabench.records.plan"} & loaded(*words)


def test_little_loads_before_a_worker_starts() -> None:
    """Before a GPU's worker starts, neither NumPy nor the modules for options and plans are imported."""
    code = "import sys, json; from cudabench import cli; from cudabench.measure import session; print(*sys.modules)"
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT)
    heavy = {"numpy", "rich", "cudabench.cli.operation", "cudabench.plan", "cudabench.records.results"}
    assert not heavy & set(ran.stdout.split())


def test_list_loads_neither_device_nor_simulator() -> None:
    """`list` imports neither PyCUDA nor the simulator."""
    assert not {"pycuda", "cudabench.simulator", "cudabench.devices.cuda"} & loaded("list", "transpose")


@pytest.mark.slow
def test_a_run_loads_what_it_asks_for() -> None:
    """A simulator run does not import packages that only pages, profiles or products need, and no optional package."""
    run = loaded("transpose", "-k", "smem-pad", "--size", "64", "-d", "sim")
    assert {"numpy", "rich", "elftools", "ml_dtypes"} <= run
    assert not {"jinja2", "threadpoolctl", "tomli", "tomllib", "matplotlib", "orjson", "PIL", "pycuda"} & run


@functools.cache
def parsed(path: Path) -> ast.Module:
    """Return a file's syntax tree."""
    return ast.parse(path.read_text())


def imports(path: Path, *, top_only: bool) -> set[str]:
    """Return the modules that a file imports, either all or only those at the top level."""
    tree = parsed(path)
    nodes = tree.body if top_only else list(ast.walk(tree))
    names: set[str] = set()
    for node in nodes:
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            names |= {node.module, *(f"{node.module}.{alias.name}" for alias in node.names)}
    return names


FILES = sorted(PACKAGE.rglob("*.py"))


@pytest.mark.slow
def test_heavy_packages_have_one_home() -> None:
    """Only devices/cuda.py imports PyCUDA and only views import rich, both inside functions."""
    for path in FILES:
        inside = {name.split(".")[0] for name in imports(path, top_only=False)}
        relative = path.relative_to(PACKAGE)
        assert "pycuda" not in inside or str(relative) == "devices/cuda.py", relative
        assert "rich" not in inside or relative.parts[0] == "views", relative
        outside = {name.split(".")[0] for name in imports(path, top_only=True)}
        assert not {"pycuda", "rich"} & outside, relative


# A module may import modules of its rank and of lower ranks.
RANKS = [
    {"__init__", "errors", "floats", "occupancy", "symbols", "system", "text"},
    {"records", "cards"},
    {"source", "compile", "simulator"},
    {"devices", "plan"},
    {"operations"},
    {"userkernel", "explain"},
    {"results"},
    {"measure", "ceilings"},
    {"programs"},
    {"fleet"},
    {"views"},
    {"api"},
    {"cli", "__main__"},
]
RANK = {name: rank for rank, names in enumerate(RANKS) for name in names}


def stage(parts: tuple[str, ...]) -> str:
    """Return the first part of a module's path inside the package."""
    return parts[0].removesuffix(".py")


MODULES = {
    ".".join(["cudabench", *path.relative_to(PACKAGE).with_suffix("").parts]).removesuffix(".__init__"): path
    for path in FILES
}


def imported(module: str) -> set[str]:
    """Return the modules of the package that a module imports, also inside functions, but not under TYPE_CHECKING."""
    body = parsed(MODULES[module]).body
    body = [node for node in body if not (isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING")]
    names: set[str] = set()
    for node in ast.walk(ast.Module(body, [])):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            inner = {f"{node.module}.{alias.name}" for alias in node.names}
            names |= inner & MODULES.keys() or {node.module}
    return names & MODULES.keys() - {module}


@pytest.mark.slow
def test_no_modules_import_each_other() -> None:
    """The imports between modules have no cycle."""
    try:
        graphlib.TopologicalSorter({module: imported(module) for module in MODULES}).prepare()
    except graphlib.CycleError as error:
        pytest.fail(f"these import each other in a circle: {' -> '.join(error.args[1])}")


@pytest.mark.slow
def test_imports_run_one_way() -> None:
    """Every module has a rank, and imports no module of a higher rank."""
    wrong = []
    for path in FILES:
        own = RANK[stage(path.relative_to(PACKAGE).parts)]
        for name in sorted(imports(path, top_only=False)):
            parts = name.split(".")
            if parts[0] == "cudabench" and len(parts) > 1 and RANK.get(parts[1], 0) > own:
                wrong.append(f"{path.relative_to(PACKAGE)} imports {name}")
    assert not wrong


def test_views_measure_nothing() -> None:
    """No view imports a module of measure."""
    used = [name for path in FILES if "views" in path.parts for name in imports(path, top_only=False)]
    assert not [name for name in used if name.startswith("cudabench.measure")]
