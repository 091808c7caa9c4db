"""Options that commands share."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import fields
from itertools import takewhile
from typing import Any

import click
from click.core import ParameterSource

from cudabench.cards import load as cards
from cudabench.cards import selection
from cudabench.cli import complete
from cudabench.cli.arguments import Finite, Order
from cudabench.records.plan import SIMULATED_TIMEOUT_S, Settings, settings_for

PLACE = click.Path()
# Parameters that the command `explain` lacks or defines differently.
NOT_EXPLAINED = ("words", "file", "kernels", "json_path", "report_path", "quiet", "breakdown")
LISTS = ("card", "price")  # options whose value is a list separated by commas


class Single(click.Option):
    """An option that may be given only once. click's own class would use the last value."""

    def add_to_parser(self, parser: Any, ctx: click.Context) -> None:
        """Let the parser collect all values of the option."""
        parser.add_option(self, self.opts, self.name, action="append")

    def handle_parse_result(
        self, ctx: click.Context, opts: Mapping[str, Any], args: list[str]
    ) -> tuple[Any, list[str]]:
        """Use the only value. Raises click's UsageError if there are several."""
        values = opts.get(str(self.name), [])
        if len(values) > 1 and not ctx.resilient_parsing:
            name = max(self.opts, key=len)
            repair = f"join them, {name} {','.join(values)}" if self.name in LISTS else "keep one"
            raise click.UsageError(
                f"{name} is given {len(values)} times, {' and '.join(values)}; it takes one value: {repair}.", ctx
            )
        return super().handle_parse_result(ctx, {**opts, self.name: values[-1]} if values else opts, args)


def option(shown: str, help: str, name: str = "", **settings: Any) -> click.Option:
    """Return an option from the text that the help shows, such as '-o, --output FILE'.

    If the text has no word for a value, and `settings` has no type, the option is a flag. `name`: the name of the
    command's parameter; by default click takes it from the longest spelling.
    """
    words = shown.split()
    spellings = [word.rstrip(",") for word in takewhile(lambda word: word.startswith("-"), words)]
    metavar = " ".join(words[len(spellings) :]) or None
    if metavar is None and "type" not in settings:
        settings["is_flag"] = True
    option_class = click.Option if settings.keys() & {"is_flag", "multiple"} else Single
    return option_class([*spellings, *filter(None, [name])], help=help, metavar=metavar, **settings)


def without(parameters: Iterable[click.Parameter], *names: str) -> list[click.Parameter]:
    """Return the options without the options that have these names."""
    return [parameter for parameter in parameters if parameter.name not in names]


def device_option(help: str, **settings: Any) -> click.Option:
    """Return the option --device. The value 1 means cuda:1, and sm_90 means sim:sm_90."""

    def full_name(ctx: click.Context, param: click.Parameter, value: str) -> str:
        return f"cuda:{value}" if value.isdecimal() and value.isascii() else re.sub(r"^(?=sm_\d)", "sim:", value)

    return option("-d, --device DEVICE", help, default="auto", show_default=True, callback=full_name, **settings)


COMPILER: list[click.Parameter] = [
    option("-D, --define NAME=VALUE", "Define a macro; repeatable.", "defines", multiple=True),
    device_option("auto, all, cuda, cuda:N, sim, sim:sm_90.", shell_complete=complete.devices),
    option(
        "--timeout S",
        f"A kernel fails after S seconds. Default: {Settings.timeout:g}, simulator {SIMULATED_TIMEOUT_S:g}.",
        type=Finite(0, min_open=True),
    ),
]

# Options that say how times are measured; `settings` reads them.
TIMING: list[click.Parameter] = [
    option(
        "--cache", "cold: flush the L2 before each sample. hot: do not.",
        type=click.Choice(["cold", "hot"]), default="cold", show_default=True,
    ),
    option("--min-time S", "Take samples for at least S seconds.", type=Finite(0), default=0.5, show_default=True),
    option("--max-time S", "Stop sampling after S seconds.", type=Finite(0), default=10.0, show_default=True),
    option("--min-samples N", "Take at least N samples.", type=click.IntRange(1), default=10, show_default=True),
]  # fmt: skip

LEAST = [
    option("--min-bandwidth GBPS", "Exit 4 if a kernel is slower than GBPS.", type=Finite(0)),
    option(
        "--min-copy-fraction F", "Exit 4 if a kernel reaches less than F of the copy's speed, such as 0.9.",
        type=Finite(0),
    ),
]  # fmt: skip

SEED = option("--seed N", "Seed of the random inputs.", type=click.IntRange(0), default=0, show_default=True)
SCHEDULE = option("--schedule reverse|random:SEED", "Simulator only: run the blocks in another order.", type=Order())

OUTPUT: list[click.Parameter] = [
    option("--json PATH", "Write the results; '-' is standard output.", "json_path", type=PLACE),
    option(
        "--report FILE.html", "Write a page: table, limits, source with counts, pictures.", "report_path", type=PLACE
    ),
    option("-q, --quiet", "Print no table and no progress."),
]

# Options that choose the cards of a simulated run; `pricing` reads them. LIMITS is an option for a GPU.
PRICING: list[click.Parameter] = [
    option(
        "--on CARD,...|all",
        f"Simulator only: show the least time on these cards (default {cards.DEFAULT}), all, none, or "
        "FILE.json of 'ceilings'.",
        "card",
        shell_complete=complete.words((*cards.NAMES, selection.ALL, selection.NONE)),
    ),
    option(
        "--price CARD=N,...",
        "With --on: prices of cards for an hour, h100=2.69,l4=0.7; the table adds the cost of a million launches.",
    ),
]
LIMITS = option("--limits", "GPU only: also count accesses in the simulator and name the limiting resource.")


def explaining(ctx: click.Context, form: str, first: Sequence[str], last: Sequence[str], kernel: str) -> str:
    """Return the command line that explains a kernel of an operation or of a file.

    It has `first`, the kernel, those options that the user typed and that `explain` accepts, and `last`. `form` is the
    operation's name, or FILE for a file.
    """
    root: Any = ctx.find_root().command
    words: list[str] = []
    for param in root.make("explain").make(form).params:
        name = str(param.name)
        setting = ctx.params.get(name)
        typed = ctx.get_parameter_source(name) == ParameterSource.COMMANDLINE
        if not typed or name in NOT_EXPLAINED or setting in (None, (), False):
            continue
        flag = [max(param.opts, key=len)] if isinstance(param, click.Option) else []
        for value in setting if param.multiple or param.nargs == -1 else (setting,):
            items = [value] if isinstance(value, str) or not isinstance(value, Iterable) else [*value]
            words += flag if value is True else [*flag, *map(str, items)]
    return shlex.join(["cudabench", "explain", *first, "-k", kernel, *words, *last])


def settings(options: Mapping[str, Any], *, simulated: bool) -> Settings:
    """Return the settings of a run from the values of a command's options.

    Options that the command lacks get their defaults. A command without --no-cpu does not measure the CPU baseline.
    """
    names = {field.name for field in fields(Settings)}
    chosen = {name: value for name, value in options.items() if name in names and value is not None}
    jobs = options.get("jobs") if simulated else 1
    return settings_for(simulated, **{**chosen, "cpu": not options.get("no_cpu", True), "jobs": jobs})
