"""Results files in the formats of other tools: pure, records in and text out.

csv               one row a kernel, numbers as the results file has them: seconds, bytes, GB/s
markdown          a table for a pull request or a job summary, by GitHub's rules
junit             JUnit XML that follows the schema of Ant and Jenkins (windyroad/JUnit-Schema), which GitLab, Azure and
                  the GitHub reporters read too
github-benchmark  the array that benchmark-action/github-action-benchmark reads as customSmallerIsBetter or
                  customBiggerIsBetter: name, unit, value, range, extra
"""

from __future__ import annotations

import csv
import io
import json
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime, timezone
from typing import Any
from xml.etree import ElementTree

from cudabench.errors import CudabenchError
from cudabench.model import Access, DeviceInfo, Result, dim_text
from cudabench.results import thresholds, units
from cudabench.results.file import ResultsFile

NOTHING = "-"


# What the formats share ----------------------------------------------------------------------------------------------


def short_size(result: Result) -> str:
    """Return a size without blanks: 4096x4096, or n=64,a=2.5 for a kernel of the user's own."""
    return units.size(result).replace(" ", "")


def title(result: Result) -> str:
    """Return the problem of a result: transpose 4096 x 4096 float32."""
    return " ".join(part for part in (result.operation, units.size(result), result.dtype) if part)


def name(result: Result, file: ResultsFile) -> str:
    """Return a name that stays the same from run to run: transpose smem-pad 32x8 4096x4096 float32.

    Where the file holds several cards, the card is a part of it.
    """
    block = dim_text(result.block, 2).replace(" ", "") if result.block[0] else ""
    card = result.device if len(file.devices) > 1 else ""
    parts = (result.operation, result.kernel, block, short_size(result), result.dtype, card)
    return " ".join(part for part in parts if part)


def missed(result: Result, file: ResultsFile) -> str | None:
    """Return which threshold of its run a right result missed first, as a sentence, or None."""
    return next((miss.sentence for miss in thresholds.missed(result, file.settings)), None)


def total(result: Result, space: str, what: str, op: str | None = None) -> int | None:
    """Return a count of the simulator over all lines, or None where nothing was counted."""
    if result.access is None:
        return None
    chosen: list[Access] = [a for a in result.access if a.space == space and (op is None or a.op == op)]
    return sum(getattr(a, what) or 0 for a in chosen)


# CSV -----------------------------------------------------------------------------------------------------------------

CSV_COLUMNS: dict[str, Callable[[Result, ResultsFile], Any]] = {
    "operation": lambda r, f: r.operation,
    "kernel": lambda r, f: r.kernel,
    "id": lambda r, f: r.id,
    "function": lambda r, f: r.function,
    "source": lambda r, f: r.source,
    "size": lambda r, f: short_size(r),
    "dtype": lambda r, f: r.dtype,
    "block": lambda r, f: "x".join(map(str, r.block)),
    "grid": lambda r, f: "x".join(map(str, r.grid)),
    "device": lambda r, f: r.device,
    "device_name": lambda r, f: device.name if (device := f.device_of(r)) else None,
    "status": lambda r, f: r.status,
    "reason": lambda r, f: r.reason,
    "cache": lambda r, f: r.time.cache if r.time else None,
    "samples": lambda r, f: r.time.samples if r.time else None,
    "median_s": lambda r, f: r.time.median_s if r.time else None,
    "q1_s": lambda r, f: r.time.q1_s if r.time else None,
    "q3_s": lambda r, f: r.time.q3_s if r.time else None,
    "min_s": lambda r, f: r.time.min_s if r.time else None,
    "mean_s": lambda r, f: r.time.mean_s if r.time else None,
    "relative_ci": lambda r, f: r.time.relative_ci if r.time else None,
    "bytes": lambda r, f: r.bytes,
    "flops": lambda r, f: r.flops,
    "bandwidth_gbps": lambda r, f: r.bandwidth_gbps,
    "gflops": lambda r, f: r.gflops,
    "copy_gbps": lambda r, f: r.copy_gbps,
    "copy_fraction": lambda r, f: r.copy_fraction,
    "peak_fraction": lambda r, f: r.peak_fraction,
    "speedup_vs_cpu": lambda r, f: r.speedup_vs_cpu,
    "footprint_over_l2": lambda r, f: r.footprint_over_l2,
    "cpu_time_s": lambda r, f: r.cpu.time_s if r.cpu else None,
    "registers": lambda r, f: r.registers,
    "shared_bytes": lambda r, f: r.shared_bytes,
    "local_bytes": lambda r, f: r.local_bytes,
    "occupancy_fraction": lambda r, f: r.occupancy.fraction if r.occupancy else None,
    "global_load_sectors": lambda r, f: total(r, "global", "sectors", "load"),
    "global_store_sectors": lambda r, f: total(r, "global", "sectors", "store"),
    "global_ideal_sectors": lambda r, f: total(r, "global", "ideal_sectors"),
    "shared_wavefronts": lambda r, f: total(r, "shared", "wavefronts"),
    "shared_ideal_wavefronts": lambda r, f: total(r, "shared", "ideal_wavefronts"),
    "instructions": lambda r, f: r.instructions,
    "hazards": lambda r, f: None if r.hazards is None else sum(h.count for h in r.hazards),
    "warnings": lambda r, f: " ".join(w.code for w in r.warnings),
}


def to_csv(file: ResultsFile) -> str:
    """Return one row a result under CSV_COLUMNS; what was not measured is empty."""
    stream = io.StringIO()
    writer = csv.writer(stream, lineterminator="\n")
    writer.writerow(CSV_COLUMNS)
    for result in file.results:
        writer.writerow([_cell(column(result, file)) for column in CSV_COLUMNS.values()])
    return stream.getvalue()


def _cell(value: Any) -> Any:
    # The csv module leaves a lone carriage return unquoted where lines end in \n.
    return re.sub(r"\r\n?", "\n", value) if isinstance(value, str) else value


# Markdown ------------------------------------------------------------------------------------------------------------


def markdown_text(text: str) -> str:
    """Return text that GitHub shows as it is, in one line of a table."""
    escaped = re.sub(r"[\\|<>*`\[\]~]|(?<![^\W_])_|_(?![^\W_])", r"\\\g<0>", text)
    return re.sub(r"\r?\n|\r", "<br>", escaped)


def markdown_table(headings: Sequence[str], right: Sequence[bool], cells: Sequence[Sequence[str]]) -> list[str]:
    """Return the lines of a table in GitHub's Markdown."""

    def line(texts: Sequence[str]) -> str:
        return "| " + " | ".join(map(markdown_text, texts)) + " |"

    return [line(headings), "| " + " | ".join("--:" if at else ":--" for at in right) + " |", *map(line, cells)]


@dataclass(frozen=True)
class _Column:
    heading: str
    text: Callable[[Result], str]
    right: bool = True


def to_markdown(file: ResultsFile) -> str:
    """Return a table a problem, under the device that it ran on; reasons of what is not right follow."""
    return "\n".join(line for part in file.by_device() for line in _markdown_of_one(part, len(file.devices) > 1))


def _markdown_of_one(file: ResultsFile, numbered: bool) -> list[str]:
    """Return the lines of one device, with its number where there are several."""
    lines = []
    if file.device:
        number = f"cuda:{file.device.index} " if numbered else ""
        peak = f", peak {file.device.peak_gbps:.0f} GB/s" if file.device.peak_gbps else ""
        driver = f", driver {file.device.driver}" if file.device.driver else ""
        lines += [markdown_text(f"{number}{file.device.name}{peak}{driver}"), ""]
    problems: dict[str, list[Result]] = {}
    for result in file.results:
        problems.setdefault(title(result), []).append(result)
    for heading, rows in problems.items():
        lines += [f"**{markdown_text(heading)}**", ""]
        columns = _timed_columns(rows) if any(r.time for r in rows) else _simulated_columns(rows)
        cells = [[column.text(result) for column in columns] for result in rows]
        lines += markdown_table([c.heading for c in columns], [c.right for c in columns], cells)
        lines.append("")
    notes = [
        f"- {result.kernel} {result.status}: {result.reason}" if result.status != "ok" else f"- {missed(result, file)}"
        for result in file.results
        if result.status != "ok" or missed(result, file)
    ]
    if notes:
        lines += [f"- {markdown_text(note[2:])}" for note in notes] + [""]
    return lines


def _start() -> list[_Column]:
    return [
        _Column("kernel", lambda r: r.kernel, right=False),
        _Column("block", lambda r: dim_text(r.block, 2) if r.block[0] else NOTHING, right=False),
    ]


def _timed_columns(rows: Sequence[Result]) -> list[_Column]:
    columns = [
        *_start(),
        _Column("time", lambda r: units.seconds(r.time.median_s) if r.time else NOTHING),
        _Column("GB/s", lambda r: _number(r.bandwidth_gbps)),
        _Column("of copy", lambda r: _percent(r.copy_fraction)),
        _Column("of peak", lambda r: _percent(r.peak_fraction)),
        _Column("x CPU", lambda r: _number(r.speedup_vs_cpu, 3)),
        _Column("verified", _verified, right=False),
    ]
    if any(r.gflops is not None for r in rows):
        columns.insert(3, _Column("GFLOP/s", lambda r: _number(r.gflops)))
    return columns


def _simulated_columns(rows: Sequence[Result]) -> list[_Column]:
    return [
        *_start(),
        _Column("load sectors", lambda r: _count(total(r, "global", "sectors", "load"))),
        _Column("store sectors", lambda r: _count(total(r, "global", "sectors", "store"))),
        _Column("ideal", lambda r: _count(total(r, "global", "ideal_sectors"))),
        _Column("shared wavefronts", lambda r: _count(total(r, "shared", "wavefronts"))),
        _Column("ideal", lambda r: _count(total(r, "shared", "ideal_wavefronts"))),
        _Column("instructions", lambda r: _count(r.instructions)),
        _Column("hazards", lambda r: _count(None if r.hazards is None else sum(h.count for h in r.hazards))),
        _Column("verified", _verified, right=False),
    ]


def _verified(result: Result) -> str:
    if result.status == "ok" and result.verification is None:
        return "unverified"
    return {"ok": "yes", "wrong": "WRONG", "failed": "failed", "skipped": "skipped"}[result.status]


def _number(value: float | None, count: int = 4) -> str:
    return NOTHING if value is None else units.digits(value, count)


def _percent(value: float | None) -> str:
    return NOTHING if value is None else units.percent(value)


def _count(value: int | None) -> str:
    return NOTHING if value is None else units.count(value)


# JUnit ---------------------------------------------------------------------------------------------------------------


def to_junit(file: ResultsFile, when: datetime) -> str:
    """Return a suite a problem and a case a kernel. Wrong and failed kernels and missed thresholds are failures.

    A case's time is the kernel's median. `when` is when the file was written; results files hold no date.
    """
    root = ElementTree.Element("testsuites")
    suites: dict[str, list[Result]] = {}
    for result in file.results:
        card = f" on {result.device}" if len(file.devices) > 1 else ""
        suites.setdefault(title(result) + card, []).append(result)
    for at, (heading, results) in enumerate(suites.items()):
        failures = [_failure(result, file) for result in results]
        suite = ElementTree.SubElement(
            root,
            "testsuite",
            {
                "name": _xml_text(heading),
                "package": "cudabench",
                "id": str(at),
                "timestamp": when.astimezone(timezone.utc).strftime("%Y-%m-%dT%H:%M:%S"),
                "hostname": _xml_text(str(file.host.get("name") or "localhost")),
                "tests": str(len(results)),
                "failures": str(sum(failure is not None for failure in failures)),
                "errors": "0",
                "skipped": str(sum(result.status == "skipped" for result in results)),
                "time": _decimal(sum(result.time.median_s for result in results if result.time)),
            },
        )
        properties = ElementTree.SubElement(suite, "properties")
        for key, value in _properties(file, file.device_of(results[0])).items():
            ElementTree.SubElement(properties, "property", {"name": key, "value": _xml_text(value)})
        for result, failure in zip(results, failures, strict=True):
            case = ElementTree.SubElement(
                suite,
                "testcase",
                {
                    "name": _xml_text(name(result, file)),
                    "classname": f"cudabench.{result.operation}",
                    "time": _decimal(result.time.median_s if result.time else 0),
                },
            )
            if failure:
                kind, sentence = failure
                text = _xml_text(sentence)
                ElementTree.SubElement(case, "failure", {"type": kind, "message": text.splitlines()[0]}).text = text
            elif result.status == "skipped":
                ElementTree.SubElement(case, "skipped", {"message": _xml_text(result.reason or "")})
        ElementTree.SubElement(suite, "system-out").text = "\n".join(_xml_text(_figures(r, file)) for r in results)
        warnings = [f"{r.kernel}: {w.message}" for r in results for w in r.warnings]
        ElementTree.SubElement(suite, "system-err").text = _xml_text("\n".join(warnings))
    ElementTree.indent(root)
    return '<?xml version="1.0" encoding="UTF-8"?>\n' + ElementTree.tostring(root, encoding="unicode") + "\n"


def _failure(result: Result, file: ResultsFile) -> tuple[str, str] | None:
    """Return the kind of a failure and a sentence, or None."""
    if result.status in ("wrong", "failed"):
        return result.status, f"{result.kernel} {result.status}: {result.reason or 'no reason is recorded'}"
    below = missed(result, file)
    return ("threshold", below) if below else None


def _properties(file: ResultsFile, device: DeviceInfo | None) -> dict[str, str]:
    found = {f"tool.{key}": str(value) for key, value in file.tool.items() if value is not None}
    if device:
        found["device"] = device.name
        found |= {"driver": device.driver} if device.driver else {}
    return found


def _figures(result: Result, file: ResultsFile) -> str:
    if result.time and result.bandwidth_gbps is not None:
        return (
            f"{name(result, file)}: {units.seconds(result.time.median_s)}, {units.digits(result.bandwidth_gbps)} GB/s"
        )
    return f"{name(result, file)}: {units.seconds(result.time.median_s) if result.time else result.status}"


def _decimal(seconds: float) -> str:
    return f"{seconds:.9f}"  # xs:decimal has no exponent


def _xml_text(text: str) -> str:
    """Return text without the control characters that XML 1.0 forbids."""
    return re.sub(r"[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]", "?", text)


# github-action-benchmark ---------------------------------------------------------------------------------------------

# What the action's input `tool` must say
GITHUB_TOOL = {"time": "customSmallerIsBetter", "bandwidth": "customBiggerIsBetter"}


def to_github_benchmark(file: ResultsFile, metric: str = "time") -> str:
    """Return the action's array: times in microseconds and, of the simulator, counts; or bandwidths.

    One array has one direction: times and counts are better smaller, bandwidths bigger. Raises CudabenchError where
    there is nothing to report, which the action refuses.
    """
    entries = []
    for result in file.results:
        if result.status != "ok":
            continue
        entries += _bandwidth(result, file) if metric == "bandwidth" else [*_time(result, file), *_counts(result, file)]
    if not entries:
        what = "bandwidth" if metric == "bandwidth" else "time or count"
        raise CudabenchError(f"The file holds no right result with a {what}, and the action refuses an empty array.")
    return json.dumps(entries, indent=2, ensure_ascii=False) + "\n"


def _entry(label: str, unit: str, value: float, spread: float | None, extra: Sequence[str]) -> dict[str, Any]:
    entry: dict[str, Any] = {
        "name": label,
        "unit": unit,
        "value": value if isinstance(value, int) else float(f"{value:.7g}"),
    }
    if spread is not None:
        entry["range"] = f"± {spread:.3g}"
    if extra:
        entry["extra"] = "\n".join(extra)
    return entry


def _extra(result: Result, file: ResultsFile) -> list[str]:
    return [
        *([device.name] if (device := file.device_of(result)) else []),
        *([f"{units.digits(result.bandwidth_gbps)} GB/s"] if result.bandwidth_gbps is not None else []),
        *([f"{units.percent(result.copy_fraction)} of copy"] if result.copy_fraction is not None else []),
        *([f"{result.time.samples} samples, {result.time.cache} L2"] if result.time else []),
    ]


def _time(result: Result, file: ResultsFile) -> list[dict[str, Any]]:
    if result.time is None:
        return []
    half = (result.time.q3_s - result.time.q1_s) / 2
    return [_entry(name(result, file), "µs", result.time.median_s * 1e6, half * 1e6, _extra(result, file))]


def _bandwidth(result: Result, file: ResultsFile) -> list[dict[str, Any]]:
    if result.time is None or result.bandwidth_gbps is None:
        return []
    half = (result.time.q3_s - result.time.q1_s) / 2 / result.time.median_s * result.bandwidth_gbps
    return [_entry(name(result, file), "GB/s", result.bandwidth_gbps, half, _extra(result, file))]


def _counts(result: Result, file: ResultsFile) -> list[dict[str, Any]]:
    found = {
        "global sectors": total(result, "global", "sectors"),
        "shared wavefronts": total(result, "shared", "wavefronts"),
        "instructions": result.instructions,
    }
    # The action divides by the value before: a zero has no ratio.
    return [_entry(f"{name(result, file)}, {what}", what.split()[-1], v, None, []) for what, v in found.items() if v]
