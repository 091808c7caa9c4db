"""`run --step`: several launches in order, written as in host code."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from cudabench.compile.compiler import nvrtc_version
from cudabench.errors import UsageError
from cudabench.userkernel import profile, steps
from tests.conftest import Ran

SOURCE = """
__global__ void partial(const float *in, float *out, int n) {
  __shared__ float s[64];
  int i = blockIdx.x * 64 + threadIdx.x;
  s[threadIdx.x] = i < n ? in[i] : 0;
  __syncthreads();
  for (int k = 32; k; k /= 2) { if (threadIdx.x < k) s[threadIdx.x] += s[threadIdx.x + k]; __syncthreads(); }
  if (!threadIdx.x) out[blockIdx.x] = s[0];
}
__global__ void heat(const float *a, float *b, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) b[i] = i == 0 || i == n - 1 ? a[i] : a[i] + 0.25f * (a[i - 1] - 2 * a[i] + a[i + 1]);
}
template <int COLOUR> __global__ void relax(float *u, int n) {
  int i = 2 * (blockIdx.x * blockDim.x + threadIdx.x) + COLOUR + 1;
  if (i < n - 1) u[i] = 0.5f * (u[i - 1] + u[i + 1]);
}
int main() { partial<<<1, 64>>>(nullptr, nullptr, 0); }
"""


@pytest.fixture
def run(tmp_path: Path, cudabench: Callable[..., Ran]) -> Callable[..., Ran]:
    """Return a function that runs steps of SOURCE in the simulator."""
    (tmp_path / "steps.cu").write_text(SOURCE)

    def run_(*words: str, code: int = 0) -> Ran:
        if nvrtc_version() is None:
            pytest.skip("needs NVRTC")
        ran = cudabench("run", tmp_path / "steps.cu", *words, "--device", "sim", "--no-cpu")
        assert ran.code == code, ran.out + ran.err
        return ran

    return run_


def heat(count: int) -> np.ndarray:
    """Return the temperatures of the rod after `count` steps, starting with one hot element."""
    a = np.zeros(40)
    a[20] = 1
    for _ in range(count):
        a[1:-1] += 0.25 * (a[:-2] - 2 * a[1:-1] + a[2:])
    return a


@pytest.mark.slow
def test_two_passes_of_a_reduction(run: Callable[..., Ran]) -> None:
    """The second launch sums the partial sums of the first; a step passes an expression as a number."""
    run(
        *("--step", "partial<<<cdiv(n,64), 64>>>(x, sums, n)", "--step", "partial<<<1, 64>>>(sums, total, cdiv(n,64))"),
        *("--arg", "n=1000", "--arg", "x=float32[n]:random", "--arg", "sums=float32[cdiv(n,64)]:empty"),
        *("--arg", "total=float32[1]:empty", "--expect", "total=np.sum(x)"),
    )


@pytest.mark.sampled(2)
@pytest.mark.parametrize(("count", "last"), [(3, "b"), (4, "a")])
def test_time_steps_swap_their_arrays(run: Callable[..., Ran], tmp_path: Path, count: int, last: str) -> None:
    """After an odd number of steps with swap, the second array has the result; after an even number, the first."""
    np.save(tmp_path / "right.npy", heat(count).astype(np.float32))
    run(
        *("--step", "heat<<<dim3(cdiv(n,32), 1), (32,1)>>>(a, b, n) * turns swap(a, b)"),
        *("--arg", "a=float32[n]:i0==20", "--arg", "b=float32[n]:zeros", "--arg", "n=40", "--arg", f"turns={count}"),
        *("--expect", f"{last}=@{tmp_path}/right.npy"),
    )


@pytest.mark.slow
def test_a_profile_repeats_a_group(run: Callable[..., Ran], tmp_path: Path, cudabench: Callable[..., Ran]) -> None:
    """A profile's list of steps may repeat a group of launches, here two instances of a template."""
    u = np.zeros(20, np.float32)
    u[-1] = 1
    for _ in range(5):
        for colour in (0, 1):
            i = np.arange(colour + 1, 19, 2)
            u[i] = 0.5 * (u[i - 1] + u[i + 1])
    np.save(tmp_path / "u.npy", u)
    (tmp_path / "steps.cu").write_text(SOURCE)
    (tmp_path / "p.toml").write_text(
        'file = "steps.cu"\n[gauss-seidel]\nstep = ["{ relax<0><<<1, 32>>>(u, n); relax<1><<<1, 32>>>(u, n) } * 5"]\n'
        'arg = ["u=float32[n]:i0==n-1", "n=20"]\nexpect = ["u=@u.npy"]\n'
    )
    ran = cudabench(
        "run", "--profile", tmp_path / "p.toml", "--device", "sim", "--no-cpu", "--json", tmp_path / "r.json"
    )
    assert ran.code == 0, ran.out + ran.err
    (result,) = json.loads((tmp_path / "r.json").read_text())["results"]
    assert (result["kernel"], result["status"]) == ("gauss-seidel", "ok")


@pytest.mark.sampled(3)
@pytest.mark.parametrize(
    ("step", "said"),
    [
        ("heat<<<1>>>(a, b, n)", "takes a grid and a block"),
        ("heat(a, b, n)", "is not a launch"),
        ("heat<<<1, 32>>>(a, b)", r"takes 3 arguments, heat<<<\.\.\.>>> passes 2"),
        ("heat<<<1, 32>>>(a, c, n)", "is passed 'c', which lacks an --arg"),
        ("heat<<<1, 32>>>(n, b, n)", r"a=float32\[n\]:random is an array; the steps\(double a"),
        ("heat<<<1, 2048>>>(a, b, n)", "1024"),
        ("heat<<<1, 32>>>(a, b, n) * 0", "at least 1"),
        ("heat<<<1, 32>>>(a, b, n) * 20000", "more than 10000 launches"),
        ("heat<<<1, 32>>>(a, b, n) twice", "neither"),
        ("heat<<<1, 32>>>(a, b, n) swap(a, n)", "'n' is not an array"),
        ("{ heat<<<1, 32>>>(a, b, n)", "never closed"),
        ("", "is empty"),
    ],
)
def test_mistakes_are_named(run: Callable[..., Ran], step: str, said: str) -> None:
    """Each mistake in a step gives one message, and no kernel runs."""
    arguments = [*("--arg", "a=float32[n]:random", "--arg", "b=float32[n]:empty", "--arg", "n=32")]
    ran = run("--step", step, *arguments, code=2)
    assert re.search(said, ran.err), ran.err
    assert "Traceback" not in ran.err


def test_as_many_launches_as_there_may_be(run: Callable[..., Ran], monkeypatch: pytest.MonkeyPatch) -> None:
    """The maximum number of launches runs; one more is refused."""
    monkeypatch.setattr(steps, "MOST_LAUNCHES", 3)
    arguments = [*("--arg", "a=float32[n]:zeros", "--arg", "b=float32[n]:zeros", "--arg", "n=32")]
    run("--step", "heat<<<1, 32>>>(a, b, n) * 3", *arguments)
    ran = run("--step", "heat<<<1, 32>>>(a, b, n) * 4", *arguments, code=2)
    assert "more than 3 launches" in ran.err


def test_a_grid_beside_steps_is_refused(run: Callable[..., Ran]) -> None:
    """--grid with --step is refused, because each step has a grid."""
    ran = run("--step", "heat<<<1, 32>>>(a, b, n)", "--grid", "1", "--arg", "n=32", code=2)
    assert "--grid 1 cannot be used with --step" in ran.err


def test_text_is_read_as_host_code_has_it() -> None:
    """The parser accepts spaces, dim3, streams, template arguments and nested groups."""
    group = steps.parse(
        ["{ ns::f<a, 3> <<< dim3 (2, n), 64, 4*64, stream >>> ( x , g(1, 2) ) ; h<<<1,1>>>() * k } * 2"]
    )
    (outer,) = group.members
    assert isinstance(outer, steps.Group)
    assert outer.count == "2"
    first, second = outer.members
    assert first == steps.Call("ns::f<a, 3>", "2, n", "64", "4*64", ("x", "g(1, 2)"))
    assert isinstance(second, steps.Group)
    assert (second.count, second.members[0]) == ("k", steps.Call("h", "1", "1", "", ()))
    with pytest.raises(UsageError, match="is not a launch"):
        steps.parse(["f<<<1, 1>>>"])


def test_steps_replace_those_of_a_profile() -> None:
    """Arguments of the command line are merged with the profile's; its steps replace the profile's steps."""
    below = {"arg": ("n=4", "x=ones"), "step": ("f<<<1, 1>>>(x)",)}
    above = {"arg": ("n=8",), "step": ("g<<<1, 1>>>(x)", "f<<<1, 1>>>(x)")}
    assert profile.merged(below, above) == {"arg": ("n=8", "x=ones"), "step": above["step"]}
