"""Finds the chapters of `kernels_cu/`: inside the package of a wheel, at the top level of a checkout."""

from __future__ import annotations

from pathlib import Path

from cudabench.model import Source


def folder() -> Path:
    """Return the folder with the chapters."""
    package = Path(__file__).parent.parent
    inside = package / "kernels_cu"
    return inside if inside.is_dir() else package.parent / "kernels_cu"


def read(name: str) -> Source:
    """Return a chapter, named as messages show it."""
    return Source(f"kernels_cu/{name}", (folder() / name).read_text(encoding="utf-8"))
