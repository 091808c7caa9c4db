"""`cudabench sweep OPERATION|FILE.cu`: measures one kernel with many blocks, macros and sizes.

The best points are measured again, in rotation.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, replace
from functools import partial
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from cudabench import devices, operations
from cudabench.cli import complete, options, pricing
from cudabench.cli import operation as ladders
from cudabench.cli import run as user
from cudabench.cli.arguments import Ranges
from cudabench.cli.groups import FILE, two_forms
from cudabench.cli.help import Headed
from cudabench.cli.options import PLACE, option
from cudabench.cli.output import Output, run_and_show, show_reading
from cudabench.errors import UsageError, exit_code, refuse
from cudabench.plan.series import Series
from cudabench.plan.space import (
    MOST_POINTS,
    Axis,
    Plan,
    Point,
    Refusal,
    axis_groups,
    block_range,
    blocks,
    text_of,
    values_of,
)
from cudabench.records.file import load
from cudabench.records.plan import Operation
from cudabench.records.results import Result
from cudabench.system.outputs import note_continued
from cudabench.views import console

if TYPE_CHECKING:
    from cudabench.results.sweep_points import Final
    from cudabench.userkernel.space import Space

HELP = """Measure one kernel over many blocks, macros, template arguments and sizes; the best points again, in rotation.

\b
  cudabench sweep transpose --kernel smem-pad
  cudabench sweep transpose --kernel naive-row --block 8:64 4:32
  cudabench sweep transpose --kernel smem-pad --block 32 8 -D IPAD=0,1,2 --size 1024
  cudabench sweep saxpy.cu --block 64:1024 --grid 'cdiv(n,bx)' ARGUMENTS
  cudabench sweep gemm.cu -k 'gemm<{BM},{BN}>' --param BM=32,64 --param BN=64,128 ARGUMENTS

Blocks are ranges: 32, 8:64 (doubling), 8:64:8 (steps of 8), 8,16,32. The best point is printed as the command
that repeats it. In the simulator points are ordered by their counts.
"""

FILE_HELP = """Measure a kernel of FILE.cu at every point of a space: the options of 'cudabench run' with lists in them.

\b
  cudabench sweep saxpy.cu --block 64:1024 --grid 'cdiv(n,bx)' --arg n=1048576 --arg a=2 \\
      --arg 'x=float32[n]:random' --arg 'y=float32[n]:random'

\f
\b
-D TILE=8,16,32               macros; the name is a number in --grid, --block, --shared too
--param BM=32,64,128          replaces {BM} in -k, --arg, --expect and others; BM is a number in --grid and others
--block 64:1024               ranges: 32:1024 (doubling), 32:256:32 (steps); bx, by, bz are the block in --grid
--arg n=1024..65536*4         sizes, or n=1000,2000; --sizes does the same
--arg 'x=float32[n]:random,zeros'    initial values of an array
--param T=float32,float64 --arg 'x={T}[n]:random'    types

All values are combined, except those of --zip A,B, which vary together; --where selects points. Each value of --arg is
a separate problem with its own best point. Points that cannot be launched are left out, with the reason.
"""

# Parameters of an operation's command that a sweep lacks or defines differently.
REPLACED = ("words", "kernels", "block", "grid")
LEFT_OUT = ("save", "profile", "where")  # parameters of `run` that a sweep does not have
# Options that a command line needs in order to repeat a measurement, as (spelling, parameter, default).
PROTOCOL = (
    ("--cache", "cache", "cold"), ("--seed", "seed", 0), ("--on", "card", None), ("--price", "price", None),
    ("-d", "device", "auto"),
)  # fmt: skip
STRATEGIES = (
    "random_sample", "greedy_ils", "greedy_mls", "mls", "genetic_algorithm", "simulated_annealing", "dual_annealing",
    "basinhopping", "diff_evo", "pso", "firefly_algorithm", "bayes_opt",
)  # fmt: skip


# Options that the command has both for an operation and for a user's file, without the options that describe the
# problem.
SHARED: list[click.Parameter] = [
    *options.COMPILER,
    *options.TIMING,
    options.SEED,
    option(
        "--resume FILE",
        "Continue an interrupted sweep: keep the results in FILE and skip those already there.",
        type=PLACE,
    ),
    *options.PRICING,
    *options.OUTPUT,
]


def operation_command(name: str) -> click.Command:
    """Return the command that sweeps a kernel of an operation.

    It has the operation's options, with ranges for --block.
    """
    operation = operations.get(name)
    dims, kernels = operation.block_dimensions, complete.kernels(operation)
    return Headed(
        name,
        params=[
            click.Argument(["word"], required=False, metavar="[KERNEL]", shell_complete=kernels),
            option("-k, --kernel NAME", "The kernel: name or id.", shell_complete=kernels),
            option(
                f"-b, --block {' '.join(('XS', 'YS', 'ZS')[:dims])}",
                "Threads per block, a range for each axis: 32, 8:64, 8:64:8.",
                "axes",
                type=Ranges(dims),
            ),
            *options.without(ladders.problem_options(operation), *REPLACED),
            *SHARED,
        ],
        callback=partial(_sweep_operation, name),
        help=f"Measure one kernel of {name} with every sensible block, or those of --block, and each value of "
        "-D NAME=V1,V2.",
    )


def file_command() -> click.Command:
    """Return the command that sweeps a user's kernel.

    It has the options of `run`, with lists, and options for the search.
    """
    return Headed(
        FILE,
        params=[
            *options.without(user.PROBLEM, *LEFT_OUT),
            option("--param NAME=V1,V2", "Values that replace {NAME}; repeatable.", "parameters", multiple=True),
            option("--zip A,B", "Vary these together, value by value.", "zips", multiple=True),
            option("--where EXPR", "Use only points for which EXPR holds: 'BM*BN<=4096'."),
            option("--sizes [NAME=]A..B*2", "Values of one argument: 'n=1024..65536*2'."),
            option(
                "--strategy NAME",
                "Search instead of measuring every point: a strategy of Kernel Tuner (pip install "
                "'cudabench[tune]'), such as greedy_ils, genetic_algorithm, bayes_opt, random_sample.",
                type=click.Choice(STRATEGIES),
            ),
            option(
                "--evaluations N", "With --strategy: measure at most N points. Default: 100.", type=click.IntRange(2)
            ),
            *SHARED,
        ],
        callback=_sweep_file,
        help=FILE_HELP,
    )


command = two_forms(
    "sweep",
    "A kernel of your own, with the arguments of 'cudabench run'.",
    lambda form: file_command() if form == FILE else operation_command(form),
    help=HELP,
    subcommand_metavar="OPERATION|FILE.cu [OPTIONS]",
)


# Plans of sweeps -----------------------------------------------------------------------------------------------------


def _sweep_operation(
    name: str, word: str | None, kernel: str | None, axes: tuple[str, ...] | None, **given: Any
) -> int:
    from cudabench.measure import sweep

    operation = operations.get(name)
    best = operation.kernels[-1].name
    refuse(
        (word and kernel, f"Two kernels are named, '{word}' and --kernel {kernel}: keep one."),
        (
            not (word or kernel),
            f"A sweep takes one kernel: write cudabench sweep {name} {best}, or name another kernel of the list.",
        ),
    )
    given |= {"words": (), "kernels": (word or kernel,), "block": None, "grid": None}
    request = ladders.request_of(operation, given)
    ranges = [block_range(text) for text in axes or ()]
    defined = [
        Axis(swept_axis, values_of(text, f"-D {swept_axis}="), "define") for swept_axis, text in request.defines.items()
    ]
    varied = [swept_axis for swept_axis in defined if len(swept_axis.values) > 1]
    candidates = blocks(operation.block_dimensions, ranges)
    plan = sweep.plan_points(operation, request, candidates, axis_groups(varied, ()))
    swept = {swept_axis.name for swept_axis in varied}
    fixed = asdict(request) | {"defines": {n: text for n, text in request.defines.items() if n not in swept}}
    repeat = partial(_operation_line, operation, given)
    return _carry_out(plan, asdict(request), fixed, repeat, given, map_of_blocks=not varied)


def _operation_line(operation: Operation, given: Mapping[str, Any], result: Result) -> str:
    """Return the command line that repeats one result of an operation's sweep."""
    words = ["cudabench", operation.name, "-k", given["kernels"][0], "--block"]
    words += map(str, result.block[: operation.block_dimensions])
    words += ["--size", *(str(int(value)) for value in result.size.values())] if given["size"] else []
    words += ["--dtype", result.dtype] if result.dtype != next(iter(operation.dtypes)) else []
    extras = [(f"--{option.name}", option.name, option.default) for option in operation.options]
    words += _unusual([("--source", "source", None), *extras], given)
    for text in given["defines"]:
        name, _, value = text.partition("=")
        words += ["-D", f"{name}={result.parameters.get(name, value)}"]
    return shlex.join([*words, *_unusual(PROTOCOL, given)])


def _unusual(options: Iterable[tuple[str, str, object]], given: Mapping[str, Any]) -> list[str]:
    """Return the words for those options, each (spelling, parameter, default), whose values are not the defaults."""
    return [word for flag, name, default in options if given[name] != default for word in (flag, str(given[name]))]


def _sweep_file(**given: Any) -> int:
    from cudabench.userkernel.space import space_of

    refuse(
        (
            not given["file"],
            "sweep needs a file: cudabench sweep FILE.cu -k NAME -D TILE=8,16 ...; --help explains it.",
        ),
        (
            given["evaluations"] and not given["strategy"],
            f"--evaluations {given['evaluations']} needs --strategy: name one, such as greedy_ils.",
        ),
    )
    request = user.request_of(given)
    space = space_of(request, given["parameters"], given["zips"], given["where"], given["sizes"])
    with show_reading(given["file"], given, min(space.count, MOST_POINTS)):
        plan = _planned(space, given)
    record = {**asdict(request), "parameters": list(given["parameters"]), "zip": list(given["zips"])}
    repeat = partial(_file_line, space, given)
    return _carry_out(plan, record, space.fixed(), repeat, given, space=space if given["strategy"] else None)


def _file_line(space: Space, given: Mapping[str, Any], result: Result) -> str:
    seedless = {**given, "seed": 0}  # the command line that the space makes already has --seed
    return shlex.join([*space.command(result.parameters), *_unusual(PROTOCOL, seedless)])


def _planned(space: Space, given: Mapping[str, Any]) -> Plan:
    """Return the plan of a sweep. If a strategy searches the space, the plan has no points yet.

    Raises UsageError if there are too many points to measure one by one, or none.
    """
    limit = None if given["strategy"] else MOST_POINTS + 1
    combinations: Iterable[Any] = list(islice(space.combinations(), limit)) if limit else space.combinations()
    if isinstance(combinations, list) and len(combinations) == limit:
        raise UsageError(
            f"The sweep has over {MOST_POINTS} points (of {space.count} combinations): search it with --strategy "
            "greedy_ils, restrict it with --where, or take fewer values."
        )
    points: list[Point] = []
    refused: list[Refusal] = []
    for values in combinations:
        try:
            points.append(space.point(values))
        except UsageError as error:
            refused.append(Refusal((0, 0, 0), str(error), values))
        # a search plans its points while it runs; here one valid point is enough to show that the search can start
        if points and limit is None:
            break
    if not points and not refused:
        raise UsageError(f"--where '{given['where']}' does not hold for any of the {space.count} combinations.")
    if not points:
        first = refused[0]
        raise UsageError(f"No point of the sweep can be launched; {text_of(first.values)}: {first.reason}")
    return Plan(() if given["strategy"] else tuple(points), tuple(refused), space.axes)


# Running -------------------------------------------------------------------------------------------------------------


def _carry_out(
    plan: Plan, record: Mapping[str, Any], fixed: Mapping[str, Any], repeat: Callable[[Result], str],
    given: dict[str, Any], *, map_of_blocks: bool = False, space: Space | None = None,
) -> int:  # fmt: skip
    """Measure a sweep in two passes, show it and return the exit code.

    `record`: the request; `fixed`: the parts of the request that do not vary; `repeat`: a function that returns the
    command line that repeats a result; `space`: the space to search, or None to measure all points.
    """
    from cudabench.measure import sweep

    resumed = given["resume"]
    output = Output.of(given["json_path"] or resumed, given["quiet"], report_path=given["report_path"])
    if given["device"] == "all":
        raise UsageError("--device all: a sweep finds the best of one card; use --device cuda:0.")
    choices, cards = pricing.places_of(given, lambda device: [devices.choose(device)])
    settings = options.settings(given, simulated=choices[0].kind == "sim")
    points = (space.first(),) if space else plan.points
    # Each set of arguments has one series. A series starts with its first case; later cases are added when they are
    # measured.
    first_series: dict[int, Series] = {}
    for point in points:
        first_series.setdefault(id(point.series.make), replace(point.series, cases=(point.case,)))
    run = output.run([*first_series.values()], choices, sweep.coarse_settings(settings), record, cards=cards)
    for outcome in run.outcomes:
        outcome.series = replace(outcome.series, cases=())
    if run.by_card and (space or resumed):
        flag = "--strategy" if space else "--resume"
        raise UsageError(
            f"--on {given['card']} with {flag}: it searches the points of one card; name one card with --on."
        )
    note = plan.settings_record(fixed, searched=space is not None)
    note |= {name: given[name] for name in ("where", "strategy", "evaluations") if given.get(name)}
    kernels = list(dict.fromkeys(point.case.kernel for point in points))
    run.note({"kernels": kernels, "min_time": settings.min_time, "max_time": settings.max_time, "sweep": note})
    before: dict[tuple[Any, ...], Result] = {}
    if resumed and Path(resumed).exists():
        note_continued(Path(resumed))
        before = sweep.earlier_results(load(resumed), resumed, run, note["fixed"])
    complete = False
    finals: list[Final] = []

    def both_passes() -> None:
        nonlocal plan, complete
        try:
            if space:
                plan = sweep.search(run, space, given["strategy"], given["evaluations"], before)
            else:
                sweep.first_pass(run, plan.points, before)
            finals.extend(sweep.second_pass(run, plan, settings))
        finally:
            # writes the results so far, because an interruption may have come before the last result was written
            run.write()
        complete = True

    def show() -> None:
        if output.quiet or run.file.device is None:
            return
        from cudabench.views import sweep as view

        first = run.outcomes[0]
        swept = view.SweepResult(
            first.operation, run.file.device, first.settings, tuple(run.file.results), plan.refused, finals, complete,
            repeat, plan.axes, None if space else len(plan.points), resumed or given["json_path"],
            bool(run.devices[0].note),
        )  # fmt: skip
        out = console.table_console(output.to_stdout)
        if run.by_card:
            view.show_sweep_by_card(out, swept, run.cards)
        else:
            view.show_sweep(out, swept, map_of_blocks=map_of_blocks)

    run_and_show(run, output, both_passes, show)
    # If at least one point ran, failed points do not change the exit code.
    statuses = {result.status for result in run.file.results} or {"failed"}
    return exit_code(statuses & {"wrong", "ok"} or statuses)
