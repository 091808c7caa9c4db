"""Where the compiler looks for a source's headers, and how it reads headers of another project."""

from __future__ import annotations

from pathlib import Path

import pytest

from cudabench.compile import includes
from cudabench.compile.compiler import compile_ptx, nvrtc_version
from cudabench.compile.record import Job

KERNEL = """
#include <torch/extension.h>
#include "linear/vector.hpp"
__global__ void sums(const float *x, float *y) {
    linear::pair two{x[2 * threadIdx.x], x[2 * threadIdx.x + 1]};
    y[threadIdx.x] = linear::sum(two);
}
void run(torch::Tensor x) { sums<<<1, 32>>>(x.data_ptr<float>(), nullptr); }
"""


def written(root: Path, files: dict[str, str]) -> Path:
    """Write files below a folder and return it."""
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    return root


def library(folder: str) -> dict[str, str]:
    """Return a library whose headers include each other under two names; including one of them twice is an error."""
    return {
        f"{folder}/linear/vector.hpp": '#pragma once\n#include "detail/pair.hpp"\n#include "other/sum.hpp"\n',
        f"{folder}/linear/detail/pair.hpp": "#pragma once\nnamespace linear { struct pair { float a, b; }; }\n",
        f"{folder}/linear/other/sum.hpp": '#pragma once\n#include "../detail/pair.hpp"\n'
        "namespace linear { __device__ inline float sum(pair p) { return p.a + p.b; }\n"
        'inline void show(pair p) { printf("%f", p.a); } }\n',
    }


@pytest.mark.parametrize(
    ("header", "folder"),
    [
        ("linear/vector.hpp", "third_party/deep/linear"),  # a folder of another project, inside this one
        ("src/gpu/settings.h", "."),  # the header's path starts with the folder's name
        ("settings.h", "src/gpu"),  # a folder three levels above the source
        ("only/here.h", "modules/x"),
    ],
)
def test_a_projects_tree_is_searched(tmp_path: Path, header: str, folder: str) -> None:
    """If the project has exactly one header of that name, its folder for -I is found."""
    root = written(
        tmp_path / "project",
        {"Makefile": "", "src/gpu/settings.h": "", "modules/x/only/here.h": "", **library("third_party/deep/linear")},
    )
    source = written(root, {"src/gpu/a/b/c/kernels.cu": ""}) / "src/gpu/a/b/c/kernels.cu"
    assert includes.find_folder(header, source) == root / folder


def test_what_is_not_one_header_of_the_project_is_nowhere(tmp_path: Path) -> None:
    """Not found: a name with two headers, a header beside the project, a path above it, and a source without a
    project."""
    root = written(tmp_path / "project", {"Makefile": "", "a/p/twice.h": "", "b/p/twice.h": "", "c/k.cu": ""})
    written(tmp_path, {"outside/only.h": "", "loose/1/2/3/4/k.cu": "", "loose/z/z/loose.h": ""})
    for header in ("p/twice.h", "only.h", "../p/none.h", "p"):
        assert includes.find_folder(header, root / "c/k.cu") is None
    assert includes.find_folder("loose.h", tmp_path / "loose/1/2/3/4/k.cu") is None


def test_a_header_has_one_text(tmp_path: Path) -> None:
    """A header's second name includes its first; the user's own headers are listed apart from another project's."""
    root = written(tmp_path, {**library("third_party/linear"), "k.cu": KERNEL, "mine.h": ""})
    source = '#include "mine.h"\n#include "linear/vector.hpp"\n'
    job = Job.of(source, str(root / "k.cu"), include_dirs=[str(root / "third_party/linear"), str(root)])
    read = includes.read(job)
    assert sorted(read.texts) == [
        "../detail/pair.hpp", "detail/pair.hpp", "linear/vector.hpp", "mine.h", "other/sum.hpp",
    ]  # fmt: skip
    assert [text for text in read.texts.values() if text.startswith('#include "')] in (
        ['#include "detail/pair.hpp"\n'],
        ['#include "../detail/pair.hpp"\n'],
    )
    assert list(read.own) == ["mine.h"]
    assert read.complete


@pytest.mark.slow
@pytest.mark.skipif(nvrtc_version() is None, reason="needs NVRTC")
@pytest.mark.parametrize("folder", ["third_party/linear", "include"])
def test_headers_with_two_names_compile_without_host_code(tmp_path: Path, folder: str) -> None:
    """PyTorch's header has a stand-in, so host code is left out; each header of the library is compiled once."""
    root = written(tmp_path, {**library(folder), "k.cu": KERNEL})
    ptx = compile_ptx(KERNEL, str(root / "k.cu"), include_dirs=[str(root / folder)], names=["sums"]).ptx
    assert "add.f32" in ptx
