"""--peer: library rows beside the kernels' rows, on a fake device with real memory, and the refusals."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from cudabench import cli, operations
from cudabench.devices import peers
from cudabench.devices import peers as calls
from cudabench.errors import DeviceUnusable, UsageError
from cudabench.measure.gpu_run import GpuRun
from cudabench.plan import cases
from cudabench.records.plan import LIBRARIES, Case, Operation, Peer, Problem, Settings
from cudabench.records.results import Result
from tests.conftest import FakeDevice

ROWS, COLS = 33, 127
FAST = Settings(min_time=0.0, max_time=5.0, min_samples=10, cpu=False)
EVERY = [(name, peer.name) for name in operations.SUMMARIES for peer in operations.get(name).peers]


@dataclass
class WithLibrary(FakeDevice):
    """A host whose library transposes and multiplies by `factor`; if `missing`, the library is not installed."""

    factor: float = 1.0
    missing: bool = False

    def peer(self, peer: Peer, operation: Operation, problem: Problem) -> peers.Call:
        """Return the library's call."""
        if self.missing:
            raise DeviceUnusable("cuBLAS is not installed: `pip install nvidia-cublas` has it.")
        return peers.Call("cuBLAS 1.2.3", lambda addresses: lambda stream: None)


def transposed(factor: float) -> Callable[[dict[str, np.ndarray]], None]:
    """Return a function that transposes and scales."""

    def kernel(buffers: dict[str, np.ndarray]) -> None:
        matrix = buffers["in"].view(np.float32).reshape(ROWS, COLS)
        buffers["out"].view(np.float32)[:] = matrix.T.reshape(-1) * factor

    return kernel


def ladder(*names: str, operation: str = "transpose", **request: Any) -> list[Case]:
    """Return the cases of one kernel and some peers."""
    asked = cases.Request(kernels=("naive-row",), size=(ROWS, COLS), peers=names)
    return cases.build(operations.get(operation), replace(asked, **request))


def measure(factor: float = 1.0, missing: bool = False) -> Result:
    """Measure cuBLAS' transpose."""
    case = ladder("cublas")[-1]
    device = WithLibrary(transposed(factor), factor=factor, missing=missing)
    return GpuRun(operations.get("transpose"), case.problem, FAST, device).measure(case)


def test_a_peer_is_a_row_like_a_kernels() -> None:
    """A library is verified before and after and timed like a kernel; fields that only a kernel has are null."""
    result = measure()
    assert (result.status, result.kernel, result.peer, result.id) == ("ok", "cublas", "cublas", None)
    assert result.source == "cuBLAS 1.2.3"
    assert result.verification is not None
    assert result.verification.checked == ("before", "after")
    assert result.verification.samples
    assert result.time is not None
    assert result.copy_fraction == pytest.approx(0.8)
    assert (result.registers, result.shared_bytes, result.occupancy, result.machine_code) == (None,) * 4


def test_a_library_that_is_wrong_has_no_figures() -> None:
    """A library with a wrong result is marked wrong and gets no time, like a kernel."""
    result = measure(factor=2.0)
    assert (result.status, result.time, result.bandwidth_gbps) == ("wrong", None, None)


def test_a_library_that_is_not_there_is_skipped_with_the_repair() -> None:
    """A library that is not installed is skipped, and the reason gives the command that installs it."""
    result = measure(missing=True)
    assert result.status == "skipped"
    assert "pip install nvidia-cublas" in str(result.reason)


def test_peers_come_behind_the_kernels_in_the_operations_order() -> None:
    """A library's name selects all its calls, and a call's name selects that call; each call comes once, after the
    kernels."""
    assert [case.kernel for case in ladder("torch", "cublas", "torch")] == [
        "naive-row",
        "cublas",
        "torch",
        "torch-compiled",
    ]
    assert [case.kernel for case in ladder("torch-compiled")] == ["naive-row", "torch-compiled"]


@pytest.mark.parametrize(
    ("name", "changes", "reason"),
    [
        ("cublass", {}, "Did you mean 'cublas'"),
        ("cub", {}, "transpose lacks a call of CUB; use cublas, torch"),
        ("cublas", {"dtype": "int8"}, "has no int8 form of transpose: use float32, float64"),
    ],
)
def test_what_no_library_has_is_refused(name: str, changes: dict[str, Any], reason: str) -> None:
    """An unknown library, or a library without a call for the problem, is a usage error."""
    with pytest.raises(UsageError, match=reason):
        ladder(name, **changes)


def test_the_simulator_runs_no_library(capsys: pytest.CaptureFixture[str]) -> None:
    """--peer with the simulator gives one error, exit code 5."""
    assert cli.invoke(["transpose", "--peer", "cublas", "-d", "sim", "--size", "64"]) == 5
    assert "--peer cublas needs a GPU: the simulator does not run libraries" in " ".join(
        capsys.readouterr().err.split()
    )


@pytest.mark.parametrize(("name", "peer"), EVERY)
def test_every_peer_has_its_call(name: str, peer: str) -> None:
    """The library that a peer names implements the peer's call, for types that the operation has."""
    from cudabench.devices.peers import cub, cublas, cusolver, torch

    one = operations.get(name).peer(peer)
    made: dict[str, Mapping[str, Any]] = {
        "cublas": cublas.CALLS,
        "cub": cub.ARRAYS,
        "cusolver": {"solve": cusolver.load},
        "torch": torch.CALLS,
    }
    assert peer.partition("-")[0] == one.library
    assert one.library in LIBRARIES
    assert name in made[one.library]
    assert set(one.dtypes) <= set(operations.get(name).dtypes)


def test_list_names_the_peers(capsys: pytest.CaptureFixture[str]) -> None:
    """`list` names the library calls that an operation can be compared with."""
    assert cli.invoke(["list", "distance"]) == 0
    assert "cub::DeviceReduce::Reduce" in " ".join(capsys.readouterr().out.split())


def test_a_library_is_looked_for_where_nvidia_puts_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """A library that is not found gives an error with the command that installs it."""
    from cuda import pathfinder

    def nowhere(name: str) -> Any:
        raise RuntimeError(f"no lib{name}.so")

    monkeypatch.setattr(pathfinder, "load_nvidia_dynamic_lib", nowhere)
    with pytest.raises(DeviceUnusable, match=r"cuSOLVER is not installed .*`pip install nvidia-cusolver`"):
        calls.Library("cusolver", "cusolverDnCreate")


SMALL = {"matmul": ("65", "33", "68"), "solve": ("130",), "matvec": ("300", "77"), "transpose": ("300", "77")}


@pytest.mark.gpu
@pytest.mark.parametrize(("name", "peer"), EVERY)
def test_peer_on_a_gpu(name: str, peer: str, tmp_path: Path) -> None:
    """Each library call is right for each of its types, at a size without a round factor; a library that is not
    installed is skipped with advice to install it."""
    operation = operations.get(name)
    size = SMALL.get(name, ("1003",) * len(operation.dimensions))
    for dtype in operation.peer(peer).dtypes:
        words = [name, "-k", operation.plain.name, "--size", *size, "--dtype", dtype, "--peer", peer, "--no-cpu"]
        root = str(Path(__file__).resolve().parents[2])
        subprocess.run(
            [sys.executable, "-m", "cudabench", *words, "--min-time", "0.05", "-d", "cuda", "--json", "r.json", "-q"],
            cwd=tmp_path,
            env={**os.environ, "PYTHONPATH": os.pathsep.join([root, os.environ.get("PYTHONPATH", "")])},
            timeout=300,
            check=False,
        )
        rows = {row["kernel"]: row for row in json.loads((tmp_path / "r.json").read_text())["results"]}
        row = rows[peer]
        if row["status"] == "skipped":
            assert "install" in row["reason"]
        else:
            assert (row["status"], row["reason"]) == ("ok", None), dtype
