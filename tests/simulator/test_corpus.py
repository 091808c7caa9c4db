"""The corpus: the simulator reports each fault at its line, and correct kernels give right results without hazards."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from cudabench.compile.compiler import compile_ptx, nvrtc_version
from cudabench.compile.record import Compiled
from cudabench.simulator.api import run as simulate
from cudabench.source.choose_kernel import find_kernel as find
from cudabench.source.files import read_file as read
from cudabench.source.records import Kernel

CORPUS = Path(__file__).parents[1] / "corpus"
KINDS = {
    "race", "missing-fence", "out-of-bounds", "uninitialized-shared", "divergent-barrier", "misaligned", "stale-read",
    "invalid-mask",
}  # fmt: skip
WRONG = sorted((CORPUS / "wrong").glob("*.cu"))
RIGHT = sorted((CORPUS / "right").glob("*.cu"))
Shape = tuple[int, ...]
Array = np.ndarray[Any, Any]

pytestmark = pytest.mark.skipif(nvrtc_version() is None, reason="needs NVRTC")


@cache
def kernel_of(path: Path) -> Kernel:
    """Return the file's one kernel."""
    return find(read(path))


@cache
def compiled_file(path: Path, arch: str) -> Compiled:
    """Return the file compiled, once for all its launches."""
    return compile_ptx(path.read_text(), path.name, arch=arch, names=[kernel_of(path).expression])


def execute(
    path: Path, grid: Shape, block: Shape, arguments: Sequence[Any], shared: int = 0, arch: str = "sm_90"
) -> list[Any]:
    """Run the file's one kernel in the simulator and return the hazards."""
    kernel = kernel_of(path)
    compiled = compiled_file(path, arch)
    names = [parameter.name for parameter in kernel.parameters]
    entry = compiled.lowered[kernel.expression]
    report = simulate(compiled.ptx, entry, grid, block, list(arguments), shared_bytes=shared, names=names)
    return list(report.hazards)


# --------------------------------------------------------------------------------------------------------------- wrong


def marks(path: Path) -> dict[int, str]:
    """Return the expected kind of hazard for each marked line."""
    lines = path.read_text().splitlines()
    found = {number: re.search(r"// HAZARD: ([\w-]+)", line) for number, line in enumerate(lines, 1)}
    return {number: match[1] for number, match in found.items() if match}


def launch(path: Path) -> tuple[Shape, Shape, int, list[Any]]:
    """Read grid, block, dynamic shared memory and arguments from the LAUNCH comment."""
    line = re.search(r"^// LAUNCH: grid=(\S+) block=(\S+)(?: shared=(\d+))? args=(\S+)$", path.read_text(), re.M)
    assert line is not None, f"{path.name} has no LAUNCH comment"
    arguments: list[Any] = []
    for argument in line[4].split(","):
        array = re.fullmatch(r"\w+:(\w+)\[(\d+)\]", argument)
        scalar = re.fullmatch(r"\w+:(\w+)=(\S+)", argument)
        if array:
            numbers = np.arange(int(array[2]))
            arguments.append((numbers + 1 if array[1].startswith("float") else numbers % 16).astype(array[1]))
        else:
            assert scalar is not None, f"{path.name}: {argument}"
            arguments.append(np.dtype(scalar[1]).type(scalar[2]))
    shapes = [tuple(int(extent) for extent in line[group].split(",")) for group in (1, 2)]
    return shapes[0], shapes[1], int(line[3] or 0), arguments


@pytest.mark.sampled(9)
@pytest.mark.parametrize("path", WRONG, ids=lambda path: path.stem)
def test_wrong_kernels_are_well_formed(path: Path) -> None:
    """The file of each faulty kernel says what is wrong, how to launch the kernel, and which lines have hazards."""
    assert path.read_text().startswith("// Wrong: ")
    assert set(marks(path).values()) <= KINDS
    assert marks(path)
    assert len(launch(path)[3]) == len(kernel_of(path).parameters)


@pytest.mark.sampled(50)
@pytest.mark.parametrize("arch", ["sm_90", pytest.param("sm_120", marks=pytest.mark.slow)])
@pytest.mark.parametrize("path", WRONG, ids=lambda path: path.stem)
def test_wrong(path: Path, arch: str) -> None:
    """The simulator reports a faulty kernel at a marked line with the marked kind, and reports no other line."""
    grid, block, shared, arguments = launch(path)
    reported = {(hazard.line, hazard.kind) for hazard in execute(path, grid, block, arguments, shared, arch)}
    assert reported
    assert reported <= set(marks(path).items())


def test_the_corpus_covers_each_kind() -> None:
    """Each kind of hazard has a faulty kernel, and the corpus has at least 24 faulty and 18 correct kernels."""
    kinds = [kind for path in WRONG for kind in set(marks(path).values())]
    assert set(kinds) == KINDS
    assert len(WRONG) >= 24
    assert len(RIGHT) >= 18


# --------------------------------------------------------------------------------------------------------------- right


@dataclass
class Case:
    """A launch and its expected results: arrays by the position of their argument."""

    grid: Shape
    block: Shape
    arguments: list[Any]
    expected: Mapping[int, Any]
    shared: int = 0
    rtol: float = 0.0


Builder = Callable[[np.random.Generator, int], Case]
CASES: dict[str, tuple[Builder, tuple[int, ...]]] = {}


def case(*sizes: int) -> Callable[[Builder], Builder]:
    """Register a function as the case of the kernel file that has its name, to be run at these sizes."""

    def register(builder: Builder) -> Builder:
        CASES[builder.__name__] = builder, sizes
        return builder

    return register


def cdiv(a: int, b: int) -> int:
    """Return a / b rounded up."""
    return -(-a // b)


def integers(rng: np.random.Generator, low: int, high: int, n: int, dtype: str = "int32") -> Array:
    """Return random integers of low <= x < high."""
    return rng.integers(low, high, n).astype(dtype)


def normal(rng: np.random.Generator, *shape: int) -> Array:
    """Return normally distributed float32."""
    return rng.standard_normal(shape).astype(np.float32)


I = np.int32  # noqa: E741


@case(1, 127, 1000)
def blocks_flag(rng: np.random.Generator, n: int) -> Case:
    """A flag that several blocks set."""
    x = integers(rng, -3, 100, n)
    return Case((cdiv(n, 32),), (32,), [x, np.zeros(1, np.int32), n], {1: np.array([int((x < 0).any())])})


@case(1, 37, 127, 370)
def blocks_own_part(rng: np.random.Generator, n: int) -> Case:
    """Running sums of parts, and the sum of all."""
    x = integers(rng, 0, 100, n)
    parts = np.concatenate([np.cumsum(x[at : at + 37]) for at in range(0, n, 37)])
    return Case((cdiv(n, 37),), (64,), [x, np.zeros(1, np.int32), n], {0: parts, 1: np.array([x.sum()])})


@case(1, 31, 64, 127, 128)
def scan_hillis_steele(rng: np.random.Generator, n: int) -> Case:
    """Inclusive prefix sums."""
    x = integers(rng, -50, 50, n)
    return Case((1,), (128,), [x, np.zeros_like(x), I(n)], {1: np.cumsum(x)}, shared=1024)


@case(1, 33, 127, 128)
def scan_blelloch(rng: np.random.Generator, n: int) -> Case:
    """Exclusive prefix sums."""
    x = integers(rng, -50, 50, n)
    return Case((1,), (64,), [x, np.zeros_like(x), I(n)], {1: np.cumsum(x) - x}, shared=512)


@case(1, 33, 200)
def scan_tile(rng: np.random.Generator, n: int) -> Case:
    """Inclusive prefix sums of each 32 elements."""
    x = integers(rng, -50, 50, n)
    expected = np.concatenate([np.cumsum(x[i : i + 32]) for i in range(0, n, 32)])
    return Case((cdiv(n, 64),), (64,), [x, np.zeros_like(x), I(n)], {1: expected})


@case(1, 1000, 5003)
def histogram(rng: np.random.Generator, n: int) -> Case:
    """Counts of bytes."""
    x = integers(rng, 0, 256, n, "uint8")
    return Case((3,), (96,), [x, np.zeros(256, np.uint32), I(n)], {1: np.bincount(x, minlength=256)})


@case(1, 100, 256)
def bitonic_sort(rng: np.random.Generator, n: int) -> Case:
    """Sorted values."""
    x = normal(rng, n)
    return Case((1,), (256,), [x, I(n)], {0: np.sort(x)}, shared=1024)


@case(1, 63, 130)
def softmax(rng: np.random.Generator, n: int) -> Case:
    """Softmax of three rows."""
    x = normal(rng, 3, n)
    e = np.exp(x.astype(np.float64) - x.max(axis=1, keepdims=True))
    expected = e / e.sum(axis=1, keepdims=True)
    return Case((3,), (64,), [x, np.zeros_like(x), I(n)], {1: expected}, rtol=1e-5)


@case(33, 100)
def layernorm(rng: np.random.Generator, n: int) -> Case:
    """Rows of mean 0 and variance 1, scaled and shifted."""
    x, gain, bias = normal(rng, 7, n), normal(rng, n), normal(rng, n)
    wide = x.astype(np.float64)
    mean, variance = wide.mean(axis=1, keepdims=True), wide.var(axis=1, keepdims=True)
    expected = (wide - mean) / np.sqrt(variance + 1e-5) * gain + bias
    return Case((2,), (32, 4), [x, gain, bias, np.zeros_like(x), I(7), I(n)], {3: expected}, rtol=1e-4)


@case(1, 5, 64, 129)
def stencil_1d(rng: np.random.Generator, n: int) -> Case:
    """Mean over seven neighbours, zero outside."""
    x = normal(rng, n)
    expected = np.convolve(np.pad(x.astype(np.float64), 3), np.ones(7) / 7, "valid")
    return Case((cdiv(n, 64),), (64,), [x, np.zeros_like(x), I(n)], {1: expected}, shared=280, rtol=1e-4)


@case(1, 31, 70)
def stencil_2d(rng: np.random.Generator, n: int) -> Case:
    """Discrete Laplacian of a matrix that is not square."""
    ny = n // 2 + 3
    x = integers(rng, -9, 9, ny * n, "float32").reshape(ny, n)
    p = np.pad(x, 1)
    expected = p[1:-1, :-2] + p[1:-1, 2:] + p[:-2, 1:-1] + p[2:, 1:-1] - 4 * x
    return Case((cdiv(n, 32), cdiv(ny, 8)), (32, 8), [x, np.zeros_like(x), I(n), I(ny)], {1: expected})


@case(1, 127, 1000)
def gather(rng: np.random.Generator, n: int) -> Case:
    """Elements by index; -1 for an index out of bounds."""
    x, index = rng.standard_normal(50), integers(rng, -5, 55, n)
    inside = (index >= 0) & (index < 50)
    expected = np.where(inside, x[np.clip(index, 0, 49)], -1.0)
    return Case((cdiv(n, 96),), (96,), [x, index, np.zeros(n), I(n), I(50)], {2: expected})


@case(1, 127, 1000)
def ldg_other_half(rng: np.random.Generator, n: int) -> Case:
    """Four times the first half of the array, in the second half."""
    x = np.concatenate([integers(rng, -99, 99, n, "float32"), np.zeros(n, np.float32)])
    return Case((2,), (96,), [x, I(n)], {0: np.concatenate([x[:n], 4 * x[:n]])})


@case(2, 6)
def cluster_waits(rng: np.random.Generator, n: int) -> Case:
    """The sum of the other block of the cluster, plus twice that block's element at the mirrored index."""
    x = integers(rng, -99, 99, 64 * n)
    other = x.reshape(-1, 2, 64)[:, ::-1]
    return Case((n,), (64,), [x, np.zeros_like(x)], {1: 2 * other[..., ::-1] + other.sum(axis=2, keepdims=True)})


@case(1, 127, 1000)
def scatter(rng: np.random.Generator, n: int) -> Case:
    """A permutation."""
    x, index = integers(rng, -9999, 9999, n, "int16"), rng.permutation(n)
    expected = np.empty_like(x)
    expected[index] = x
    return Case((cdiv(n, 128),), (128,), [x, index.astype(np.int64), np.zeros_like(x), I(n)], {2: expected})


@case(1, 1000, 4099)
def reduce_shuffle(rng: np.random.Generator, n: int) -> Case:
    """A sum of whole numbers, which is the same in every order."""
    x = integers(rng, -9, 9, n, "float32")
    return Case((3,), (128,), [x, np.zeros(1, np.float32), I(n)], {1: [x.sum()]})


@case(1, 255, 1000)
def reduce_syncwarp(rng: np.random.Generator, n: int) -> Case:
    """Block sums."""
    x = integers(rng, -99, 99, n)
    blocks = cdiv(n, 256)
    expected = np.pad(x, (0, blocks * 256 - n)).reshape(blocks, 256).sum(axis=1)
    return Case((blocks,), (256,), [x, np.zeros(blocks, I), I(n)], {1: expected})


@case(1, 64, 1000)
def reduce_last_block(rng: np.random.Generator, n: int) -> Case:
    """A sum by one launch of several blocks."""
    x, blocks = integers(rng, -99, 99, n), cdiv(n, 64)
    return Case((blocks,), (64,), [x, np.zeros(blocks, I), np.zeros(1, I), I(n)], {2: [x.sum()]})


@case(1, 100, 1000)
def compaction(rng: np.random.Generator, n: int) -> Case:
    """The number of positive values; their order is undefined, so the test compares them sorted."""
    x = normal(rng, n)
    return Case((cdiv(n, 64),), (64,), [x, np.zeros_like(x), np.zeros(1, I), I(n)], {2: [(x > 0).sum()]})


@case(1, 100, 192)
def compaction_ballot(rng: np.random.Generator, n: int) -> Case:
    """The odd values in their order."""
    x = integers(rng, 0, 99, n)
    odd = x[x % 2 == 1]
    expected = np.concatenate([odd, np.zeros(n - len(odd), I)])
    return Case((1,), (192,), [x, np.zeros_like(x), np.zeros(1, I), I(n)], {1: expected, 2: [len(odd)]})


@case(1, 16, 37)
def matmul_tiled(rng: np.random.Generator, n: int) -> Case:
    """A product of ragged, oblong matrices of whole numbers."""
    m, k = n + 5, n + 9
    a = integers(rng, -5, 5, m * k, "float32").reshape(m, k)
    b = integers(rng, -5, 5, k * n, "float32").reshape(k, n)
    arguments = [a, b, np.zeros((m, n), np.float32), I(m), I(k), I(n)]
    return Case((cdiv(n, 16), cdiv(m, 16)), (16, 16), arguments, {2: a @ b})


@case(1, 33, 100)
def matvec(rng: np.random.Generator, n: int) -> Case:
    """A matrix of 11 rows times a vector, in whole numbers."""
    a, x = integers(rng, -5, 5, 11 * n, "float32").reshape(11, n), integers(rng, -5, 5, n, "float32")
    return Case((3,), (128,), [a, x, np.zeros(11, np.float32), I(11), I(n)], {2: a @ x})


@case(1, 96, 1000)
def dot_double(rng: np.random.Generator, n: int) -> Case:
    """A dot product in double precision."""
    x, y = rng.standard_normal(n), rng.random(n)
    return Case((cdiv(n, 96),), (96,), [x, y, np.zeros(1), I(n)], {2: [x @ y]}, rtol=1e-9)


@case(1, 63, 500)
def radix_digits(rng: np.random.Generator, n: int) -> Case:
    """Digit counts of each block."""
    keys, blocks = integers(rng, 0, 1 << 32, n, "uint32"), cdiv(n, 64)
    digits = keys >> np.uint32(8) & np.uint32(15)
    expected = np.stack([np.bincount(digits[b * 64 : b * 64 + 64], minlength=16) for b in range(blocks)], axis=1)
    return Case((blocks,), (64,), [keys, np.zeros((16, blocks), I), I(n), I(8)], {1: expected})


@case(1, 2, 127, 128)
def axpy_half(rng: np.random.Generator, n: int) -> Case:
    """a x + y, rounded once to half precision."""
    x, y = normal(rng, n).astype(np.float16), normal(rng, n).astype(np.float16)
    expected = (1.5 * x.astype(np.float64) + y.astype(np.float64)).astype(np.float16)
    return Case((2,), (32,), [np.float32(1.5), x, y, I(n)], {2: expected})


@case(1, 17, 50)
def transpose_char(rng: np.random.Generator, n: int) -> Case:
    """A transposed matrix of bytes."""
    ny = 2 * n + 1
    x = integers(rng, 0, 256, ny * n, "uint8").reshape(ny, n)
    arguments = [x, np.zeros((n, ny), np.uint8), I(n), I(ny)]
    return Case((cdiv(n, 16), cdiv(ny, 16)), (16, 16), arguments, {1: x.T})


@case(1, 2, 7)
def async_double_buffer(rng: np.random.Generator, n: int) -> Case:
    """Sums over n tiles of 64, reversed."""
    x = integers(rng, -9, 9, n * 64, "float32").reshape(n, 64)
    return Case((1,), (64,), [x, np.zeros(64, np.float32), I(n)], {1: x.sum(axis=0)[::-1]})


@case(1, 3, 8)
def async_fifo(rng: np.random.Generator, n: int) -> Case:
    """Sums of 128 rows of up to n + 3 numbers each."""
    lengths = integers(rng, 0, n + 4, 128)
    x = integers(rng, -9, 9, 128 * (n + 4), "float32").reshape(128, n + 4)
    sums = np.where(np.arange(n + 4) < lengths[:, None], x, 0).sum(axis=1)
    return Case((2,), (64,), [x, lengths, np.zeros(128, np.float32), I(n + 4)], {2: sums})


@case(1, 2, 7)
def async_warp_turn(rng: np.random.Generator, n: int) -> Case:
    """Sums over n tiles of 64 (n + 1 tiles for the second warp), with neighbours swapped."""
    x = integers(rng, -9, 9, (n + 1) * 64, "float32").reshape(n + 1, 64)
    sums = np.where(np.arange(64) < 32, x[:n].sum(axis=0), x.sum(axis=0))
    return Case((1,), (64,), [x, np.zeros(64, np.float32), I(n)], {1: sums[np.arange(64) ^ 1]})


@case(1, 50)
def mandelbrot(rng: np.random.Generator, n: int) -> Case:
    """Iterations until escape, in the kernel's order of operations."""
    ny = n // 2 + 1
    cx = (-2.0 + 3.0 * np.arange(n) / n)[None, :].repeat(ny, axis=0)
    cy = (-1.0 + 2.0 * np.arange(ny) / ny)[:, None].repeat(n, axis=1)
    x, y, count = np.zeros((ny, n)), np.zeros((ny, n)), np.zeros((ny, n), I)
    for _ in range(40):
        inside = x * x + y * y <= 4.0
        x, y = np.where(inside, (x * x - y * y) + cx, x), np.where(inside, (2.0 * x) * y + cy, y)
        count += inside
    return Case((cdiv(n, 16), cdiv(ny, 8)), (16, 8), [np.zeros((ny, n), I), I(n), I(ny), I(40)], {0: count})


@case(1, 64, 501)
def switch_code(rng: np.random.Generator, n: int) -> Case:
    """Sixteen operations on integers, by C's rules."""
    code, a, b = integers(rng, 0, 16, n), integers(rng, -999, 999, n), integers(rng, -99, 99, n)
    safe = np.where(b == 0, 1, b)
    quotient = np.where(b == 0, 0, np.trunc(a / safe).astype(I))
    bits = a.view(np.uint32)
    results = [a + b, a - b, a * b, quotient, np.where(b == 0, 0, a - quotient * b), a & b, a | b, a ^ b]
    results += [a << (b & 7), a >> (b & 7), np.minimum(a, b), np.maximum(a, b)]
    results.append(np.array([int(word).bit_count() for word in bits]))
    results += [np.array([32 - int(word).bit_length() for word in bits]), np.abs(a), np.full(n, -1)]
    return Case((cdiv(n, 96),), (96,), [code, a, b, np.zeros(n, I), I(n)], {3: np.choose(code, results)})


@case(1, 64, 500)
def barrier_count(rng: np.random.Generator, n: int) -> Case:
    """For each block, the number of positive values, and whether all or any are positive."""
    x, blocks = normal(rng, n), cdiv(n, 64)
    x[:64] = np.abs(x[:64]) + 1
    positive = np.pad(x > 0, (0, blocks * 64 - n)).reshape(blocks, 64)
    expected = {1: positive.sum(axis=1), 2: positive.all(axis=1), 3: positive.any(axis=1)}
    return Case((blocks,), (64,), [x, *(np.full(blocks, -1, I) for _ in range(3)), I(n)], expected)


@case(1, 4, 100)
def convolution_constant(rng: np.random.Generator, n: int) -> Case:
    """Five weights that are exact in binary, on whole numbers."""
    x = integers(rng, -9, 9, n, "float32")
    expected = np.convolve(np.pad(x, 2, mode="edge"), np.array([1, 4, 6, 4, 1], np.float32) / 16, "valid")
    return Case((cdiv(n, 32),), (32,), [x, np.zeros_like(x), I(n)], {1: expected})


@case(1, 77)
def local_array(rng: np.random.Generator, n: int) -> Case:
    """Groups of eight values, sorted."""
    x = integers(rng, -99, 99, 8 * n).reshape(n, 8)
    return Case((cdiv(n, 32),), (32,), [x, np.zeros_like(x), I(n)], {1: np.sort(x, axis=1)})


@case(1, 77)
def device_functions(rng: np.random.Generator, n: int) -> Case:
    """Powers of complex whole numbers."""
    parts = integers(rng, -5, 5, 2 * n, "float32")
    z = parts.view(np.complex64)
    expected = z.astype(np.complex128) ** (np.arange(n) % 4)
    expected = np.where(np.arange(n) % 4 == 0, 1, expected).round().astype(np.complex64).view(np.float32)
    return Case((cdiv(n, 32),), (32,), [parts, np.zeros_like(parts), I(n)], {1: expected})


@case(1, 6)
def broadcast(rng: np.random.Generator, n: int) -> Case:
    """Multiples of a sum."""
    x = integers(rng, -9, 9, n, "float32")
    return Case((1,), (96,), [x, np.zeros(96, np.float32), I(n)], {1: x.sum() * np.arange(96)})


@case(1, 2, 99, 128)
def exchange_syncwarp(rng: np.random.Generator, n: int) -> Case:
    """Neighbours swapped in pairs; a last element without a neighbour stays."""
    x = normal(rng, n)
    expected = x.copy()
    even = n // 2 * 2
    expected[:even] = x[:even].reshape(-1, 2)[:, ::-1].ravel()
    return Case((cdiv(n, 64),), (64,), [x, I(n)], {0: expected})


@case(1, 3, 4, 127, 130)
def copy_vector(rng: np.random.Generator, n: int) -> Case:
    """A copy."""
    x = normal(rng, n)
    return Case((2,), (32,), [x, np.zeros_like(x), I(n)], {1: x})


@case(1, 33, 64)
def shared_partition(rng: np.random.Generator, n: int) -> Case:
    """Doubles gathered in shared memory, with integers added."""
    x, k = rng.random(n), integers(rng, 0, n, n)
    return Case((1,), (64,), [x, k, np.zeros(n), I(n)], {2: x[k] + k[::-1]}, shared=64 * 12)


@case(1, 100, 500)
def flag(rng: np.random.Generator, n: int) -> Case:
    """For each block, whether it has a 7."""
    x, blocks = integers(rng, 0, 30, n), cdiv(n, 64)
    expected = [int((x[b * 64 : b * 64 + 64] == 7).any()) for b in range(blocks)]
    return Case((blocks,), (64,), [x, np.full(blocks, -1, I), I(7), I(n)], {1: expected})


@case(2, 34, 100, 200)
def barrier_after_return(rng: np.random.Generator, n: int) -> Case:
    """Neighbours swapped."""
    x = normal(rng, n)
    return Case((cdiv(n, 64),), (64,), [x, np.zeros_like(x), I(n)], {1: x.reshape(-1, 2)[:, ::-1].reshape(-1)})


@case(64)
def barrier_warp_returns(rng: np.random.Generator, n: int) -> Case:
    """Four rounds of adding the neighbour's value; the first warp writes nothing."""
    x = integers(rng, 0, 99, n)
    v = x.copy()
    for _ in range(4):
        v = v + v.reshape(-1, 2)[:, ::-1].reshape(-1)
    return Case((1,), (n,), [x, np.zeros(n, I)], {1: np.where(np.arange(n) < 32, 0, v)})


@case(7, 64, 300)
def cas_double(rng: np.random.Generator, n: int) -> Case:
    """Sums of elements by index modulo 5, in double precision."""
    x = integers(rng, 0, 99, n).astype(np.float64)
    return Case((cdiv(n, 64),), (64,), [x, np.zeros(5), I(n)], {1: [x[r::5].sum() for r in range(5)]})


@case(5, 64, 150)
def cas_maximum(rng: np.random.Generator, n: int) -> Case:
    """The largest value."""
    x = integers(rng, 0, 9999, n)
    return Case((cdiv(n, 64),), (64,), [x, np.zeros(1, I), I(n)], {1: [x.max()]})


@case(3, 40, 100)
def spin_lock(rng: np.random.Generator, n: int) -> Case:
    """A count, and a sum, that threads update one after the other."""
    x = integers(rng, 0, 99, n)
    arrays = [x, np.zeros(1, I), np.zeros(1, I), np.zeros(1, I), I(n)]
    return Case((cdiv(n, 64),), (64,), arrays, {2: [n], 3: [x.sum()]})


@case(1, 64, 1000)
def chain_lookback(rng: np.random.Generator, n: int) -> Case:
    """Inclusive prefix sums of all blocks."""
    x, blocks = integers(rng, -99, 99, n), cdiv(n, 64)
    arrays = [x, np.zeros(n, I), np.zeros(blocks, I), np.zeros(blocks, I), I(n)]
    return Case((blocks,), (64,), arrays, {1: np.cumsum(x)})


@case(1, 40, 250)
def chain_grid_barrier(rng: np.random.Generator, n: int) -> Case:
    """Five steps of a stencil."""
    x = integers(rng, -9, 9, n)
    y = x
    for _ in range(5):
        y = np.roll(y, -1) + 2 * np.roll(y, 1)
    return Case((cdiv(n, 32),), (32,), [x, np.zeros(n, I), I(n), I(5)], {1: y})


@case(1, 50)
def chain_ticket(rng: np.random.Generator, n: int) -> Case:
    """A sum to which each block adds one part."""
    x = integers(rng, 0, 99, n)
    return Case((n + 1,), (32,), [x, np.zeros(1, I), I(n)], {1: [x.sum()]})


@case(1, 200)
def last_thread(rng: np.random.Generator, n: int) -> Case:
    """Twice each number, and the sum of these, which the last thread computes."""
    x = integers(rng, 0, 99, n)
    blocks = -(-n // 64)
    part = np.append(2 * x, np.zeros(64 * blocks - n, I))
    return Case((blocks,), (64,), [x, np.zeros_like(part), np.zeros(1, I), I(n)], {1: part, 2: [2 * x.sum()]})


@case(1, 200)
def last_warp(rng: np.random.Generator, n: int) -> Case:
    """The same, computed by the last warp."""
    return last_thread(rng, n)


@case(1, 12)
def chain_handed_on(rng: np.random.Generator, n: int) -> Case:
    """Each number plus the sum of all earlier results."""
    x, total = integers(rng, 0, 9, n), [0]
    for value in x:
        total.append(int(value) + sum(total))
    return Case((n,), (32,), [x, np.zeros(n, I), I(n)], {1: total[1:]})


@case(1, 1000)
def chain_histogram(rng: np.random.Generator, n: int) -> Case:
    """Prefix sums of counts, and the counts set back to 0."""
    x = integers(rng, 0, 16, n)
    arrays = [x, np.zeros(16, I), np.zeros(16, I), I(n)]
    return Case((cdiv(n, 64),), (64,), arrays, {1: np.zeros(16, I), 2: np.cumsum(np.bincount(x, minlength=16))})


@case(1, 200)
def chain_split_sums(rng: np.random.Generator, n: int) -> Case:
    """A matrix times a vector, in four parts for each row."""
    a, b = integers(rng, -9, 9, 5 * n), integers(rng, -9, 9, n)
    arrays = [a, b, np.zeros(5, I), np.zeros(5, I), I(n)]
    return Case((5, 4), (32,), arrays, {2: a.reshape(5, n) @ b})


@case(1, 33, 200)
def early_exit(rng: np.random.Generator, n: int) -> Case:
    """The maximum of each 32 values."""
    x, warps = integers(rng, 1, 999, n), cdiv(n, 32)
    expected = [x[w * 32 : w * 32 + 32].max() for w in range(warps)]
    return Case((cdiv(n, 128),), (128,), [x, np.zeros(warps, I), I(n)], {1: expected})


@case(1, 3)
def vector_shared(rng: np.random.Generator, n: int) -> Case:
    """Groups of 128 floats, each reversed."""
    x = normal(rng, n, 128)
    return Case((n,), (128,), [x, np.zeros_like(x)], {1: x[:, ::-1]})


@case(1, 11)
def volume(rng: np.random.Generator, n: int) -> Case:
    """Sums of neighbours in a box."""
    shape = (n + 2, n + 1, n)
    x = integers(rng, -99, 99, n * (n + 1) * (n + 2)).reshape(shape)
    p = np.pad(x, 1)
    middle = slice(1, -1)
    expected = p[middle, middle, :-2] + p[middle, middle, 2:] + p[middle, :-2, middle] + p[middle, 2:, middle]
    expected = expected + p[:-2, middle, middle] + p[2:, middle, middle]
    grid = (cdiv(n, 5), cdiv(n + 1, 3), cdiv(n + 2, 7))
    return Case(grid, (5, 3, 7), [x, np.zeros_like(x), I(n), I(n + 1), I(n + 2)], {1: expected})


@case(1, 39, 100)
def partial_warps(rng: np.random.Generator, n: int) -> Case:
    """Blocks of 40 values, rotated by one and reversed."""
    x, blocks = integers(rng, -99, 99, n), cdiv(n, 40)
    padded = np.pad(x, (0, blocks * 40 - n)).reshape(blocks, 40)
    expected = np.roll(padded, -1, axis=1)[:, ::-1].ravel()[:n]
    return Case((blocks,), (40,), [x, np.zeros_like(x), I(n)], {1: expected})


@case(32)
def syncwarp_mask(rng: np.random.Generator, n: int) -> Case:
    """The first half reversed, the second negated."""
    x = integers(rng, -99, 99, n)
    return Case((1,), (32,), [x, np.zeros_like(x)], {1: np.concatenate([x[15::-1], -x[16:]])})


@case(128)
def named_barrier(rng: np.random.Generator, n: int) -> Case:
    """Both halves reversed, then the whole array reversed: the halves change places."""
    x = integers(rng, -99, 99, n)
    return Case((1,), (128,), [x, np.zeros_like(x)], {1: np.concatenate([x[64:], x[:64]])})


@case(1, 5)
def uniform_branch(rng: np.random.Generator, n: int) -> Case:
    """Even blocks are permuted, odd ones copied."""
    x = integers(rng, -99, 99, n * 64).reshape(n, 64)
    expected = x.copy()
    expected[::2] = x[::2][:, np.arange(64) ^ 33]
    return Case((n,), (64,), [x, np.zeros_like(x)], {1: expected})


@case(1, 4)
def uniform_loop(rng: np.random.Generator, n: int) -> Case:
    """Values halved until the largest of the block is below ten, and the number of rounds."""
    x = integers(rng, 0, 10000, n * 96).reshape(n, 96)
    rounds = np.array([next(r for r in range(20) if row.max() >> r < 10) for row in x])
    return Case((n,), (96,), [x, np.zeros(n, I)], {0: x >> rounds[:, None], 1: rounds})


@case(1, 40, 500)
def warp_aggregate(rng: np.random.Generator, n: int) -> Case:
    """The number of multiples of three; their order is undefined."""
    x = integers(rng, 1, 999, n)
    return Case((cdiv(n, 64),), (64,), [x, np.zeros_like(x), np.zeros(1, I), I(n)], {2: [(x % 3 == 0).sum()]})


@case(1, 77)
def shuffle_width(rng: np.random.Generator, n: int) -> Case:
    """Sums of groups of eight, and the groups rotated by one."""
    x, groups = integers(rng, -99, 99, n), cdiv(n, 8)
    eights = np.pad(x, (0, groups * 8 - n)).reshape(groups, 8)
    sums, turned = eights.sum(axis=1).repeat(8)[:n], np.roll(eights, -1, axis=1).ravel()[:n]
    return Case((cdiv(n, 32),), (32,), [x, np.zeros_like(x), np.zeros_like(x), I(n)], {1: sums, 2: turned})


@case(1, 3)
def shared_struct(rng: np.random.Generator, n: int) -> Case:
    """A sum over the fields of a record."""
    x, r = rng.integers(-99, 99, (n, 16)).astype(np.float64), np.arange(16)
    return Case((n,), (64,), [x, np.zeros_like(x)], {1: r + x + 6 * r * r})


def test_each_right_kernel_has_a_case() -> None:
    """Each file of a correct kernel has a case, and each case has a file."""
    assert sorted(CASES) == [path.stem for path in RIGHT]


RUNS: list[Any] = [
    pytest.param(name, size, "sm_90", marks=pytest.mark.slow if name == "scan_tile" else ())
    for name, (_, sizes) in sorted(CASES.items())
    for size in sizes
]
RUNS += [
    pytest.param(name, sizes[len(sizes) // 2], "sm_120", marks=pytest.mark.slow)
    for name, (_, sizes) in sorted(CASES.items())
]


@pytest.mark.sampled(168)
@pytest.mark.parametrize(("name", "size", "arch"), RUNS)
def test_right(name: str, size: int, arch: str) -> None:
    """A correct kernel gives NumPy's result, and the simulator reports no hazard."""
    launched = CASES[name][0](np.random.default_rng(size), size)
    path = CORPUS / "right" / f"{name}.cu"
    hazards = execute(path, launched.grid, launched.block, launched.arguments, launched.shared, arch)
    assert hazards == []
    for position, expected in launched.expected.items():
        got = launched.arguments[position]
        np.testing.assert_allclose(got, np.reshape(expected, got.shape), rtol=launched.rtol, atol=launched.rtol)
    if name in ("compaction", "warp_aggregate"):
        values = launched.arguments[0]
        kept = values[values > 0] if name == "compaction" else values[values % 3 == 0]
        np.testing.assert_array_equal(np.sort(launched.arguments[1][: len(kept)]), np.sort(kept))
