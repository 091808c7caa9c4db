"""Families of options that commands share."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

import click
from click.core import ParameterSource

from cudabench.cards import load as cards
from cudabench.cli import complete
from cudabench.cli.arguments import Finite
from cudabench.errors import UsageError
from cudabench.model import Settings
from cudabench.results.thresholds import THRESHOLDS

if TYPE_CHECKING:
    from cudabench.devices import Choice

UNPRICED = "none"  # of --on: counts alone
SIMULATED_TIMEOUT_S = 600.0  # the simulator takes a second for what a GPU does in a microsecond


def option(*names: str, **settings: Any) -> click.Option:
    """Return an option from the declarations that click's decorator takes."""
    return click.Option(names, **settings)


def only(parameters: Iterable[click.Parameter], *names: str) -> list[click.Parameter]:
    """Return those of a family that a command takes."""
    return [parameter for parameter in parameters if parameter.name in names]


def without(parameters: Iterable[click.Parameter], *names: str) -> list[click.Parameter]:
    """Return a family but for those that a command has none of, or its own."""
    return [parameter for parameter in parameters if parameter.name not in names]


def compiler_options() -> list[click.Parameter]:
    """Return what goes to the compiler, where the kernels run, and how long they may."""
    return [
        option("-D", "--define", "defines", multiple=True, metavar="NAME=VALUE", help="For the compiler; repeatable."),
        option(
            "-d",
            "--device",
            default="auto",
            show_default=True,
            metavar="DEVICE",
            help="auto, all, cuda, cuda:N, sim, sim:sm_90.",
            shell_complete=complete.devices,
        ),
        option(
            "--timeout",
            type=Finite(0, min_open=True),
            metavar="S",
            help=f"A kernel that runs longer has failed; left out, {Settings.timeout:g}, in the simulator "
            f"{SIMULATED_TIMEOUT_S:g}.",
        ),
    ]


def timing_options() -> list[click.Parameter]:
    """Return the measuring protocol's knobs; `settings` reads them."""
    finite, count = Finite(0), click.IntRange(1)
    shown: dict[str, Any] = {"show_default": True}
    return [
        option(
            "--cache",
            type=click.Choice(["cold", "hot"]),
            default="cold",
            **shown,
            help="L2 flushed before each sample, or not.",
        ),
        option("--min-time", type=finite, default=0.5, **shown, metavar="S", help="Sample for at least S seconds ..."),
        option("--max-time", type=finite, default=10.0, **shown, metavar="S", help="... and at most S."),
        option("--min-samples", type=count, default=10, **shown, metavar="N", help="Take at least N samples."),
        option("--min-bandwidth", type=finite, metavar="GBPS", help="Exit 4 where a kernel is slower than GBPS."),
        option("--min-copy-fraction", type=finite, metavar="F", help="Exit 4 where a kernel is under F of the copy."),
    ]


def budget_option() -> click.Option:
    """Return the bound of a whole run."""
    return option(
        "--budget",
        type=Finite(0, min_open=True),
        metavar="S",
        help="Seconds for the whole run: the kernels share them, and what is not reached is failed.",
    )


def jobs_option() -> click.Option:
    """Return how many kernels are simulated at the same time."""
    return option(
        "--jobs",
        type=click.IntRange(1),
        metavar="N",
        help="Kernels simulated at the same time; left out, as many as there are cores, memory permitting.",
    )


class Order(click.ParamType):  # type: ignore[type-arg, unused-ignore]
    """An order of blocks: reverse, or random:SEED."""

    name = "order"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Return the text, or fail where it is no such order."""
        if not re.fullmatch(r"reverse|random:\d+", value):
            self.fail(f"'{value}' is not an order of blocks: use reverse or random:SEED, such as random:7.", param, ctx)
        return value


def schedule_option() -> click.Option:
    """Return in which order the simulator runs blocks."""
    return option(
        "--schedule",
        type=Order(),
        metavar="reverse|random:SEED",
        help="In the simulator: run the blocks in another order.",
    )


def baseline_options() -> list[click.Parameter]:
    """Return the seed of the inputs and the CPU baseline's knobs."""
    return [
        option(
            "--seed", type=click.IntRange(0), default=0, show_default=True, metavar="N", help="Of the random inputs."
        ),
        option("--no-cpu", is_flag=True, help="Leave the CPU baseline out."),
        option(
            "--cpu-threads",
            type=click.IntRange(1),
            default=1,
            show_default=True,
            metavar="N",
            help="Threads of the CPU baseline.",
        ),
    ]


def output_options() -> list[click.Parameter]:
    """Return where results go."""
    return [
        option(
            "--json",
            "json_path",
            type=click.Path(),
            metavar="PATH",
            help="Write the results file; '-' = standard output.",
        ),
        option(
            "--report",
            "report_path",
            type=click.Path(),
            metavar="FILE.html",
            help="Write a page to look at: ladder, limits, source with its counts, pictures.",
        ),
        option("-q", "--quiet", is_flag=True, help="No table, no progress."),
    ]


def sizes_option(metavar: str, help: str) -> click.Option:
    """Return what asks for several sizes."""
    return option("--sizes", metavar=metavar, help=help)


def limits_options(*, timed: bool = True) -> list[click.Parameter]:
    """Return what asks for limits; timed: the command also measures on a GPU. `priced` reads them."""
    on = option(
        "--on",
        "card",
        metavar="CARD",
        help=f"In the simulator: what the counts allow at best on {', '.join(cards.NAMES)}, or the card of a "
        f"FILE.json of 'cudabench ceilings'; left out, {cards.DEFAULT}; none = counts alone.",
        shell_complete=complete.words((*cards.NAMES, UNPRICED)),
    )
    limits = option("--limits", is_flag=True, help="On a GPU: count too, and name what limits each kernel.")
    return [on, limits] if timed else [on]


def on_device(given: dict[str, Any]) -> str:
    """Return --device, with the architecture of the card of --on where the simulator is named without one.

    Raises UsageError where another architecture is named.
    """
    device: str = given["device"]
    if given.get("card") in (None, UNPRICED):
        return device
    from cudabench import devices

    card = cards.load(given["card"])
    architecture = "sm_" + card.device.compute_capability.replace(".", "")
    if device == "sim" or (device == "auto" and devices.simulates(device)):
        return device if architecture == devices.DEFAULT_SIMULATED else f"sim:{architecture}"
    if device.startswith("sim:") and device[4:].rstrip("af") != architecture:
        raise UsageError(
            f"--device {device} and --on {given['card']} do not go together: that card's code is {architecture}; "
            f"use --device sim:{architecture}, or leave it out."
        )
    return device


def priced(given: dict[str, Any], choice: Choice) -> cards.Card | None:
    """Return the card of --on; without it in the simulator the default, where its architecture is simulated; else None.

    Raises UsageError where --on or --limits do not fit the device.
    """
    if given.get("card") == UNPRICED:
        return None
    if given.get("card") is not None:
        if choice.kind == "cuda":
            raise UsageError(
                f"--on {given['card']} prices the counts of the simulator: on a GPU use --limits, or add --device sim."
            )
        if given.get("limits"):
            raise UsageError("--limits is for a GPU, and --on for the simulator: keep --on.")
        return cards.load(given["card"])
    if given.get("limits") and choice.kind == "sim":
        raise UsageError("--limits holds a measured time against its limits: in the simulator use --on h200.")
    return cards.default(choice.architecture) if choice.kind == "sim" else None


def retyped(ctx: click.Context, other: click.Command, left_out: Sequence[str]) -> list[str]:
    """Return the options that were typed and that another command takes too, as words, but for those left out."""
    words = []
    for param in other.params:
        given = ctx.params.get(param.name or "")
        typed = ctx.get_parameter_source(param.name or "") == ParameterSource.COMMANDLINE
        if not typed or param.name in left_out or given in (None, (), False):
            continue
        flag = [max(param.opts, key=len)] if isinstance(param, click.Option) else []
        for value in given if param.multiple or param.nargs == -1 else (given,):
            plain = [value] if isinstance(value, str) or not isinstance(value, Iterable) else [*value]
            words += flag if value is True else [*flag, *map(str, plain)]
    return words


def print_option() -> click.Option:
    """Return what prints one value, for scripts."""
    return option(
        "--print",
        "key",
        metavar="KEY",
        help="Print one value of the one result, and nothing else: bandwidth_gbps, time.median_s.",
        shell_complete=complete.result_keys,
    )


def settings(options: dict[str, Any], *, simulated: bool) -> Settings:
    """Return the settings that the options of this module ask for; options that a command lacks take their defaults."""
    standard = Settings(timeout=SIMULATED_TIMEOUT_S) if simulated else Settings()
    return Settings(
        cache=options.get("cache", standard.cache),
        min_time=options.get("min_time", standard.min_time),
        max_time=max(options.get("max_time", standard.max_time), options.get("min_time", standard.min_time)),
        min_samples=options.get("min_samples", standard.min_samples),
        timeout=options.get("timeout") or standard.timeout,
        cpu=not options.get("no_cpu", False),
        cpu_threads=options.get("cpu_threads", standard.cpu_threads),
        jobs=options.get("jobs") if simulated else 1,
        budget=options.get("budget"),
        schedule=options.get("schedule"),
    )


def thresholds(options: dict[str, Any]) -> dict[str, float]:
    """Return the thresholds that were given, by option name."""
    return {key: options[key] for key in THRESHOLDS if options.get(key) is not None}
