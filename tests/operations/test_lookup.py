"""lookup: its definition, the cost of scattered reads in each memory, and constant memory, which is filled before a
run."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest

from cudabench import operations
from cudabench.measure.gpu_run import GpuRun
from cudabench.measure.simulated_run import SimulatedRun
from cudabench.operations.lookup import WIDTH
from cudabench.records.plan import Settings
from cudabench.records.results import Result
from tests.conftest import FakeDevice, Ran
from tests.ladders import build, needs_compiler, problem, simulator

Runner = Callable[..., Ran]

pytestmark = pytest.mark.lookup

N = 1024


def counted(kernel: str, index: str = "random", dtype: str = "float32") -> Result:
    """Return a kernel's result for N look-ups."""
    operation, (case,) = build("lookup", kernel, size=(N,), dtype=dtype, options={"index": index})
    return SimulatedRun(operation, case.problem, Settings(cpu=False), simulator()).measure(case)


def cost(result: Result, space: str) -> tuple[int, int]:
    """Return the requests of loads in a memory space, without those of the index, and their sectors or wavefronts."""
    rows = [a for a in result.access or () if (a.space, a.op) == (space, "load") and "index[i]" not in a.source]
    return sum(a.requests for a in rows), sum(a.sectors or a.wavefronts or 0 for a in rows)


def cells(index: str) -> np.ndarray:
    """Return the nine table cells that each look-up reads, as (N, 9); a neighbour beyond the border is the border
    cell."""
    found = operations.get("lookup").inputs(problem("lookup", N, seed=0, index=index))["index"]
    y, x = np.divmod(found, WIDTH)
    return np.stack(
        [
            np.clip(y + dy, 0, WIDTH - 1) * WIDTH + np.clip(x + dx, 0, WIDTH - 1)
            for dy in (-1, 0, 1)
            for dx in (-1, 0, 1)
        ],
        axis=1,
    )


@pytest.mark.parametrize("dtype", ["float32", "float64", "int32"])
def test_reference_is_the_definition(dtype: str) -> None:
    """The reference agrees with a sum in exact arithmetic, also at the corners of the table."""
    operation = operations.get("lookup")
    at = problem("lookup", 40, dtype=dtype)
    arrays = operation.inputs(at)
    arrays["index"][:4] = [0, WIDTH - 1, WIDTH * (WIDTH - 1), WIDTH * WIDTH - 1]
    table, weights = arrays["table"], arrays["filter"]
    exact = []
    for cell in arrays["index"].tolist():
        total = Fraction(0)
        for dy in (-1, 0, 1):
            for dx in (-1, 0, 1):
                y = min(max(cell // WIDTH + dy, 0), WIDTH - 1)
                x = min(max(cell % WIDTH + dx, 0), WIDTH - 1)
                total += Fraction(table[y, x].item()) * Fraction(weights[3 * (dy + 1) + dx + 1].item())
        exact.append(float(total))
    got = operation.reference(at, arrays)["out"]
    assert np.asarray(got, np.float64) == pytest.approx(exact, rel=1e-15)


@needs_compiler
def test_constant_memory_serves_one_address_at_a_time() -> None:
    """A constant read of the table takes one wavefront per different address in the warp; a read of the filter takes
    one."""
    wanted = cells("random").reshape(-1, 32, 9)
    different = sum(len(np.unique(warp[:, k])) for warp in wanted for k in range(9))
    assert different > 9 * 28 * N // 32
    filters = 9 * N // 32
    assert cost(counted("constant-uniform"), "constant") == (filters, filters)
    assert cost(counted("constant-lane"), "constant") == (2 * filters, filters + different)


@needs_compiler
def test_lanes_that_agree() -> None:
    """If all lanes of a warp look up the same element, a constant read takes one wavefront, and a global read one
    sector."""
    filters = 9 * N // 32
    assert cost(counted("constant-lane", "same"), "constant") == (2 * filters, 2 * filters)
    assert cost(counted("constant-uniform", "same"), "global") == (filters, filters)


@needs_compiler
@pytest.mark.parametrize("kernel", ["constant-uniform", "shared"])
def test_scattered_reads(kernel: str) -> None:
    """The counted sectors of global memory, or bank conflicts of shared memory, follow from the random addresses."""
    wanted = cells("random").reshape(-1, 32, 9)
    if kernel == "shared":
        turns = [np.bincount(np.unique(warp[:, k]) % 32).max() for warp in wanted for k in range(9)]
        assert cost(counted(kernel), "shared") == (len(turns), sum(turns))
    else:
        sectors = [len(np.unique(warp[:, k] // 8)) for warp in wanted for k in range(9)]
        assert cost(counted(kernel), "global") == (len(sectors), sum(sectors))


@needs_compiler
@pytest.mark.parametrize("kernel", ["texture-1d", "texture-2d"])
def test_textures_leave_the_table_to_their_units(kernel: str) -> None:
    """A texture kernel loads only its indices from global memory, and as many constants as the constant kernel."""
    found = counted(kernel)
    assert found.status == "ok", found.reason
    assert cost(found, "global") == (0, 0)
    assert cost(found, "constant") == (9 * N // 32, 9 * N // 32)


def test_no_textures_of_doubles(cudabench: Runner) -> None:
    """A texture kernel refuses float64 and lists the types that it takes."""
    ran = cudabench("lookup", "texture-1d", "--dtype", "float64", "--size", 100, "--device", "sim")
    assert ran.code == 2
    assert "texture-1d has no float64 form: use float32, int32." in ran.err


OWN_TEXTURE = """
extern "C" __global__ void own(cudaTextureObject_t t, const float *w, const int *index, float *out, int n)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n)
        return;
    float x = index[i] % 64 + 0.5f, y = index[i] / 64 + 0.5f, sum = 0;
    for (int k = 0; k < 9; k++)
        sum += w[k] * tex2D<float>(t, x + k % 3 - 1, y + k / 3 - 1);
    out[i] = sum;
}
"""


@needs_compiler
def test_own_texture_kernel(cudabench: Runner, tmp_path: Path) -> None:
    """A user's kernel that replaces a texture kernel receives the texture."""
    file = tmp_path / "own.cu"
    file.write_text(OWN_TEXTURE)
    ran = cudabench("lookup", "texture-2d", "--source", file, "--size", 300, "--device", "sim", "--no-cpu")
    assert ran.code == 0, ran.out + ran.err


@pytest.mark.slow
@needs_compiler
def test_explanation_names_the_serial_read(cudabench: Runner) -> None:
    """`explain` shows constant loads and says why they are slow, but not if all lanes read the same address."""
    ran = cudabench("explain", "lookup", "constant-lane", "--size", 4096)
    assert ran.code == 0, ran.err
    assert "constant load 4 B" in ran.out
    assert "constant memory serves one address at a time" in ran.out
    again = cudabench("explain", "lookup", "constant-lane", "--size", 4096, "--index", "same")
    assert "constant memory serves" not in again.out


@needs_compiler
def test_constants_follow_the_problem() -> None:
    """A kernel that runs again with other inputs gets its constant tables filled again."""
    for seed in (1, 2, 1):
        operation, (case,) = build("lookup", "constant-lane", size=(100,), seed=seed)
        found = SimulatedRun(operation, case.problem, Settings(cpu=False), simulator()).measure(case)
        assert found.status == "ok", found.reason


OWN = """
namespace mine { __constant__ float constant_filter[%d]; }
extern "C" __global__ void own(const float *table, const float *filter, const int *index, float *out, int n)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n)
        return;
    int x = index[i] %% 64, y = index[i] / 64;
    float sum = 0;
    for (int k = 0; k < 9; k++)
        sum += mine::constant_filter[k] * table[min(max(y + k / 3 - 1, 0), 63) * 64 + min(max(x + k %% 3 - 1, 0), 63)];
    out[i] = sum;
}
"""


@pytest.mark.slow
@needs_compiler
def test_own_source_gets_the_constants(cudabench: Runner, tmp_path: Path) -> None:
    """A user's file that declares a constant table by its name gets it filled; a table that is too small is refused
    with both sizes."""
    file = tmp_path / "own.cu"
    file.write_text(OWN % 9)
    ran = cudabench("lookup", "--source", file, "--size", 300, "--device", "sim", "--no-cpu")
    assert ran.code == 0, ran.out + ran.err
    file.write_text(OWN % 8)
    ran = cudabench("lookup", "--source", file, "--size", 300, "--device", "sim", "--no-cpu")
    assert ran.code == 2
    assert "constant_filter: the value has 36 bytes, the variable 32" in ran.err


def test_constants_on_a_device() -> None:
    """Before every run, constant memory holds the table of that run's set of inputs."""
    seen: set[bytes] = set()

    def watched(buffers: dict[str, np.ndarray]) -> None:
        table, weights = (
            np.frombuffer(device.constants[f"constant_{name}"], np.float32) for name in ("table", "filter")
        )
        seen.add(table.tobytes())
        assert table.tobytes() == buffers["table"][: table.nbytes].tobytes()
        arrays = {
            "table": table.reshape(WIDTH, WIDTH),
            "filter": weights,
            "index": buffers["index"][:200].view(np.int32),
        }
        buffers["out"][:200].view(np.float32)[:] = operations.get("lookup").reference(at, arrays)["out"]

    device = FakeDevice(watched)
    operation, (case,) = build("lookup", "constant-lane", size=(50,))
    at = case.problem
    found = GpuRun(operation, at, Settings(min_time=0.0, cpu=False), device).measure(case)
    assert found.status == "ok", found.reason
    assert found.inputs == "fresh"
    assert len(seen) == 2


OWN_TABLE = """
__constant__ float lut[256];
__global__ void apart(const unsigned char *x, float *y) { y[threadIdx.x] = lut[x[threadIdx.x]]; }
__global__ void uniform(const unsigned char *x, float *y) { y[threadIdx.x] = lut[x[0]] * x[threadIdx.x]; }
__global__ void shared(const unsigned char *x, float *y) {
  __shared__ float table[256];
  table[threadIdx.x] = lut[threadIdx.x];
  __syncthreads();
  y[threadIdx.x] = table[x[threadIdx.x]];
}
__global__ void both(const unsigned char *x, float *y) {
  __shared__ float table[256];
  table[threadIdx.x] = lut[threadIdx.x];
  __syncthreads();
  y[threadIdx.x] = table[x[threadIdx.x]] * lut[255 - x[threadIdx.x]];
}
"""


@pytest.mark.sampled(4)
@needs_compiler
@pytest.mark.parametrize(
    ("kernel", "cures"),
    [
        ("apart", ["copy it to shared memory, or read it from global memory (const __restrict__, or __ldg)"]),
        ("uniform", []),
        ("shared", ["copy it to table out of global memory, where neighbours share a sector"]),
        ("both", ["copy it to table out of global memory", "read it in table, which has it already"]),
    ],
)
def test_where_a_table_of_constants_belongs(kernel: str, cures: list[str], cudabench: Runner) -> None:
    """`explain` reports constant reads with different addresses in a warp, and does not advise what the kernel already
    does."""
    Path("k.cu").write_text(OWN_TABLE)
    given = ("--arg", "x=uint8[256]:random", "--arg", "y=float32[256]:empty", "--const", "lut=float32[256]:random")
    ran = cudabench("explain", "k.cu", "-k", kernel, "-g", 1, "-b", 256, *given)
    text = " ".join(ran.out.split())
    assert ran.code == 0, ran.err
    assert text.count("different addresses a warp where 1 would do") == len(cures)
    for cure in cures:
        assert f"to all lanes that want it; {cure}" in text
