"""Shows comparisons of results files: a table for each problem, a summary, the kernels that only one file has, and
other changes."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass

from cudabench.errors import did_you_mean_file
from cudabench.records.file import ResultsFile
from cudabench.records.launch import dim_text
from cudabench.records.results import DeviceInfo, Result
from cudabench.results import compare, ratio, units
from cudabench.results.columns import NOTHING, Column, markdown_table, percent
from cudabench.results.compare import Comparison, Failure, Row
from cudabench.results.groups import grouped
from cudabench.text import markdown
from cudabench.views import tables
from cudabench.views.console import Console, say
from cudabench.views.export.run import short_names

STYLES = {
    **dict.fromkeys(("wrong", "failed"), "bold red"),
    **dict.fromkeys(("slower", "more", "still wrong", "still failed"), "red"),
    **dict.fromkeys(("mixed", "unclear"), "yellow"),
    **dict.fromkeys(("faster", "fewer", "mended"), "green"),
    **dict.fromkeys(("new", "missing"), "cyan"),
}


@dataclass(frozen=True)
class View:
    """Shows comparisons of the first file with each other file. `names`: the files; `noise`: the value of --noise."""

    names: Sequence[str]
    comparisons: Sequence[Comparison]
    noise: float
    markdown: bool = False

    def first_run(self, out: Console) -> None:
        """Print that the base file does not exist yet, and the command that writes it."""
        base = self.names[0]
        near = did_you_mean_file(base, "*.json", self.names[1:])
        out.print(f"First run: {base} does not exist, so there is nothing to compare with.{near}", soft_wrap=True)
        for name, comparison in zip(self.names[1:], self.comparisons, strict=True):
            kernels = f"{len(comparison.rows)} kernel{'' if len(comparison.rows) == 1 else 's'}"
            right = f"{name}: {comparison.count('new')} of {kernels} right"
            out.print(f"{right}. To compare with it from now on: cp {name} {base}", soft_wrap=True)

    def show(self, out: Console) -> None:
        """Print the tables, and the notes under them."""
        if len(self.comparisons) > 1:
            self._show_all(out)
            return
        (comparison,) = self.comparisons
        old, new = devices_text(comparison.base), devices_text(comparison.new)
        if comparison.scope == "hardware":
            self._line(out, f"base  {old}, {self.names[0]}")
            self._line(out, f"new   {new}, {self.names[1]}")
        else:
            self._line(out, f"{new}: {self.names[0]} -> {self.names[1]}")
        shown = [row for row in comparison.rows if row.base and row.new]
        apart = comparison.scope == "hardware"
        self._tables(out, columns_of(comparison.scope, shown), shown if apart else compare.worst_first(shown))
        for line, style in notes(comparison, self.names, self.noise):
            self._line(out, line, style=style)

    def _show_all(self, out: Console) -> None:
        """Print one table for all files, in which every file is compared with the first file."""
        labels = short_names(self.names)
        scopes = {comparison.scope for comparison in self.comparisons}
        for label, file in zip(labels, [self.comparisons[0].base, *(c.new for c in self.comparisons)], strict=True):
            self._line(out, f"{label}: {devices_text(file)}")
        all_rows = [row for comparison in self.comparisons for row in comparison.rows]
        rows: dict[compare.Key, Row] = {}
        for row in all_rows if "hardware" in scopes else compare.worst_first(all_rows):
            rows.setdefault(row.key, row)
        per_file = [{row.key: row for row in comparison.rows} for comparison in self.comparisons]
        figure = figure_text(scopes)
        # The ratios in the rows are ratios of times. A comparison of hardware shows ratios of speeds, which are the
        # inverse.
        power = -1 if "hardware" in scopes else 1

        def base_cell(row: Row) -> str:
            return next((figure(r.base) for r in (m.get(row.key) for m in per_file) if r and r.base), NOTHING)

        def cell(at: int) -> Callable[[Row], str]:
            def text(row: Row) -> str:
                other = per_file[at].get(row.key)
                if other is None or other.new is None:
                    return NOTHING
                ratio = f" {other.ratio.value**power:.3f}" if other.ratio else ""
                mark = {"slower": " slower", "faster": " faster", "wrong": " WRONG", "failed": " failed"}
                return f"{figure(other.new)}{ratio}{mark.get(other.verdict, '')}"

            return text

        columns = [Column(labels[0], base_cell), *(Column(label, cell(at)) for at, label in enumerate(labels[1:]))]
        if scopes == {"gpu"}:
            columns.append(Column("apart", lambda row: apart_text([m[row.key] for m in per_file if row.key in m])))
        self._tables(out, columns, [*rows.values()])
        if scopes == {"counts"}:
            self._line(out, "global sectors / shared wavefronts / PTX instructions")
            return
        kind, direction = ("speeds", "over") if power < 0 else ("times", "under")
        self._line(out, f"Ratios are of {kind}, over {labels[0]}: {direction} 1 is faster.")
        if scopes == {"gpu"}:
            self._line(out, "Apart: longest over shortest time; if nothing changed, use it as --noise.")

    def _line(self, out: Console, text: str, style: str = "") -> None:
        if self.markdown and style == "bold":
            text = f"**{markdown(text)}**\n"
        say(out, text, style, soft_wrap=self.markdown)

    def _tables(self, out: Console, columns: Sequence[Column[Row]], shown: Sequence[Row]) -> None:
        """Print a table for each problem, then an empty line."""
        for title, rows in by_problem(shown):
            self._line(out, "")
            self._line(out, title, style="bold")
            several = any(row.key.card for row in rows)
            whole = [*START, *([Column("device", lambda row: row.key.card, right=False)] if several else []), *columns]
            if self.markdown:
                for line in markdown_table(whole, rows):
                    out.print(line, soft_wrap=True)
            else:
                kept, _ = tables.fitting(whole, rows, out.width)
                out.print(tables.table(kept, rows, lambda row: STYLES.get(row.verdict, ""), wrap=True))
        self._line(out, "")


def show_failures(
    err: Console, failures: Sequence[Failure], comparisons: Sequence[Comparison], threshold: float | None
) -> None:
    """Print why the comparisons fail, and a warning if the threshold is not applied because the GPUs differ."""
    for failure in failures:
        say(err, f"{failure.message}.", "red", soft_wrap=True)
    for comparison in comparisons if threshold is not None else ():
        base, new = comparison.base.device, comparison.new.device
        if comparison.scope == "hardware" and base and new:
            repair = "; --same-model treats cards with the same name as one" if base.name == new.name else ""
            warning = f"Warning: --fail-on-regression was not applied: the GPUs differ{repair}."
            say(err, warning, "yellow", soft_wrap=True)


# Lines ---------------------------------------------------------------------------------------------------------------


def device_text(device: DeviceInfo | None) -> str:
    """Return a device's name with the start of its UUID and its peak bandwidth."""
    if device is None:
        return "no device"
    uuid = f" ({device.uuid[:12]})" if device.uuid else ""
    return f"{device.name}{uuid}" + (f" peak {device.peak_gbps:.0f} GB/s" if device.peak_gbps else "")


def devices_text(file: ResultsFile) -> str:
    """Return the devices of a file as text. If there are several devices, each name is printed with the device's label,
    such as cuda:1."""
    if len(file.devices) < 2:
        return device_text(file.device)
    return ", ".join(f"{device.label} {device_text(device)}" for device in file.devices)


def notes(comparison: Comparison, names: Sequence[str], noise: float) -> list[tuple[str, str]]:
    """Return the lines under the tables, as (text, style)."""
    rows = comparison.rows
    unproven = [compare.name_of(r.key) for r in rows if r.new and r.new.status == "ok" and not r.new.verification]
    lists = (
        ("Only in", names[1], [compare.name_of(row.key) for row in rows if row.verdict == "new"], "cyan"),
        ("Only in", names[0], [compare.name_of(row.key) for row in rows if row.verdict == "missing"], "cyan"),
        ("Skipped in", names[1], [r.kernel for r in comparison.new.results if r.status == "skipped"], "cyan"),
        ("Unverified in", names[1], unproven, "yellow"),
    )
    legend = (
        f"Ratio: time of new over base, with its {ratio.CONFIDENCE:.0%} interval, which allows two runs to differ by "
        f"{noise * 100:g}% and {ratio.RUN_TO_RUN_S * 1e6:g} µs."
    )
    lines = [
        (winner(comparison) if comparison.scope == "hardware" else "", "bold"),
        (summary(comparison), ""),
        *(
            (f"{compare.name_of(row.key)} unclear: {row.reason}", "yellow")
            for row in rows
            if row.reason and row.verdict == "unclear"
        ),
        *((f"{what} {name}: {', '.join(kernels)}", style) for what, name, kernels, style in lists if kernels),
        *((line, "") for line in code_lines(comparison)),
        (f"Also changed: {', '.join(comparison.changed)}" if comparison.changed else "", ""),
        (legend if comparison.geometric_mean is not None and comparison.scope == "gpu" else "", "dim"),
    ]
    return [(line, style) for line, style in lines if line]


def code_lines(comparison: Comparison) -> list[str]:
    """Return lines that say which kernels have the same machine code in both files.

    If the time of such a kernel changed, the change has another cause.
    """
    known = [row for row in comparison.rows if row.same_code is not None]
    same = [row for row in known if row.same_code]
    if not same:
        return ["Machine code: it differs in every kernel."] if known else []
    names = "all" if len(same) == len(known) > 1 else ", ".join(compare.name_of(row.key) for row in same)
    moved = ", ".join(compare.name_of(row.key) for row in same if row.verdict in ("slower", "faster"))
    because = f"So the code did not change {moved}: compare arguments, card and conditions."
    return [f"Same machine code in both: {names}.", *([because] if moved else [])]


def summary(comparison: Comparison) -> str:
    """Return a sentence with the number of rows for each verdict."""
    if comparison.scope == "hardware":
        return "No verdicts, because the GPUs differ. The ratio is of speeds, new over base: over 1 is faster."
    both = [row for row in comparison.rows if row.base and row.new]
    counted = ", ".join(f"{comparison.count(word)} {word}" for word in compare.ORDER if comparison.count(word))
    mean = comparison.geometric_mean
    mean_text = "" if mean is None or len(both) < 2 else f"; geometric mean of the ratios {mean:.3f}"
    return f"{len(both)} compared: {counted}{mean_text}."


def winner(comparison: Comparison) -> str:
    """Return a sentence that says which of two cards is faster, how much, and in which kernels the other is.

    '' without times or for more than two cards.
    """
    base, new, mean = comparison.base, comparison.new, comparison.geometric_mean
    if base.device is None or new.device is None or mean is None or len(base.devices) + len(new.devices) > 2:
        return ""
    names = [base.device.name, new.device.name]
    if names[0] == names[1]:
        names = ["the base's card", "the new one's"]
    fast, slow = reversed(names) if mean <= 1 else names
    shown = [row for row in comparison.rows if row.verdict == "shown" and row.ratio]
    kernels = f", by the geometric mean of {len(shown)} kernels" if len(shown) > 1 else ""
    factor, against = (1 / mean, 1) if mean <= 1 else (mean, -1)
    if factor < 1.005:
        return f"{fast} and {slow} are equally fast{kernels}."
    behind = [compare.name_of(row.key) for row in shown if row.ratio and row.ratio.value**against > 1]
    ahead = f"; {slow} is ahead in {', '.join(behind)}" if behind else ""
    return f"{fast} is {factor:.2f} times as fast as {slow}{kernels}{ahead}."


def by_problem(rows: Sequence[Row]) -> list[tuple[str, list[Row]]]:
    """Return (title, rows) for each problem: operation, size and element type."""
    groups = grouped(
        (" ".join(filter(None, (row.key.operation, compare.size_text(row.key), row.key.dtype))), row) for row in rows
    )
    return list(groups.items())


# Columns -------------------------------------------------------------------------------------------------------------

START: tuple[Column[Row], ...] = (
    Column("kernel", lambda row: row.key.kernel, right=False),
    Column("block", lambda row: dim_text(row.key.block, 2) if row.key.block[0] else "-", right=False, expendable=1),
)


def columns_of(scope: compare.Scope, rows: Sequence[Row]) -> list[Column[Row]]:
    """Return the columns after START.

    One GPU: the times and their ratio. Simulator: the changed counts. Two GPUs: each GPU's speed, also as fractions of
    the speed of a copy and of the peak bandwidth.
    """
    if scope == "gpu":
        return [
            Column("base", lambda row: time_text(row.base)),
            Column("new", lambda row: time_text(row.new)),
            Column("ratio", lambda row: f"{row.ratio.value:.3f}" if row.ratio else NOTHING),
            Column("interval", lambda row: f"{row.ratio.low:.3f}-{row.ratio.high:.3f}" if row.ratio else NOTHING),
            Column("verdict", verdict_text, right=False),
        ]
    if scope == "counts":
        return [Column("verdict", verdict_text, right=False), Column("what changed", changes_text, right=False)]
    both = [result for row in rows for result in (row.base, row.new) if result]
    # The unit is in the heading only if all values are bandwidths in GB/s.
    unit = " GB/s" if all(result.bandwidth_gbps is not None for result in both) else ""

    def side(name: str, pick: Callable[[Row], Result | None]) -> list[Column[Row]]:
        return [
            Column(f"{name}{unit}", lambda row: speed_text(pick(row)).removesuffix(unit)),
            Column("of copy", lambda row: percent(result.copy_fraction if (result := pick(row)) else None)),
            Column("of peak", lambda row: percent(result.peak_fraction if (result := pick(row)) else None)),
        ]

    return [
        *side("base", lambda row: row.base),
        *side("new", lambda row: row.new),
        Column("ratio", lambda row: f"{1 / row.ratio.value:.2f}" if row.ratio else verdict_text(row)),
    ]


def changes_text(row: Row) -> str:
    """Return a text with one line for each count that changed."""
    return "\n".join(
        f"{count.name} {units.count(count.base)} -> {units.count(count.new)}"
        + (f" ({signed_percent(count.new / count.base - 1)})" if count.base else "")
        for count in row.counts
        if count.new != count.base
    )


def signed_percent(change: float) -> str:
    """Return a fraction as '+300%', '-1.6%' or '+0.050%'.

    Small changes get more digits, so that they do not show as zero.
    """
    size = abs(change) * 100
    return f"{'+' if change >= 0 else '-'}{size:.{0 if size >= 10 else 1 if size >= 0.1 else 3}f}%"


def verdict_text(row: Row) -> str:
    """Return a verdict and how large the change is: '6.0% slower', '2.1x faster'."""
    if row.verdict not in ("slower", "faster") or row.ratio is None:
        return row.verdict.upper() if row.verdict in ("wrong", "failed") else row.verdict
    factor = row.ratio.value if row.verdict == "slower" else 1 / row.ratio.value
    return f"{factor:.2f}x {row.verdict}" if factor >= 1.5 else f"{factor - 1:.1%} {row.verdict}"


def apart_text(rows: Sequence[Row]) -> str:
    """Return, as a percentage, how much longer a kernel's longest time in several files is than its shortest time."""
    results = [result for row in rows for result in (row.base, row.new) if result]
    times = [result.time.median_s for result in results if result.time]
    return f"{max(times) / min(times) - 1:.1%}" if len(times) > 1 and min(times) > 0 else NOTHING


def time_text(result: Result | None) -> str:
    """Return the median time as text, or '-'."""
    return units.seconds(result.time.median_s) if result and result.time else NOTHING


def speed_text(result: Result | None) -> str:
    """Return the bandwidth as text; if it is unknown, the rate of operations; if this is unknown too, the time."""
    if result is None:
        return NOTHING
    if result.bandwidth_gbps is not None:
        return f"{units.digits(result.bandwidth_gbps)} GB/s"
    return f"{units.digits(result.gflops)} GFLOP/s" if result.gflops is not None else time_text(result)


def figure_text(scopes: Collection[str]) -> Callable[[Result | None], str]:
    """Return the function that returns a result's cell in a table of many files: its speed, its time or its counts."""
    if "hardware" in scopes:
        return speed_text
    if "counts" not in scopes:
        return time_text

    def counted(result: Result | None) -> str:
        counts = compare.counts(result) if result else {}
        wanted = ("global sectors", "shared wavefronts", "PTX instructions")
        return " / ".join(units.count(counts[name]) for name in wanted if name in counts) or NOTHING

    return counted
