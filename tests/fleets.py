"""Fleets for tests: shards with given times."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

MODEL = "NVIDIA H100 80GB HBM3"
UTC = "2026-11-20T10:00:00+00:00"
USUAL_MHZ = 1980.0


def uuid(number: int) -> str:
    """Return the UUID of a card by its number."""
    return f"GPU-{number:08x}-0000-0000-0000-{number:012x}"


def result(kernel: str, seconds: float, **more: Any) -> dict[str, Any]:
    """Return a right result of a kernel."""
    return {
        "operation": "transpose", "kernel": kernel, "size": {"rows": 4096, "cols": 4096}, "dtype": "float32",
        "block": [32, 8, 1], "device": "cuda:0", "status": "ok",
        "verification": {"mismatches": 0, "first": None, "rtol": 0, "atol": 0, "checked": ["before", "after"]},
        "time": {"median_s": seconds, "cache": "cold", "samples_s": [seconds] * 3}, **more,
    }  # fmt: skip


def document(
    number: int, times: Mapping[str, float], *, model: str = MODEL, host: str | None = None, utc: str = UTC,
    sm_mhz: float | None = USUAL_MHZ, results: Sequence[Any] | None = None, **card: Any,
) -> dict[str, Any]:  # fmt: skip
    """Return a GPU's shard with a time for each kernel; `card` sets further keys of the GPU's record."""
    load = None if sm_mhz is None else {"sm_mhz": sm_mhz, "memory_mhz": 2619.0, "throttle": [], "looks": 9}
    device = {"name": model, "kind": "cuda", "uuid": uuid(number), "index": 0}
    own = {"id": uuid(number), "status": "ok", "model": model, "host": host or f"node{number // 8}", "load": load}
    return {
        "schema": "cudabench/1", "device": device, "provenance": {"utc": utc},
        "results": [result(*each) for each in times.items()] if results is None else [*results],
        "fleet": {"card": {**own, **card}},
    }  # fmt: skip


def write(folder: Path, *documents: Mapping[str, Any]) -> Path:
    """Write shards into a folder."""
    folder.mkdir(parents=True, exist_ok=True)
    for each in documents:
        (folder / f"{each['fleet']['card']['id']}.json").write_text(json.dumps(each))
    return folder


def page(folder: Path, evil: str) -> str:
    """Return the page of a fleet with slow, wrong and degrading GPUs of two models, and with hostile names."""
    from cudabench.fleet import findings
    from cudabench.views import fleet_page

    for day in range(2):
        shards = []
        for number in range(24):
            slow = 1.3 if number == 3 else 2.5 if number == 20 and day else 1.0
            times = {f"k{k}": (k + 1) * 1e-5 * slow * (1 + (number * 7 + k * 3) % 5 * 1e-3) for k in range(6)}
            shards.append(document(number, times, model=MODEL if number < 18 else evil, rack=f"r{number // 12}"))
        shards[5] = document(5, {evil: 1e-5}, host=evil, status="failed", reason=evil)
        write(folder / str(day), *shards)
    (folder / "1" / "half.json").write_text("{")
    report = findings.load([folder / "0", folder / "1"])
    return fleet_page.page(report, report.findings())
