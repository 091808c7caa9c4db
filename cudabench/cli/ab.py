"""`cudabench ab OLD NEW`: says whether the new kernel is faster. One run measures both kernels in alternation."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict, replace
from functools import partial
from typing import Any

import click
from click.core import ParameterSource

from cudabench import devices, operations
from cudabench.cli import operation as ladders
from cudabench.cli import options
from cudabench.cli import run as user
from cudabench.cli.arguments import percentage
from cudabench.cli.groups import FILE, two_forms
from cudabench.cli.help import Headed
from cudabench.cli.options import option
from cudabench.cli.output import Output, print_notice, run_and_show, show_reading
from cudabench.errors import DeviceUnusable, UsageError, refuse
from cudabench.plan.series import Series
from cudabench.views import console

HELP = """Measure two kernels interleaved: the ratio of their times, and a verdict.

\b
  cudabench ab HEAD~1:k.cu k.cu -k f ARGUMENTS             two revisions, each with its headers
  cudabench ab old.cu new.cu -k f ARGUMENTS                two files
  cudabench ab k.cu -k f -k g ARGUMENTS                    two kernels of a file
  cudabench ab k.cu -k f --a '-D TILE=8' --b '-D TILE=16' ARGUMENTS
  cudabench ab transpose -k smem -k smem-pad               two of a ladder

ARGUMENTS are those of 'cudabench run', for both. It needs a GPU.

\f
--a and --b hold, in quotes, the options of the old or of the new side alone: -k, -D, --grid, --block, --shared,
--cluster, --std, -I.

\b
faster, slower   the whole interval of the ratio (99%) lies on one side of 1
same             it holds 1 and stays within 0.5%, or within PERCENT
unclear          all other cases: a longer --max-time narrows the interval

If machine code and launch are the same, nothing is measured; --always measures nevertheless.
'cudabench diff' compares machine code and counts without a GPU.
"""

LEFT_OUT = ("file", "save", "profile", "where")  # parameters of `run` that `ab` does not have
# The options that the values of --a and --b may contain. OF_A_SIDE: for a user's file; OF_A_LADDERS_SIDE: for kernels
# of an operation.
OF_A_SIDE = ("kernels", "grid", "block", "defines", "shared", "cluster", "include", "std")
OF_A_LADDERS_SIDE = ("kernels", "grid", "block", "defines", "source")


def _command_of(form: str) -> click.Command:
    """Return the command `ab` for two kernels of an operation, or for kernels in a user's files if `form` is FILE."""
    problem: list[click.Parameter]
    if form == FILE:
        files = click.Argument(["old"], metavar="OLD.cu"), click.Argument(["new"], required=False, metavar="[NEW.cu]")
        problem, callback = [*files, *options.without(user.PROBLEM, *LEFT_OUT)], _ab_files
    else:
        problem = options.without(ladders.problem_options(operations.get(form)), "words")
        callback = partial(_ab_ladder, form)
    return Headed(
        form,
        params=[
            *problem,
            option("--a OPTIONS", "Options of the old side, such as '-D TILE=8'.", "old_words"),
            option("--b OPTIONS", "Options of the new side.", "new_words"),
            *options.COMPILER,
            *options.TIMING,
            options.SEED,
            option(
                "--fail-on-regression PERCENT",
                "Exit 4 if the new side is slower by more than PERCENT, such as 5%, and its interval says so.",
                "threshold",
                type=percentage,
            ),
            option(
                "--noise PERCENT",
                "Difference of a kernel from itself, in addition to 20 ns.",
                type=percentage,
                default="0.2%",
                show_default=True,
            ),
            option("--always", "Measure even if the machine code is the same."),
            *options.without(options.OUTPUT, "report_path"),
        ],
        callback=callback,
        help=HELP
        if form == FILE
        else f"Measure two kernels of {form} interleaved: -k OLD -k NEW, or one kernel with --a and --b.",
    )


command = two_forms(
    "ab",
    "Kernels of your own, with the arguments of 'cudabench run'.",
    _command_of,
    help=HELP,
    subcommand_metavar="OLD.cu [NEW.cu] | OPERATION [OPTIONS]",
)


# The two sides--------------------------------------------------------------------------------------------------------


def _sides(ctx: click.Context, given: Mapping[str, Any], names: Sequence[str]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the options of the old and of the new side.

    Each side has the common options and the options in the value of --a or --b. If -k names two kernels, the old side
    has the first and the new side the second.
    """
    params = [param for param in ctx.command.params if param.name in names]
    sides = []
    for index, (flag, key) in enumerate((("--a", "old_words"), ("--b", "new_words"))):
        side = dict(given)
        if len(given["kernels"]) == 2:
            side["kernels"] = (given["kernels"][index],)
        for name, value in _own_options(flag, given[key], params).items():
            side[name] = (*given[name], *value) if name in ("defines", "include") else value
        sides.append(side)
    old, new = sides
    return old, new


def _own_options(flag: str, text: str | None, params: Sequence[click.Parameter]) -> dict[str, Any]:
    """Return the options in the value of --a or --b, by name.

    Raises UsageError for an option that a side cannot have.
    """
    if text is None:
        return {}
    try:
        words = shlex.split(text)
    except ValueError as error:
        raise UsageError(f"{flag} '{text}' cannot be read: {error}.") from None
    allowed = ", ".join(max(param.opts, key=len) for param in params)
    try:
        ctx = Headed(flag, params=list(params)).make_context(flag, words)
    except click.UsageError as error:
        raise UsageError(f"{flag} '{text}': {error.format_message()} Allowed are {allowed}.") from None
    return {
        name: value
        for name, value in ctx.params.items()
        if ctx.get_parameter_source(name) == ParameterSource.COMMANDLINE
    }


def _labels(files: tuple[str, str], old: Mapping[str, Any], new: Mapping[str, Any]) -> tuple[str, str]:
    """Return two different labels: the sides' files if they differ, else their kernels, else the words of --a and
    --b.
    """
    if files[0] != files[1]:
        return files
    if old["kernels"] != new["kernels"]:
        return old["kernels"][0], new["kernels"][0]
    return old["old_words"] or "as given", new["new_words"] or "as given"


def _check_different(old: Mapping[str, Any], new: Mapping[str, Any], given: Mapping[str, Any], example: str) -> None:
    kernels = given["kernels"]
    refuse(
        (len(kernels) > 2, f"ab takes two kernels, not {len(kernels)} ({', '.join(kernels)}): keep two."),
        (
            not given["always"] and all(old.get(name) == new.get(name) for name in (*OF_A_SIDE, "source")),
            "Both sides are the same: name a second file, a second kernel (-k), or options of one side, as in "
            f"{example}; --always measures a kernel against itself.",
        ),
    )


@click.pass_context
def _ab_files(ctx: click.Context, /, **given: Any) -> int:
    from cudabench.plan.revisions import checked_out, user_names_in_errors
    from cudabench.userkernel.plan import pair

    choice = _gpu(given)
    files = given["old"], given["new"] or given["old"]
    old, new = _sides(ctx, given, OF_A_SIDE)
    if files[0] == files[1]:
        _check_different(old, new, given, "--a '-D TILE=8' --b '-D TILE=16'")
    with ExitStack() as stack:
        checkouts = [
            stack.enter_context(checked_out(file, side["include"]))
            for file, side in zip(files, (old, new), strict=True)
        ]
        with user_names_in_errors(checkouts):
            requests = [
                user.request_of({**side, "file": checkout.path, "include": checkout.include})
                for side, checkout in zip((old, new), checkouts, strict=True)
            ]
            with show_reading(files[0], given, len(requests)):
                series = pair(*requests)
            cases = tuple(
                replace(case, source=replace(case.source, name=checkout.label))
                for case, checkout in zip(series.cases, checkouts, strict=True)
            )
            record = {"requests": [asdict(request) for request in requests], "files": list(files)}
            return _measured(replace(series, cases=cases), choice, record, _labels(files, old, new), given)


@click.pass_context
def _ab_ladder(ctx: click.Context, name: str, /, **given: Any) -> int:
    from cudabench.plan import cases as planning

    choice = _gpu(given)
    operation = operations.get(name)
    old, new = _sides(ctx, given, OF_A_LADDERS_SIDE)
    _check_different(old, new, given, "--a '--block 32 8' --b '--block 64 4'")
    requests = [ladders.request_of(operation, {**side, "words": ()}) for side in (old, new)]
    cases = []
    for request in requests:
        built = planning.build(operation, request)
        if len(built) != 1:
            names = ", ".join(case.kernel for case in built)
            raise UsageError(f"A side is one kernel, not {len(built)} ({names}): name two, -k OLD -k NEW.")
        cases += built
    series = Series(partial(operations.get, name), tuple(cases))
    record = {"requests": [asdict(request) for request in requests]}
    return _measured(series, choice, record, _labels((name, name), old, new), given)


# Measuring -----------------------------------------------------------------------------------------------------------


def _gpu(given: Mapping[str, Any]) -> devices.Choice:
    """Return the GPU of --device. Raises DeviceUnusable if only the simulator is available."""
    if given["device"] == "all":
        raise UsageError("--device all: ab compares two kernels on one card; use --device cuda:0.")
    choice = devices.choose(given["device"])
    if choice.kind == "sim":
        lack = (
            (choice.note or "the simulator does not measure time.")
            .removeprefix("No GPU is used: ")
            .partition(", so ")[0]
        )
        raise DeviceUnusable(
            f"ab needs a GPU: {lack.rstrip('.')}; without one 'cudabench diff OLD NEW' compares machine code, and with "
            "the arguments of 'cudabench run' sectors, wavefronts and instructions."
        )
    return choice


def _measured(
    series: Series,
    choice: devices.Choice,
    request: Mapping[str, Any],
    labels: tuple[str, str],
    given: Mapping[str, Any],
) -> int:
    """Measure the pair, show the verdict and return the exit code."""
    from cudabench.results import ab

    output = Output.of(given["json_path"], given["quiet"])
    run = output.run([series], [choice], options.settings(given, simulated=False), request)
    run.note({"noise": given["noise"], "fail_on_regression": given["threshold"]})

    def work() -> None:
        old, new = run.pair(given["always"])
        run.file.ab.append(ab.verdict(old, new, labels, given["threshold"], given["noise"]))
        run.write()

    def show() -> None:
        if output.quiet or not run.file.ab or run.file.device is None:
            return
        from cudabench.views import ab

        (outcome,) = run.outcomes
        out = console.table_console(output.to_stdout)
        ab.show_verdict(out, console.err(), outcome.operation, run.file.device, run.file.ab[0], outcome.settings)

    run_and_show(run, output, work, show)
    (record,) = run.file.ab
    if slower := ab.regression(record, given["threshold"]):
        print_notice(f"{slower}.")
    return ab.exit_code(record, given["threshold"])
