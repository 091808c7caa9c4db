"""The class of all command groups. A group loads a command only when the command is used."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import click
from click.shell_completion import CompletionItem

from cudabench import operations
from cudabench.cli.help import Headed
from cudabench.errors import did_you_mean

FILE = "FILE.cu"
CUDA_FILES = (".cu", ".cuh")


class LazyGroup(Headed, click.Group):
    """A group that knows the names and summaries of its commands, and makes a command only when the command is used.

    `sections`: the lists of commands in the help, by heading, each with the commands' summaries. `make` returns the
    command with a given name. `kind` completes the error "'X' is ..." for an unknown word. If FILE.cu is one of the
    names, a first argument that ends in .cu or .cuh selects this command; so does --profile as the first argument.
    """

    def __init__(
        self,
        *args: Any,
        sections: Mapping[str, Mapping[str, str]],
        make: Callable[[str], click.Command],
        kind: str,
        **settings: Any,
    ) -> None:
        super().__init__(*args, **settings)
        self.sections, self.make, self.kind = sections, make, kind
        self.summaries = {name: text for section in sections.values() for name, text in section.items()}

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the names of the commands, in the order in which the help lists them."""
        return [*self.summaries]

    def get_command(self, ctx: click.Context, name: str) -> click.Command | None:
        """Return the command with this name, which is made now; None for an unknown name."""
        return self.make(name) if name in self.summaries else None

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Parse the arguments.

        If --profile comes first, insert FILE.cu before it, since the profile itself names its file.
        """
        if FILE in self.summaries and args and (args[0] == "--profile" or args[0].startswith("--profile=")):
            args = [FILE, *args]
        return super().parse_args(ctx, args)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Return the command that the first argument names. For an unknown word, raise UsageError with a suggestion."""
        if FILE in self.summaries and args and args[0] != FILE and args[0].endswith(CUDA_FILES):
            args = [FILE, *args]
        elif args and args[0] not in self.summaries and not args[0].startswith("-") and not ctx.resilient_parsing:
            names = [name for name in self.summaries if name != FILE]
            raise click.UsageError(
                f"'{args[0]}' is {self.kind}.{did_you_mean(args[0], names)} '{ctx.command_path} --help' lists "
                "the commands.",
                ctx,
            )
        return super().resolve_command(ctx, args)

    def write_lists(self, ctx: click.Context, formatter: click.HelpFormatter, everything: bool) -> None:
        """Write the lists of commands without loading the commands.

        The short help lists only the names of operations.
        """
        width = max(map(len, self.summaries))
        for heading, summaries in self.sections.items():
            with formatter.section(heading):
                if heading == "Operations" and not everything:
                    formatter.write_text(", ".join(summaries))
                else:
                    formatter.write_dl([(name.ljust(width), text) for name, text in summaries.items()])
        super().write_lists(ctx, formatter, everything)

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        """Return the commands, options and files that can complete a word. No command is loaded."""
        commands = [
            CompletionItem(name, help=text)
            for name, text in self.summaries.items()
            if name != FILE and name.startswith(incomplete)
        ]
        files = [CompletionItem(incomplete, type="file")] if FILE in self.summaries else []
        return [*files, *commands, *click.Command.shell_complete(self, ctx, incomplete)]


def two_forms(name: str, files: str, make: Callable[[str], click.Command], **more: Any) -> LazyGroup:
    """Return a group with a command for each operation and a command for FILE.cu.

    `files` is the summary of the command for FILE.cu; `make` returns the command with a given name.
    """
    return LazyGroup(
        name,
        sections={"Operations": operations.SUMMARIES, "Files": {FILE: files}},
        make=make,
        kind="neither an operation nor a .cu file",
        **more,
    )
