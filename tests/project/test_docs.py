"""The documents agree with the tool: names in them exist, and operations, commands and packages are in them."""

from __future__ import annotations

import pkgutil
import re
from pathlib import Path

import click
import pytest

from cudabench import operations
from cudabench.cli import group

ROOT = Path(__file__).resolve().parents[2]
README = (ROOT / "README.md").read_text()
DOCUMENTS = [
    ROOT / "README.md",
    ROOT / "CONTRIBUTING.md",
    ROOT / "ARCHITECTURE.md",
    *sorted((ROOT / "docs").glob("*.md")),
]


@pytest.mark.parametrize("name", operations.SUMMARIES)
def test_readme_names_every_operation(name: str) -> None:
    """The README's table has a row for every operation."""
    table = README.split("<!-- operations -->")[1].split("<!-- /operations -->")[0]
    assert f"| `{name}` |" in table


def test_every_command_has_help() -> None:
    """Every command and every option has a help text."""
    context = click.Context(group)
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        assert command is not None
        assert command.help, name
        for param in command.params:
            if isinstance(param, click.Option):
                assert param.help, f"{name} {param.opts}"


def test_documents_name_files_that_exist() -> None:
    """Each relative link in a document leads to an existing file."""
    for document in DOCUMENTS:
        for target in re.findall(r"\]\((?!https?:)([^)#]+)", document.read_text()):
            assert (document.parent / target).exists(), f"{document.name}: {target}"


def test_the_map_names_what_exists() -> None:
    """Every module, function, class and path in ARCHITECTURE.md exists, and the page names every package."""
    text = (ROOT / "ARCHITECTURE.md").read_text()
    for name in re.findall(r"`(cudabench(?:\.\w+)+)`", text):
        try:
            found: object = pkgutil.resolve_name(name)
        except (ImportError, AttributeError) as error:
            pytest.fail(f"{name}: {error}")
        assert found
    for path in re.findall(
        r"`((?:cudabench|kernels_cu|native|tests|docs|benchmarks)/[\w./]*)`", text.replace("OPERATION", "transpose")
    ):
        assert (ROOT / path).exists(), path
    packages = {path.parent.name for path in (ROOT / "cudabench").glob("*/__init__.py")}
    assert packages <= {*re.findall(r"`(\w+)`", text.split("## The packages")[1].split("## One command")[0])}


def test_ci_runs_the_readme_command() -> None:
    """The CI script runs the tests with the README's command."""
    assert "python -m pytest -q -n auto" in README
    assert "python -m pytest -q -n auto" in (ROOT / ".ci" / "run").read_text()
