"""`cudabench check FILE.cu ...`: runs kernels in the simulator and shows only their hazards."""

from __future__ import annotations

from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from cudabench import devices, operations
from cudabench.cli import options, run
from cudabench.cli.explain import simulated
from cudabench.cli.help import Headed
from cudabench.cli.output import Output, add_summary, run_and_show, show_reading
from cudabench.errors import UsageError, exit_code, refuse
from cudabench.views import console
from cudabench.views.export.run import Run as Exported

if TYPE_CHECKING:
    from cudabench.measure.run import Run
    from cudabench.userkernel.plan import KernelRequests

HELP = """Run all kernels of FILE.cu, or of a profile, in the simulator and report hazards: races, accesses out of
bounds or misaligned, reads of unwritten memory, divergent barriers. Nothing is timed.

\b
cudabench check saxpy.cu scale.cu --grid 'cdiv(n,256)' --block 256 \\
    --arg n=10007 --arg a=2.5 --arg 'x=float32[n]:random' --arg 'y=float32[n]:random'
cudabench check --profile kernels.toml --to github

\f
Arguments are the same as those of 'cudabench run'; each of several kernels takes the arguments with the names of its
parameters. With --expect a wrong result is a fault too.

Exit codes: 0 every kernel ran and is clean, 3 a hazard or a wrong result, 1 a kernel failed, 5 a kernel uses a feature
that the simulator lacks, so it was not checked.
"""


@click.pass_context
def _check(ctx: click.Context, /, **given: Any) -> int:
    from cudabench.userkernel import plan
    from cudabench.userkernel.plan import for_each_kernel

    choice = devices.choose(simulated(given["device"], "check"))
    requests = _requests(ctx, given)
    with show_reading(requests[0].file, given, len(requests)):
        kernel_requests = for_each_kernel(requests, "check")
    with show_reading(requests[0].file, given, len(kernel_requests.requests)):
        # Each kernel gets a separate series. If a kernel cannot run, this is reported, and the other kernels still run.
        series = [
            replace(planned, cases=tuple(replace(case, named=False, bounds=True) for case in planned.cases))
            for request in kernel_requests.requests
            for planned in plan.series([request], "check")
        ]
    output = Output.of(given["json_path"], given["quiet"], report_path=given["report_path"])
    record = {"requests": [asdict(request) for request in kernel_requests.requests]}
    settings = options.settings(given, simulated=True)
    checking = output.run(series, [choice], settings, record)
    show = partial(_show, checking, output, batch=kernel_requests, github=given["target"] == "github")
    run_and_show(checking, output, checking.collect, show)
    # A kernel that could not be checked sets the exit code, even if other kernels ran.
    return exit_code({result.status for result in checking.file.results} - {"ok"})


def _requests(ctx: click.Context, given: dict[str, Any]) -> list[Any]:
    """Return a list of requests: one for each file, or one for each table of the profile."""
    files = given.pop("files")
    blank = {"save": ()}
    if given["profile"]:
        if files:
            raise UsageError(
                f"check takes files or --profile {given['profile']}, not both: the profile names its file."
            )
        typed = dict(given)
        requests = run.requests_of(ctx, {**given, **blank, "file": None}, run.command.params)
        given |= typed  # the profile may also hold settings for timing, which `check` ignores
        return [replace(request, save=(), bytes=None, flops=None) for request in requests]
    ladder = next((file for file in files if file in operations.SUMMARIES and not Path(file).exists()), None)
    refuse(
        (
            not files,
            "check needs a file or a profile: cudabench check FILE.cu --arg n=10007 ... or cudabench check --profile "
            "FILE.toml; 'cudabench check --help' shows an example.",
        ),
        (
            ladder,
            f"check takes .cu files; write cudabench {ladder} --device sim, which shows the hazards of an operation.",
        ),
    )
    return [run.request_of({**given, **blank, "file": file}) for file in dict.fromkeys(files)]


def _show(checked: Run, output: Output, *, batch: KernelRequests, github: bool) -> None:
    """Print a line for each kernel with its hazards; with `github`, also print annotations for GitHub, and
    append tables to the summary of its job."""
    from cudabench.views import checked as page

    if not output.quiet:
        page.show_checked(
            console.table_console(output.to_stdout), checked.file.results, batch.left_out, len(batch.requests)
        )
    if github:
        from cudabench.views import annotations
        from cudabench.views import export as exporting

        run_to_export = Exported(checked.file)
        for line in annotations.of_run(run_to_export):
            click.echo(line, err=output.to_stdout)
        add_summary(lambda: exporting.export("markdown", [run_to_export]))


command = Headed(
    "check",
    params=[
        click.Argument(["files"], nargs=-1, type=click.Path(path_type=str), metavar="FILE.cu ..."),
        *options.without(run.PROBLEM, "file", "save", "where"),
        *options.COMPILER,
        options.SEED,
        options.SCHEDULE,
        options.option(
            "--to",
            "github: also annotate the lines, and append tables to $GITHUB_STEP_SUMMARY.",
            "target",
            type=click.Choice(["table", "github"]),
            default="table",
            show_default=True,
        ),
        *options.OUTPUT,
    ],
    callback=_check,
    help=HELP,
)
