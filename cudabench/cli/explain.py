"""`cudabench explain OPERATION ...`: why a kernel is fast or slow, line by line, from the simulator."""

from __future__ import annotations

from functools import partial
from typing import Any

import click

from cudabench import operations
from cudabench.cli import options as families
from cudabench.cli.arguments import SpreadCommand
from cudabench.errors import UsageError, did_you_mean

MAX_THREADS_SHOWN = 1024  # accesses are drawn one by one: more than a screen or two helps nobody


class Explain(click.Group):
    """The group of what can be explained: every operation, and any .cu file."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the operations."""
        return list(operations.SUMMARIES)

    def get_command(self, ctx: click.Context, name: str) -> click.Command | None:
        """Return the explaining form of an operation's command."""
        return explain_command(name) if name in operations.SUMMARIES else None

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Return the command for the first argument, or suggest one."""
        if args and args[0] not in operations.SUMMARIES and not args[0].startswith("-"):
            raise click.UsageError(
                f"'{args[0]}' is no operation; there are {', '.join(operations.SUMMARIES)}."
                f"{did_you_mean(args[0], operations.SUMMARIES)}"
            )
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the operations from the registry, so that help imports none."""
        with formatter.section("Operations"):
            formatter.write_dl(list(operations.SUMMARIES.items()))


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
            families.option("--threads", is_flag=True, help="Show what each thread reads and writes (small sizes)."),
            families.option("--banks", is_flag=True, help="Draw the 32 banks as the first warp uses them."),
            families.option("--seed", type=click.IntRange(0), default=0, metavar="N", help="Of the random inputs."),
            *families.output_options(),
        ],
        callback=partial(_explain, name),
        help=f"Explain the kernels of {name}: {operation.summary}.",
        context_settings={"help_option_names": ["-h", "--help"]},
    )


def _explain(name: str, **given: Any) -> int:
    """Simulate, show the explanation and return the exit code."""
    from cudabench import cases, devices
    from cudabench.cli.operation import exit_code, json_target, request_of
    from cudabench.cli.report import Report
    from cudabench.model import Settings

    operation = operations.get(name)
    request = request_of(operation, given)
    planned = cases.build(operation, request)
    if given["threads"]:
        refuse_large(planned)
    report = Report(
        operation,
        planned,
        devices.choose(simulated(given["device"])),
        Settings(cpu=False),
        request,
        path=json_target(given["json_path"]),
        to_stdout=given["json_path"] == "-",
        quiet=given["quiet"],
        trace=given["threads"] or given["banks"],
    )
    report.collect(partial(operations.get, name))
    report.deliver()
    report.explain(threads=given["threads"], banks=given["banks"])
    return exit_code(report.results, {}, report.say)


def simulated(device: str) -> str:
    """Return the simulator for `auto`, also where there is a GPU; refuse a GPU, which cannot explain."""
    if device == "auto":
        return "sim"
    if device.startswith("cuda"):
        raise UsageError(f"--device {device} cannot explain, only the simulator sees accesses: use sim or sim:sm_90.")
    return device


def refuse_large(planned: Any) -> None:
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
