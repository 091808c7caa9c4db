"""`cudabench explain OPERATION ...`: says, line by line, why a kernel is fast or slow, from counts of the simulator."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from math import prod
from typing import TYPE_CHECKING, Any

import click

from cudabench import devices, operations
from cudabench.cli import operation, options, pricing
from cudabench.cli import run as user
from cudabench.cli.arguments import Numbers
from cudabench.cli.groups import FILE, two_forms
from cudabench.cli.help import Headed
from cudabench.cli.options import option
from cudabench.cli.output import Output, run_and_show, show_tables
from cudabench.errors import UsageError, exit_code
from cudabench.plan import chapters
from cudabench.views import console

if TYPE_CHECKING:
    from cudabench.measure.run import Run
    from cudabench.plan.series import Series
    from cudabench.records.plan import Case
    from cudabench.records.results import Watch

MAX_THREADS_SHOWN = 1024  # if a launch has more, only one warp is shown, so that the output fits on two screens


def explain_command(form: str) -> click.Command:
    """Return the command that explains the kernels of an operation, or of a user's file if `form` is FILE."""
    problem, seed = user.PROBLEM, options.SEED
    summary = "kernels of FILE.cu; 'cudabench run --help' describes the arguments"
    if form != FILE:
        subject = operations.get(form)
        problem, summary = operation.problem_options(subject), f"the kernels of {form}: {subject.summary}"
        seed = option("--seed N", str(seed.help), type=seed.type, default=0)
    return Headed(
        form,
        params=[
            *problem,
            *options.COMPILER,
            option("--threads", "Show which elements each thread accesses, and their banks."),
            option("--banks", "Draw how a warp uses the 32 banks."),
            option(
                "--warp B,W",
                "With --threads or --banks: show warp W of block B, counted from 0, x first. Default: all threads of "
                "a small problem, else 0,0.",
                type=Numbers(2),
            ),
            *options.PRICING,
            seed,
            *options.OUTPUT,
        ],
        callback=partial(_explain, form),
        help=f"Explain {summary}.",
    )


command = two_forms(
    "explain",
    "Any kernel of your own, with the arguments of 'cudabench run'.",
    explain_command,
    help="""Show why kernels are fast or slow, line by line, from the simulator.

For each access: its cost, its least cost, the wasted share, and the repair. Takes the arguments of the operation's own
command. Two kernels, -k A -k B, are shown side by side.
""",
)


@click.pass_context
def _explain(ctx: click.Context, form: str, /, **given: Any) -> int:
    """Simulate the kernels of the options, show the explanations and return the exit code."""
    series: Sequence[Series]
    if form == FILE:
        series, request, _ = user.planned(ctx, given, "explain")
    else:
        series, request = operation.planned(form, {**given, "device": "sim"})
    choices, cards = pricing.places_of(given, lambda device: [devices.choose(simulated(device))], simulated=True)
    output = Output.of(given["json_path"], given["quiet"], report_path=given["report_path"])
    planned = [case for item in series for case in item.cases]
    paired = len(planned) == 2 and len(given["kernels"]) > 0
    settings = options.settings(given, simulated=True)
    run = output.run(series, choices, settings, request, trace=watched(planned, given, paired), cards=cards)
    show = partial(_show, run, output, threads=given["threads"], banks=given["banks"], paired=paired)
    run_and_show(run, output, run.collect, show)
    return exit_code(result.status for result in run.file.results)


def _show(run: Run, output: Output, *, threads: bool, banks: bool, paired: bool) -> None:
    """Print the explanation of each kernel; if `paired`, print the explanations of two kernels side by side."""
    if output.quiet:
        return
    from cudabench.views import explanation, side_by_side

    out = console.table_console(output.to_stdout)
    if run.by_card:
        show_tables(run, output)
    device = next((result.device for result in run.file.results if result.access is not None), run.devices[0].name)
    if len(run.devices) > 1:
        card = next(card for card in run.cards if device == f"sim:{card.architecture}")
        out.print()
        out.print(f"Line by line in the code of {card.key}, {card.architecture}:", style="bold")
    results = [result for result in run.file.results if result.device == device]
    if paired and all(result.access is not None for result in results):
        side_by_side.show_two_kernels(out, *results, threads=threads, banks=banks)
        return
    for outcome in run.outcomes:
        ideas = chapters.ideas(outcome.operation)
        shown = [result for result in outcome.results if result.device == device]
        for result in shown:
            ladder = [rung for rung in shown if rung.limits]
            explanation.show_kernel(out, result, threads=threads, banks=banks, ladder=ladder, ideas=ideas)


def simulated(device: str, verb: str = "explain") -> str:
    """Return the name of the simulator in --device; `auto` means the simulator, even on a machine with a GPU.

    Raises UsageError for a GPU, which cannot do what the command `verb` does.
    """
    if device == "auto":
        return "sim"
    if device == "all" or device.startswith("cuda"):
        raise UsageError(f"--device {device} cannot {verb}: only the simulator sees accesses; use sim or sim:sm_90.")
    return device


def watched(planned: Sequence[Case], given: dict[str, Any], paired: bool) -> Watch:
    """Return which warp's accesses to record one by one.

    True: all warps, if the threads are few; (block, warp): only this warp; False: none. Raises UsageError if a launch
    does not have the warp of --warp.
    """
    warp = given["warp"]
    if not (given["threads"] or given["banks"] or paired):
        if warp:
            raise UsageError("--warp picks the warp that --threads or --banks shows: add one of them.")
        return False
    launched = [case for case in planned if case.skip_reason is None]
    if warp is None:
        small = all(
            prod(launch.grid) * prod(launch.block) <= MAX_THREADS_SHOWN for c in launched for launch in c.launches[:1]
        )
        return True if given["threads"] and small else (0, 0)
    if len(warp) != 2 or min(warp) < 0:
        raise UsageError(
            f"--warp {','.join(map(str, warp))} is not a block and a warp, both counted from 0, as in 0,1."
        )
    for case in launched:
        blocks, warps = prod(case.launches[0].grid), -(-prod(case.launches[0].block) // 32)
        if warp[0] >= blocks or warp[1] >= warps:
            raise UsageError(
                f"--warp {warp[0]},{warp[1]}: {case.kernel} has only blocks 0 to {blocks - 1} with warps 0 "
                f"to {warps - 1}."
            )
    return int(warp[0]), int(warp[1])
