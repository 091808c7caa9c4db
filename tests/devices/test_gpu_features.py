"""Instructions beyond plain arithmetic: the simulator and a GPU give the same bits from the same inputs.

Where the hardware's rounding is undocumented, the outputs may differ by the bound that the feature states.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from cudabench.compile.compiler import compile_ptx, nvrtc_version
from cudabench.devices import sim
from cudabench.records.launch import Launch, Source, Texture
from cudabench.simulator import api as simulator

Array = np.ndarray[Any, Any]
SOURCE = Path(__file__).parents[1] / "data" / "features.cu"
THREADS = 128


@dataclass(frozen=True)
class Feature:
    """A launch of a kernel: `make` returns its arguments in order (arrays by name), `outputs` names the arrays it
    writes.

    textures: how the kernel reads arrays that it gets as texture objects. bound: largest difference, relative to the
    largest magnitude of the output; 0 means equal bits.
    """

    kernel: str
    grid: int
    block: int
    make: Callable[[np.random.Generator], dict[str, Any]]
    outputs: tuple[str, ...]
    textures: dict[str, dict[str, Any]] | None = None
    bound: float = 0.0


def floats(rng: np.random.Generator, count: int) -> Array:
    """Return floats of all magnitudes, special values included."""
    x = (rng.standard_normal(count) * 10.0 ** rng.integers(-8, 7, count)).astype(np.float32)
    x[:8] = [0, -0.0, np.inf, -np.inf, np.nan, 448, -464, 57344]
    return x


def fp8(rng: np.random.Generator) -> dict[str, Any]:
    """Arguments of fp8: all values of float16, each paired with one other value."""
    n = 65536
    low = np.arange(n, dtype=np.uint32)
    halves = low | (low[::-1] << np.uint32(16))
    return {"x": floats(rng, n), "h": halves, "o": np.zeros(6 * n, np.uint16), "w": np.zeros(3 * n, np.uint32)}


def coordinates(low: float, high: float, step: float, count: int, axes: int) -> Array:
    """Return coordinates that are exact with the 8 fractional bits of a texture unit."""
    rng = np.random.default_rng(5)
    return (rng.integers(int(low / step), int(high / step), (count, axes)) * step).astype(np.float32)


def line(rng: np.random.Generator) -> dict[str, Any]:
    """Arguments of line: 32 texels, normalized coordinates from -1 to 2."""
    x = coordinates(-1, 2, 2.0**-13, 1024, 1).reshape(-1)
    return {"t": rng.integers(-99, 99, 32).astype(np.float32), "x": x, "o": np.zeros(1024, np.float32)}


def plane(rng: np.random.Generator) -> dict[str, Any]:
    """Arguments of plane: 24 x 40 texels, coordinates in texels, some outside."""
    data = rng.integers(-99, 99, (24, 40)).astype(np.float32)
    return {"t": data, "x": coordinates(-4, 48, 1 / 16, 1024, 2), "o": np.zeros(1024, np.float32)}


def gathered(rng: np.random.Generator) -> dict[str, Any]:
    """Arguments of gathered: coordinates that do not lie in the middle between texels."""
    made = plane(rng)
    return {"t": made["t"], "x": made["x"] + np.float32(1 / 32), "o": np.zeros((1024, 4), np.float32)}


def colours(rng: np.random.Generator) -> dict[str, Any]:
    """Arguments of colours: four bytes per texel, read as numbers in [0, 1]."""
    data = rng.integers(0, 256, (16, 16, 4), dtype=np.uint8)
    return {"t": data, "x": coordinates(-2, 18, 1 / 8, 1024, 2), "o": np.zeros((1024, 4), np.float32)}


def volume(rng: np.random.Generator) -> dict[str, Any]:
    """Arguments of volume: 6 x 8 x 16 texels."""
    data = rng.integers(-99, 99, (6, 8, 16)).astype(np.float32)
    return {"t": data, "x": coordinates(-1, 17, 1 / 4, 1024, 4), "o": np.zeros(1024, np.float32)}


def layers(rng: np.random.Generator) -> dict[str, Any]:
    """Arguments of layers: four layers; the kernel also reads a fifth."""
    data = rng.integers(-99, 99, (4, 12, 20)).astype(np.float32)
    return {"t": data, "x": coordinates(-1, 22, 1 / 4, 1024, 2), "o": np.zeros(1024, np.float32)}


def matrices(rng: np.random.Generator) -> dict[str, Any]:
    """Arguments of matrices."""
    return {"in": rng.integers(0, 65536, 256, dtype=np.uint16), "o": np.zeros(15 * 32, np.uint32)}


def packed(values: Array, type_: str) -> Array:
    """Return numbers packed into 32-bit registers."""
    import ml_dtypes

    named = {"bf16": ml_dtypes.bfloat16, "e4m3": ml_dtypes.float8_e4m3fn, "e5m2": ml_dtypes.float8_e5m2}
    return np.ascontiguousarray(values.astype(named.get(type_, np.float16))).view(np.uint32)


def products(
    registers: tuple[int, int], types: tuple[str, str], *, exact: bool
) -> Callable[[np.random.Generator], dict[str, Any]]:
    """Return the arguments of an mma with these registers of A and B: small integers with exact sums, or random
    values."""

    def make(rng: np.random.Generator) -> dict[str, Any]:
        found: dict[str, Any] = {}
        for name, count, type_ in zip("ab", registers, types, strict=True):
            if type_ == "bits":
                found[name] = rng.integers(0, 2**32, 32 * 8 * count, dtype=np.uint32)
                continue
            each = 4 if type_[0] == "e" else 2
            shape = (32 * 8, count * each)
            values = rng.integers(-4, 5, shape) if exact else rng.standard_normal(shape)
            found[name] = packed(np.asarray(values, np.float32), type_).reshape(-1)
        whole = types[0] == "bits"
        c = rng.integers(-(2**31), 2**31, 32 * 8 * 4) if whole else rng.standard_normal(32 * 8 * 4)
        found["c"] = c.astype(np.int32 if whole else np.float32)
        if exact and not whole:
            found["c"] = np.rint(found["c"] * 8)
        found["d"] = np.zeros_like(found["c"])
        return found

    return make


def wmma(rng: np.random.Generator) -> dict[str, Any]:
    """Arguments of wmma_half: small integers."""
    a, b = (rng.integers(-4, 5, (8, 16, 16)).astype(np.float16) for _ in range(2))
    c = rng.integers(-9, 9, (8, 16, 16)).astype(np.float32)
    return {"a": a, "b": b, "c": c, "d": np.zeros_like(c)}


def simd(rng: np.random.Generator) -> dict[str, Any]:
    """Arguments of simd."""
    a, b, c = (rng.integers(0, 2**32, 1024, dtype=np.uint32) for _ in range(3))
    return {"a": a, "b": b, "c": c, "o": np.zeros(12 * 1024, np.uint32)}


def grid_sync(rng: np.random.Generator) -> dict[str, Any]:
    """Arguments of grid_sync."""
    return {"x": rng.integers(0, 1000, 9001, dtype=np.int32), "y": np.zeros(9001, np.int32), "n": np.int32(9001)}


def bulk(rng: np.random.Generator) -> dict[str, Any]:
    """Arguments of bulk."""
    x = rng.integers(0, 1000, (3, 7, 256), dtype=np.int32)
    return {"x": x, "y": np.zeros_like(x), "tiles": np.int32(7)}


FEATURES: dict[str, Feature] = {
    "fp8": Feature("fp8", 512, THREADS, fp8, ("o", "w")),
    "words": Feature(
        "words", 8, THREADS, lambda rng: {"t": rng.integers(0, 9, 900, dtype=np.int32), "o": np.zeros(1024, np.int32)},
        ("o",), {"t": {"linear": True}},
    ),
    "gather": Feature("gathered", 8, THREADS, gathered, ("o",), {"t": {}}),
    "colours": Feature("colours", 8, THREADS, colours, ("o",), {"t": {"channels": 4, "read": "normalized"}}),
    "volume": Feature("volume", 8, THREADS, volume, ("o",), {"t": {}}),
    "volume-linear": Feature("volume", 8, THREADS, volume, ("o",), {"t": {"filter": "linear"}}, 2.0**-8),
    "layers": Feature("layers", 8, THREADS, layers, ("o",), {"t": {"layered": True}}),
    "matrices": Feature("matrices", 1, 32, matrices, ("o",)),
    "wmma": Feature("wmma_half", 2, THREADS, wmma, ("d",)),
    "simd": Feature("simd", 8, THREADS, simd, ("o",)),
    "grid-sync": Feature("grid_sync", 20, THREADS, grid_sync, ("x", "y")),
    "bulk": Feature("bulk", 3, 256, bulk, ("y",)),
}  # fmt: skip
for _filter, _mode in itertools.product(("point", "linear"), ("clamp", "wrap", "mirror", "border")):
    # The product of an 8-bit weight and a small integer is exact; the order in which a filter adds is undocumented.
    _bound = 0.0 if _filter == "point" else 2.0**-8
    _how: dict[str, Any] = {"filter": _filter, "address": _mode, "normalized": True}
    FEATURES[f"line-{_filter}-{_mode}"] = Feature("line", 8, THREADS, line, ("o",), {"t": _how}, _bound)
    if _mode in ("clamp", "border"):
        _how = {"filter": _filter, "address": _mode}
        FEATURES[f"plane-{_filter}-{_mode}"] = Feature("plane", 8, THREADS, plane, ("o",), {"t": _how}, _bound)
for _kernel, _registers, _types in (
    ("mma_f16_k8", (2, 1), ("f16", "f16")), ("mma_f16", (4, 2), ("f16", "f16")),
    ("mma_bf16_k8", (2, 1), ("bf16", "bf16")), ("mma_bf16", (4, 2), ("bf16", "bf16")),
    ("mma_e4m3", (4, 2), ("e4m3", "e5m2")),
):  # fmt: skip
    FEATURES[f"{_kernel}-exact"] = Feature(_kernel, 8, 32, products(_registers, _types, exact=True), ("d",))
    # The hardware keeps at least 22 bits below the largest of up to 33 terms (fp8: 13 bits).
    _bound = 2.0**-12 if _types[0] == "e4m3" else 2.0**-20
    FEATURES[f"{_kernel}-any"] = Feature(
        _kernel, 8, 32, products(_registers, _types, exact=False), ("d",), None, _bound
    )
for _kernel, _registers in (
    ("mma_s8_k16", (2, 1)), ("mma_s8", (4, 2)), ("mma_s4_k32", (2, 1)), ("mma_u4", (4, 2)), ("mma_b1_k128", (2, 1)),
    ("mma_b1", (4, 2)),
):  # fmt: skip
    FEATURES[_kernel] = Feature(_kernel, 8, 32, products(_registers, ("bits", "bits"), exact=True), ("d",))


def arguments_of(feature: Feature) -> tuple[dict[str, Any], tuple[Any, ...]]:
    """Return a feature's values by name, and the arguments of its launch."""
    values = feature.make(np.random.default_rng(7))
    textures = feature.textures or {}
    passed = []
    for name, value in values.items():
        if name in textures:
            passed.append(Texture(name, value.dtype.name, value.shape, **textures[name]))
        else:
            passed.append(name if isinstance(value, np.ndarray) else value)
    return values, tuple(passed)


@pytest.fixture(scope="module")
def program() -> simulator.Program:
    """Return all kernels, loaded for the simulator."""
    if nvrtc_version() is None:
        pytest.skip("needs NVRTC")
    return simulator.load(compile_ptx(SOURCE.read_text(), SOURCE.name, arch="sm_90").ptx)


def simulated(program: simulator.Program, feature: Feature) -> dict[str, Array]:
    """Return the outputs that the simulator computes for a feature."""
    values, passed = arguments_of(feature)
    arguments = [sim.argument_of(one, values) for one in passed]
    report = simulator.run(program, feature.kernel, feature.grid, feature.block, arguments)
    assert report.hazards == ()
    return {name: values[name] for name in feature.outputs}


@pytest.mark.sampled(24)
@pytest.mark.parametrize("name", FEATURES)
def test_the_simulator_runs_it(program: simulator.Program, name: str) -> None:
    """The simulator runs every feature without a hazard, and the kernel writes more than a few values."""
    for output in simulated(program, FEATURES[name]).values():
        assert np.unique(output.reshape(-1).view(np.uint16)).size > 8


@pytest.fixture(scope="module")
def device() -> Iterator[Any]:
    """Yield one device, whose context all tests of this file share."""
    from cudabench.devices.cuda import CudaDevice

    with CudaDevice(0) as device:
        yield device


@pytest.fixture(scope="module")
def module(device: Any) -> Any:
    """Return all kernels, loaded for the GPU."""
    names: Sequence[str] = sorted({feature.kernel for feature in FEATURES.values()})
    return device.load(Source(SOURCE.name, SOURCE.read_text(), None, False), {}, names)


@pytest.mark.gpu
@pytest.mark.parametrize("name", FEATURES)
def test_a_gpu_gives_the_same(program: simulator.Program, device: Any, module: Any, name: str) -> None:
    """The GPU's outputs equal the simulator's, bit by bit or within the feature's bound."""
    feature = FEATURES[name]
    expected = simulated(program, feature)
    values, passed = arguments_of(feature)
    pointers = {one: device.allocate(v.nbytes) for one, v in values.items() if isinstance(v, np.ndarray)}
    for one, pointer in pointers.items():
        device.upload(pointer, values[one])
    launch = Launch(feature.kernel, (feature.grid, 1, 1), (feature.block, 1, 1), passed)
    device.run(device.bind(module, [launch], pointers), name)
    for output, wanted in expected.items():
        got = np.empty_like(wanted)
        device.download(pointers[output], got)
        if not feature.bound:
            np.testing.assert_array_equal(got.view(np.uint8), wanted.view(np.uint8), err_msg=output)
        else:
            np.testing.assert_allclose(got, wanted, rtol=0, atol=feature.bound * float(np.abs(wanted).max()))
    for pointer in pointers.values():
        device.release(pointer)
