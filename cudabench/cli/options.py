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
from cudabench.cli.pricing import price_option
from cudabench.errors import UsageError
from cudabench.records.planned import Settings
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
        option("-D", "--define", "defines", multiple=True, metavar="NAME=VALUE", help="Define a macro; repeatable."),
        option(
            "-d",
            "--device",
            default="auto",
            show_default=True,
            metavar="DEVICE",
            callback=device_name,
            help="auto, all, cuda, cuda:N, sim, sim:sm_90.",
            shell_complete=complete.devices,
        ),
        option(
            "--timeout",
            type=Finite(0, min_open=True),
            metavar="S",
            help=f"A kernel fails after S seconds. Default: {Settings.timeout:g}, simulator {SIMULATED_TIMEOUT_S:g}.",
        ),
    ]


def device_name(ctx: click.Context, param: click.Parameter, value: str) -> str:
    """Return a device as the tool calls it: a number alone is a GPU's, an architecture alone the simulator's."""
    return f"cuda:{value}" if value.isdecimal() and value.isascii() else re.sub(r"^(?=sm_\d)", "sim:", value)


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
            help="cold: flush the L2 before each sample. hot: do not.",
        ),
        option(
            "--min-time", type=finite, default=0.5, **shown, metavar="S", help="Take samples for at least S seconds."
        ),
        option("--max-time", type=finite, default=10.0, **shown, metavar="S", help="Stop sampling after S seconds."),
        option("--min-samples", type=count, default=10, **shown, metavar="N", help="Take at least N samples."),
        option("--min-bandwidth", type=finite, metavar="GBPS", help="Exit 4 if a kernel is slower than GBPS."),
        option(
            "--min-copy-fraction",
            type=finite,
            metavar="F",
            help="Exit 4 if a kernel reaches less than F of the copy's speed, such as 0.9.",
        ),
    ]


def budget_option() -> click.Option:
    """Return the bound of a whole run."""
    return option(
        "--budget",
        type=Finite(0, min_open=True),
        metavar="S",
        help="Time limit of the whole run. Kernels that get no time are reported as failed.",
    )


def jobs_option() -> click.Option:
    """Return how many kernels are simulated at the same time."""
    return option(
        "--jobs",
        type=click.IntRange(1),
        metavar="N",
        help="Simulate N kernels at the same time. Default: one a core, fewer if memory is short.",
    )


class Order(click.ParamType):  # type: ignore[type-arg, unused-ignore]
    """An order of blocks: reverse, or random:SEED."""

    name = "order"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Return the text, or fail where it does not name an order."""
        if not re.fullmatch(r"reverse|random:\d+", value):
            self.fail(f"'{value}' is not an order of blocks: use reverse or random:SEED, such as random:7.", param, ctx)
        return value


def schedule_option() -> click.Option:
    """Return in which order the simulator runs blocks."""
    return option(
        "--schedule",
        type=Order(),
        metavar="reverse|random:SEED",
        help="Simulator only: run the blocks in another order.",
    )


def baseline_options() -> list[click.Parameter]:
    """Return the seed of the inputs and the CPU baseline's knobs."""
    return [
        option(
            "--seed",
            type=click.IntRange(0),
            default=0,
            show_default=True,
            metavar="N",
            help="Seed of the random inputs.",
        ),
        option("--no-cpu", is_flag=True, help="Skip the CPU baseline."),
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
            help="Write the results; '-' is standard output.",
        ),
        option(
            "--report",
            "report_path",
            type=click.Path(),
            metavar="FILE.html",
            help="Write a page: table, limits, source with counts, pictures.",
        ),
        option("-q", "--quiet", is_flag=True, help="Print no table and no progress."),
    ]


def sizes_option(metavar: str, help: str) -> click.Option:
    """Return what asks for several sizes."""
    return option("--sizes", metavar=metavar, help=help)


def limits_options(*, timed: bool = True) -> list[click.Parameter]:
    """Return what asks for limits; timed: the command also measures on a GPU. `priced` reads them."""
    on = option(
        "--on",
        "card",
        metavar="CARD,...|all",
        help=f"Simulator only: the least time on a card (default {cards.DEFAULT}), on several, on all or none, or "
        "FILE.json of 'ceilings'.",
        shell_complete=complete.words((*cards.NAMES, "all", UNPRICED)),
    )
    limits = option(
        "--limits", is_flag=True, help="GPU only: also count accesses in the simulator and name the limiting resource."
    )
    return [on, price_option(), limits] if timed else [on, price_option()]


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


def priced(given: dict[str, Any], choice: Choice) -> tuple[cards.Card, ...]:
    """Return the card of --on; without it in the simulator the default, where its architecture is simulated; else none.

    Raises UsageError where --on or --limits do not fit the device.
    """
    if given.get("card") == UNPRICED:
        return ()
    if given.get("card") is not None:
        if choice.kind == "cuda":
            raise UsageError(
                f"--on {given['card']} prices the counts of the simulator: on a GPU use --limits, or add --device sim."
            )
        if given.get("limits"):
            raise UsageError("--limits is for a GPU, and --on for the simulator: keep --on.")
        return (cards.load(given["card"]),)
    if given.get("limits") and choice.kind == "sim":
        raise UsageError("--limits holds a measured time against its limits: in the simulator use --on h200.")
    card = cards.default(choice.architecture) if choice.kind == "sim" else None
    return () if card is None else (card,)


def explain_command(ctx: click.Context, name: str) -> click.Command:
    """Return the command that explains an operation's kernels, or those of a file."""
    root = ctx.find_root().command
    assert isinstance(root, click.Group)
    explain = root.get_command(ctx, "explain")
    assert isinstance(explain, click.Group)
    found = explain.get_command(ctx, name)
    assert found is not None
    return found


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
        help="Print only one value, such as bandwidth_gbps or time.median_s.",
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
