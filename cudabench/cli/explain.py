"""`cudabench explain OPERATION ...`: why a kernel is fast or slow, line by line, from the simulator."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict
from functools import partial
from typing import TYPE_CHECKING, Any

import click

from cudabench import operations
from cudabench.cli import options as families
from cudabench.cli.arguments import SpreadCommand
from cudabench.errors import UsageError, did_you_mean

if TYPE_CHECKING:
    from cudabench.model import Case, Operation

FILE = "FILE.cu"
MAX_THREADS_SHOWN = 1024  # accesses are drawn one by one: more than a screen or two helps nobody


class Explain(click.Group):
    """The group of what can be explained: every operation, and any .cu file."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the operations."""
        return list(operations.SUMMARIES)

    def get_command(self, ctx: click.Context, name: str) -> click.Command | None:
        """Return the explaining form of an operation's command, or of `run` for a file."""
        if name in operations.SUMMARIES:
            return explain_command(name)
        return explain_file() if name == FILE else None

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Return the command for the first argument, a file's with all arguments, or suggest one."""
        if args and args[0].endswith(".cu"):
            return FILE, self.get_command(ctx, FILE), args
        if args and args[0] not in operations.SUMMARIES and not args[0].startswith("-"):
            raise click.UsageError(
                f"'{args[0]}' is neither an operation nor a .cu file; there are {', '.join(operations.SUMMARIES)}."
                f"{did_you_mean(args[0], operations.SUMMARIES)}"
            )
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the operations from the registry, so that help imports none."""
        with formatter.section("Operations"):
            formatter.write_dl(list(operations.SUMMARIES.items()))
        with formatter.section("Files"):
            formatter.write_dl([(FILE, "Any kernel of your own, with the arguments of 'cudabench run'.")])


@click.group("explain", cls=Explain, short_help="Explain a kernel's accesses and hazards line by line.")
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

    operation = operations.get(name)
    request = request_of(operation, {**given, "device": simulated(given["device"])})
    return explain([(partial(operations.get, name), cases.build(operation, request))], asdict(request), given)


@click.pass_context
def _explain_file(ctx: click.Context, /, **given: Any) -> int:
    """Explain kernels of a file and return the exit code."""
    from cudabench.cli import run

    parts, record = run.parts_of(ctx, given)
    return explain([(part.make, part.cases) for part in parts], record, given)


def explain(
    parts: Sequence[tuple[Callable[[], Operation], Sequence[Case]]], record: dict[str, Any], given: dict[str, Any]
) -> int:
    """Simulate each part, show the explanations and return the exit code."""
    from cudabench import devices
    from cudabench.cli.operation import exit_code
    from cudabench.cli.report import Output, Report
    from cudabench.model import Settings

    choice = devices.choose(simulated(given["device"]))
    output = Output.of(given["json_path"], given["quiet"])
    settings = Settings(cpu=False)
    reports: list[Report] = []
    for make, planned in parts:
        if given["threads"]:
            refuse_large(planned)
        if reports:
            report = reports[0].followed(make(), planned, settings)
        else:
            report = Report(
                make(),
                planned,
                choice,
                settings,
                record,
                output,
                trace=given["threads"] or given["banks"],
            )
        reports.append(report)
        report.collect(make)
    reports[0].deliver()
    for report in reports:
        report.explain(threads=given["threads"], banks=given["banks"])
    return exit_code(reports[0].file.results, {}, reports[0].say)


def simulated(device: str) -> str:
    """Return the simulator for `auto`, also where there is a GPU; refuse a GPU, which cannot explain."""
    if device == "auto":
        return "sim"
    if device.startswith("cuda"):
        raise UsageError(f"--device {device} cannot explain, only the simulator sees accesses: use sim or sim:sm_90.")
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
