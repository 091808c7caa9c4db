"""The parser and the compile rule's own reader of kernels say the same of every source of the tree."""

from __future__ import annotations

from pathlib import Path

import pytest

from cudabench.source.files import read_file
from cudabench.toolchain import kernels

ROOT = Path(__file__).resolve().parent.parent
FOLDERS = ("kernels_cu", "tests/corpus", "tests/cures", "tests/cheats", "tests/data", "benchmarks", "examples")
SOURCES = sorted(path for folder in FOLDERS for path in (ROOT / folder).rglob("*.cu"))
# What the parser says of them is right, and why the other reader says something else.
DIFFERENT = {
    "kernels_cu/ceilings.cu": "macros write kernels",
    "tests/data/features.cu": "macros write kernels",
    "tests/corpus/files/glb_macro.cu": "a macro writes __global__",
    "tests/corpus/files/macro_makes_kernels.cu": "macros write kernels",
    "tests/corpus/files/macro_typed_kernels.cu": "macros write kernels",
    "tests/corpus/files/video_textures.cu": "macros write kernels",
    "tests/corpus/files/commented_kernels.cu": "a kernel behind a condition that does not hold",
    "tests/corpus/files/signature_by_ifdef.cu": "a parameter behind a condition that does not hold",
    "tests/corpus/files/sgemm_double_buffer.cu": "a bound of an array is a macro",
    "tests/corpus/files/typedef_of_pointer.cu": "a typedef of a pointer is one",
}


def said(kernel: kernels.KernelSource) -> tuple[object, ...]:
    """Return what is compared of a kernel."""
    return (
        kernel.qualified_name, kernel.line, kernel.start, kernel.end, kernel.comment, kernel.extern_c,
        kernel.overloaded, *map(str, kernel.template_parameters), *map(str, kernel.parameters),
    )  # fmt: skip


def differs(path: Path) -> bool:
    """Tell whether the two readers see other kernels, or another opening."""
    file = read_file(path)
    other = kernels.parse(file.text, path)
    own = [said(kernel) for kernel in file.kernels if not kernel.file]  # type: ignore[arg-type]
    return file.opening != other.opening or own != [said(kernel) for kernel in other.kernels]


@pytest.mark.slow
def test_all_sources() -> None:
    """Names, lines, places, comments and parameters are alike, but in files where the other reader is known wrong."""
    assert {str(path.relative_to(ROOT)) for path in SOURCES if differs(path)} == set(DIFFERENT)


def test_some_sources() -> None:
    """A quick core of it."""
    some = [path for path in SOURCES if "corpus/files" in str(path)][::25]
    assert [path.name for path in some if differs(path) and str(path.relative_to(ROOT)) not in DIFFERENT] == []
