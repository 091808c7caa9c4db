"""The command of an operation: `cudabench transpose [KERNEL_ID [DIMX DIMY]] [options]`."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import click

from cudabench import operations
from cudabench.cli.arguments import Numbers, SpreadCommand
from cudabench.errors import (
    EXIT_FAILED,
    EXIT_OK,
    EXIT_THRESHOLD,
    EXIT_WRONG,
    DeviceUnusable,
    UsageError,
)
from cudabench.model import Result, Settings


def operation_command(name: str) -> click.Command:
    """Return the command of an operation, with its own number of block and size numbers."""
    operation = operations.get(name)
    dims = operation.block_dimensions
    axes = " ".join("XYZ"[:dims])
    sizes = " ".join(dimension.upper() for dimension in operation.dimensions)
    params: list[click.Parameter] = [
        click.Argument(["words"], nargs=-1, metavar="[KERNEL_ID [DIMX DIMY]]"),
        _option(
            "-k",
            "--kernel",
            "kernels",
            multiple=True,
            metavar="NAME",
            help="Name, id or glob; repeatable; 'all' = the ladder.",
        ),
        _option("-b", "--block", type=Numbers(dims), metavar=axes, help="Threads per block."),
        _option("-g", "--grid", type=Numbers(dims), metavar=axes, help="Blocks; left out, the problem is covered."),
        _option(
            "-s",
            "--size",
            type=Numbers(len(operation.dimensions)),
            metavar=sizes,
            help=f"Problem size; left out, {' '.join(map(str, operation.default_size))}.",
        ),
        _option(
            "-t",
            "--dtype",
            default="float32",
            show_default=True,
            metavar="TYPE",
            help=", ".join(operation.dtypes) + ".",
        ),
        _option(
            "--source", metavar="FILE.cu", help="Take the kernel from this file: same parameters, same verification."
        ),
        _option(
            "-D", "--define", "defines", multiple=True, metavar="NAME=VALUE", help="Passed to the compiler; repeatable."
        ),
        _option(
            "-d",
            "--device",
            default="auto",
            show_default=True,
            metavar="DEVICE",
            help="auto, cuda, cuda:N, sim, sim:sm_90.",
        ),
        _option(
            "--cache",
            type=click.Choice(["cold", "hot"]),
            default="cold",
            show_default=True,
            help="L2 flushed before each sample, or not.",
        ),
        _option(
            "--min-time",
            type=click.FloatRange(0),
            default=0.5,
            show_default=True,
            metavar="S",
            help="Sample for at least S seconds ...",
        ),
        _option(
            "--max-time",
            type=click.FloatRange(0),
            default=10.0,
            show_default=True,
            metavar="S",
            help="... and at most S.",
        ),
        _option(
            "--min-samples",
            type=click.IntRange(1),
            default=10,
            show_default=True,
            metavar="N",
            help="Take at least N samples.",
        ),
        _option(
            "--timeout",
            type=click.FloatRange(0, min_open=True),
            default=60.0,
            show_default=True,
            metavar="S",
            help="A kernel that runs longer has failed.",
        ),
        _option(
            "--seed", type=click.IntRange(0), default=0, show_default=True, metavar="N", help="Of the random inputs."
        ),
        _option("--no-cpu", is_flag=True, help="Leave the CPU baseline out."),
        _option(
            "--cpu-threads",
            type=click.IntRange(1),
            default=1,
            show_default=True,
            metavar="N",
            help="Threads of the CPU baseline.",
        ),
        _option("--json", "json_path", metavar="PATH", help="Write the results file; '-' = standard output."),
        _option(
            "--min-bandwidth",
            type=click.FloatRange(0),
            metavar="GBPS",
            help="Exit 4 where a kernel is slower than GBPS.",
        ),
        _option(
            "--min-copy-fraction",
            type=click.FloatRange(0),
            metavar="F",
            help="Exit 4 where a kernel is under F of the copy.",
        ),
        *(
            _option(f"--{o.name}", type=o.type, default=o.default, show_default=True, metavar=o.metavar, help=o.help)
            for o in operation.options
        ),
        _option("-q", "--quiet", is_flag=True, help="No table, no progress."),
    ]
    return SpreadCommand(
        name,
        params=params,
        callback=partial(_run, name),
        help=f"{operations.SUMMARIES[name]}\n\n{operation.summary}; 'cudabench list {name}' shows the kernels.",
        context_settings={"help_option_names": ["-h", "--help"]},
    )


def _option(*names: str, **settings: Any) -> click.Option:
    return click.Option(names, **settings)


def _run(
    name: str, words: tuple[str, ...], kernels: tuple[str, ...], block: tuple[int, ...] | None, **options: Any
) -> int:
    """Measure what the options ask for and return the exit code."""
    from cudabench import cases, devices
    from cudabench.cli.report import Report

    kernels, block = positional(words, kernels, block)
    operation = operations.get(name)
    request = cases.Request(
        kernels=kernels,
        block=block,
        grid=options["grid"],
        size=options["size"],
        dtype=options["dtype"],
        seed=options["seed"],
        source=options["source"],
        defines=cases.parse_defines(options["defines"]),
        options={option.name: options[option.name] for option in operation.options},
    )
    path = json_target(options["json_path"])
    planned = cases.build(operation, request)
    settings = Settings(
        cache=options["cache"],
        min_time=options["min_time"],
        max_time=max(options["max_time"], options["min_time"]),
        min_samples=options["min_samples"],
        timeout=options["timeout"],
        cpu=not options["no_cpu"],
        cpu_threads=options["cpu_threads"],
    )
    thresholds = {key: options[key] for key in ("min_bandwidth", "min_copy_fraction") if options[key] is not None}
    choice = devices.choose(options["device"])
    if thresholds and choice.kind == "sim":
        flags = " and ".join("--" + key.replace("_", "-") for key in thresholds)
        raise DeviceUnusable(f"{flags} needs a GPU: the simulator measures no time; leave it out or use --device cuda.")
    report = Report(
        operation,
        planned,
        choice,
        settings,
        request,
        path=path,
        to_stdout=options["json_path"] == "-",
        quiet=options["quiet"],
    )
    try:
        report.collect(partial(operations.get, name))
    except KeyboardInterrupt:
        report.show()
        raise
    report.show()
    return exit_code(report.results, thresholds, report.say)


def positional(
    words: tuple[str, ...], kernels: tuple[str, ...], block: tuple[int, ...] | None
) -> tuple[tuple[str, ...], tuple[int, ...] | None]:
    """Return kernels and block with the original form's `KERNEL_ID DIMX DIMY` put in."""
    if not words:
        return kernels, block
    if len(words) == 2 or len(words) > 3:
        raise UsageError(
            f"'{' '.join(words)}' are {len(words)} arguments: give KERNEL_ID alone, or KERNEL_ID DIMX DIMY, "
            "as in 3 32 8."
        )
    if kernels:
        raise UsageError(f"Two kernels are named, '{words[0]}' and --kernel {kernels[0]}: keep one.")
    if len(words) == 1:
        return (words[0],), block
    if block:
        raise UsageError(f"Two blocks are given, '{words[1]} {words[2]}' and --block: keep one.")
    for word in words[1:]:
        if not word.lstrip("+-").isdigit():
            raise UsageError(f"The block '{words[1]} {words[2]}' is no pair of whole numbers, as in 32 8.")
    return (words[0],), (int(words[1]), int(words[2]))


def json_target(text: str | None) -> Path | None:
    """Return the path of the results file, checked, or None where there is none or it is standard output."""
    from cudabench import results

    if text is None or text == "-":
        return None
    path = Path(text)
    results.check_target(path)
    return path


def exit_code(results: list[Result], thresholds: dict[str, float], say: Callable[[str], None]) -> int:
    """Return the exit code of finished results: a wrong one outweighs a failed one, that a missed threshold."""
    if any(result.status == "wrong" for result in results):
        return EXIT_WRONG
    if any(result.status == "failed" for result in results):
        return EXIT_FAILED
    missed = False
    for result in results:
        for key, figure, unit in (
            ("min_bandwidth", result.bandwidth_gbps, "GB/s"),
            ("min_copy_fraction", result.copy_fraction, "of the copy"),
        ):
            if result.status == "ok" and key in thresholds and (figure is None or figure < thresholds[key]):
                have = "nothing" if figure is None else f"{figure:.4g}"
                say(f"{result.kernel} reached {have} {unit}, under --{key.replace('_', '-')} {thresholds[key]:g}.")
                missed = True
    return EXIT_THRESHOLD if missed else EXIT_OK
