"""The occupancy calculator."""

from __future__ import annotations

import shutil
import subprocess
from itertools import product
from pathlib import Path

import pytest

from cudabench.compile import toolkit
from cudabench.errors import UsageError
from cudabench.occupancy import Occupancy, capabilities, multiprocessor, occupancy


@pytest.mark.parametrize(
    ("capability", "threads", "registers", "shared", "expected"),
    [
        ("9.0", 256, 32, 0, Occupancy(8, 64, 1.0, "threads")),
        ("sm_90", 256, 33, 0, Occupancy(6, 48, 0.75, "registers")),
        # A warp with 65 to 72 registers takes 72 * 32 = 9 units of 256: 7 warps per quarter. 73 to 80 take 10 units.
        ("9.0", 128, 65, 0, Occupancy(7, 28, 28 / 64, "registers")),
        ("9.0", 128, 72, 0, Occupancy(7, 28, 28 / 64, "registers")),
        ("9.0", 128, 73, 0, Occupancy(6, 24, 24 / 64, "registers")),
        ("9.0", 128, 80, 0, Occupancy(6, 24, 24 / 64, "registers")),
        # A block of 5 warps takes the room of 8 warps: 28 warps with 72 registers are 5 blocks. 1024 threads need 32.
        ("9.0", 160, 72, 0, Occupancy(5, 25, 25 / 64, "registers")),
        ("9.0", 1024, 65, 0, Occupancy(0, 0, 0.0, "registers")),
        # 6272 bytes and the reserve of 1024 are 57 units of 128, of which there are 1824; one byte more is 58 units.
        ("9.0", 32, 16, 6272, Occupancy(32, 32, 0.5, "shared memory")),
        ("9.0", 32, 16, 6273, Occupancy(31, 31, 31 / 64, "shared memory")),
        # 9089 bytes and the reserve are 79 units and a byte: 80 units, so 1824 give 22 blocks; unrounded, 23.
        ("9.0", 32, 16, 9089, Occupancy(22, 22, 22 / 64, "shared memory")),
        ((9, 0), 32, 16, 0, Occupancy(32, 32, 0.5, "blocks")),
        ("9.0", 256, 16, 4224, Occupancy(8, 64, 1.0, "threads")),
        ("9.0", 256, 16, 48 * 1024, Occupancy(4, 32, 0.5, "shared memory")),
        ("9.0", 256, 16, 227 * 1024, Occupancy(1, 8, 0.125, "shared memory")),
        ("9.0", 256, 16, 228 * 1024, Occupancy(0, 0, 0.0, "shared memory")),
        ("7.5", 1024, 64, 0, Occupancy(1, 32, 1.0, "threads")),
        ("8.6", 1024, 32, 0, Occupancy(1, 32, 32 / 48, "threads")),
        ("12.0", 1024, 65, 0, Occupancy(0, 0, 0.0, "registers")),
        ("12.0", 1025, 16, 0, Occupancy(0, 0, 0.0, "threads")),
    ],
)
def test_known(
    capability: str | tuple[int, int], threads: int, registers: int, shared: int, expected: Occupancy
) -> None:
    """The calculator agrees with cases worked out by hand from the tables."""
    assert occupancy(capability, threads, registers, shared) == expected


def test_barriers() -> None:
    """From Hopper on, named barriers limit the blocks per multiprocessor."""
    assert occupancy("12.0", 32, 16, 0, barriers=4) == Occupancy(6, 6, 0.125, "barriers")
    assert occupancy("8.6", 32, 16, 0, barriers=4) == Occupancy(16, 16, 16 / 48, "blocks")


def test_errors() -> None:
    """An unknown capability and a block without threads are refused."""
    with pytest.raises(UsageError, match=r"'6.1': choose one of 7.0, 7.5, 8.0"):
        occupancy("6.1", 32, 16)
    with pytest.raises(UsageError, match="'hopper'"):
        multiprocessor("hopper")
    with pytest.raises(UsageError, match=r"'3\.5'"):
        multiprocessor((3, 5))
    with pytest.raises(UsageError, match="A block of 0 threads"):
        occupancy("9.0", 0, 16)


PROGRAM = r"""
#include <cstdio>
#include <cuda_occupancy.h>
int main() {
    cudaOccDeviceProp p;
    cudaOccFuncAttributes a;
    cudaOccDeviceState s;
    int threads, registers, shared, barriers, perSm, perSmShared, reserved;
    p.maxThreadsPerBlock = 1024;
    p.regsPerBlock = p.regsPerMultiprocessor = 65536;
    p.warpSize = 32;
    p.sharedMemPerBlock = 49152;
    p.numSms = 1;
    while (scanf("%d %d %d %d %d %d %d %d %d", &p.computeMajor, &p.computeMinor, &perSm, &perSmShared, &reserved,
                 &threads, &registers, &shared, &barriers) == 9) {
        p.maxThreadsPerMultiprocessor = perSm;
        p.sharedMemPerMultiprocessor = perSmShared;
        p.sharedMemPerBlockOptin = perSmShared - reserved;
        p.reservedSharedMemPerBlock = reserved;
        a.maxThreadsPerBlock = 1024;
        a.numRegs = registers;
        a.sharedSizeBytes = 0;
        a.shmemLimitConfig = FUNC_SHMEM_LIMIT_OPTIN;
        a.maxDynamicSharedSizeBytes = shared;
        a.numBlockBarriers = barriers;
        cudaOccResult r;
        cudaOccError e = cudaOccMaxActiveBlocksPerMultiprocessor(&r, &p, &a, &s, threads, shared);
        printf("%d\n", e ? -1 : r.activeBlocksPerMultiprocessor);
    }
}
"""


@pytest.mark.slow
def test_against_nvidias_calculator(tmp_path: Path) -> None:
    """The blocks per multiprocessor equal those of cuda_occupancy.h for many blocks, registers and shared memory
    sizes."""
    folder = toolkit.headers()
    if folder is None or not (folder / "cuda_occupancy.h").is_file() or shutil.which("g++") is None:
        pytest.skip("needs cuda_occupancy.h and g++")
    (tmp_path / "sweep.cpp").write_text(PROGRAM)
    command = ["g++", "-w", f"-I{folder}", "sweep.cpp", "-o", "sweep"]
    subprocess.run(command, cwd=tmp_path, check=True)
    threads = [1, 32, 33, 96, 128, 160, 256, 288, 384, 512, 544, 768, 1000, 1024, 1025]
    registers = [0, 1, 8, 9, 24, 32, 33, 40, 63, 64, 65, 96, 127, 128, 168, 255, 256, 257]
    shared = [0, 1, 127, 128, 1024, 4096, 4224, 12345, 32768, 49151, 49152, 49153, 65536, 65537]
    shared += [100352, 101376, 101377, 102400, 166912, 167936, 232448, 232449, 233472, 300000]
    cases = list(product(capabilities(), threads, registers, shared, [0])) + list(
        product(capabilities(), [32, 64], [16], [0], [1, 2, 3, 4, 8, 16])
    )
    lines, ours = [], []
    for capability, block, per_thread, per_block, barriers in cases:
        sm = multiprocessor(capability)
        limits = f"{capability.replace('.', ' ')} {sm.threads} {sm.shared_bytes} {sm.shared_reserve}"
        lines.append(f"{limits} {block} {per_thread} {per_block} {barriers}")
        ours.append(occupancy(capability, block, per_thread, per_block, barriers=barriers).blocks_per_sm)
    output = subprocess.run([tmp_path / "sweep"], input="\n".join(lines), capture_output=True, text=True, check=True)
    theirs = [int(line) for line in output.stdout.split()]
    wrong = [
        (case, mine, other) for case, mine, other in zip(cases, ours, theirs, strict=True) if mine != max(other, 0)
    ]
    assert wrong == []
