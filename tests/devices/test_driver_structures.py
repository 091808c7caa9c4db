"""The ctypes structures that go to the driver, and the kernels that need a cooperative launch."""

from __future__ import annotations

import ctypes
import subprocess
from pathlib import Path

import pytest

from cudabench.compile import toolkit
from cudabench.compile.compiler import compile_ptx, nvrtc_version
from cudabench.devices import driver_objects as made
from cudabench.devices.driver_objects import synchronises_grid

FIELDS = {
    "CUDA_ARRAY3D_DESCRIPTOR": (
        made.ArrayDescriptor,
        {"depth": "Depth", "format": "Format", "flags": "Flags"},
    ),
    "CUDA_MEMCPY3D": (
        made.Copy,
        {"src_device": "srcDevice", "src_pitch": "srcPitch", "dst_array": "dstArray", "width_bytes": "WidthInBytes"},
    ),
    "CUDA_RESOURCE_DESC": (made.ResourceDescriptor, {"of": "res", "flags": "flags"}),
    "CUDA_TEXTURE_DESC": (
        made.TextureDescriptor,
        {"filter": "filterMode", "flags": "flags", "border": "borderColor"},
    ),
}
VALUES = {
    "CU_AD_FORMAT_HALF": made.FORMATS["float16"], "CU_AD_FORMAT_FLOAT": made.FORMATS["float32"],
    "CU_AD_FORMAT_SIGNED_INT16": made.FORMATS["int16"], "CU_TR_ADDRESS_MODE_BORDER": 3,
    "CU_TR_FILTER_MODE_LINEAR": made.FILTERS["linear"], "CU_RESOURCE_TYPE_LINEAR": made.RESOURCE_LINEAR,
    "CU_MEMORYTYPE_ARRAY": made.MEMORY_ARRAY, "CU_TRSF_READ_AS_INTEGER": made.READ_AS_INTEGER,
    "CU_TRSF_NORMALIZED_COORDINATES": made.NORMALIZED_COORDINATES, "CUDA_ARRAY3D_LAYERED": made.LAYERED,
    "CUDA_ARRAY3D_TEXTURE_GATHER": made.GATHER, "CUDA_ARRAY3D_SURFACE_LDST": made.SURFACE_LDST,
    "CUDA_ERROR_OUT_OF_MEMORY": made.NO_MEMORY,
}  # fmt: skip


@pytest.mark.skipif(toolkit.nvcc() is None or toolkit.host_compiler() is None, reason="needs the toolkit's cuda.h")
def test_structures_lie_as_in_cuda_h(tmp_path: Path) -> None:
    """Sizes, offsets and constants of the structures equal those of the installed cuda.h."""
    lines = ["#include <stddef.h>", "#include <cuda.h>"]
    for name, (structure, names) in FIELDS.items():
        lines.append(f'static_assert(sizeof({name}) == {ctypes.sizeof(structure)}, "{name}");')
        for own, theirs in names.items():
            offset = getattr(structure, own).offset
            lines.append(f'static_assert(offsetof({name}, {theirs}) == {offset}, "{name}.{theirs}");')
    lines += [f'static_assert({name} == {value}, "{name}");' for name, value in VALUES.items()]
    source = tmp_path / "layout.cpp"
    source.write_text("\n".join(lines) + "\n")
    words = [str(toolkit.nvcc()), "-c", str(source), "-o", str(tmp_path / "layout.o")]
    ran = subprocess.run(words, capture_output=True, text=True)
    assert ran.returncode == 0, ran.stderr


@pytest.mark.slow
@pytest.mark.skipif(nvrtc_version() is None, reason="needs NVRTC")
def test_which_kernels_synchronise_their_grid() -> None:
    """Only a kernel that calls grid.sync(), directly or in a function that is not inlined, needs a cooperative
    launch."""
    ptx = compile_ptx(
        "#include <cooperative_groups.h>\nnamespace cg = cooperative_groups;\n"
        "__device__ __noinline__ void meet() { cg::this_grid().sync(); }\n"
        "__device__ __noinline__ float plain(float x) { return sinf(x); }\n"
        'extern "C" __global__ void by_call(float *x) { x[0] = 1; meet(); x[1] = x[0]; }\n'
        'extern "C" __global__ void by_itself(float *x) { x[0] = 1; cg::this_grid().sync(); x[1] = x[0]; }\n'
        'extern "C" __global__ void by_it(float *x) { x[0] = 1; }\n',
        "k.cu",
    ).ptx
    found = {name: synchronises_grid(ptx, name) for name in ("by_call", "by_itself", "by_it")}
    assert found == {"by_call": True, "by_itself": True, "by_it": False}
