"""Texts about lower bounds: the name of each lower bound, and a clause that explains how the bound was calculated."""

from __future__ import annotations

from collections.abc import Mapping

from cudabench.explain.card_rates import Rates

# Ends a clause that says how many bytes in flight are enough. "Idle", because the latency of busy memory is longer.
ENOUGH_TEXT = " would do while memory is idle"
# IN_L1_TEXT is added to the clause if the repeated loads are more than REPEATED_SHARE of the loads.
REPEATED_SHARE, IN_L1_TEXT = 0.5, " are assumed to hit in the L1"
# Limits that no hardware unit causes. If one of them is the longest, a profiler shows no unit with a high utilization.
NO_UNITS = ("latency", "tail", "blocks", "launch", "start")
# The longest limit explains a measured time if it is at least this share of the time.
EXPLAINED = 0.6
NAMES = {
    "memory": "memory",
    "l2": "L2",
    "lsu": "load/store unit",
    "issue": "issue",
    "fma": "FMA pipe",
    "alu": "ALU pipe",
    "fp64": "FP64 pipe",
    "xu": "special functions",
    "tensor": "tensor cores",
    "constant": "constants",
    "local": "local memory",
    "atomic": "atomics",
    "latency": "latency",
    "tail": "tail",
    "blocks": "block starts",
    "launch": "launches",
    "start": "the launch",
}
# What takes the time of a resource, in a few words for the legend of a table.
MEANINGS = {
    "memory": "bytes to and from the card's memory",
    "l2": "sectors between the SMs and the L2",
    "lsu": "wavefronts of shared memory and lines of global memory",
    "issue": "instructions of all kinds",
    "fma": "multiplications and additions",
    "alu": "integer and logic instructions",
    "fp64": "double precision",
    "xu": "roots, sines, conversions",
    "tensor": "matrix products",
    "constant": "reads of constants with an index",
    "local": "local memory, such as spilled registers",
    "atomic": "atomics that wait for one another",
    "latency": "warps wait for results, and too few of them run at a time",
    "tail": "some SMs have more blocks than others",
    "blocks": "starting the blocks of the grid",
    "launch": "the gaps between several launches",
    "start": "it takes longer than any bound on the work",
}

# Maps a resource to the texts for its counts, by the name of the count.
_FIGURE_TEXTS = {
    "lsu": {"shared": "wavefronts of shared memory", "turns": "turns of the L1", "shuffles": "shuffles"},
    "constant": {
        "requests": "requests for constants",
        "more": "more addresses",
        "fetched": "lines that the cache of constants lacks",
    },
    "local": {"wavefronts": "wavefronts"},
    "issue": {"instructions": "warp instructions"},
    "atomic": {"hits": "requests to one address"},
    "blocks": {"blocks": "blocks to start"},
    "xu": {"xu": "special functions", "convert": "conversions of one unit"},
}
_PIPE_TEXTS = {"imad": "integer multiplications", "half": "instructions of halves", "convert": "conversions"}


def number(value: float) -> str:
    """Return a number as text with about three digits: 12.3, 4567, 12.3 k, 1.23 M."""
    units = ((1e12, 1e12, " T"), (1e9, 1e9, " G"), (1e6, 1e6, " M"), (1e4, 1e3, " k"))
    plain = f"{value:.3g}" if value < 999.5 else f"{value:.0f}"
    return next((f"{value / unit:.3g}{suffix}" for least, unit, suffix in units if value >= least), plain)


def size(value: float) -> str:
    """Return a number of bytes as text with three digits: 12.3 kB."""
    units = ((1e9, "GB"), (1e6, "MB"), (1e3, "kB"))
    return next((f"{value / unit:.3g} {suffix}" for unit, suffix in units if value >= unit), f"{value:.0f} bytes")


def clause(resource: str, figures: Mapping[str, float], rates: Rates) -> str:
    """Return a clause that explains a resource's lower bound; `figures`: by name, the counts used for the bound."""
    if resource == "start":
        return "every bound on the work is shorter than an empty launch"
    if resource == "memory":
        kept = f" of {size(figures['stored'])}" if figures["written"] < figures["stored"] else ""
        why = " (the L2 may keep the rest)" if kept else ""
        return (
            f"{size(figures['read'])} must be read at {(rates.read or 0) / 1e9:.0f} GB/s and {size(figures['written'])}"
            f"{kept} written{why} at {(rates.written or 0) / 1e9:.0f} GB/s"
        )
    if resource == "l2":
        part = f", {number(figures['partial'])} of them parts of a sector" if figures["partial"] else ""
        part += f", and {number(figures['local'])} of local memory" if figures["local"] else ""
        again = f"; {number(figures['again'])} asked for again{IN_L1_TEXT}"
        return (
            f"{number(figures['loads'])} sectors that blocks ask for and {number(figures['stores'])} that they write"
            f"{part}{again if figures['again'] > REPEATED_SHARE * figures['loads'] else ''}"
        )
    if resource == "launch":
        return f"{figures['launches']:.0f} launches, {(rates.launch_gap_s or 0) * 1e6:.3g} µs from one to the next"
    if resource == "tensor":
        return " and ".join(f"{number(count)} operations in {name}" for name, count in figures.items())
    if resource in _FIGURE_TEXTS and (resource != "xu" or len(figures) > 1):
        terms = [f"{number(figures[name])} {text}" for name, text in _FIGURE_TEXTS[resource].items() if figures[name]]
        rate = getattr(rates, resource) if resource in ("lsu", "issue", "atomic", "blocks") else None
        text = (", " if resource == "constant" else " and ").join(terms) + (
            f", {number(rate)} a second" if rate else ""
        )
        if more := figures.get("again", 0.0):
            text += f"; up to {number(more)} more where the warps of a block add to one word"
        return text
    name, count = max(figures.items(), key=lambda item: item[1])
    return f"{number(count)} {_PIPE_TEXTS.get(name, 'warp instructions')}, {number(rates.pipes[name])} a second"
