"""The command of an operation, `cudabench transpose [KERNEL_ID [DIMX DIMY]] [options]`.

The module also contains the code that this command shares with `cudabench run`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, replace
from functools import partial
from typing import TYPE_CHECKING, Any

import click

from cudabench import devices, operations
from cudabench.cli import complete, options, pricing
from cudabench.cli.arguments import MAX_DIGITS, Finite, Numbers
from cudabench.cli.help import Headed
from cudabench.cli.options import PLACE, option
from cudabench.cli.output import Output, print_notice, run_and_show, show_tables
from cudabench.errors import DeviceUnusable, UsageError, exit_code, refuse
from cudabench.plan.series import Series
from cudabench.plan.space import sizes
from cudabench.records.plan import Operation, Option, Settings
from cudabench.records.results import Result
from cudabench.results.thresholds import THRESHOLDS, missed_thresholds

if TYPE_CHECKING:
    from cudabench.measure.run import Run
    from cudabench.plan.cases import Request
    from cudabench.userkernel.request import UserRequest

# Other names that users may type for an element type.
TYPES = {
    "float": "float32", "fp32": "float32", "f32": "float32", "single": "float32", "double": "float64",
    "fp64": "float64", "f64": "float64", "half": "float16", "fp16": "float16", "f16": "float16", "__half": "float16",
    "bf16": "bfloat16", "__nv_bfloat16": "bfloat16", "int": "int32", "i32": "int32", "i8": "int8", "char": "int8",
}  # fmt: skip


# First the options that say how to measure, then the options that say what to show and write; used by the commands that
# measure.
MEASURING: list[click.Parameter] = [
    *options.COMPILER,
    *options.TIMING,
    *options.LEAST,
    option(
        "--budget S",
        "Time limit of the whole run. Kernels that get no time are reported as failed.",
        type=Finite(0, min_open=True),
    ),
    options.SEED,
    option("--no-cpu", "Skip the CPU baseline."),
    option("--cpu-threads N", "Threads of the CPU baseline.", type=click.IntRange(1), default=1, show_default=True),
    option(
        "--jobs N",
        "Simulate N kernels at the same time. Default: one per core, fewer if memory is short.",
        type=click.IntRange(1),
    ),
    option(
        "--sim-threads N",
        "Threads that run one kernel in the simulator. Default: the cores that --jobs leaves it.",
        type=click.IntRange(1),
    ),
]
SHOWING: list[click.Parameter] = [
    *options.PRICING,
    options.LIMITS,
    *options.OUTPUT,
    option(
        "--print KEY",
        "Print only one value, such as bandwidth_gbps or time.median_s.",
        "key",
        shell_complete=complete.result_keys,
    ),
    option("-v, --verbose", "Also show where the time went.", "breakdown", is_flag=True),
]


def operation_command(name: str) -> click.Command:
    """Return the command that measures the kernels of an operation."""
    operation = operations.get(name)
    libraries = list(dict.fromkeys(word for peer in operation.peers for word in (peer.library, peer.name)))
    peers = f"GPU only: add a library's row: {', '.join(libraries)}; repeatable."
    return Headed(
        name,
        params=[
            *problem_options(operation),
            option(
                "--peer NAME",
                peers if libraries else "No library computes this.",
                "peers",
                multiple=True,
                shell_complete=complete.words(libraries),
            ),
            option("--sizes A..B*2", "Several sizes: doubling, A..B+STEP, or A,B,C."),
            *MEASURING,
            *SHOWING,
        ],
        callback=partial(_run, name),
        help=f"{operations.SUMMARIES[name]}\n\n{operation.summary}; 'cudabench list {name}' shows the kernels.",
    )


def problem_options(operation: Operation) -> list[click.Parameter]:
    """Return the options that describe an operation's kernels and problem.

    --block, --grid and --size take as many numbers as the operation has dimensions.
    """
    dims, dtypes = operation.block_dimensions, list(operation.dtypes)
    axes = " ".join("XYZ"[:dims])
    sizes = " ".join(dimension.upper() for dimension in operation.dimensions)
    default = " ".join(map(str, operation.default_size))
    if operation.simulated_size:
        default += f" ({' '.join(map(str, operation.simulated_size))} in the simulator)"
    kernel = complete.first_kernel(operation)
    return [
        click.Argument(["words"], nargs=-1, metavar="[KERNEL_ID [DIMX DIMY]]", shell_complete=kernel),
        option(
            "-k, --kernel NAME", "Name, id or glob; repeatable. Default: all.", "kernels",
            multiple=True, shell_complete=complete.kernels(operation),
        ),
        option(f"-b, --block {axes}", "Threads per block.", type=Numbers(dims)),
        option(f"-g, --grid {axes}", "Blocks. Default: enough to cover the problem.", type=Numbers(dims)),
        option(f"-s, --size {sizes}", f"Problem size. Default: {default}.", type=Numbers(len(operation.dimensions))),
        option(
            "-t, --dtype TYPE", ", ".join(dtypes) + ".", default=dtypes[0], show_default=True,
            callback=lambda ctx, param, value: TYPES.get(value.lower(), value), shell_complete=complete.words(dtypes),
        ),
        option(
            "--source FILE.cu",
            "Take the kernel from FILE.cu; its parameters are bound by name, else by const, else by place.",
            type=PLACE,
        ),
        *(
            option(
                f"--{extra.name} {extra.metavar or ''}", extra.help, default=extra.default, show_default=True,
                type=_type(extra),
            )
            for extra in operation.options
        ),
    ]  # fmt: skip


def _type(extra: Option) -> Any:
    if extra.choices:
        return click.Choice(extra.choices)
    return PLACE if extra.metavar and extra.metavar.startswith("FILE") else extra.type


def request_of(operation: Operation, given: dict[str, Any]) -> Request:
    """Return the request for the operation's kernels, from the values of the options."""
    from cudabench.plan import cases

    size = given["size"]
    options = {option.name: given[option.name] for option in operation.options}
    if size is None and operation.size(options) is None and devices.simulates(given["device"]):
        size = operation.simulated_size
    kernels, block = kernels_and_block(given["words"], given["kernels"], given["block"])
    return cases.Request(
        kernels=kernels,
        block=block,
        grid=given["grid"],
        size=size,
        dtype=given["dtype"],
        seed=given.get("seed", 0),
        source=given["source"],
        defines=cases.parse_defines(given["defines"]),
        options=options,
        peers=given.get("peers", ()),
    )


def planned(name: str, given: dict[str, Any]) -> tuple[list[Series], dict[str, Any]]:
    """Return a list of series, one for each size of --sizes, and the request as the results file records it."""
    from cudabench.plan import cases

    operation = operations.get(name)
    request, several = request_of(operation, given), given.get("sizes")
    if several and given["size"]:
        size = " ".join(map(str, given["size"]))
        raise UsageError(f"--size {size} and --sizes {several} both set the size: keep one.")
    # One number of --sizes is used as the size in every dimension of the operation.
    requests = [replace(request, size=(size,)) for size in sizes(several)] if several else [request]
    make = partial(operations.get, name)
    series = [Series(make, tuple(cases.build(operation, sized))) for sized in requests]
    return series, {**asdict(request), "sizes": several} if several else asdict(request)


@click.pass_context
def _run(ctx: click.Context, name: str, /, **given: Any) -> int:
    output = Output.of(given["json_path"], given["quiet"], given["key"], given["report_path"])
    series, record = planned(name, given)
    _, block = kernels_and_block(given["words"], (), None)
    explain_command = partial(options.explaining, ctx, name, [name], ["--block", *map(str, block)] if block else [])
    return measure(series, record, given, output, explain_command, devices.choose_all)


def measure(
    series: Sequence[Series],
    record: Mapping[str, Any],
    given: dict[str, Any],
    output: Output,
    more: Callable[[str], str],
    choose: Callable[[str], Sequence[devices.Choice]],
    requests: Sequence[UserRequest] = (),
) -> int:
    """Run all series, show their tables, and return the exit code; with --fuzz, run the kernels on other inputs too.

    `record`: the request for the results file; `more`: a function that returns the command that explains a kernel;
    `choose`: a function that returns the devices of --device; `requests`: the requests of a user's own kernels.
    """
    limits = {key: given[key] for key in THRESHOLDS if given[key] is not None}
    choices, cards = pricing.places_of(given, choose)
    simulated, peers = choices[0].kind == "sim", given.get("peers")
    if simulated and limits:
        flags = " and ".join("--" + key.replace("_", "-") for key in limits)
        raise DeviceUnusable(
            f"{flags} needs a GPU: the simulator does not measure time; leave it out or use --device cuda."
        )
    if simulated and peers:
        raise DeviceUnusable(
            f"--peer {peers[0]} needs a GPU: the simulator does not run libraries; leave it out or use --device cuda."
        )
    settings = options.settings(given, simulated=simulated)
    output.refuse_several([case.kernel for planned in series for case in planned.cases], choices)
    run = output.run(series, choices, settings, record, cards=cards, counted=given["limits"])
    run.note(limits)  # exported files list the limits, such as --min-bandwidth, that results missed
    sentences: list[str] = []
    fuzzed = bool(given.get("fuzz"))
    work = _fuzzing(run, series, requests, given, settings, sentences) if fuzzed else run.collect
    run_and_show(run, output, work, partial(show_tables, run, output, None if run.by_card or fuzzed else more))
    if given.get("breakdown"):
        (_, wall), *phases = run.spent.seconds().items()
        sentences.append(
            f"Wall time {wall:.2f} s: " + ", ".join(f"{name} {seconds:.2f}" for name, seconds in phases) + "."
        )
    for sentence in sentences:
        print_notice(sentence)
    return exit_code_of(run.file.results, limits, print_notice) or output.missing_value_code(run)


def _fuzzing(
    run: Run,
    series: Sequence[Series],
    requests: Sequence[UserRequest],
    given: Mapping[str, Any],
    settings: Settings,
    sentences: list[str],
) -> Callable[[], None]:
    """Return a function that runs the kernels, then runs each correct kernel on other inputs.

    The function adds its findings to `sentences`. Raises UsageError, before anything runs, for a kernel that cannot be
    run on other inputs.
    """
    from cudabench.measure import fuzz

    count, where = given["fuzz"], given["where"]
    if run.by_card:
        raise UsageError(
            f"--fuzz {count} takes one card, because inputs do not depend on the card: name one with --on."
        )
    kernels = fuzz.each_kernel(requests, series)
    for request in kernels:
        fuzz.Fuzz(request, run.devices[0], settings, count, where)
    run.note({"fuzz": count, "where": where})

    def add_sentences(result: Result, record: fuzz.FuzzRecord) -> None:
        if record.failed or not given["quiet"]:
            sentences.extend(fuzz.report_lines(result, record))

    def work() -> None:
        run.collect()
        fuzz.fuzz_all(kernels, run, settings, count, where, add_sentences)

    return work


def kernels_and_block(
    words: tuple[str, ...], kernels: tuple[str, ...], block: tuple[int, ...] | None
) -> tuple[tuple[str, ...], tuple[int, ...] | None]:
    """Return the kernels and the block, from the options or from the words `KERNEL_ID DIMX DIMY`.

    `words` are the positional words, `kernels` and `block` the values of --kernel and --block. Raises UsageError if
    both name a kernel or a block.
    """
    if not words:
        return kernels, block
    if len(words) > 1 and not kernels and not any(word[-1:].isdigit() for word in words):
        return words, block
    name, *numbers = words
    typed, integer = " ".join(numbers), rf"[+-]?\d{{1,{MAX_DIGITS}}}"
    refuse(
        (
            len(words) == 2 or len(words) > 3,
            f"'{' '.join(words)}' are {len(words)} arguments: give KERNEL_ID alone, or KERNEL_ID DIMX DIMY, "
            f"as in 3 32 8; or write {name} --block {typed}.",
        ),
        (kernels, f"Two kernels are named, '{name}' and --kernel {''.join(kernels[:1])}: keep one."),
        (numbers and block, f"Two blocks are given, '{typed}' and --block: keep one."),
        (
            not all(re.fullmatch(integer, word, re.ASCII) for word in numbers),
            f"The block '{typed}' is not a pair of whole numbers, as in 32 8.",
        ),
    )
    return (name,), tuple(map(int, numbers)) or block


def exit_code_of(results: Sequence[Result], thresholds: Mapping[str, float], say: Callable[[str], None]) -> int:
    """Return the exit code of results. If all are correct, say which thresholds they missed."""
    if code := exit_code(result.status for result in results):
        return code
    misses = [miss for result in results for miss in missed_thresholds(result, thresholds)]
    for miss in misses:
        say(f"{miss.sentence}: {miss.repair}." if miss.repair else f"{miss.sentence}.")
    return exit_code((), missed=bool(misses))
