"""Prints two kernels side by side: what each access costs in both, which accesses changed, and the banks that lanes
use."""

from __future__ import annotations

from collections.abc import Sequence
from difflib import SequenceMatcher

from cudabench.explain import verdict
from cudabench.explain.accesses import by_line, cost, pattern_text, unit
from cudabench.explain.advice import conflict_name
from cudabench.records.results import Access, BankRequest, Result
from cudabench.results import units
from cudabench.views import explanation
from cudabench.views.console import Console, say
from cudabench.views.tables import Head, grid

SAME = 0.02  # two costs that differ by less than this fraction are shown as equal
PICTURES = 8  # at most this many pairs of accesses are drawn
WIDE = 110  # a terminal with at least this many columns shows each access with all its figures
Pair = tuple[Access | None, Access | None]


def show_two_kernels(out: Console, old: Result, new: Result, *, threads: bool, banks: bool) -> None:
    """Print the explanation of two kernels side by side. `threads`: also print each thread's accesses; `banks`: also
    draw the requests to the memory banks."""
    for result in (old, new):
        out.print()
        say(out, explanation.title(result), "bold")
        for text in explanation.changes(result):
            say(out, text, "yellow")
        out.print(explanation.summary(result))
        if result.limits:
            say(out, verdict.line(result), "bold")
    out.print()
    accesses = pairs(by_line(old.access or ()), by_line(new.access or ()))
    print_table(out, old, new, accesses)
    print_changed(out, old, new, accesses)

    def head(result: Result) -> None:
        out.print()
        say(out, result.kernel, "bold")

    for result in (old, new):
        if threads:
            head(result)
            explanation.draw_threads(out, result.threads or ())
        if banks:
            head(result)
            explanation.draw_banks(out, result.banks or (), result.access or ())
    for result in (old, new):
        if result.hazards or (result.verification and result.verification.mismatches):
            head(result)
            if result.hazards:
                explanation.print_hazards(out, result.hazards, result.warnings)
            if result.reason:
                say(out, f"{result.status}: {result.reason}", "red")
    if not old.hazards and not new.hazards:
        explanation.print_hazards(out, ())


def pairs(old: Sequence[Access], new: Sequence[Access]) -> list[Pair]:
    """Return (old, new) for each pair of corresponding accesses, in order.

    `old` or `new` is None if its kernel lacks the access.
    """

    def likeness(row: Access) -> tuple[object, ...]:
        return (row.space, row.op, row.array)

    matched: list[Pair] = []
    matcher = SequenceMatcher(None, [*map(likeness, old)], [*map(likeness, new)], autojunk=False)
    for tag, a, b, c, d in matcher.get_opcodes():
        if tag == "equal":
            matched += zip(old[a:b], new[c:d], strict=True)
        else:
            matched += [(row, None) for row in old[a:b]]
            matched += [(None, row) for row in new[c:d]]
    return matched


def print_table(out: Console, old: Result, new: Result, accesses: Sequence[Pair]) -> None:
    """Print a table with the cost of each access in both kernels, and how it changed."""
    narrow = out.width < WIDE
    rows, styles = [], []
    for pair in accesses:
        access = next(filter(None, pair))
        name = f"{access.space} {access.op}" + (f" {explanation.shortened(access.array, 16)}" if access.array else "")
        word, what = change_text(*pair), unit(access.space)
        styles.append("green" if "fewer" in word else "red" if "more" in word else "yellow" if word else "")
        narrowed = [name, what, *map(_total, pair), word.partition(f" {what}")[0]]
        rows.append(narrowed if narrow else [name, *map(_cell, pair), word])
    names = [Head(explanation.shortened(result.kernel, 12 if narrow else 24), right=narrow) for result in (old, new)]
    heads = [Head("access"), *([Head("counted in")] if narrow else []), *names, Head("")]
    out.print(grid(heads, rows, styles))
    if narrow:
        explanation.print_left_out(out, ("lanes of a warp", "requests", "counts per request"))


def _total(row: Access | None) -> str:
    return "-" if row is None else f"{units.about(row)}{units.count(cost(row).actual)}"


def _cell(row: Access | None) -> str:
    if row is None:
        return "-"
    requests = f"{units.about(row)}{units.count(row.requests)} requests"
    number = f"{units.about(row)}{units.digits(cost(row).per_request or 0, 3)}"
    return f"{number} {unit(row.space)}, {pattern_text(row.pattern)}, {requests}"


def change_text(old: Access | None, new: Access | None) -> str:
    """Return, as text, how the cost of all requests changed from one access to the other; '' if it is the same."""
    if old is None or new is None:
        return "<- only here" if old is None else "<- gone"
    before, after = cost(old).actual, cost(new).actual
    if abs(before - after) <= SAME * max(before, after):
        return ""
    # the table shows counts per request, which may fall where the sum grows
    what = unit(new.space) + (" in all" if old.requests != new.requests else "")
    if after < before:
        return f"<- {units.digits(before / max(after, 1), 2)} times fewer {what}"
    return f"<- {units.digits(after / max(before, 1), 2)} times more {what}"


def print_changed(out: Console, old: Result, new: Result, accesses: Sequence[Pair]) -> None:
    """Print the lines of each changed access and, for shared memory, the bank that each lane uses."""
    changed = [(b, a) for b, a in accesses if change_text(b, a)]
    width = max(len(old.kernel), len(new.kernel))
    drawn: set[object] = set()
    for pair in changed:
        sides = [(result, row, _request(result, row)) for result, row in zip((old, new), pair, strict=True) if row]
        picture = tuple((id(result), units.place_of(row), request and request.passes) for result, row, request in sides)
        if picture in drawn or len(drawn) == PICTURES:
            continue
        drawn.add(picture)
        out.print()
        access = sides[0][1]
        say(out, f"{access.space} {access.op} {access.array or ''}".rstrip(), "bold")
        for result, row, _ in sides:
            line = f"{result.kernel:{width}}  line {units.place_of(row)}: {explanation.plain(row.source)}"
            say(out, explanation.shortened(line, out.width), no_wrap=True)
        for result, _, request in sides:
            if request:
                draw_lanes(out, f"{result.kernel:{width}}", request)
    if not changed:
        out.print()
        out.print("Every access costs the same in both.")


def _request(result: Result, row: Access) -> BankRequest | None:
    """Return that recorded request of an access whose number of wavefronts is nearest to the mean; None if none was
    recorded."""
    if row.space != "shared":
        return None
    requests = [
        r for r in result.banks or () if (units.place_of(r), r.op, r.array) == (units.place_of(row), row.op, row.array)
    ]
    usual = cost(row).per_request or 0
    return min(requests, key=lambda request: abs(len(request.passes) - usual), default=None)


def draw_lanes(out: Console, kernel: str, request: BankRequest) -> None:
    """Print the bank that each lane uses, the row length and elements that lead to these banks, and the bank
    conflict."""
    served = [(lane, bank) for row in request.passes for bank, lanes in enumerate(row) for lane in lanes]
    # sorted by falling bank, so that for a lane with several banks the lowest bank remains
    banks = dict(sorted(served, key=lambda pair: -pair[1]))
    first = [index for index in request.elements if index is not None]
    if request.pitch_bytes and request.pitch_bytes % 4 == 0 and first and len(first[0]) > 1:
        words = request.pitch_bytes // 4
        offset = words % 32
        moves = "in the same bank" if offset == 0 else f"{offset} bank{'s' if offset > 1 else ''} further"
        say(out, f"{kernel}  a row of {request.array} takes {words} words: each row begins {moves}", "dim")
    if len(first) > 2:
        *shown, last = (f"[{', '.join(map(str, index))}]" for index in (*first[:3], first[-1]))
        say(out, f"{kernel}  its lanes take {', '.join(shown)} ... {last}", "dim")
    start = len(kernel) + 2
    halves = [range(32)] if out.width >= start + 5 + 32 * 3 else [range(16), range(16, 32)]
    for lanes_shown in halves:
        say(out, f"{'':{start}}lane " + "".join(f"{lane:>3}" for lane in lanes_shown), "dim")
        say(out, f"{kernel}  bank " + "".join(f"{banks.get(lane, '.'):>3}" for lane in lanes_shown))
    wavefronts = len(request.passes)
    if wavefronts > request.ideal:
        conflicts = f"{conflict_name(wavefronts / request.ideal)}: {wavefronts} wavefronts instead of {request.ideal}"
        say(out, f"{kernel}  {conflicts}", "red")
    else:
        say(out, f"{kernel}  no bank conflict: {wavefronts} wavefront{'' if wavefronts == 1 else 's'}", "green")
