"""Every kernel of transpose in the simulator: right, and free of hazards, at awkward sizes, blocks and types."""

from __future__ import annotations

import pytest

from cudabench import operations
from cudabench.devices.sim import SimDevice
from cudabench.measure.simulated_run import SimulatedRun
from cudabench.model import Result, Settings
from cudabench.plan import cases

SIZES = [(1, 1), (1, 127), (127, 1), (31, 33), (64, 64), (127, 129), (200, 72)]
BLOCKS = [(32, 8), (32, 32), (16, 16), (8, 32), (7, 3), (33, 5), (1, 1), (1024, 1), (1, 1024)]
TRANSPOSE = operations.get("transpose")
DEVICE = SimDevice("sm_90")


def faults(size: tuple[int, int], **changes: object) -> list[str]:
    """Run the whole ladder and return what is not right."""
    ladder = cases.build(TRANSPOSE, cases.Request(size=size, seed=sum(size), **changes))  # type: ignore[arg-type]
    simulated = SimulatedRun(TRANSPOSE, ladder[0].problem, Settings(cpu=False), DEVICE)
    results = [simulated.simulate(case) for case in ladder]
    return [f"{r.kernel} {size} {r.block}: {r.status}, {r.reason}" for r in results if r.status != "ok"]


@pytest.mark.parametrize("block", BLOCKS, ids=str)
def test_every_block(block: tuple[int, int]) -> None:
    """Every rung is right for every block at awkward sizes."""
    sizes = SIZES if block != (1, 1) else SIZES[:4]
    assert [fault for size in sizes for fault in faults(size, block=block)] == []


@pytest.mark.parametrize("dtype", ["float64", "float16", "int32", "int8"])
def test_every_type(dtype: str) -> None:
    """Every rung moves every element type, also where rows are not aligned to 16 bytes."""
    assert [fault for size in [(33, 127), (128, 256), (130, 260)] for fault in faults(size, dtype=dtype)] == []


@pytest.mark.parametrize("architecture", ["sm_75", "sm_80", "sm_100", "sm_120"])
def test_every_architecture(architecture: str) -> None:
    """The last rung runs as compiled for old and new architectures."""
    (case,) = cases.build(TRANSPOSE, cases.Request(kernels=("vector",), size=(65, 132)))
    simulated = SimulatedRun(TRANSPOSE, case.problem, Settings(cpu=False), SimDevice(architecture))
    assert simulated.simulate(case).status == "ok"


def counted(kernel: str, block: tuple[int, int]) -> Result:
    """Return a kernel's result at 256 x 256."""
    (case,) = cases.build(TRANSPOSE, cases.Request(kernels=(kernel,), size=(256, 256), block=block))
    return SimulatedRun(TRANSPOSE, case.problem, Settings(cpu=False), DEVICE).simulate(case)


def per_request(result: Result, space: str, op: str) -> float:
    """Return the mean sectors or wavefronts of a request."""
    rows = [a for a in result.access or () if (a.space, a.op) == (space, op)]
    total = sum((a.wavefronts if space == "shared" else a.sectors) or 0 for a in rows)
    return total / sum(a.requests for a in rows)


@pytest.mark.parametrize(
    ("kernel", "block", "load", "store"),
    [
        ("copy-row", (32, 8), 4, 4),
        ("naive-row", (32, 32), 4, 32),
        ("naive-row", (32, 8), 4, 32),
        ("naive-row", (16, 16), 4, 16),
        ("naive-row", (8, 8), 4, 8),
        ("naive-row", (8, 32), 4, 8),
        ("naive-col", (32, 8), 32, 4),
        ("smem", (32, 32), 4, 4),
        ("smem-pad", (32, 8), 4, 4),
        ("vector", (32, 8), 16, 16),
    ],
)
def test_sectors_of_the_textbook(kernel: str, block: tuple[int, int], load: float, store: float) -> None:
    """Sectors per request are what the access patterns say, as counted on an H200 as well."""
    result = counted(kernel, block)
    assert (per_request(result, "global", "load"), per_request(result, "global", "store")) == (load, store)


@pytest.mark.parametrize(
    ("kernel", "block", "load"),
    [
        ("smem", (32, 32), 32),
        ("smem", (32, 8), 8),
        ("smem", (16, 16), 8),
        ("smem-pad", (32, 32), 1),
        ("smem-pad", (16, 16), 1),
    ],
)
def test_wavefronts_of_the_textbook(kernel: str, block: tuple[int, int], load: float) -> None:
    """Bank conflicts of the tile's column are 32-way at 32 x 32, and padding ends them."""
    assert per_request(counted(kernel, block), "shared", "load") == load
