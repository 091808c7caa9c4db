"""`cudabench run` with surface objects as arguments, in the simulator: results, suggested commands, and refusals."""

from __future__ import annotations

import shlex
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from cudabench.compile.compiler import nvrtc_version
from tests.conftest import Ran
from tests.surface_cases import BEYOND, CASES, PLANE, SOURCE, WRONG

Runner = Callable[..., Ran]

pytestmark = pytest.mark.skipif(nvrtc_version() is None, reason="needs NVRTC")


@pytest.fixture
def run(cudabench: Runner, tmp_path: Path) -> Runner:
    """Run a kernel of the file in the simulator."""
    (tmp_path / "s.cu").write_text(SOURCE.read_text())
    return lambda *words: cudabench("run", "s.cu", *words, "--device", "sim", "--no-cpu")


@pytest.mark.sampled(8)
@pytest.mark.parametrize("name", CASES)
def test_a_surface(run: Runner, name: str) -> None:
    """A kernel writes the expected values to a surface, without a hazard."""
    ran = run(*CASES[name][0])
    assert ran.code == 0, ran.err + ran.out
    assert "all verified" in ran.out


def test_a_surface_is_saved(run: Runner, tmp_path: Path) -> None:
    """--save writes a surface's data to a file, in the shape of the argument."""
    assert run(*CASES["fill"][0], "--save", "s=s.npy").code == 0
    np.testing.assert_array_equal(np.load(tmp_path / "s.npy"), np.arange(3500, dtype=np.float32).reshape(50, 70))


def test_a_wrong_surface(run: Runner) -> None:
    """A wrong value, and an access beyond the row, give exit code 3 with the position."""
    ran = run(*WRONG)
    assert ran.code == 3
    assert "WRONG" in ran.out
    ran = run(*BEYOND)
    assert ran.code == 3
    assert "writes 4 bytes at x=800 of the surface 's' (800 bytes a row): x counts bytes" in ran.out + ran.err


@pytest.mark.slow
def test_other_values_and_sizes(run: Runner) -> None:
    """--fuzz varies values and sizes of a surface, and finds a fault that only some values show."""
    words = CASES["line"][0]
    ran = run(*words, "--fuzz", 3)
    assert ran.code == 0, ran.err
    other = [{"line": "magnitude", "s=2*s0+1": "s=s0"}.get(word, word) for word in words]
    assert run(*other).code == 0
    ran = run(*other, "--fuzz", 2)
    assert ran.code == 3
    assert "--arg 's=surface(float32[w]:" in ran.err


def test_two_kernels_on_one_surface(run: Runner) -> None:
    """Kernels that are compared share a surface; a kernel with an array in its place is refused."""
    words = CASES["line"][0]
    assert run(*words, "-k", "halves").code == 2
    both = [word.replace("float32[w]:random", "uint16[w]:zeros") for word in words]
    both[both.index("s=2*s0+1")] = "s=0"
    assert run("-k", "halves", *both[2:], "-k", "halves").code == 0


GIVEN = {
    "float32[4,4]:zeros": "is a surface object: write surface(float32[4,4]:zeros)",
    "5": "is a surface object: give an array as surface(",
    "texture(float32[4,4]:zeros)": "is not a texture object, but a surface object",
    "surface(float64[4,4]:zeros)": "a surface cannot hold float64; use one of float32, ",
    "surface(bfloat16[4,4]:zeros)": "a surface cannot hold bfloat16",
    "surface(float32[4,4,3]:zeros)": "is a surface of 3 dimensions, but the kernel uses it as a surface of 2",
    "surface(float32[4,4,3]:zeros, channels=4)": "needs a shape that ends in 4",
    "surface(float32[4,4,3]:zeros, channels=3)": "channels is one of 1, 2, 4, not '3'",
    "surface(float32[2,2,4,4]:zeros)": "gives a surface of 4 dimensions",
    "surface(float32[2,2,4,3]:zeros)": "GPUs do not have three channels: add a fourth",
    "surface(float32[4,4]:zeros, filter=linear)": "'filter=linear' is not an option of a surface; use channels",
    "surface(float32[2,4,4]:zeros, layers=yes)": "is a surface of 2 dimensions and layers",
    "surface(uint8[4,4,4]:zeros, channels=4)": "",
    "surface(float32[4,4,4]:zeros, channels=4)": "a texel has 16 bytes, but the kernel uses float of 4",
    "surface(float32[70000,2]:zeros)": "is larger than a surface can be, 65536 x 131072 texels",
    "surface(w)": "'w' is not an array of another argument",
    "surface(null)": "a surface needs an array",
    "surface(float32[4,4]:zeros": "does not end with ')': add it",
}


@pytest.mark.parametrize("given", GIVEN)
def test_what_is_given_for_a_surface(run: Runner, given: str) -> None:
    """A mistake in a surface gives a message with the repair, before a kernel runs; texels of another type but the same
    size are allowed."""
    ran = run("-k", "fill", "--arg", f"s={given}", "-g", 1, "-b", 1, "--arg", "w=1", "--arg", "h=1")
    assert ran.code == (2 if GIVEN[given] else 0), ran.err
    assert GIVEN[given] in ran.err


@pytest.mark.parametrize(
    ("kernel", "arguments", "said"),
    [
        ("sum", ("s=surface(total)", "total=float32[1]:zeros"), "total is not a surface, and only a surface's array"),
        ("sum", ("s=surface(float32[8]:ones)", "total=surface(float32[1]:zeros)"), "but a pointer: give it an array"),
        ("sum", ("s=surface(float32[8]:ones)", "total=surface(s)"), "but a pointer: give it an array"),
        ("shifted", ("t=surface(float32[8,8]:ones)", "o=float32[64]:empty", "w=8"), "but a texture object"),
        (
            "shifted",
            ("t=texture(o)", "o=float32[64]:zeros", "w=8"),
            "o is linear memory, which a texture reads only by tex1Dfetch",
        ),
        (
            "blended",
            ("t=texture(o, channels=2)", "o=surface(float32[8,8]:zeros)", "w=8"),
            "channels is already set by o: remove it here",
        ),
        ("blended", ("t=texture(o, memory=linear)", "o=surface(float32[8,8]:zeros)", "w=8"), "memory=linear is for"),
    ],
)
def test_what_goes_together(run: Runner, kernel: str, arguments: tuple[str, ...], said: str) -> None:
    """A surface in place of a pointer or texture, and an unsuitable array of another argument, are refused with the
    repair."""
    last = ("n=8",) if kernel == "sum" else ("h=8",)
    ran = run("-k", kernel, "-g", 1, "-b", 8, *(word for one in (*arguments, *last) for word in ("--arg", one)))
    assert ran.code == 2
    assert said in ran.err


def test_a_step_that_wants_a_texture(run: Runner) -> None:
    """A step that passes a surface as a texture is refused with the argument that works."""
    words = [word.replace("(t,o,w,h)", "(s,o,w,h)") for word in CASES["steps"][0]]
    ran = run(*words)
    assert ran.code == 2
    assert "s is a surface; shifted(cudaTextureObject_t t," in ran.err
    assert "add --arg 't=texture(s)' and pass t" in ran.err


def test_the_line_that_is_suggested(run: Runner) -> None:
    """A line has a gap for a surface; one that is left is refused with what a surface is given."""
    ran = run("-k", "line")
    assert ran.code == 2
    assert "--arg 's=surface(...)' --arg w=10007" in ran.err
    ran = run(*shlex.split(ran.err.partition("cudabench run s.cu ")[2]))
    assert (ran.code, "a surface needs an array: write surface(float32[n,n]:random)" in ran.err) == (2, True), ran.err


WITHIN = """
struct Image { cudaSurfaceObject_t pixels; int w; };
struct Views { Image from; cudaTextureObject_t tables[2]; float *y; };
struct Number { unsigned long long s; int n; };
__global__ void one(Image m) { surf1Dwrite(1.f, m.pixels, 4 * threadIdx.x); }
__global__ void several(Views v) { v.y[0] = tex1D<float>(v.tables[v.from.w], 0); }
__global__ void at(const Image *m) { if (m) surf1Dwrite(1.f, m->pixels, 4 * threadIdx.x); }
__global__ void memory(cudaSurfaceObject_t *s, int n) { surf1Dwrite(1.f, s[n], 4 * threadIdx.x); }
__global__ void number(Number m) { surf1Dwrite(1.f, m.s, 4 * threadIdx.x); }
"""
INSIDE = {
    "one": ("m={pixels: surface(float32[8]:zeros), w: 8}", "'Image m', with the object pixels inside, but", "pixels"),
    "several": (
        "v={from: {1, 8}, tables: [1, 2]}",
        "'Views v', with the objects from.pixels, tables inside",
        "from_pixels",
    ),
    "at": ("m=uint8[16]:zeros", "'const Image* m', with the object pixels inside, but", "pixels"),
    "memory": ("s=surface(float32[8]:zeros)", "'cudaSurfaceObject_t* s', a pointer to objects, but", "s"),
}


@pytest.mark.parametrize("kernel", INSIDE)
@pytest.mark.parametrize("given", [True, False])
def test_objects_inside_of_a_struct(run: Runner, tmp_path: Path, kernel: str, given: bool) -> None:
    """An object in a struct or behind a pointer is refused, with the parameter and argument to use instead."""
    (tmp_path / "s.cu").write_text(WITHIN)
    argument, said, name = INSIDE[kernel]
    more = ("--arg", "n=0") if kernel == "memory" else ()
    ran = run("-k", kernel, *(("-g", 1, "-b", 8, "--arg", argument, *more) if given else ()))
    assert (ran.code, ran.out) == (2, "")
    assert said in ran.err
    assert f"takes 'cudaSurfaceObject_t {name}" in ran.err
    assert f"--arg '{name}=surface(float32[n,n]:random)'" in ran.err


def test_a_struct_without_objects_of_its_own(run: Runner, tmp_path: Path) -> None:
    """A null pointer to such a struct is allowed; a surface as a number in a struct is refused."""
    (tmp_path / "s.cu").write_text(WITHIN)
    ran = run("-k", "at", "-g", 1, "-b", 8, "--arg", "m=null")
    assert ran.code == 0, ran.err
    ran = run("-k", "number", "-g", 1, "-b", 8, "--arg", "m={s: surface(float32[8]:zeros), n: 8}")
    assert ran.code == 2
    assert (
        "'surface(float32[8]:zeros)' is a texture or surface object, but --arg gives objects only to whole param"
        in ran.err
    )


OLD = """
surface<void, 2> out;
surface<void, cudaSurfaceType3D> cells;
__global__ void paint(int n) { surf2Dwrite(make_uchar4(1, 2, 3, 4), out, threadIdx.x * 4, blockIdx.x); }
__global__ void slice(int n) {
  int v;
  surf3Dread(&v, cells, 4 * threadIdx.x, 0, 0);
  surf2Dwrite(v, out, threadIdx.x * 4, blockIdx.x);
}
__global__ void neither(int *y) { y[threadIdx.x] = 1; }
"""


def test_surface_references_are_refused(run: Runner, tmp_path: Path) -> None:
    """A kernel that uses a surface reference is refused, with the parameter and argument to use; other kernels of the
    file run."""
    (tmp_path / "s.cu").write_text(OLD)
    ran = run("-k", "paint", *PLANE[:4], "--arg", "n=1")
    assert ran.code == 1
    assert "uses the surface reference 'out', which CUDA 12 removed from the language" in ran.err
    assert "'cudaSurfaceObject_t out'" in ran.err
    assert "--arg 'out=surface(uint8[...,4]:random, channels=4)'" in ran.err
    ran = run("-k", "slice", *PLANE[:4], "--arg", "n=1")
    assert "the surface references 'cells', 'out'" in ran.err
    assert "--arg 'cells=surface(int32[...]:random)'" in ran.err
    ran = run("-k", "neither", "-g", 1, "-b", 8, "--arg", "y=int32[8]:empty", "--expect", "y=1")
    assert ran.code == 0, ran.err
