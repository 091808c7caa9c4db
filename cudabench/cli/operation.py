"""The command of an operation: `cudabench transpose [KERNEL_ID [DIMX DIMY]] [options]`."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, replace
from functools import partial
from typing import TYPE_CHECKING, Any

import click

from cudabench import operations
from cudabench.cli import complete, pricing
from cudabench.cli import options as families
from cudabench.cli.arguments import MAX_DIGITS, Numbers, SpreadCommand
from cudabench.errors import (
    EXIT_FAILED,
    EXIT_OK,
    EXIT_THRESHOLD,
    EXIT_UNUSABLE,
    EXIT_WRONG,
    DeviceUnusable,
    UsageError,
)
from cudabench.records.planned import Operation, Settings
from cudabench.records.results import Result

if TYPE_CHECKING:
    from cudabench.cards.load import Card
    from cudabench.cli.output import Output
    from cudabench.devices import Choice
    from cudabench.plan.cases import Request
    from cudabench.plan.series import Series

# How types are called elsewhere.
TYPES = {
    "float": "float32", "fp32": "float32", "f32": "float32", "single": "float32", "double": "float64",
    "fp64": "float64", "f64": "float64", "half": "float16", "fp16": "float16", "f16": "float16", "__half": "float16",
    "bf16": "bfloat16", "__nv_bfloat16": "bfloat16", "int": "int32", "i32": "int32", "i8": "int8", "char": "int8",
}  # fmt: skip


OUTPUTS = ("json_path", "report_path", "quiet")  # options of no command that is printed


def operation_command(name: str) -> click.Command:
    """Return the command that measures an operation."""
    operation = operations.get(name)
    return SpreadCommand(
        name,
        params=[
            *problem_options(operation),
            *peer_options(operation),
            families.sizes_option("A..B*2", "Several sizes: doubling, A..B+STEP, or A,B,C."),
            *families.compiler_options(),
            *families.timing_options(),
            families.budget_option(),
            *families.baseline_options(),
            families.jobs_option(),
            *families.limits_options(),
            *families.output_options(),
            families.print_option(),
        ],
        callback=partial(_run, name),
        help=f"{operations.SUMMARIES[name]}\n\n{operation.summary}; 'cudabench list {name}' shows the kernels.",
        context_settings={"help_option_names": ["-h", "--help"]},
    )


def peer_options(operation: Operation) -> list[click.Parameter]:
    """Return what adds libraries' rows."""
    names = list(dict.fromkeys(word for peer in operation.peers for word in (peer.library, peer.name)))
    return [
        families.option(
            "--peer",
            "peers",
            multiple=True,
            metavar="NAME",
            help=f"GPU only: add a library's row: {', '.join(names)}; repeatable."
            if names
            else "No library computes this.",
            shell_complete=complete.words(names),
        )
    ]


def problem_options(operation: Operation) -> list[click.Parameter]:
    """Return what says which kernels run on which problem, with the operation's own number of numbers."""
    dims = operation.block_dimensions
    axes = " ".join("XYZ"[:dims])
    sizes = " ".join(dimension.upper() for dimension in operation.dimensions)
    default = " ".join(map(str, operation.default_size))
    if operation.simulated_size:
        default += f" ({' '.join(map(str, operation.simulated_size))} in the simulator)"
    option = families.option
    return [
        click.Argument(
            ["words"], nargs=-1, metavar="[KERNEL_ID [DIMX DIMY]]", shell_complete=complete.first_kernel(operation)
        ),
        option(
            "-k",
            "--kernel",
            "kernels",
            multiple=True,
            metavar="NAME",
            help="Name, id or glob; repeatable. Default: all.",
            shell_complete=complete.kernels(operation),
        ),
        option("-b", "--block", type=Numbers(dims), metavar=axes, help="Threads per block."),
        option("-g", "--grid", type=Numbers(dims), metavar=axes, help="Blocks. Default: enough to cover the problem."),
        option(
            "-s",
            "--size",
            type=Numbers(len(operation.dimensions)),
            metavar=sizes,
            help=f"Problem size. Default: {default}.",
        ),
        option(
            "-t",
            "--dtype",
            default=next(iter(operation.dtypes)),
            show_default=True,
            metavar="TYPE",
            callback=_type_name,
            help=", ".join(operation.dtypes) + ".",
            shell_complete=complete.words(operation.dtypes),
        ),
        option(
            "--source",
            type=click.Path(),
            metavar="FILE.cu",
            help="Take the kernel from FILE.cu, which has the same parameters.",
        ),
        *(
            option(
                f"--{o.name}",
                type=click.Choice(o.choices) if o.choices else complete.option_type(o),
                default=o.default,
                show_default=True,
                metavar=o.metavar,
                help=o.help,
            )
            for o in operation.options
        ),
    ]


def _type_name(ctx: click.Context, param: click.Parameter, value: str) -> str:
    """Return a type's name as NumPy has it, for the names of C and of other tools."""
    return TYPES.get(value.lower(), value)


def request_of(operation: Operation, given: dict[str, Any]) -> Request:
    """Return what the problem options ask for."""
    from cudabench import devices
    from cudabench.plan import cases

    size = given["size"]
    options = {option.name: given[option.name] for option in operation.options}
    if size is None and operation.size(options) is None and devices.simulates(given["device"]):
        size = operation.simulated_size
    kernels, block = positional(given["words"], given["kernels"], given["block"])
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


def _run(name: str, **given: Any) -> int:
    """Measure what the options ask for and return the exit code."""
    from cudabench import devices
    from cudabench.cli.output import Output
    from cudabench.plan import cases
    from cudabench.plan.series import Series

    operation = operations.get(name)
    several = pricing.several(given)
    given["device"] = "sim" if several else families.on_device(given)
    request = request_of(operation, given)
    output = Output.of(given["json_path"], given["quiet"], given["key"], given["report_path"])
    series = [
        Series(partial(operations.get, name), tuple(cases.build(operation, one))) for one in _sized(request, given)
    ]
    limits = families.thresholds(given)
    chosen = several.choices if several else devices.choose_all(given["device"])
    refuse_thresholds(limits, chosen[0])
    refuse_peers(request.peers, chosen[0])
    record = {**asdict(request), "sizes": given["sizes"]} if given["sizes"] else asdict(request)
    settings = families.settings(given, simulated=chosen[0].kind == "sim")
    cards = several.cards if several else families.priced(given, chosen[0])
    more = None if several else partial(explaining, click.get_current_context(), name, given)
    return measure(series, chosen, settings, record, output, limits, cards=cards, counted=given["limits"], more=more)


def explaining(ctx: click.Context, name: str, given: Mapping[str, Any], kernel: str) -> str:
    """Return the command that explains a kernel of an operation as it was asked for."""
    explain = families.explain_command(ctx, name)
    _, block = positional(given["words"], (), None)
    words = families.retyped(ctx, explain, ("words", "kernels", *OUTPUTS))
    words += ["--block", *map(str, block)] if block else []
    return shlex.join(["cudabench", "explain", name, "-k", kernel, *words])


def _sized(request: Request, given: dict[str, Any]) -> list[Request]:
    """Return the request at each size of --sizes, one number for all dimensions; by itself without."""
    from cudabench.plan.sizes import sizes

    if given["sizes"] is None:
        return [request]
    if given["size"]:
        size = " ".join(map(str, given["size"]))
        raise UsageError(f"--size {size} and --sizes {given['sizes']} both say how large: keep one.")
    return [replace(request, size=(size,)) for size in sizes(given["sizes"])]


def refuse_thresholds(limits: dict[str, float], choice: Choice) -> None:
    """Raise DeviceUnusable where thresholds are to hold on a device that measures no time."""
    if limits and choice.kind == "sim":
        flags = " and ".join("--" + key.replace("_", "-") for key in limits)
        raise DeviceUnusable(f"{flags} needs a GPU: the simulator measures no time; leave it out or use --device cuda.")


def refuse_peers(names: Sequence[str], choice: Choice) -> None:
    """Raise DeviceUnusable where libraries are to run on a device that runs none."""
    if names and choice.kind == "sim":
        raise DeviceUnusable(
            f"--peer {names[0]} needs a GPU: the simulator runs no library; leave it out or use --device cuda."
        )


def measure(
    series: Sequence[Series],
    chosen: Sequence[Choice],
    settings: Settings,
    request: Mapping[str, Any],
    output: Output,
    limits: Mapping[str, float],
    *,
    cards: Sequence[Card] = (),
    counted: bool = False,
    more: Callable[[str], str] | None = None,
) -> int:
    """Run all series, show their tables, and return the exit code.

    cards, counted: as `Run` has them. more: returns the command that explains a kernel.
    """
    from cudabench.cli import output as outputs
    from cudabench.measure.run import Run

    output.refuse_several([case.kernel for one in series for case in one.cases], chosen)
    run = Run(
        series, chosen, settings, request, path=output.path, listener=outputs.Screen(output),
        record=bool(output.report), cards=cards, counted=counted,
    )  # fmt: skip
    run.note(limits)  # an export can then tell what missed them
    outputs.carry_out(run, output, run.collect, partial(outputs.tables, more=more))
    code = exit_code(run.file.results, limits, outputs.say)
    return code or output.lacking(run)


def positional(
    words: tuple[str, ...], kernels: tuple[str, ...], block: tuple[int, ...] | None
) -> tuple[tuple[str, ...], tuple[int, ...] | None]:
    """Return kernels and block with the original form's `KERNEL_ID DIMX DIMY` put in."""
    if not words:
        return kernels, block
    if len(words) > 1 and not kernels and not any(word[-1:].isdigit() for word in words):
        return words, block
    if len(words) == 2 or len(words) > 3:
        raise UsageError(
            f"'{' '.join(words)}' are {len(words)} arguments: give KERNEL_ID alone, or KERNEL_ID DIMX DIMY, "
            f"as in 3 32 8; or write {words[0]} --block {' '.join(words[1:])}."
        )
    if kernels:
        raise UsageError(f"Two kernels are named, '{words[0]}' and --kernel {kernels[0]}: keep one.")
    if len(words) == 1:
        return (words[0],), block
    if block:
        raise UsageError(f"Two blocks are given, '{words[1]} {words[2]}' and --block: keep one.")
    for word in words[1:]:
        if not re.fullmatch(rf"[+-]?\d{{1,{MAX_DIGITS}}}", word, re.ASCII):
            raise UsageError(f"The block '{words[1]} {words[2]}' is no pair of whole numbers, as in 32 8.")
    return (words[0],), (int(words[1]), int(words[2]))


def exit_code(results: Sequence[Result], thresholds: Mapping[str, float], say: Callable[[str], None]) -> int:
    """Return the exit code of finished results: a wrong one outweighs a failed one, that a missed threshold."""
    from cudabench.results.thresholds import missed

    if any(result.status == "wrong" for result in results):
        return EXIT_WRONG
    if any(result.status == "failed" for result in results):
        return EXIT_FAILED
    if results and all(result.status == "skipped" for result in results):
        return EXIT_UNUSABLE
    misses = [miss for result in results for miss in missed(result, thresholds)]
    for miss in misses:
        say(f"{miss.sentence}: {miss.repair}." if miss.repair else f"{miss.sentence}.")
    return EXIT_THRESHOLD if misses else EXIT_OK
