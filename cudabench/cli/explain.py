"""`cudabench explain OPERATION ...`: why a kernel is fast or slow, line by line, from the simulator."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, replace
from functools import partial
from typing import TYPE_CHECKING, Any

import click

from cudabench import operations
from cudabench.cli import options as families
from cudabench.cli.arguments import SpreadCommand
from cudabench.cli.groups import FILE, LazyGroup
from cudabench.errors import UsageError

if TYPE_CHECKING:
    from cudabench.cli.output import Output
    from cudabench.measure.run import Run
    from cudabench.model import Case
    from cudabench.plan.series import Series

MAX_THREADS_SHOWN = 1024  # accesses are drawn one by one: more than a screen or two helps nobody


def make_command(name: str) -> click.Command:
    """Return the explaining form of an operation's command, or of `run` for a file."""
    return explain_file() if name == FILE else explain_command(name)


@click.group(
    "explain",
    cls=LazyGroup,
    sections={
        "Operations": operations.SUMMARIES,
        "Files": {FILE: "Any kernel of your own, with the arguments of 'cudabench run'."},
    },
    make=make_command,
    kind="neither an operation nor a .cu file",
    short_help="Explain a kernel's accesses and hazards line by line.",
)
def command() -> None:
    """Show why kernels are fast or slow, line by line, from the simulator.

    For each access: what it costs, what it would cost at best, the share that is waste, and what would mend it. Takes
    the arguments of the operation's own command.
    """


def explain_command(name: str) -> click.Command:
    """Return the command that explains an operation's kernels."""
    from cudabench.cli.operation import problem_options

    operation = operations.get(name)
    return SpreadCommand(
        name,
        params=[
            *problem_options(operation),
            *families.compiler_options(),
            *picture_options(),
            families.option("--seed", type=click.IntRange(0), default=0, metavar="N", help="Of the random inputs."),
            *families.output_options(),
        ],
        callback=partial(_explain, name),
        help=f"Explain the kernels of {name}: {operation.summary}.",
        context_settings={"help_option_names": ["-h", "--help"]},
    )


def explain_file() -> click.Command:
    """Return the command that explains kernels of a user's file; it takes the arguments of `run`."""
    from cudabench.cli import run

    return SpreadCommand(
        FILE,
        params=[
            *run.problem_options(),
            *families.compiler_options(),
            *picture_options(),
            *(param for param in families.baseline_options() if param.name == "seed"),
            *families.output_options(),
        ],
        callback=_explain_file,
        help="Explain kernels of FILE.cu; 'cudabench run --help' tells how arguments are given.",
        context_settings={"help_option_names": ["-h", "--help"]},
    )


def picture_options() -> list[click.Parameter]:
    """Return what is drawn beside the table."""
    option = families.option
    return [
        option("--threads", is_flag=True, help="Show what each thread reads and writes (small sizes)."),
        option("--banks", is_flag=True, help="Draw the 32 banks as the first warp uses them."),
    ]


def _explain(name: str, **given: Any) -> int:
    """Explain an operation's kernels and return the exit code."""
    from cudabench.cli.operation import request_of
    from cudabench.plan import cases
    from cudabench.plan.series import Series

    operation = operations.get(name)
    request = request_of(operation, {**given, "device": simulated(given["device"])})
    series = Series(partial(operations.get, name), tuple(cases.build(operation, request)))
    return explain([series], asdict(request), given)


@click.pass_context
def _explain_file(ctx: click.Context, /, **given: Any) -> int:
    """Explain kernels of a file and return the exit code."""
    from cudabench.cli import run

    series, record = run.series_of(ctx, given)
    return explain(series, record, given)


def explain(series: Sequence[Series], request: dict[str, Any], given: dict[str, Any]) -> int:
    """Simulate all series, show the explanations and return the exit code."""
    from cudabench import devices
    from cudabench.cli import output as outputs
    from cudabench.cli.operation import exit_code
    from cudabench.measure.run import Run

    choice = devices.choose(simulated(given["device"]))
    output = outputs.Output.of(given["json_path"], given["quiet"])
    if given["threads"]:
        for one in series:
            refuse_large(one.cases)
    run = Run(
        series,
        [choice],
        replace(families.settings(given, simulated=True), cpu=False),
        request,
        path=output.path,
        listener=outputs.Screen(output),
        trace=given["threads"] or given["banks"],
    )
    outputs.carry_out(run, output, run.collect, partial(_show, threads=given["threads"], banks=given["banks"]))
    return exit_code(run.file.results, {}, outputs.say)


def _show(run: Run, output: Output, *, threads: bool, banks: bool) -> None:
    """Print the explanation of each kernel."""
    if output.quiet:
        return
    from cudabench.render import console, explanation

    out = console.tables(output.to_stdout)
    for result in run.file.results:
        explanation.show(out, result, threads=threads, banks=banks)


def simulated(device: str, verb: str = "explain") -> str:
    """Return the simulator for `auto`, also where there is a GPU; refuse a GPU, which cannot do what the verb says."""
    if device == "auto":
        return "sim"
    if device == "all" or device.startswith("cuda"):
        raise UsageError(f"--device {device} cannot {verb}, only the simulator sees accesses: use sim or sim:sm_90.")
    return device


def refuse_large(planned: Sequence[Case]) -> None:
    """Raise UsageError where --threads would print more than can be read."""
    for case in planned:
        if case.skip_reason is None:
            threads = 1
            for number in (*case.grid, *case.block):
                threads *= number
            if threads > MAX_THREADS_SHOWN:
                raise UsageError(
                    f"--threads would show {threads} threads of {case.kernel}; it shows {MAX_THREADS_SHOWN} at most: "
                    "use a smaller --size, such as 3 4, and a smaller --block, such as 4 4."
                )
