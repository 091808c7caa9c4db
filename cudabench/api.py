"""The commands as functions, for scripts and notebooks. Each function returns the records that its command writes.

    import cudabench

    ladder = cudabench.bench("transpose", ["naive-row", "smem", "smem-pad"])
    print(ladder["smem-pad"].bandwidth_gbps, ladder.ok)
    ladder.write("r.json")

A notebook shows the returned objects as tables, and `picture()` as a drawing. A request that cannot run raises a
subclass of `CudabenchError`; the error's `exit_code` is the exit code that the command would have. If a kernel fails or
its output is wrong, the call returns: the kernel's result has that status, and `ok` is false.
"""

from __future__ import annotations

import html
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, Literal

from cudabench import devices, operations
from cudabench.cards import load as cards
from cudabench.errors import UsageError, did_you_mean
from cudabench.measure.provenance import COMMAND
from cudabench.measure.run import Run
from cudabench.plan import cases
from cudabench.plan.series import Series
from cudabench.records import file as files
from cudabench.records.launch import dim3
from cudabench.records.plan import Settings, settings_for
from cudabench.records.results import Result, Watch
from cudabench.results import compare as comparing
from cudabench.system import outputs
from cudabench.userkernel.request import UserRequest
from cudabench.views.console import captured

Words = str | int | Sequence[str | int]
Values = Mapping[str, object]


@dataclass(frozen=True)
class Picture:
    """A drawing that a notebook shows; `svg` is the text of the SVG file."""

    svg: str

    def _repr_svg_(self) -> str:
        return self.svg

    def write(self, path: str | os.PathLike[str]) -> None:
        """Write the SVG file. Raises CudabenchError if it cannot be written."""
        outputs.write_whole(Path(path), self.svg.encode())


class Text(str):
    """A text for a terminal. A notebook shows the text unchanged, in a fixed-width font."""

    __slots__ = ()

    def _repr_html_(self) -> str:
        return f'<pre style="line-height:1.25;white-space:pre;overflow-x:auto">{html.escape(self)}</pre>'


class Printed:
    """Base class of the returned objects that have a `text`, which the command prints and a notebook shows."""

    text: str

    def __str__(self) -> str:
        return self.text

    def _repr_html_(self) -> str:
        return Text(self.text)._repr_html_()


@dataclass(frozen=True)
class Report(Printed):
    """The outcome of a run. `file`: the content of its results file; `text`: what the command prints.

    `report["smem-pad"]` is the result of a kernel; if the kernel ran with several sizes or blocks, the first result.
    """

    file: files.ResultsFile
    text: str

    @property
    def results(self) -> list[Result]:
        """The results, in the order in which the kernels ended; `docs/results.md` describes each key."""
        return self.file.results

    @property
    def ok(self) -> bool:
        """Whether at least one kernel ran, and every kernel that ran has correct output and no hazard."""
        return any(r.status == "ok" for r in self.results) and all(r.status in ("ok", "skipped") for r in self.results)

    def __getitem__(self, kernel: str) -> Result:
        """Return the first result of a kernel. Raises KeyError, which suggests a similar name, if there is no
        result."""
        if first := next((result for result in self.results if result.kernel == kernel), None):
            return first
        raise KeyError(f"no result of {kernel}.{did_you_mean(kernel, {result.kernel for result in self.results})}")

    def document(self) -> dict[str, Any]:
        """Return the content of a file written with `--json`, as dicts, lists, texts and numbers."""
        return self.file.document()

    def write(self, path: str | os.PathLike[str]) -> None:
        """Write the results file. Raises CudabenchError if it cannot be written."""
        self.file.write(Path(path))

    def picture(self, kind: Literal["ladder", "size", "sweep"] | None = None) -> Picture:
        """Return the drawing that `cudabench plot` makes of a ladder, of the times over the sizes, or of a sweep.

        `kind` is by default the kind of drawing that fits the results. Raises CudabenchError if matplotlib is not
        installed or the results cannot be drawn.
        """
        from cudabench.views import plot

        return Picture(plot.render(plot.draw([self.file], ["results"], kind), "svg").decode())

    def explanation(self, kernel: str | None = None, *, threads: bool = False, banks: bool = False) -> Text:
        """Return the accesses, hazards and advice that `cudabench explain` prints, for one kernel or for all.

        `threads` and `banks` add drawings of the accesses that `simulate(watch=...)` kept, by thread or by bank. Raises
        UsageError for a result that does not come from the simulator.
        """
        from cudabench.views import explanation

        chosen = [self[kernel]] if kernel else self.results
        timed = next((result for result in chosen if result.access is None and result.status != "skipped"), None)
        if timed:
            raise UsageError(f"{timed.kernel} was not simulated, and only the simulator sees accesses: use simulate().")

        def show(out: Any) -> None:
            for result in chosen:
                explanation.show_kernel(out, result, threads=threads, banks=banks)

        return Text(captured(show))


@dataclass(frozen=True)
class Compared(Printed):
    """A comparison of two runs: `rows` has a verdict on each kernel, `text` is what `cudabench compare` prints."""

    comparison: comparing.Comparison
    text: str

    @property
    def rows(self) -> Sequence[comparing.Row]:
        """One row for each kernel: the verdict, both results, and the ratio of their times with its interval."""
        return self.comparison.rows

    def failures(self, threshold: float | None = None, *, strict: bool = False) -> list[comparing.Failure]:
        """Return the failures that `--fail-on-regression` reports; `threshold` is a fraction, 0.05 for 5%."""
        return comparing.failures(self.comparison, threshold, strict)


# Running --------------------------------------------------------------------------------------------------------------


def bench(
    operation: str,
    kernels: Words = (),
    *,
    block: Sequence[int] | int | None = None,
    grid: Sequence[int] | int | None = None,
    size: Sequence[int] | int | None = None,
    dtype: str | None = None,
    source: str | os.PathLike[str] | None = None,
    defines: Values | None = None,
    device: str = "auto",
    seed: int = 0,
    options: Values | None = None,
    watch: Watch = False,
    **measuring: Any,
) -> Report:
    """Run kernels of an operation, as `cudabench OPERATION` does.

    `kernels`: names, ids or globs; without any, the whole ladder runs. `block`, `grid` and `size`: numbers of threads,
    blocks and elements; block and grid have x first. `options`: options that only this operation has, as in `{"radius":
    3}`.

    `measuring`: fields of `cudabench.records.plan.Settings`: cache; min_time, max_time and timeout in seconds;
    min_samples; cpu; cpu_threads; jobs. `jobs` is the number of processes in which simulated kernels run: 1, the
    default, means the caller's process; None means as many processes as the command uses.

    Raises CudabenchError and its subclasses: UsageError for an invalid request, DeviceUnusable for a missing device.
    """
    work = _operation(operation)
    request = cases.Request(
        kernels=tuple(str(word) for word in ([kernels] if isinstance(kernels, (str, int)) else kernels)),
        block=_numbers(block, work.block_dimensions, "block"),
        grid=_numbers(grid, work.block_dimensions, "grid"),
        size=_numbers(size, len(work.dimensions), "size"),
        dtype=dtype or next(iter(work.dtypes)),
        seed=seed,
        source=os.fspath(source) if source else None,
        defines={name: str(value) for name, value in (defines or {}).items()},
        options=_options(work, options or {}),
    )
    if request.size is None and work.size(request.options) is None and devices.simulates(device):
        request = replace(request, size=work.simulated_size)
    series = Series(partial(operations.get, operation), tuple(cases.build(work, request)))
    return _report([series], devices.choose_all(device), asdict(request), watch, measuring)


def simulate(operation: str, kernels: Words = (), *, device: str = "sim", **given: Any) -> Report:
    """Run kernels in the simulator, even on a machine with a GPU; takes the arguments of `bench`.

    `watch=(0, 0)` keeps the memory accesses of block 0, warp 0, for `explanation(threads=True, banks=True)`;
    `watch=True` keeps the accesses of all warps.
    """
    if not device.startswith("sim"):
        raise UsageError(f"device {device} is not a simulator: use sim or sim:sm_90, or bench().")
    return bench(operation, kernels, device=device, **{"cpu": False, **given})


def run(
    file: str | os.PathLike[str],
    kernel: Words = (),
    *,
    grid: object = None,
    block: object = None,
    args: Values | None = None,
    expect: Values | None = None,
    bytes: object = None,
    flops: object = None,
    shared: object = None,
    rtol: float | None = None,
    atol: float | None = None,
    constants: Values | None = None,
    defines: Values | None = None,
    include: Sequence[str] = (),
    std: str = "",
    device: str = "auto",
    seed: int = 0,
    watch: Watch = False,
    **measuring: Any,
) -> Report:
    """Run kernels of a .cu file, as `cudabench run` does.

    `args`, `expect` and `constants` map a name to what the command line has after `NAME=`. The names in `args` are the
    names of the kernel's parameters: `{"n": 1 << 20, "x": "float32[n]:random"}`. `measuring` means the same as in
    `bench`, and the same errors are raised.
    """
    from cudabench.userkernel import plan

    request = UserRequest(
        file=os.fspath(file),
        kernels=tuple(str(word) for word in ([kernel] if isinstance(kernel, (str, int)) else kernel)),
        grid=_dim(grid),
        block=_dim(block),
        arguments=_pairs(args),
        expect=_pairs(expect),
        constants=_pairs(constants),
        bytes=None if bytes is None else str(bytes),
        flops=None if flops is None else str(flops),
        shared=None if shared is None else str(shared),
        rtol=rtol,
        atol=atol,
        defines={name: str(value) for name, value in (defines or {}).items()},
        include=tuple(include),
        std=std,
        seed=seed,
    )
    return _report(plan.series([request]), [devices.choose(device)], asdict(request), watch, measuring)


def sweep(
    operation: str,
    kernel: str,
    blocks: Iterable[Sequence[int] | int] = (),
    *,
    size: Sequence[int] | int | None = None,
    dtype: str | None = None,
    device: str = "auto",
    options: Values | None = None,
    **measuring: Any,
) -> Report:
    """Run a kernel with the given blocks, or with all usual block sizes, as the first pass of `cudabench sweep` does.

    The report's `picture()` is the map of times over block sizes. On a GPU, `cudabench sweep` then measures the best
    blocks again; a script does this by calling `bench` with them.
    """
    from cudabench.measure import sweep as sweeping
    from cudabench.plan.space import blocks as sensible_blocks
    from cudabench.views import sweep as view

    work = _operation(operation)
    choice = devices.choose(device)
    request = cases.Request(
        kernels=(kernel,),
        size=_numbers(size, len(work.dimensions), "size") or (work.simulated_size if choice.kind == "sim" else None),
        dtype=dtype or next(iter(work.dtypes)),
        options=_options(work, options or {}),
    )
    points = [dim3(_numbers(measured_run, work.block_dimensions, "block") or ()) for measured_run in blocks]
    plan = sweeping.plan_points(work, request, points or sensible_blocks(work.block_dimensions))
    settings = _settings(measuring, choice.kind == "sim")
    series = Series(partial(operations.get, operation), plan.cases)
    measured_run = _collected([series], [choice], asdict(request), False, sweeping.coarse_settings(settings))
    times = {"min_time": settings.min_time, "max_time": settings.max_time}
    measured_run.note({**times, "sweep": plan.settings_record(asdict(request))})

    def show(out: Any) -> None:
        (outcome,), device = measured_run.outcomes, measured_run.file.device
        if device:
            results = tuple(measured_run.file.results)
            swept = view.SweepResult(outcome.operation, device, outcome.settings, results, plan.refused, ())
            view.show_sweep(out, swept, map_of_blocks=True)

    return Report(measured_run.file, captured(show))


# Files ----------------------------------------------------------------------------------------------------------------


def load(path: str | os.PathLike[str]) -> Report:
    """Read a results file and return its report. Raises CudabenchError if it is not a results file."""
    from cudabench.views.export import markdown
    from cudabench.views.export.run import Run as Exported

    file = files.load(Path(path))
    return Report(file, markdown.text([Exported(file, os.fspath(path))]))


def compare(
    base: Report | str | os.PathLike[str],
    new: Report | str | os.PathLike[str],
    *,
    threshold: float | None = None,
    noise: float = 0.015,
    same_model: bool = False,
) -> Compared:
    """Compare each kernel of two runs, as `cudabench compare` does: it is faster, slower, the same or undecided.

    `noise`: how much the times of one unchanged kernel differ between two runs. `noise` and `threshold` are fractions:
    0.05 for 5%.
    """
    from cudabench.views import comparison

    old, later = (report if isinstance(report, Report) else load(report) for report in (base, new))
    names = [name if isinstance(name, (str, os.PathLike)) else word for name, word in ((base, "base"), (new, "new"))]
    compared = comparing.compare(old.file, later.file, threshold=threshold, run_to_run=noise, same_model=same_model)
    view = comparison.View([os.fspath(name) for name in names], [compared], noise)
    return Compared(compared, captured(view.show))


# Shared helpers -------------------------------------------------------------------------------------------------------


def _report(
    series: Sequence[Series],
    chosen: Sequence[devices.Choice],
    request: Mapping[str, Any],
    watch: Watch,
    measuring: Mapping[str, Any],
) -> Report:
    finished = _collected(series, chosen, request, watch, _settings(measuring, chosen[0].kind == "sim"))

    def show(out: Any) -> None:
        from cudabench.views import table

        for outcome in finished.outcomes:
            cpus = [outcome.cpu] if outcome.cpu else []
            table.show_run(out, out, outcome.operation, finished.file.devices, outcome.results, cpus, outcome.settings)

    return Report(finished.file, captured(show))


def _collected(
    series: Sequence[Series],
    chosen: Sequence[devices.Choice],
    request: Mapping[str, Any],
    watch: Watch,
    settings: Settings,
) -> Run:
    token = COMMAND.set(("(from Python)",))
    try:
        card = cards.default_card(chosen[0].architecture) if chosen[0].kind == "sim" else None
        collected = Run(series, chosen, settings, request, trace=watch, cards=(card,) if card else ())
        collected.collect()
    finally:
        COMMAND.reset(token)
    return collected


def _operation(name: str) -> Any:
    if name not in operations.SUMMARIES:
        raise UsageError(f"'{name}' is not an operation.{did_you_mean(name, operations.SUMMARIES)}")
    return operations.get(name)


def _settings(measuring: Mapping[str, Any], simulated: bool) -> Settings:
    unknown = next((key for key in measuring if not hasattr(Settings, key)), None)
    if unknown:
        raise UsageError(f"'{unknown}' is not an argument.{did_you_mean(unknown, asdict(Settings()))}")
    return settings_for(simulated, **measuring)


def _options(work: Any, values: Values) -> dict[str, Any]:
    defaults = {option.name: option.default for option in work.options}
    unknown = next((name for name in values if name not in defaults), None)
    if unknown:
        raise UsageError(f"{work.name} lacks an option '{unknown}'.{did_you_mean(unknown, defaults)}")
    return {**defaults, **values}


def _numbers(given: Sequence[int] | int | None, most: int, name: str) -> tuple[int, ...] | None:
    if given is None:
        return None
    numbers = (given,) if isinstance(given, int) else tuple(given)
    if not 1 <= len(numbers) <= most or not all(isinstance(number, int) and number > 0 for number in numbers):
        raise UsageError(f"{name} {given!r} is not 1 to {most} positive whole numbers.")
    return numbers


def _dim(given: object) -> str | None:
    return ",".join(map(str, given)) if isinstance(given, (tuple, list)) else None if given is None else str(given)


def _pairs(given: Values | None) -> tuple[str, ...]:
    return tuple(f"{name}={value}" for name, value in (given or {}).items())
