"""Help with headings: `--help` shows the most used options on one screen, `--help-all` shows everything."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Mapping
from itertools import takewhile
from typing import Any

import click

from cudabench.cli.arguments import Numbers

SCREEN = 40  # a help text with fewer lines than this is shown in full

# The options under each heading, written as the names of the command's parameters.
HEADINGS = {
    "Problem": "kernels kernel size sizes dtype arguments expect constants source peers fuzz where seed matrix image "
    "radius channels index save bytes flops rtol atol profile parameters zips words",
    "Launch": "block axes grid device shared cluster steps",
    "Compiler": "defines include std old_words new_words arch",
    "Timing": "cache min_time max_time min_samples timeout budget limits no_cpu cpu_threads min_bandwidth "
    "min_copy_fraction resume strategy evaluations always",
    "Simulator": "card price prices jobs sim_threads schedule threads banks warp",
    "Verdict": "threshold fail_on strict noise same_model require_base metric base fail_on_slow fail_on_missing over "
    "mads",
    "Output": "json_path report_path quiet breakdown key target target_format target_file output markdown kind as_json "
    "plot",
}
# The options that --help shows if all options do not fit on one screen.
COMMON = (
    "kernels kernel size dtype arguments expect parameters block axes grid device defines old_words "
    "new_words min_time card threads banks json_path report_path target fail_on threshold"
)
# Matches the range that click adds to an option's help, such as `x>=1`; it is removed.
RANGE = re.compile(r";? ?\bx>=?\d+\b|  \[x>=?\d+\]")
OTHER = "Options"  # the heading of all options in commands without options under "Problem"


def _show_all(ctx: click.Context, param: click.Parameter, value: bool) -> None:
    if value and not ctx.resilient_parsing:
        command = ctx.command
        click.echo(command.help_all(ctx) if isinstance(command, Headed) else command.get_help(ctx))
        ctx.exit()


HELP_ALL = click.Option(
    ["--help-all"], is_flag=True, is_eager=True, expose_value=False, callback=_show_all, help="Show all options."
)


class Headed(click.Command):
    """A command whose help has headings, and whose options for numbers accept separate words, as in `--block 32 8`.

    Help text after a form feed is shown only by --help-all.
    """

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Parse the arguments.

        The numbers of an option are joined to one word before click parses, because click takes one word for an option.
        """
        spreads = {name: param.type for param in self.params if isinstance(param.type, Numbers) for name in param.opts}
        joined: list[str] = []
        remaining = [*args]
        while remaining and remaining[0] != "--":
            word = remaining.pop(0)
            if word in spreads and remaining:
                numbers = takewhile(lambda word: re.match(r"-?\d", word), remaining[1 : spreads[word].most])
                values = [remaining[0], *numbers]
                del remaining[: len(values)]
                # Without '=', click would read a negative number as an option.
                word += ("=" if word.startswith("--") else "") + spreads[word].glue.join(values)
            joined.append(word)
        return super().parse_args(ctx, joined + remaining)

    def get_params(self, ctx: click.Context) -> list[click.Parameter]:
        """Return the command's parameters, and --help-all."""
        return [*super().get_params(ctx), HELP_ALL]

    def get_help(self, ctx: click.Context) -> str:
        """Return the whole help if it fits on a screen, else only its most used options."""
        everything = self.help_all(ctx)
        return everything if everything.count("\n") < SCREEN else self._written(ctx, everything=False)

    def help_all(self, ctx: click.Context) -> str:
        """Return the whole help."""
        return self._written(ctx, everything=True)

    def _written(self, ctx: click.Context, *, everything: bool) -> str:
        formatter = ctx.make_formatter()
        self.format_usage(ctx, formatter)
        common, _, extra = inspect.cleandoc(self.help or "").partition("\f")
        for section in (common, extra) if everything else (common,):
            if section.strip():
                formatter.write_paragraph()
                with formatter.indentation():
                    formatter.write_text(section.strip("\n"))
        self.write_lists(ctx, formatter, everything)
        if everything:
            self.format_epilog(ctx, formatter)
        else:
            count = sum(isinstance(param, click.Option) for param in self.params)
            shown = f"all {count} options" if count > 1 else "everything"
            formatter.write_paragraph()
            formatter.write_text(f"'{ctx.command_path} --help-all' shows {shown}.")
        return formatter.getvalue().rstrip("\n")

    def write_lists(self, ctx: click.Context, formatter: click.HelpFormatter, everything: bool) -> None:
        """Write the options under their headings: all of them, or only the most used ones."""
        rows = {
            title: [
                record
                for param in params
                if (everything or param.name in COMMON.split()) and (record := param.get_help_record(ctx))
            ]
            for title, params in self.sections_of().items()
        }
        width = max((len(names) for records in rows.values() for names, _ in records), default=0)
        for title, records in rows.items():
            if records:
                with formatter.section(title):
                    formatter.write_dl([(names.ljust(min(width, 28)), RANGE.sub("", text)) for names, text in records])

    def sections_of(self) -> Mapping[str, list[click.Option]]:
        """Return the options under each heading, in the order of the headings."""
        options = [param for param in self.params if isinstance(param, click.Option)]
        by_name = {name: title for title, names in HEADINGS.items() for name in names.split()}
        # Options that are not in HEADINGS describe the operation's problem, if the command has options under "Problem".
        default = "Problem" if any(by_name.get(str(option.name)) == "Problem" for option in options) else OTHER
        sections: dict[str, list[click.Option]] = {title: [] for title in (OTHER, *HEADINGS)}
        for option in options:
            sections[by_name.get(str(option.name), default)].append(option)
        return sections


def headed(name: str, *params: click.Parameter, **settings: Any) -> Callable[[Callable[..., int]], Headed]:
    """Return a decorator that makes a command with these parameters from a function.

    The help text is the function's docstring, unless `settings` has another one.
    """

    def command(function: Callable[..., int]) -> Headed:
        return Headed(name, params=[*params], callback=function, **{"help": function.__doc__, **settings})

    return command
