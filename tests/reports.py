"""Results files for report pages: a simulated ladder, and the same ladder with invented GPU times."""

from __future__ import annotations

import json
import math
from dataclasses import asdict, replace
from functools import cache, partial
from pathlib import Path
from typing import Any

from cudabench import devices, operations
from cudabench.measure.run import Run
from cudabench.plan import cases
from cudabench.plan.series import Series
from cudabench.records.file import ResultsFile, load, parse
from cudabench.records.plan import Settings
from cudabench.results.stats import summarize

H200 = Path(__file__).parent / "data" / "h200.json"
SAMPLES = 900
HOSTILE = "</script><img src=x onerror=alert(1)>\x1b[31m\u202e'\"&{{7*7}}" + "x" * 5000


@cache
def ladder() -> ResultsFile:
    """Return the transposes of 12 x 10, simulated and recorded for a page; small enough to draw all threads."""
    operation = operations.get("transpose")
    request = cases.Request(size=(12, 10))
    series = Series(partial(operations.get, "transpose"), tuple(cases.build(operation, request)))
    run = Run([series], [devices.choose("sim")], Settings(cpu=False, timeout=600), asdict(request), record=True)
    run.collect()
    return run.file


@cache
def timed(factor: float = 1.0) -> ResultsFile:
    """Return the same ladder with invented times, in which each kernel is faster than the one before."""
    results = []
    for at, result in enumerate(ladder().results):
        level = factor * 8e-5 / (1 + at / 4)
        values = [level * (1 + 0.01 * math.sin(k * 1.7) + (0.02 if k % 2 else 0)) for k in range(SAMPLES)]
        time = summarize(values, cache="cold")
        assert result.bytes
        rate = result.bytes / time.median_s / 1e9
        results.append(replace(result, device="cuda:0", time=time, bandwidth_gbps=rate, copy_gbps=0.1))
    clocks = {"before": {"sm_mhz": 1980, "memory_mhz": 3201}, "after": {"sm_mhz": 1965, "memory_mhz": 3201}}
    file = ladder()
    return replace(file, devices=load(H200).devices, results=results, provenance={**file.provenance, "clocks": clocks})


def hostile(file: ResultsFile, name: str = HOSTILE) -> ResultsFile:
    """Return a file with a hostile name in every text of the first result, the settings and the provenance."""
    document = json.loads(file.text())
    keep = {"status", "device", "cache", "kind", "kernel", "op", "space", "source", "arch", "limited_by"}
    keep |= {"inputs", "engine", "counts_from"}

    def changed(value: Any, key: str = "") -> Any:
        if isinstance(value, dict):
            return {inner: changed(item, inner) for inner, item in value.items()}
        if isinstance(value, list):
            return [changed(item, key) for item in value]
        return name if isinstance(value, str) and key not in keep else value

    document["results"] = document["results"][:2]
    document["results"][0] = changed(document["results"][0])
    source = document["results"][0]["source"]
    document["results"][0] |= {"kernel": name, "source": name, "operation": name}
    document["listings"] = {name: f"{name}\n" * 3, source: document["listings"][source]}
    document["results"][0]["hazards"] = [
        {"kind": name, "line": 2, "source": name, "block": [0, 0, 0], "thread": [1, 0, 0], "count": 3, "message": name}
    ]
    document["results"][0]["warnings"] = [{"code": name, "message": name}]
    for key in ("provenance", "host", "tool"):
        document[key] = changed(document[key])
    document["device"]["name"] = name
    return parse(json.dumps(document), "hostile")
