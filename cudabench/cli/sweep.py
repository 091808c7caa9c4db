"""`cudabench sweep OPERATION --kernel K`: one kernel over every sensible block, the best ones measured again."""

from __future__ import annotations

from dataclasses import asdict
from functools import partial
from typing import TYPE_CHECKING, Any

import click

from cudabench import operations
from cudabench.cli.groups import LazyGroup
from cudabench.errors import EXIT_FAILED, EXIT_OK, EXIT_WRONG

if TYPE_CHECKING:
    from cudabench.cli.output import Output
    from cudabench.measure.run import Run
    from cudabench.measure.sweep import Final, Plan
    from cudabench.model import Result

HELP = """Measure one kernel of OPERATION with every sensible block, and the best ones again, in turns.

\b
  cudabench sweep transpose --kernel smem-pad
  cudabench sweep transpose --kernel naive-row --block 8:64 4:32
  cudabench sweep transpose --kernel naive-row --device sim --size 512

Blocks are ranges: 32, 8:64 (doubling), 8:64:8 (steps of 8), 8,16,32. In the simulator the sweep is over its counts.
"""

REPLACED = ("words", "kernels", "block", "grid")  # options of an operation that a sweep has its own of, or none


def sweep_command(name: str) -> click.Command:
    """Return the sweep of an operation: its own options, with ranges of blocks for the block."""
    from cudabench.cli import complete, options
    from cudabench.cli.arguments import SpreadCommand
    from cudabench.cli.operation import problem_options
    from cudabench.results.thresholds import THRESHOLDS

    operation = operations.get(name)
    dims = operation.block_dimensions
    return SpreadCommand(
        name,
        params=[
            options.option(
                "-k",
                "--kernel",
                "kernel",
                required=True,
                metavar="NAME",
                help="One kernel: name or id.",
                shell_complete=complete.kernels(operation),
            ),
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
            *options.limits_options(timed=False),
            *options.output_options(),
        ],
        callback=partial(_run, name),
        help=f"Measure one kernel of {name} with every sensible block, or those of --block.",
        context_settings={"help_option_names": ["-h", "--help"]},
    )


@click.group(
    "sweep",
    cls=LazyGroup,
    help=HELP,
    sections={"Operations": operations.SUMMARIES},
    make=sweep_command,
    kind="no operation",
    subcommand_metavar="OPERATION --kernel NAME [OPTIONS]",
    context_settings={"help_option_names": ["-h", "--help"]},
)
def command() -> None:
    """Carry the operations; the help text is HELP."""


def _run(name: str, kernel: str, axes: tuple[str, ...] | str | None, **given: Any) -> int:
    """Sweep, show the map and the best blocks, and return the exit code."""
    from cudabench import devices
    from cudabench.cli import options
    from cudabench.cli import output as outputs
    from cudabench.cli.operation import request_of
    from cudabench.measure import sweep
    from cudabench.measure.run import Run
    from cudabench.plan.series import Series

    operation = operations.get(name)
    given["device"] = options.on_device(given)
    given |= {"words": (), "kernels": (kernel,), "block": None, "grid": None}
    request = request_of(operation, given)
    output = outputs.Output.of(given["json_path"], given["quiet"], report_path=given["report_path"])
    ranges = [sweep.axis(text) for text in ((axes,) if isinstance(axes, str) else axes or ())]
    plan = sweep.plan(operation, request, sweep.blocks(operation.block_dimensions, ranges))
    choice = devices.choose(given["device"])
    settings = options.settings(given, simulated=choice.kind == "sim")
    run = Run(
        [Series(partial(operations.get, name), plan.cases)],
        [choice],
        sweep.coarse(settings),
        asdict(request),
        path=output.path,
        listener=outputs.Screen(output),
        record=bool(output.report),
        card=options.priced(given, choice),
    )
    run.note(
        {
            "min_time": settings.min_time,
            "max_time": settings.max_time,
            "sweep": [list(case.block) for case in plan.cases],
        }
    )
    finals: list[Final] = []

    def both_passes() -> None:
        run.collect()
        finals.extend(sweep.second_pass(run, plan, settings))

    outputs.carry_out(run, output, both_passes, partial(_show, plan=plan, finals=finals))
    return _exit_code(run.file.results)


def _exit_code(results: list[Result]) -> int:
    """Return 3 where a block gave a wrong result; 1 where none ran: a block that fails alone is one not to take."""
    if any(result.status == "wrong" for result in results):
        return EXIT_WRONG
    return EXIT_OK if any(result.status == "ok" for result in results) else EXIT_FAILED


def _show(run: Run, output: Output, *, plan: Plan, finals: list[Final]) -> None:
    """Print the map and the best blocks."""
    if output.quiet or run.file.device is None:
        return
    from cudabench.render import console, heatmap

    (outcome,) = run.outcomes
    heatmap.report(
        console.tables(output.to_stdout),
        heatmap.Swept(
            outcome.operation, run.file.device, outcome.settings, tuple(run.file.results), plan.refused, finals
        ),
    )
