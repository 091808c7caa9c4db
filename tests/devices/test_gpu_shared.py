"""Two runs at once on one real GPU."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import pytest

pytestmark = pytest.mark.gpu

LINE = (sys.executable, "-m", "cudabench", "vecadd", "-k", "grid-stride", "--size", str(1 << 24), "--no-cpu", "-q")


def computing() -> set[int]:
    """Return the process numbers that NVML lists for the first card."""
    nvml = pytest.importorskip("pynvml")
    nvml.nvmlInit()
    card = nvml.nvmlDeviceGetHandleByIndex(0)
    return {int(one.pid) for one in nvml.nvmlDeviceGetComputeRunningProcesses(card)}


def family(pid: int) -> set[int]:
    """Return a process and all its descendants, from /proc."""
    found = {pid}
    with suppress(OSError):
        for task in Path(f"/proc/{pid}/task").iterdir():
            for child in (task / "children").read_text().split():
                found |= family(int(child))
    return found


def test_each_names_the_other(tmp_path: Path) -> None:
    """A run on a shared card warns with the other process's number; the other process leaves the card when
    terminated."""
    environment = {**os.environ, "CUDA_VISIBLE_DEVICES": "0"}
    long = [*LINE, "--min-time", "60", "--max-time", "60", "--json", str(tmp_path / "long.json")]
    with subprocess.Popen(long, env=environment, stderr=subprocess.PIPE) as first:
        try:
            end = time.monotonic() + 60
            came: set[int] = set()
            while not came:
                if first.poll() is not None or time.monotonic() > end:
                    pytest.skip("NVML does not list what computes on the GPU here")
                seen = computing() & family(first.pid)  # other processes may use the card as well
                time.sleep(2)  # by then a process that only read the card's name has ended
                came = seen & computing()
            short = [*LINE, "--max-time", "1", "--json", str(tmp_path / "short.json")]
            subprocess.run(short, env=environment, check=True, timeout=120)
            came &= computing()
        finally:
            first.send_signal(signal.SIGTERM)
        first.communicate(timeout=60)
    assert first.returncode == 143
    (result,) = json.loads((tmp_path / "short.json").read_text())["results"]
    (said,) = [one["message"] for one in result["warnings"] if one["code"] == "shared-gpu"]
    assert came
    assert came <= {int(number) for number in re.findall(r"\d+", said)}, said
    end = time.monotonic() + 20
    while (left := computing() & came) and time.monotonic() < end:
        time.sleep(0.2)
    assert not left
