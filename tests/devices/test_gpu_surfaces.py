"""On a real GPU: surfaces as arguments of `run` give the simulator's bits, and the life of their arrays."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from cudabench.records.launch import Launch, Source, Surface, Texture
from cudabench.userkernel.textures import MOST
from tests.devices.test_gpu_files import run
from tests.surface_cases import BEYOND, CASES, SOURCE, WRONG

pytestmark = pytest.mark.gpu

SIMULATED = ("--device", "sim", "--no-cpu")
# PyCUDA's names of attributes, keyed by the number of dimensions and whether there are layers; the fastest axis is
# last.
LIMITS = {
    (1, False): ("1D_WIDTH",), (2, False): ("2D_HEIGHT", "2D_WIDTH"), (3, False): ("3D_DEPTH", "3D_HEIGHT", "3D_WIDTH"),
    (1, True): ("1D_LAYERED_LAYERS", "1D_LAYERED_WIDTH"),
    (2, True): ("2D_LAYERED_LAYERS", "2D_LAYERED_HEIGHT", "2D_LAYERED_WIDTH"),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_a_surface_has_the_simulators_bits(name: str, tmp_path: Path) -> None:
    """The kernel's result is right in every timed sample, and equals the simulator's result bit by bit."""
    words, arrays = CASES[name]
    kept: list[list[bytes]] = []
    for at, device in enumerate((SIMULATED, None)):
        files = [tmp_path / f"{at}{array}.npy" for array in arrays]
        saves = [word for array, file in zip(arrays, files, strict=True) for word in ("--save", f"{array}={file}")]
        ran = run(SOURCE, *words, *saves) if device is None else run(SOURCE, *words, *saves, device=device)
        assert ran.returncode == 0, ran.stderr + ran.stdout
        kept.append([np.load(file).tobytes() for file in files])
    assert kept[0] == kept[1]


@pytest.mark.driver
def test_what_is_wrong_on_a_gpu() -> None:
    """A wrong result gives exit code 3; an access beyond a row makes the kernel fail."""
    ran = run(SOURCE, *WRONG)
    assert ran.returncode == 3, ran.stderr
    assert "WRONG" in ran.stdout
    ran = run(SOURCE, *BEYOND)
    assert ran.returncode == 1
    assert "failed" in ran.stdout


def test_the_largest_surfaces() -> None:
    """The GPU's largest surfaces are at least as large as those that the command line accepts."""
    import pycuda.driver as driver

    driver.init()
    device = driver.Device(0)
    for key, names in LIMITS.items():
        attributes = [getattr(driver.device_attribute, f"MAXIMUM_SURFACE{name}") for name in names]
        has = [device.get_attribute(attribute) for attribute in attributes]
        assert all(own >= most for own, most in zip(has, MOST[key], strict=True)), (key, has)


@pytest.mark.driver
def test_arrays_of_surfaces_come_and_go() -> None:
    """Every launch reads and writes the surface's buffer, timed or not; all bindings share one array, which is freed
    with the last binding."""
    from cudabench.devices.cuda import CudaDevice

    width, first = 1000, np.arange(1000, dtype=np.float32)
    surface = Surface("s", "float32", (width,))
    with CudaDevice(0) as device:
        module = device.load(Source(SOURCE.name, SOURCE.read_text(), None, False), {}, ["line"])
        launch = Launch("line", (16, 1, 1), (64, 1, 1), (surface, np.int32(width)))
        places = [{"s": device.allocate(first.nbytes)} for _ in range(2)]
        works: list[Any] = [device.bind(module, [launch], place) for place in places]
        assert len(device._arrays) == 1
        got = np.empty_like(first)
        for turn, (place, work) in enumerate(zip(places, works, strict=True)):
            device.upload(place["s"], first + turn)
            device.run(work, "line")
            device.download(place["s"], got)
            np.testing.assert_array_equal(got, 2 * (first + turn) + 1)
        restored = device.copy(places[1]["s"], places[0]["s"], first.nbytes)
        for _ in range(3):  # each sample starts from the same input
            device.sample([works[0]], "cold", [restored])
            device.download(places[0]["s"], got)
            np.testing.assert_array_equal(got, 2 * (2 * (first + 1) + 1) + 1)
        device.sample([works[0], works[0]], "hot", [restored])  # two launches in sequence on one array
        device.download(places[0]["s"], got)
        np.testing.assert_array_equal(got, 4 * (2 * (first + 1) + 1) + 3)
        works.clear()
        del work
        assert not device._arrays


@pytest.mark.driver
def test_a_texture_of_a_surface_gathers() -> None:
    """tex2Dgather reads values that an earlier launch wrote through a surface."""
    from cudabench.devices.cuda import CudaDevice

    source = """
extern "C" __global__ void put(cudaSurfaceObject_t s) {
  surf2Dwrite((float)(threadIdx.y * 8 + threadIdx.x), s, 4 * threadIdx.x, threadIdx.y);
}
extern "C" __global__ void take(cudaTextureObject_t t, float4 *o) {
  o[threadIdx.y * 7 + threadIdx.x] = tex2Dgather<float4>(t, threadIdx.x + 1.f, threadIdx.y + 1.f, 0);
}
"""
    surface, texture = Surface("s", "float32", (8, 8)), Texture("s", "float32", (8, 8))
    with CudaDevice(0) as device:
        module = device.load(Source("g.cu", source, None, False), {}, ["put", "take"])
        pointers = {"s": device.allocate(256), "o": device.allocate(7 * 7 * 16)}
        launches = [
            Launch("put", (1, 1, 1), (8, 8, 1), (surface,)),
            Launch("take", (1, 1, 1), (7, 7, 1), (texture, "o")),
        ]
        device.run(device.bind(module, launches, pointers), "gathering")
        got = np.empty((7, 7, 4), np.float32)
        device.download(pointers["o"], got)
    at = np.arange(64, dtype=np.float32).reshape(8, 8)
    np.testing.assert_array_equal(got, np.stack([at[1:, :-1], at[1:, 1:], at[:-1, 1:], at[:-1, :-1]], axis=-1))
