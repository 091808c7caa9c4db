"""`cudabench run` with texture objects as arguments, in the simulator, and the textures that it refuses."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from cudabench.compile.compiler import nvrtc_version
from cudabench.devices.driver_objects import FORMATS
from cudabench.simulator.api import Texture
from cudabench.userkernel.textures import TYPES
from tests.conftest import Ran

Runner = Callable[..., Ran]

pytestmark = pytest.mark.skipif(nvrtc_version() is None, reason="needs NVRTC")

SOURCE = """\
__global__ void up(cudaTextureObject_t t, float *y, int w, int h, float d) {
  int i = blockIdx.x * blockDim.x + threadIdx.x, j = blockIdx.y;
  if (i < w) y[j * w + i] = tex2D<float>(t, i + d, j + 0.5f);
}
__global__ void fetch(cudaTextureObject_t t, int *y) { y[threadIdx.x] = tex1Dfetch<int>(t, (int)threadIdx.x - 1); }
__global__ void ramp(int *x) { x[threadIdx.x] = 3 * threadIdx.x; }
__global__ void colour(cudaTextureObject_t t, float *y) {
  y[threadIdx.x] = tex2D<float4>(t, (threadIdx.x % 8 + 0.5f) / 8, 2.5f / 4).z;
}
"""
NEXT = "t[:,np.minimum(np.arange(64)+1,63)]"  # each element's right neighbour; the last column repeats itself


@pytest.fixture
def run(cudabench: Runner, tmp_path: Path) -> Runner:
    """Run a kernel of the file in the simulator."""
    (tmp_path / "t.cu").write_text(SOURCE)
    return lambda *words: cudabench("run", "t.cu", *words, "--device", "sim", "--no-cpu")


def up(texture: str, shift: str, expected: str) -> tuple[object, ...]:
    """Return the words that launch `up`."""
    arguments = (f"t={texture}", "y=float32[32,64]:empty", "w=64", "h=32", f"d={shift}")
    words = [word for argument in arguments for word in ("--arg", argument)]
    return ("-k", "up", "-g", "2,32", "-b", 32, *words, "--expect", f"y={expected}")


@pytest.mark.sampled(5)
@pytest.mark.parametrize(
    ("shift", "options", "expected"),
    [
        ("0.5", "", "t"), ("0.5", ", filter=linear", "t"), ("1.0", ", filter=linear", f"(t+{NEXT})/2"),
        ("1.5", "", NEXT), ("1.5", ", address=border", f"np.where(np.arange(64)<63,{NEXT},0)"),
    ],
)  # fmt: skip
def test_an_array_through_a_texture(run: Runner, shift: str, options: str, expected: str) -> None:
    """The kernel reads the array with the texture's options; an expectation uses the array by name."""
    ran = run(*up(f"texture(float32[32,64]:random{options})", shift, expected))
    assert ran.code == 0, ran.err
    assert "all verified" in ran.out


def test_linear_memory_and_channels(run: Runner) -> None:
    """A texture that tex1Dfetch reads becomes linear memory, which reads 0 outside; a texel of four bytes can be read
    as fractions."""
    words = ("-g", 1, "-b", 32, "--arg", "t=texture(int32[32]:arange)", "--arg", "y=int32[32]:empty")
    assert run("-k", "fetch", *words, "--expect", "y=np.where(t>0,t-1,0)").code == 0
    texture = "t=texture(uint8[4,8,4]:random, channels=4, read=normalized, coordinates=normalized)"
    words = ("-g", 1, "-b", 8, "--arg", texture, "--arg", "y=float32[8]:empty", "--expect", "y=t[2,:,2]/255")
    ran = run("-k", "colour", *words)
    assert ran.code == 0, ran.err


@pytest.mark.parametrize(
    ("texture", "text"),
    [
        ("texture(float32[32,64]:random, filtr=linear)", "'filtr=linear' is not an option of a texture"),
        ("texture(float32[32,64]:random, filter=cubic)", "filter is one of point, linear, not 'cubic'"),
        ("texture(int32[32,64]:random, filter=linear)", "cannot be filtered: add read=normalized"),
        ("texture(float64[32,64]:random)", "a texture cannot hold float64"),
        ("texture(float32[32,64]:random, address=wrap)", "address=wrap needs coordinates=normalized"),
        ("texture(float32[32,64]:random, channels=4)", "needs a shape that ends in 4"),
        ("texture(float32[2,2,2,64]:random)", "gives a texture of 4 dimensions"),
        ("texture(float32[32,64]:empty)", "would leave it without values"),
        ("texture(float32[32,64]:random", "does not end with ')': add it"),
        ("texture()", "a texture needs an array: write texture(float32[n,n]:random)"),
        ("texture(texture(float32[32,64]:random))", "a texture needs an array"),
        ("texture(float32[32,64]:random, filter)", "filter lacks a value: write filter=, and one of point, linear"),
        ("texture(float32[32,64]:random, filter=linear, filter=point)", "filter is given twice: keep one"),
        ("texture(float32[4]:random, channels=4)", "[4] has only channels: put the width before them"),
        ("texture(float32[4]:random, layers=yes)", "[4] has only layers: put the width behind them"),
        ("texture(float32[4,2]:random, layers=yes, channels=2)", "layers and channels: put the width between them"),
        ("texture(float32[2,131073]:zeros)", "is larger than a texture can be, 65536 x 131072 texels"),
        (
            "texture(float32[64,4]:random, channels=4)",
            "is a texture of 1 dimension, but the kernel uses it as a texture of 2 dimensions: write "
            "texture(float32[height,width,4]:random, channels=4)",
        ),
        (
            "texture(float32[2,32,64]:random, layers=yes)",
            "is a texture of 2 dimensions and layers, but the kernel uses it as a texture of 2 dimensions: write "
            "texture(float32[height,width]:random)",
        ),
        (
            "texture(uint8[32,64]:random)",
            "uint8 read as float is its bits, not its value: add read=normalized, or write "
            "texture(float32[height,width]:random)",
        ),
        ("texture(int32[32,64]:random)", "its value: write texture(float32[height,width]:random)"),
        ("float32[32,64]:random", "is a texture object: write texture(float32[32,64]:random)"),
        ("surface(float32[32,64]:random)", "is not a surface object, but a texture object: give an array as texture("),
    ],
)
def test_textures_that_cannot_be(run: Runner, texture: str, text: str) -> None:
    """A mistake in a texture gives a message with the repair, before a kernel runs."""
    ran = run(*up(texture, "0.5", "t"))
    assert (ran.code, ran.out) == (2, "")
    assert text in ran.err


def test_textures_of_steps(run: Runner) -> None:
    """A step takes a texture of a new array, or of linear memory that an earlier step wrote."""
    words = ("--arg", "y=int32[32]:empty", "--expect", "y=np.where(np.arange(32)>0,x[np.arange(32)-1],0)")
    own = ("--arg", "x=texture(int32[32]:random)")
    ran = run("--step", "fetch<<<1,32>>>(x,y)", *own, *words)
    assert ran.code == 0, ran.err
    written = ("--arg", "x=int32[32]:zeros", "--arg", "t=texture(x)", *words[:2])
    expected = ("--expect", "y=np.where(np.arange(32)>0,3*np.arange(32)-3,0)")
    ran = run("--step", "ramp<<<1,32>>>(x)", "--step", "fetch<<<1,32>>>(t,y)", *written, *expected)
    assert ran.code == 0, ran.err
    ran = run("--step", "fetch<<<1,32>>>(x,y)", *written)
    assert ran.code == 2
    assert "'cudaTextureObject_t x' is a texture object: write texture(int32[32]:zeros)" in ran.err
    ran = run("--step", "fetch<<<1,32>>>(t,x)", "--step", "ramp<<<1,32>>>(t)", *written[:4])
    assert ran.code == 2
    assert "t in ramp(int* x): 'int* x' is not a texture, but a pointer: give it an array" in ran.err


OTHERS = """\
__global__ void both(cudaTextureObject_t t, cudaTextureObject_t u, float *y) {
  y[threadIdx.x] = tex1D<float>(t, threadIdx.x + 0.5f) + tex1Dfetch<float>(u, (int)threadIdx.x - 1);
}
__device__ int at(cudaTextureObject_t s, int i) { return tex1Dfetch<int>(s, i); }
__global__ void handed(cudaTextureObject_t t, int *y) { y[threadIdx.x] = at(t, threadIdx.x - 1); }
__global__ void sheet(cudaTextureObject_t t, float *y) { y[threadIdx.x] = tex1DLayered<float>(t, 0.5f, threadIdx.x); }
__global__ void four(cudaTextureObject_t t, float *y) { y[threadIdx.x] = tex2D<float4>(t, threadIdx.x, 0).w; }
template <typename T> __global__ void any(cudaTextureObject_t t, T *y) { y[threadIdx.x] = tex1D<T>(t, threadIdx.x); }
__global__ void into(cudaTextureObject_t t, int *y) {
  int v = -1;
  tex1Dfetch(&v, t, (int)threadIdx.x - 1);
  y[threadIdx.x] = v;
}
__global__ void whole(cudaTextureObject_t t, int *y) { y[threadIdx.x] = tex1D<int>(t, threadIdx.x); }
"""


@pytest.mark.sampled(4)
@pytest.mark.parametrize(
    ("kernel", "textures", "said"),
    [
        ("whole", ("t=texture(uint8[32]:random)",), ""),
        ("whole", ("t=texture(uint8[32]:random, read=normalized)",), "fractions, but the kernel reads int: leave"),
        ("whole", ("t=texture(float32[32]:random)",), "is its bits, not its value: write texture(int32[width]"),
        ("whole", ("t=texture(int32[32]:random, memory=linear)",), "but the kernel reads it by tex1D: leave it"),
        ("whole", ("t=texture(int32[131073]:random)",), "is larger than a texture can be, 131072 texels"),
        ("any<float>", ("t=texture(float32[32]:random)",), ""),
        ("any<float>", ("t=texture(int16[32]:random)",), "int16 read as float is its bits, not its value: add read="),
        ("four", ("t=texture(float32[32,32,4]:random, channels=4)",), ""),
        (
            "four", ("t=texture(float32[32,32]:random)",),
            "a texel has 1 channel, but the kernel reads float4: write "
            "texture(float32[height,width,4]:random, channels=4)",
        ),
        ("sheet", ("t=texture(float32[32,32769]:zeros, layers=yes)",), "a texture can be, 2048 x 32768 texels"),
        ("both", ("t=texture(float32[32]:random)", "u=texture(float32[200000]:random)"), ""),
    ],
)  # fmt: skip
def test_how_a_kernel_reads_a_texture(
    run: Runner, tmp_path: Path, kernel: str, textures: tuple[str, ...], said: str
) -> None:
    """A texture that does not match the kernel's reads is refused before the launch, with a texture that does."""
    (tmp_path / "t.cu").write_text(OTHERS)
    given = (*textures, f"y={'int32' if kernel == 'whole' else 'float32'}[32]:empty")
    ran = run("-k", kernel, "-g", 1, "-b", 32, *(word for one in given for word in ("--arg", one)))
    assert ran.code == (2 if said else 0), ran.err
    assert said in ran.err


@pytest.mark.slow
def test_linear_memory_is_told_by_the_name(run: Runner, tmp_path: Path) -> None:
    """Of two textures only the one that tex1Dfetch reads becomes linear memory, also if a function reads it."""
    (tmp_path / "t.cu").write_text(OTHERS)
    words = ("--arg", "t=texture(float32[31]:random)", "--arg", "u=texture(float32[32]:random)")
    expected = "y=t[np.minimum(np.arange(32),30)]+np.where(np.arange(32)>0,u[np.arange(32)-1],0)"
    ran = run("-k", "both", "-g", 1, "-b", 32, *words, "--arg", "y=float32[32]:empty", "--expect", expected)
    assert ran.code == 0, ran.err + ran.out
    words = ("--arg", "t=texture(int32[32]:random)", "--arg", "y=int32[32]:empty")  # a function reads it
    expected = "y=np.where(np.arange(32)>0,t[np.arange(32)-1],0)"
    for kernel in ("handed", "into"):
        ran = run("-k", kernel, "-g", 1, "-b", 32, *words, "--expect", expected)
        assert ran.code == 0, ran.err + ran.out


def test_the_texture_that_is_suggested(run: Runner, tmp_path: Path) -> None:
    """The suggested command has a gap for each texture."""
    (tmp_path / "t.cu").write_text(OTHERS)
    ran = run("-k", "both")
    assert ran.code == 2
    assert "--arg 't=texture(...)' --arg 'u=texture(...)'" in ran.err


def test_the_types_of_texels() -> None:
    """The command line, the GPU and the simulator support the same texel types."""
    assert set(TYPES) == set(FORMATS)
    for name in TYPES:
        assert Texture(np.zeros(3, name)).dimensions == 1
