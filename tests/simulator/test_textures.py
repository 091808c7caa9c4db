"""Textures and surfaces: nearest texels, filtering, address modes, layers; arguments that are not textures are
errors."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from cudabench.simulator import api as simulator
from cudabench.simulator.api import Texture

Array = np.ndarray[Any, Any]
Launch = Callable[..., simulator.Report]

FETCH_1D = """
extern "C" __global__ void k(cudaTextureObject_t t, const float *x, float *o, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) o[i] = tex1D<float>(t, x[i]);
}
"""
FETCH_2D = """
extern "C" __global__ void k(cudaTextureObject_t t, const float2 *x, float *o, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) o[i] = tex2D<float>(t, x[i].x, x[i].y);
}
"""


def texel(data: Array, index: int, mode: str) -> float:
    """Return T[index] of the Programming Guide, by the address mode."""
    count = len(data)
    if mode == "wrap":
        index %= count
    elif mode == "mirror":
        turn, index = divmod(index, count)
        index = count - 1 - index if turn % 2 else index
    elif mode == "border" and not 0 <= index < count:
        return 0.0
    return float(data[min(max(index, 0), count - 1)])


def filtered(data: Array, x: float, mode: str, linear: bool) -> float:
    """Return tex(x) as the Programming Guide defines it, one dimension; x, in texels, has at most 8 fractional bits."""
    if not linear:
        return texel(data, int(np.floor(x)), mode)
    xb = x - 0.5
    i = int(np.floor(xb))
    a = xb - i
    return (1 - a) * texel(data, i, mode) + a * texel(data, i + 1, mode)


@pytest.mark.parametrize("mode", ["clamp", "wrap", "mirror", "border"])
@pytest.mark.parametrize("kind", ["point", "linear"])
def test_one_dimension(launch: Launch, mode: Any, kind: Any) -> None:
    """A 1D fetch at normalized coordinates inside and outside [0, 1) follows the Programming Guide in each address
    mode, with and without filtering."""
    data = np.array([3, 1, 4, 1, 5, 9, 2, 6], np.float32)
    x = np.arange(-256, 512).astype(np.float32) / 256
    out = np.zeros_like(x)
    texture = Texture(data, filter=kind, address=mode, normalized=True)
    launch(FETCH_1D, 3, 256, [texture, x, out, x.size])
    expected = [filtered(data, float(v) * 8, mode, kind == "linear") for v in x]
    np.testing.assert_array_equal(out, np.float32(expected))


@pytest.mark.parametrize(("given", "meant"), [("wrap", "clamp"), ("mirror", "clamp"), ("border", "border")])
def test_coordinates_in_texels_do_not_wrap(launch: Launch, given: Any, meant: str) -> None:
    """Without normalized coordinates, wrap and mirror act as clamp."""
    data = np.array([3, 1, 4, 1, 5], np.float32)
    x = np.arange(-8, 20).astype(np.float32) / 2
    out = np.zeros_like(x)
    launch(FETCH_1D, 1, 32, [Texture(data, address=given), x, out, x.size])
    np.testing.assert_array_equal(out, np.float32([filtered(data, float(v), meant, False) for v in x]))


def test_bilinear(launch: Launch) -> None:
    """A 2D fetch with linear filtering equals 1D filtering in x, then in y."""
    rng = np.random.default_rng(1)
    data = rng.integers(0, 100, (6, 10)).astype(np.float32)
    points = np.array(list(itertools.product(np.arange(-2, 24) / 2, np.arange(-4, 30) / 4)), np.float32)
    out = np.zeros(len(points), np.float32)
    launch(FETCH_2D, 4, 256, [Texture(data, filter="linear"), points, out, len(points)])
    expected = []
    for x, y in points.tolist():
        rows = np.array([filtered(row, x, "clamp", True) for row in data])
        expected.append(filtered(rows, y, "clamp", True))
    np.testing.assert_array_equal(out, np.float32(expected))


def test_weights_have_eight_fractional_bits(launch: Launch) -> None:
    """Filter weights have 8 fractional bits: between texels 0 and 1 a fetch gives 257 values, each nearest to its
    coordinate."""
    x = (np.arange(4097) / 4096 + 0.5).astype(np.float32)
    out = np.zeros_like(x)
    launch(FETCH_1D, 17, 256, [Texture(np.array([0, 1], np.float32), filter="linear"), x, out, x.size])
    assert set(np.unique(out * 256).tolist()) == set(range(257))
    assert np.abs(out - (x - 0.5)).max() <= 1 / 512


def test_channels_and_integers(launch: Launch) -> None:
    """A texture of four byte channels gives integers, or numbers in [0, 1]; a texture of int16 keeps the sign."""
    source = """
extern "C" __global__ void k(cudaTextureObject_t t, cudaTextureObject_t u, cudaTextureObject_t v, uchar4 *o, float4 *p,
                             short *q) {
  int i = threadIdx.x;
  o[i] = tex2D<uchar4>(t, i % 4 + .5f, i / 4 + .5f);
  p[i] = tex2D<float4>(u, i % 4 + .5f, i / 4 + .5f);
  q[i] = tex2D<short>(v, i % 4, i / 4);
}
"""
    rng = np.random.default_rng(2)
    data = rng.integers(0, 256, (8, 4, 4), dtype=np.uint8)
    words = rng.integers(-30000, 30000, (8, 4), dtype=np.int16)
    out, floats, shorts = np.zeros_like(data), np.zeros(data.shape, np.float32), np.zeros_like(words)
    textures = [Texture(data, channels=4), Texture(data, channels=4, read="normalized"), Texture(words)]
    launch(source, 1, 32, [*textures, out, floats, shorts])
    np.testing.assert_array_equal(out, data)
    np.testing.assert_array_equal(floats, (data / 255.0).astype(np.float32))
    np.testing.assert_array_equal(shorts, words)


def test_linear_memory_is_zero_outside(launch: Launch) -> None:
    """tex1Dfetch reads by index, and returns 0 for an index outside the array."""
    source = 'extern "C" __global__ void k(cudaTextureObject_t t, int *o) {\n'
    source += "  o[threadIdx.x] = tex1Dfetch<int>(t, (int)threadIdx.x - 4);\n}\n"
    out = np.full(32, -1, np.int32)
    launch(source, 1, 32, [Texture(np.arange(100, 120, dtype=np.int32), linear=True), out])
    np.testing.assert_array_equal(out, [*[0] * 4, *range(100, 120), *[0] * 8])


def test_volumes_layers_and_gathers(launch: Launch) -> None:
    """A trilinear fetch, a fetch of a layer, and a gather of four texels give the right values."""
    source = """
extern "C" __global__ void k(cudaTextureObject_t t, cudaTextureObject_t u, cudaTextureObject_t v, float *o, float4 *g) {
  int i = threadIdx.x;
  o[i] = tex3D<float>(t, 1.f, 1.25f, 2.f);
  o[i + 32] = tex2DLayered<float>(u, i % 4, i / 4, 2);
  g[i] = tex2Dgather<float4>(v, i % 4 + 1.f, 2.f, 0);
}
"""
    data = np.arange(3 * 8 * 4, dtype=np.float32).reshape(3, 8, 4)
    out, around = np.zeros(64, np.float32), np.zeros((32, 4), np.float32)
    textures = [Texture(data, filter="linear"), Texture(data, layered=True), Texture(data[1].copy())]
    launch(source, 1, 32, [*textures, out, around])
    np.testing.assert_array_equal(out[:32], np.float32(0.5 + 4 * 0.75 + 32 * 1.5))
    np.testing.assert_array_equal(out[32:], data[2].reshape(-1))
    i = np.arange(32) % 4
    right = np.minimum(i + 1, 3)
    plane = data[1]
    expected = np.stack([plane[2, i], plane[2, right], plane[1, right], plane[1, i]], axis=1)
    np.testing.assert_array_equal(around, expected)


def test_surfaces(launch: Launch) -> None:
    """The x coordinate of a surface counts bytes; outside the surface, zero mode reads 0 and clamp mode reads the
    edge."""
    source = """
extern "C" __global__ void k(cudaSurfaceObject_t s, cudaSurfaceObject_t d, float *o) {
  int x = threadIdx.x, y = blockIdx.x;
  float4 v;
  surf2Dread(&v, s, x * 16, y);
  surf2Dwrite(make_float4(v.w, v.z, v.y, v.x + 1), d, x * 16, y);
  o[y * 8 + x] = surf2Dread<float>(s, x * 16 - 16, y, cudaBoundaryModeZero)
               + 1000 * surf2Dread<float>(s, 1000 * x, y, cudaBoundaryModeClamp);
}
"""
    data = np.arange(5 * 8 * 4, dtype=np.float32).reshape(5, 8, 4)
    out, extra = np.zeros_like(data), np.zeros((5, 8), np.float32)
    launch(source, 5, 8, [Texture(data, channels=4), Texture(out, channels=4), extra])
    expected = data[..., ::-1].copy()
    expected[..., 3] += 1
    np.testing.assert_array_equal(out, expected)
    before = np.pad(data[:, :-1, 0], ((0, 0), (1, 0)))
    last = np.where(np.arange(8) == 0, data[:, :1, 0], data[:, -1:, 3])
    np.testing.assert_array_equal(extra, before + 1000 * last)


@pytest.mark.parametrize(
    ("x", "kind", "said"),
    [
        (16, "out-of-bounds", "writes 4 bytes at x=16 of the surface 's' (16 bytes a row): x counts bytes"),
        (-4, "out-of-bounds", "at x=-4"),
        (2, "misaligned", "writes 4 bytes at x=2 of the surface 's', not a multiple of 4: x counts bytes"),
    ],
)
def test_a_surface_access_outside_is_a_hazard(launch: Launch, x: int, kind: str, said: str) -> None:
    """In the default (trap) mode, a surface write out of bounds or at a misaligned x is a hazard; a write out of bounds
    does not take place."""
    source = 'extern "C" __global__ void k(cudaSurfaceObject_t s, int x) { surf1Dwrite(1.f, s, x); }\n'
    surface = Texture(np.zeros(4, np.float32))
    report = launch(source, 1, 1, [surface, x], names=["s", "x"])
    assert [(hazard.kind, hazard.line) for hazard in report.hazards] == [(kind, 1)]
    assert said in report.hazards[0].message
    np.testing.assert_array_equal(surface.array, [kind == "misaligned", 0, 0, 0])


def test_where_a_surface_is_written(launch: Launch) -> None:
    """A write to the last element of a row of a surface is within bounds."""
    source = 'extern "C" __global__ void k(cudaSurfaceObject_t s, int x) { surf1Dwrite(1.f, s, x); }\n'
    surface = Texture(np.zeros(4, np.float32))
    assert launch(source, 1, 1, [surface, 12]).hazards == ()
    np.testing.assert_array_equal(surface.array, [0, 0, 0, 1])


ODD = """
extern "C" __global__ void k(cudaSurfaceObject_t s, cudaSurfaceObject_t v, cudaSurfaceObject_t l,
                             cudaSurfaceObject_t o) {
  int x = threadIdx.x, y = blockIdx.x;
  unsigned short w = surf2Dread<unsigned short>(s, 2 * (x / 2), y);
  surf2Dwrite((unsigned char)(w >> 8 * (x % 2)), o, x, y);
  short a = surf3Dread<short>(v, 2 * x, y, 1);
  surf3Dwrite((short)(a + 1), v, 2 * x, y, 2);
  long long b = surf2DLayeredread<long long>(l, 8 * x, y, 0);
  surf2DLayeredwrite(b * 3, l, 8 * x, y, 1);
}
"""


def test_rows_of_odd_bytes_volumes_and_layers(launch: Launch) -> None:
    """Surface accesses of two bytes in rows of six bytes, of slices, of layers, and of eight bytes over two channels
    give the right values."""
    rng = np.random.default_rng(3)
    data = rng.integers(0, 256, (5, 6), dtype=np.uint8)
    volume = rng.integers(-99, 99, (3, 5, 6), dtype=np.int16)
    layers = rng.integers(-(2**20), 2**20, (2, 5, 6, 2), dtype=np.int32)
    out, before, longs = np.zeros_like(data), volume.copy(), layers.copy().view(np.int64)
    surfaces = [Texture(data), Texture(volume), Texture(layers, channels=2, layered=True), Texture(out)]
    assert launch(ODD, 5, 6, surfaces).hazards == ()
    np.testing.assert_array_equal(out, data)
    np.testing.assert_array_equal(volume[2], before[1] + 1)
    np.testing.assert_array_equal(layers.view(np.int64)[1], longs[0] * 3)


SHIFT = """
extern "C" __global__ void k(cudaSurfaceObject_t s, cudaSurfaceObject_t o, int w) {
  int x = blockIdx.x * blockDim.x + threadIdx.x;
  if (x >= w) return;
  float v = surf2Dread<float>(s, 4 * x + 4, 1, cudaBoundaryModeZero);
  surf2Dwrite(v, o, 4 * x, 1);
}
"""


@pytest.mark.parametrize(
    ("blocks", "threads", "party"), [(1, 64, "which thread"), (64, 1, "which block"), (2, 32, "which ")]
)
def test_races_over_a_surface(launch: Launch, blocks: int, threads: int, party: str) -> None:
    """A read of a texel that another thread writes to a surface in the same launch is a race; a read of the thread's
    own texel is not."""
    data, out = np.arange(128, dtype=np.float32).reshape(2, 64), np.zeros((2, 64), np.float32)
    assert launch(SHIFT, blocks, threads, [Texture(data), Texture(out), 64]).hazards == ()
    np.testing.assert_array_equal(out[1], [*data[1, 1:], 0])
    own = SHIFT.replace("4 * x + 4", "4 * x")
    assert launch(own, blocks, threads, [Texture(data), Texture(data), 64]).hazards == ()
    report = launch(SHIFT, blocks, threads, [Texture(data), Texture(data), 64], names=["s", "o", "w"])
    assert {hazard.kind for hazard in report.hazards} == {"race"}
    assert {hazard.line for hazard in report.hazards} <= {5, 6}
    assert party in report.hazards[0].message
    assert " s[row 1, column " in report.hazards[0].message


@pytest.mark.parametrize(
    ("filter", "shift", "races"), [("point", 0, 0), ("point", 1, 1), ("linear", 0, 0), ("linear", 0.5, 1)]
)
def test_races_of_a_texture_with_a_surface(launch: Launch, filter: Any, shift: float, races: int) -> None:
    """A texture fetch races with a surface write to the same array if the fetch uses a texel that another thread
    writes."""
    source = """
extern "C" __global__ void k(cudaTextureObject_t t, cudaSurfaceObject_t s, float d) {
  int x = blockIdx.x * blockDim.x + threadIdx.x;
  surf2Dwrite(tex2D<float>(t, x + 0.5f + d, 0.5f), s, 4 * x, 0);
}
"""
    data = np.arange(128, dtype=np.float32).reshape(2, 64)
    texture, other = Texture(data, filter=filter), Texture(np.zeros_like(data))
    report = launch(source, 2, 32, [texture, Texture(data), np.float32(shift)], names=["t", "s", "d"])
    assert [hazard.kind for hazard in report.hazards] == ["race"] * races
    assert launch(source, 2, 32, [texture, other, np.float32(shift)]).hazards == ()


def test_an_element_wider_than_a_row(launch: Launch) -> None:
    """For an element wider than a row, zero mode reads 0, as on a GPU, and clamp mode is an out-of-bounds hazard."""
    source = """
extern "C" __global__ void k(cudaSurfaceObject_t s, long long *o) {
  o[0] = surf2Dread<long long>(s, 0, 1, cudaBoundaryModeZero);
  surf2Dwrite(5ll, s, 0, 1, cudaBoundaryModeZero);
  o[1] = surf2Dread<long long>(s, 0, 1, cudaBoundaryModeClamp);
}
"""
    data, out = np.ones((2, 5), np.uint8), np.full(2, 7)
    report = launch(source, 1, 1, [Texture(data), out])
    assert [(hazard.kind, hazard.line) for hazard in report.hazards] == [("out-of-bounds", 5)]
    assert out[0] == 0
    assert data.all()


def test_writes_of_one_texel(launch: Launch) -> None:
    """Threads that write different values to one texel race; threads that write the same value do not."""
    source = 'extern "C" __global__ void k(cudaSurfaceObject_t s) { surf1Dwrite((unsigned char)V, s, 3); }\n'
    data = np.zeros(4, np.uint8)
    assert launch(source.replace("V", "7"), 2, 32, [Texture(data)]).hazards == ()
    report = launch(source.replace("V", "threadIdx.x"), 2, 32, [Texture(data)], names=["s"])
    assert [hazard.kind for hazard in report.hazards] == ["race"]
    beside = source.replace("V", "threadIdx.x").replace(", 3)", ", threadIdx.x)")
    assert launch(beside, 1, 4, [Texture(data)]).hazards == ()


@pytest.mark.slow
def test_a_wait_for_a_surface(launch: Launch) -> None:
    """A block that polls a texel ends if another block writes the awaited value; otherwise the loop is endless."""
    source = """
extern "C" __global__ void k(cudaSurfaceObject_t s, int last) {
  if (blockIdx.x == 0) {
    while (surf1Dread<int>(s, 4) != last) ;
    surf1Dwrite(1, s, 0);
  } else {
    int sum = 0;
    for (int i = 0; i < 3000; i++) surf1Dwrite(sum += i % 2, s, 8);
    surf1Dwrite(sum, s, 4);
  }
}
"""
    data = np.zeros(4, np.int32)
    launch(source, 2, 1, [Texture(data), 1500])
    np.testing.assert_array_equal(data, [1, 1500, 1500, 0])
    with pytest.raises(simulator.BudgetExceeded) as ended:
        launch(source, 2, 1, [Texture(data), 1501])
    assert "endless-loop" in {hazard.kind for hazard in ended.value.hazards}


def test_a_surface_of_other_layers(launch: Launch) -> None:
    """A write to a layer or slice that does not exist is a hazard in trap mode; zero mode drops it, clamp mode uses the
    nearest layer."""
    source = """
extern "C" __global__ void k(cudaSurfaceObject_t l, cudaSurfaceObject_t v) {
  surf1DLayeredwrite(7.f, l, 4 * threadIdx.x, 2, cudaBoundaryModeZero);
  surf1DLayeredwrite(8.f, l, 4 * threadIdx.x, 9, cudaBoundaryModeClamp);
  surf1DLayeredwrite(9.f, l, 4 * threadIdx.x, threadIdx.x);
  surf3Dwrite(1.f, v, 0, 1, -1);
}
"""
    layers, volume = np.zeros((2, 3), np.float32), np.zeros((2, 2, 2), np.float32)
    report = launch(source, 1, 3, [Texture(layers, layered=True), Texture(volume)], names=["l", "v"])
    assert [(hazard.kind, hazard.line, hazard.count) for hazard in report.hazards] == [
        ("out-of-bounds", 5, 1), ("out-of-bounds", 6, 3),
    ]  # fmt: skip
    assert "at x=8, layer=2 of the surface 'l' (12 bytes a row, 2 layers)" in report.hazards[0].message
    assert "at x=0, y=1, z=-1 of the surface 'v' (8 bytes a row, 2 rows, 2 slices)" in report.hazards[1].message
    np.testing.assert_array_equal(layers, [[9, 0, 0], [8, 9, 8]])
    assert not volume.any()


def test_what_is_no_texture(launch: Launch) -> None:
    """A pointer in place of a texture object, or a texture of other dimensions, ends the launch; Texture() refuses
    invalid arguments."""
    x, out = np.zeros(32, np.float32), np.zeros(32, np.float32)
    with pytest.raises(simulator.KernelTrap, match=r"test\.cu:4.* not a texture object"):
        launch(FETCH_1D, 1, 32, [x, x, out, 32])
    with pytest.raises(simulator.KernelTrap, match=r"uses 1 coordinate at .* for a texture of 2 dimensions"):
        launch(FETCH_1D, 1, 32, [Texture(np.zeros((4, 4), np.float32)), x, out, 32])
    for bad in (
        {"array": np.zeros(4)}, {"array": np.zeros(4, np.int32), "filter": "linear"},
        {"array": np.zeros(4, np.float32), "read": "normalized"}, {"array": np.zeros((4, 3), np.int8), "channels": 4},
        {"array": np.zeros((0, 4), np.float32)}, {"array": np.zeros((), np.float32)},
    ):  # fmt: skip
        with pytest.raises(simulator.LaunchError):
            Texture(**bad)


CHOSEN = """
extern "C" __global__ void k(cudaTextureObject_t a, cudaTextureObject_t b, cudaSurfaceObject_t s,
                             cudaSurfaceObject_t t, float *o, int *q) {
  int x = threadIdx.x, i = blockIdx.x * 33 + x, w;
  bool one = x % 3 == 1 || blockIdx.x == 2;
  cudaTextureObject_t from = one ? a : b;
  cudaSurfaceObject_t into = one ? s : t;
  float4 v = tex2D<float4>(from, x + 0.5f, blockIdx.x + 0.5f);
  o[i] = v.x + tex2Dgather<float4>(from, x + 0.5f, blockIdx.x + 0.5f, 0).z;
  float old = surf2Dread<float>(into, 4 * x, blockIdx.x, cudaBoundaryModeZero);
  surf2Dwrite(old + v.x, into, 4 * x, blockIdx.x, cudaBoundaryModeZero);
  asm("txq.width.b32 %0, [%1];" : "=r"(w) : "l"(from));
  q[i] = w;
}
"""


def test_each_lane_names_its_object(launch: Launch) -> None:
    """In one access, lanes and blocks may use different textures and surfaces, with different channels and widths."""
    rng = np.random.default_rng(4)
    a, b = rng.integers(0, 99, (3, 33)).astype(np.float32), rng.integers(0, 99, (3, 40, 4)).astype(np.float32)
    s, t = rng.integers(0, 99, (3, 33)).astype(np.float32), rng.integers(0, 99, (2, 33)).astype(np.float32)
    start, other = s.copy(), t.copy()
    out, widths = np.zeros((3, 33), np.float32), np.zeros((3, 33), np.int32)
    report = launch(CHOSEN, 3, 33, [Texture(a), Texture(b, channels=4), Texture(s), Texture(t), out, widths])
    assert report.hazards == ()
    one = (np.arange(33) % 3 == 1) | (np.arange(3)[:, None] == 2)
    read = np.where(one, a, b[:, :33, 0])
    right = np.where(one, a[:, np.minimum(np.arange(33) + 1, 32)], b[:, 1:34, 0])
    np.testing.assert_array_equal(out, read + right)
    np.testing.assert_array_equal(widths, np.where(one, 33, 40))
    np.testing.assert_array_equal(s, np.where(one, start + read, start))
    np.testing.assert_array_equal(t, np.where(one[:2], other, other + read[:2]))


def test_a_layer_that_is_not_there_and_a_skewed_x(launch: Launch) -> None:
    """An access that zero mode drops is not reported as misaligned; a message gives a layer of -1 as -1."""
    source = """
extern "C" __global__ void k(cudaSurfaceObject_t l) {
  surf1DLayeredwrite(7.f, l, 2, 5, cudaBoundaryModeZero);
  surf1DLayeredwrite(7.f, l, 2, -1);
}
"""
    layers = np.zeros((2, 3), np.float32)
    report = launch(source, 1, 1, [Texture(layers, layered=True)], names=["l"])
    assert [(hazard.kind, hazard.line) for hazard in report.hazards] == [("out-of-bounds", 4)]
    assert "at x=2, layer=-1 of the surface 'l' (12 bytes a row, 2 layers)" in report.hazards[0].message
    assert not layers.any()


def test_races_of_linear_memory(launch: Launch) -> None:
    """A fetch from linear memory that another thread writes is a race, also if the texel is smaller than the written
    element."""
    source = """
extern "C" __global__ void k(cudaTextureObject_t t, int *y, int d) {
  int x = threadIdx.x;
  y[x] = tex1Dfetch<U>(t, 4 / sizeof(U) * (x + d));
}
"""
    for texel, data in (("int", np.zeros(32, np.int32)), ("unsigned char", np.zeros(128, np.uint8))):
        text = source.replace("U", texel)
        arguments = [Texture(data, linear=True), data]
        assert launch(text, 1, 31, [*arguments, 0]).hazards == ()
        report = launch(text, 1, 31, [*arguments, 1], names=["t", "y", "d"])
        assert [(hazard.kind, hazard.line) for hazard in report.hazards] == [("race", 4)]


def test_fetches_that_no_texture_has(launch: Launch) -> None:
    """A fetch of linear memory at fractional coordinates ends the launch; an instruction with a texel offset is
    unsupported."""
    out = np.zeros(32, np.float32)
    with pytest.raises(simulator.KernelTrap, match=r"'t' by coordinates that are not whole numbers.* use tex1Dfetch"):
        launch(FETCH_1D, 1, 32, [Texture(out, linear=True), out, out, 32], names=["t", "x", "o", "n"])
    source = """
extern "C" __global__ void k(cudaTextureObject_t t, float *o) {
  float a, b, c, d;
  asm("tex.2d.v4.f32.f32 {%0,%1,%2,%3}, [%4, {%5,%5}], {%6,%6};"
      : "=f"(a), "=f"(b), "=f"(c), "=f"(d) : "l"(t), "f"(0.5f), "r"(1));
  o[0] = a;
}
"""
    with pytest.raises(simulator.UnsupportedKernel, match=r"tex\.2d"):
        launch(source, 1, 1, [Texture(np.zeros((4, 4), np.float32)), out])


def test_a_texture_that_is_not_sparse(launch: Launch) -> None:
    """A fetch that also returns whether its texels are resident returns true."""
    source = """
extern "C" __global__ void k(cudaTextureObject_t t, float *o) {
  bool there, all;
  float v = tex2D<float>(t, threadIdx.x + 0.5f, 0.5f, &there);
  float4 around = tex2Dgather<float4>(t, threadIdx.x + 0.5f, 0.5f, &all, 0);
  o[threadIdx.x] = there && all ? v + around.w : -1;
}
"""
    data, out = np.arange(8, dtype=np.float32).reshape(2, 4), np.zeros(4, np.float32)
    launch(source, 1, 4, [Texture(data), out])
    np.testing.assert_array_equal(out, 2 * data[0])


@pytest.mark.sampled(4)
@pytest.mark.parametrize(
    ("read", "races"),
    [
        ("surf1Dread<float>(s, 4 * x)", 1), ("tex1D<float>(t, x + 0.5f)", 1), ("surf1Dread<float>(r, 4 * x)", 0),
        ("surf1Dread<float>(s, 4 * x + 128)", 0), ("tex1D<float>(t, x + 32.5f)", 0),
    ],
)  # fmt: skip
@pytest.mark.parametrize("barrier", ["", "__syncthreads();"])
def test_a_read_of_what_the_launch_wrote(launch: Launch, read: str, races: int, barrier: str) -> None:
    """A read of a texel that the same thread wrote to a surface in the same launch is a race; a read of another texel
    or array is not."""
    source = f"""
extern "C" __global__ void k(cudaSurfaceObject_t s, cudaTextureObject_t t, cudaSurfaceObject_t r, float *o) {{
  int x = threadIdx.x;
  surf1Dwrite((float)x, s, 4 * x);
  {barrier}
  o[x] = {read};
}}
"""
    data, other, out = np.zeros(64, np.float32), np.zeros(64, np.float32), np.zeros(32, np.float32)
    report = launch(source, 1, 32, [Texture(data), Texture(data), Texture(other), out], names=["s", "t", "r", "o"])
    assert [(hazard.kind, hazard.line) for hazard in report.hazards] == [("race", 6)] * races
    for hazard in report.hazards:
        assert hazard.count == 32
        assert "thread (0, 0, 0) of block (0, 0, 0) reads byte 0 of 's', which the same launch" in hazard.message
