"""The section of each kernel on a page, and facts about the machine and the origin of each run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import SimpleNamespace
from typing import Any

from cudabench import __version__
from cudabench.records.file import ResultsFile
from cudabench.records.launch import dim_text
from cudabench.records.results import Access, Branch, Counted, Result
from cudabench.results import units
from cudabench.views.explanation import by_lines
from cudabench.views.report import samples, source
from cudabench.views.report.entries import Entry, problem
from cudabench.views.table import device_line


def section(
    entry: Entry,
    anchor: str,
    files: Sequence[ResultsFile],
    held: Sequence[ResultsFile],
    labels: Sequence[str],
    sides: int,
    *,
    is_open: bool,
) -> SimpleNamespace:
    """Return the section of a kernel. It has a side for each run that has the kernel.

    A side contains facts, the source, and the command that would record missing data. If an older side has the same
    machine code and launch as the newest (`same`), only the newest side shows source and pictures. `held`: the files in
    the form in which the page embeds them; `sides`: the number of sides on the whole page.
    """
    rows = min(source.MOST_LINES, source.MOST_ROWS // sides)
    parts = []
    for run, (at, result) in sorted(entry.results.items()):
        drawn = held[run].results[at]
        same = result is not entry.last and _launch(result) is not None and _launch(result) == _launch(entry.last)
        text = files[run].listings.get(result.source)
        parts.append(
            SimpleNamespace(
                run=run,
                at=at,
                label=labels[run] if len(files) > 1 else "",
                result=result,
                facts=facts(result),
                strip=samples.strip(result.time, sides) if result.time else None,
                same=same,
                listing=None if same else source.listing(result, text, rows),
                advice=() if same else advice(result),
                banks=0 if same else len(drawn.banks or ()),
                steps=0 if same else len(drawn.steps or ()),
                missing="" if same else missing(result),
                counted="" if same else _counted(result.counted),
            )
        )
    return SimpleNamespace(
        anchor=anchor, title=problem(entry.last), name=entry.name, status=entry.status, sides=tuple(parts), open=is_open
    )


def _launch(result: Result) -> tuple[object, ...] | None:
    """Return a tuple that identifies a result's machine code and launch; None if the code is not known."""
    code = result.machine_code
    return (code.sha256, result.block, result.grid, result.status) if code else None


def _known(pairs: Mapping[str, str | None]) -> tuple[tuple[str, str], ...]:
    return tuple((name, text) for name, text in pairs.items() if text)


def facts(result: Result) -> tuple[tuple[str, str], ...]:
    """Return facts about a kernel's launch and resources, as (name, text)."""
    code, occupancy = result.machine_code, result.occupancy
    executed = code.instructions_executed if code else None
    threads = code.threads_per_instruction if code else None
    known = {
        "block": dim_text(result.block) if result.block[0] else None,
        "grid": dim_text(result.grid) if result.block[0] else None,
        "registers a thread": str(result.registers) if result.registers is not None else None,
        "shared memory a block": units.nbytes(result.shared_bytes) if result.shared_bytes else None,
        "local memory a thread": units.nbytes(result.local_bytes) if result.local_bytes else None,
        "occupancy": f"{units.percent(occupancy.fraction)}, limited by {occupancy.limited_by}" if occupancy else None,
        "warp instructions": units.about(code) + units.count(executed) if executed is not None else None,
        "threads an instruction": f"{units.about(code)}{threads:.1f} of 32" if threads is not None else None,
        "hardware may execute more or fewer": code.inexact if code else None,
        "spills": units.nbytes(code.spill_bytes) if code and code.spill_bytes else None,
        "arithmetic": ", ".join(code.arithmetic or ()) if code else None,
        "verified": _verified(result),
    }
    figures = [(name, f"{value:.4g}") for name, value in result.figures.items()]
    return (("function", result.function), *_known(known), *figures)


def _verified(result: Result) -> str | None:
    check = result.verification
    if not check:
        return "no: nothing was expected" if result.status == "ok" else None
    if check.mismatches:
        return f"{units.count(check.mismatches)} wrong element{'s' * (check.mismatches != 1)}"
    when = "in the simulator" if "simulated" in check.checked else f"{' and '.join(check.checked)} timing"
    return when + (f", and {check.samples} timed samples" if check.samples else "")


def _counted(counts: Counted | None) -> str:
    """Return a sentence that says how the counts of a timed kernel were taken; '' if the kernel has no counts."""
    if counts is None:
        return ""
    part = f"on {counts.blocks:,} of {counts.of:,} blocks and scaled to all of them"
    extent = "on all blocks" if counts.blocks >= counts.of else part.replace(",", "\u202f")
    other = "; its compiler made different code from the measured code" if counts.same_code is False else ""
    return f"The counts are the simulator's, taken after the measurement {extent}{other}."


def advice(result: Result) -> tuple[tuple[str, str], ...]:
    """Return (lines or 'blocks', sentence) for each distinct advice about waste."""
    rows: list[Access | Branch] = [*(result.access or ()), *(result.branches or ())]
    blocks = [("blocks", result.imbalance.advice)] if result.imbalance else []
    return (*by_lines((row.advice, units.place_of(row)) for row in rows if row.advice), *blocks)


def missing(result: Result) -> str:
    """Return the command that records what the section of a result lacks; '' if nothing is missing."""
    if result.status in ("failed", "skipped") or (result.lines is not None and result.steps is not None):
        return ""
    what = "FILE.cu ..." if result.operation == "run" else f"{result.operation} --kernel {result.kernel}"
    command = ("run " if result.operation == "run" else "") if result.time else "explain "
    return f"cudabench {command}{what} --report page.html"


def machine(file: ResultsFile, label: str) -> SimpleNamespace:
    """Return a sentence about the machine of a run, and facts about the run's origin."""
    provenance = file.provenance

    def part(key: str) -> Mapping[str, Any]:
        value = provenance.get(key)
        return value if isinstance(value, dict) else {}

    git, compiler, throttle = part("git"), part("compiler"), part("throttle")
    hashes = {r.machine_code.sha256 for r in file.results if r.machine_code}
    reasons = dict.fromkeys([*(throttle.get("before") or ()), *(throttle.get("after") or ())])
    origin = {
        "when": str(provenance.get("utc") or ""),
        "command": " ".join(map(str, provenance["command"])) if isinstance(provenance.get("command"), list) else None,
        "commit": f"{git.get('commit')}{', with changes' if git.get('dirty') else ''}" if git else None,
    }
    sources = [("source", f"{name}, sha256 {str(digest)[:16]}…") for name, digest in part("sources").items()]
    cards = [("device", ", ".join(filter(None, (device_line(card), card.uuid)))) for card in file.devices]
    versions = [f"{name} {version}" for name, version in file.tool.items() if name not in ("name", "version")]
    code = {
        "machine code": f"sha256 {next(iter(hashes))[:16]}…" if len(hashes) == 1 else None,
        "compiler": f"{compiler.get('name')} {compiler.get('version')}" if compiler else None,
        "power": _before_and_after(part("power_w"), "W"),
        "temperature": _before_and_after(part("temperature_c"), "°C"),
        "clocks held down by": ", ".join(map(str, reasons)),
    }
    tool = {
        "host": ", ".join(str(file.host[key]) for key in ("name", "system", "cpu") if file.host.get(key)),
        "tool": f"cudabench {', '.join([str(file.tool.get('version') or __version__), *versions])}",
    }
    device = file.device
    sentence = " and ".join(dict.fromkeys(card.name for card in file.devices))
    if device and device.timed and device.driver:
        sentence += f", driver {device.driver}"
    if device and device.kind == "sim":
        sentence += ": counts, no times"
    cache = {result.time.cache for result in file.results if result.time}
    if len(cache) == 1:
        sentence += f", {next(iter(cache))} L2 cache"
    facts = (*_known(origin), *sources, *_known(code), *cards, *_known(tool))
    return SimpleNamespace(label=label, sentence=sentence, facts=facts)


def _before_and_after(values: Mapping[str, Any], unit: str) -> str | None:
    return f"{values.get('before')} {unit} before, {values.get('after')} {unit} after" if values else None


def clocks(file: ResultsFile) -> str:
    """Return a text with the clocks before and after the run; '' if they are not known."""
    readings = file.provenance.get("clocks")
    before, after = ((readings.get(when) if isinstance(readings, dict) else None) or {} for when in ("before", "after"))
    return ", ".join(
        f"{word} clock {before.get(key)} MHz before the run and {after.get(key)} MHz after it"
        for key, word in (("sm_mhz", "SM"), ("memory_mhz", "memory"))
        if before.get(key) or after.get(key)
    )
