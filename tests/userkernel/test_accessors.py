"""PyTorch's packed accessors as arguments, and the stand-ins for its headers if they are not installed."""

from __future__ import annotations

import struct
from collections.abc import Callable
from pathlib import Path

import pytest

from cudabench.compile import stand_ins
from cudabench.errors import UsageError
from cudabench.source.files import parse_text
from cudabench.source.records import Parameter
from cudabench.userkernel.by_value import accessor_of
from cudabench.userkernel.values import Array
from tests.conftest import Ran

FAMILY = (
    "template <typename T> using Rows = torch::PackedTensorAccessor32<T, 2, torch::RestrictPtrTraits>;\n"
    "using Other = Rows<float>;\n"
)


def parameter(ctype: str) -> Parameter:
    """Return a parameter of this type, declared after FAMILY."""
    return parse_text(f"{FAMILY}__global__ void f({ctype} x) {{}}", "t.cu").kernels[0].parameters[0]


@pytest.mark.parametrize(
    ("ctype", "element", "dimensions", "index_bytes"),
    [
        ("torch::PackedTensorAccessor32<float, 3, torch::RestrictPtrTraits>", "float", 3, 4),
        ("at::PackedTensorAccessor64<const double, 1>", "const double", 1, 8),
        ("PackedTensorAccessor<int, 2, RestrictPtrTraits, int32_t>", "int", 2, 4),
        ("torch::PackedTensorAccessor<int, 2, torch::RestrictPtrTraits, size_t>", "int", 2, 8),
        ("Rows<unsigned char>", "unsigned char", 2, 4),
        ("Other", "float", 2, 4),
    ],
)
def test_types(ctype: str, element: str, dimensions: int, index_bytes: int) -> None:
    """An accessor's type is read as C++ reads it, through alias templates and other names."""
    found = accessor_of(parameter(ctype))
    assert found is not None
    assert (found.element, found.dimensions, found.index_bytes) == (element, dimensions, index_bytes)
    assert found.parameter("x").const == element.startswith("const")


@pytest.mark.parametrize("ctype", ["float", "Unknown<float>", "torch::PackedTensorAccessor32<float, N>", "Rows"])
def test_other_types(ctype: str) -> None:
    """A type that is not an accessor, or has no number of dimensions, gives None."""
    assert accessor_of(parameter(ctype)) is None


def test_bytes() -> None:
    """An accessor's record has the address, filled in at launch, then sizes and strides in elements."""
    accessor = accessor_of(parameter("torch::PackedTensorAccessor32<float, 3>"))
    assert accessor is not None
    record = accessor.record(Array("x", "float32", (2, 3, 5), "zeros"))
    assert struct.unpack("<q6i", record.content) == (0, 2, 3, 5, 15, 5, 1)
    assert record.pointers == ((0, "x"),)
    with pytest.raises(
        UsageError, match=r"has 1 dimension; the accessor takes 3: write --arg 'x=float32\[8,8,8\]:random'"
    ):
        accessor.record(Array("x", "float32", (30,), "zeros"))


def test_restrict_is_a_mark_and_not_a_type() -> None:
    """restrict qualifiers, also from macros, are removed; a type whose name has the word stays."""
    marked = parameter("const float *CUDA_RESTRICT")
    assert (marked.name, marked.type, marked.restrict) == ("x", "float", True)
    kept = parameter("torch::PackedTensorAccessor32<float, 2, torch::RestrictPtrTraits>")
    assert (kept.name, kept.restrict) == ("x", False)
    assert kept.type == "torch::PackedTensorAccessor32<float, 2, torch::RestrictPtrTraits>"


def test_headers_that_are_stood_in_for() -> None:
    """All headers of PyTorch have a stand-in; a missing header of another library is empty."""
    assert "PackedTensorAccessor32" in stand_ins.text("torch/extension.h")
    assert stand_ins.text("ATen/native/cuda/KernelUtils.cuh") == stand_ins.text("c10/util/Half.h")
    assert stand_ins.text("opencv2/core.hpp") == ""


def test_a_line_for_a_kernel_that_takes_accessors(cudabench: Callable[..., Ran], tmp_path: Path) -> None:
    """For the bare name of a template, the error suggests a command with an array for each accessor."""
    path = tmp_path / "rows.cu"
    path.write_text(
        f"#include <torch/extension.h>\n{FAMILY}\ntemplate <typename T> __global__ void k(Rows<T> x, int n) {{}}"
    )
    ran = cudabench("run", path, "-k", "k", "--device", "sim")
    assert ran.code == 2
    assert "--kernel 'k<float>'" in ran.err
    assert "--arg 'x=float32[...,...]:random' --arg n=" in ran.err
