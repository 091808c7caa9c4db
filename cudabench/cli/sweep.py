"""`cudabench sweep OPERATION --kernel K`: one kernel over every sensible block, the best ones measured again."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import click

from cudabench import operations
from cudabench.errors import EXIT_FAILED, EXIT_OK, EXIT_WRONG, did_you_mean

if TYPE_CHECKING:
    from cudabench.cli.report import Report
    from cudabench.measure.sweep import Final, Plan
    from cudabench.model import Operation, Result, Settings

HELP = """Measure one kernel of OPERATION with every sensible block, and the best ones again, in turns.

\b
  cudabench sweep transpose --kernel smem-pad
  cudabench sweep transpose --kernel naive-row --block 8:64 4:32
  cudabench sweep transpose --kernel naive-row --device sim --size 512

Blocks are ranges: 32, 8:64 (doubling), 8:64:8 (steps of 8), 8,16,32. In the simulator the sweep is over its counts.
"""

REPLACED = ("words", "kernels", "block", "grid")  # options of an operation that a sweep has its own of, or none


class Sweeps(click.Group):
    """The operations as commands of `sweep`, made when one is used."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the operations."""
        return list(operations.SUMMARIES)

    def get_command(self, ctx: click.Context, name: str) -> click.Command | None:
        """Return the sweep of an operation."""
        return sweep_command(name) if name in operations.SUMMARIES else None

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Return the command of the operation that is named, or suggest one."""
        if args and args[0] not in operations.SUMMARIES and not args[0].startswith("-"):
            known = list(operations.SUMMARIES)
            raise click.UsageError(
                f"'{args[0]}' is no operation; there are {', '.join(known)}.{did_you_mean(args[0], known)}"
            )
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the operations from their registry, so that help imports none."""
        with formatter.section("Operations"):
            formatter.write_dl(list(operations.SUMMARIES.items()))


@click.group(
    "sweep",
    cls=Sweeps,
    help=HELP,
    subcommand_metavar="OPERATION --kernel NAME [OPTIONS]",
    context_settings={"help_option_names": ["-h", "--help"]},
)
def command() -> None:
    """Carry the operations; the help text is HELP."""


def sweep_command(name: str) -> click.Command:
    """Return the sweep of an operation: its own options, with ranges of blocks for the block."""
    from cudabench.cli import options
    from cudabench.cli.arguments import SpreadCommand
    from cudabench.cli.operation import problem_options
    from cudabench.results.thresholds import THRESHOLDS

    operation = operations.get(name)
    dims = operation.block_dimensions
    return SpreadCommand(
        name,
        params=[
            options.option("-k", "--kernel", "kernel", required=True, metavar="NAME", help="One kernel: name or id."),
            options.option(
                "-b",
                "--block",
                "axes",
                nargs=dims,
                metavar=" ".join(("XS", "YS", "ZS")[:dims]),
                help="Blocks, a range each: 32, 8:64, 8:64:8, 8,16,32.",
            ),
            *(p for p in problem_options(operation) if p.name not in REPLACED),
            *options.compiler_options(),
            *(p for p in options.timing_options() if p.name not in THRESHOLDS),
            *(p for p in options.baseline_options() if p.name == "seed"),
            *options.output_options(),
        ],
        callback=partial(_run, name),
        help=f"Measure one kernel of {name} with every sensible block, or those of --block.",
        context_settings={"help_option_names": ["-h", "--help"]},
    )


def _run(name: str, kernel: str, axes: tuple[str, ...] | str | None, **given: Any) -> int:
    """Sweep, show the map and the best blocks, and return the exit code."""
    from cudabench import devices
    from cudabench.cli import options
    from cudabench.cli.operation import request_of
    from cudabench.cli.report import Output, Report
    from cudabench.measure import sweep

    operation = operations.get(name)
    given |= {"words": (), "kernels": (kernel,), "block": None, "grid": None}
    request = request_of(operation, given)
    output = Output.of(given["json_path"], given["quiet"])
    ranges = [sweep.axis(text) for text in ((axes,) if isinstance(axes, str) else axes or ())]
    plan = sweep.plan(operation, request, sweep.blocks(operation.block_dimensions, ranges))
    choice = devices.choose(given["device"])
    settings = options.settings(given)
    report = Report(
        operation,
        plan.cases,
        choice,
        sweep.coarse(settings),
        request,
        output,
    )
    report.file.settings = {
        **report.file.settings,
        "kernels": [plan.cases[0].kernel],
        "min_time": settings.min_time,
        "max_time": settings.max_time,
        "sweep": [list(case.block) for case in plan.cases],
    }
    finals: list[Final] = []
    try:
        report.collect(partial(operations.get, name))
        finals = _again(report, plan, operation, settings)
    finally:
        report.deliver()
        _show(report, plan, finals)
    return _exit_code(report.file.results)


def _again(report: Report, plan: Plan, operation: Operation, settings: Settings) -> list[Final]:
    """Measure the best blocks again, in turns, and put what comes out in the place of the first results."""
    from cudabench.measure import session, sweep
    from cudabench.render.progress import Progress

    chosen = sweep.finalists(report.file.results)
    if not chosen:
        return []
    by_block = {case.block: case for case in plan.cases}
    again = [by_block[result.block] for result in chosen]
    done = 0
    with Progress(len(again) * sweep.ROUNDS, shown=not report.output.quiet) as progress:

        def working(now: session.Working) -> None:
            progress.update(done, "the best again", now.phase, now.fraction)

        def run(cases: Any) -> Any:
            nonlocal done
            make = partial(operations.get, operation.name)
            for event in session.run(report.choice, make, cases, sweep.fine(settings), progress=working):
                done += isinstance(event, session.Finished)
                yield event

        finals = sweep.again(run, again)
    for final in finals:
        at = next(i for i, r in enumerate(report.file.results) if r.block == final.result.block)
        report.file.results[at] = final.result
    if report.output.path:
        report.file.write(report.output.path)
    return finals


def _exit_code(results: list[Result]) -> int:
    """Return 3 where a block gave a wrong result; 1 where none ran: a block that fails alone is one not to take."""
    if any(result.status == "wrong" for result in results):
        return EXIT_WRONG
    return EXIT_OK if any(result.status == "ok" for result in results) else EXIT_FAILED


def _show(report: Report, plan: Plan, finals: list[Final]) -> None:
    if report.output.quiet or report.file.device is None:
        return
    from cudabench.render import console, heatmap

    heatmap.report(
        console.tables(report.output.to_stdout),
        heatmap.Swept(
            report.operation, report.file.device, report.settings, tuple(report.file.results), plan.refused, finals
        ),
    )
