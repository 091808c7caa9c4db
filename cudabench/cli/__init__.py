"""The command line: parse, call, render, exit code. Each command is a module that loads when it is used."""

from __future__ import annotations

import os
import sys
from importlib import import_module
from typing import Any, NoReturn

import click

from cudabench import __version__, operations, text
from cudabench.errors import EXIT_INTERRUPTED, CudabenchError, did_you_mean

# name -> (module, help)
COMMANDS = {
    "list": ("cudabench.cli.list", "Show the kernels of each operation: id, name, idea, default block."),
    "run": ("cudabench.cli.run", "Run any kernel of your own from a .cu file, with no host code."),
    "explain": ("cudabench.cli.explain", "Explain a kernel's accesses and hazards line by line (simulator)."),
    "compare": ("cudabench.cli.compare", "Compare results files: what got faster, slower or cannot be told."),
    "export": (
        "cudabench.cli.export",
        "Convert results files: CSV, Markdown, JUnit, SARIF, Bencher and more.",
    ),
    "sweep": ("cudabench.cli.sweep", "Measure a kernel with every sensible block; the best ones twice."),
    "schema": ("cudabench.cli.schema", "Print the JSON Schema of the results file, or its keys as a page."),
    "plot": ("cudabench.cli.plot", "Draw results: a ladder, bandwidth over size, a sweep."),
    "info": ("cudabench.cli.info", "Show what this machine can do, and what would mend each lack."),
}

HELP = """Run CUDA kernels from .cu files: verify them, time them against a copy and the card's peak, and without
a GPU execute and explain them in a simulator.

\b
  cudabench transpose                                  the whole ladder
  cudabench transpose --kernel smem-pad --block 32 8   one kernel
  cudabench transpose 3 32 8                           the same, by id
  cudabench transpose --help                           all options

Exit codes: 0 done and right, 1 failed, 2 usage, 3 wrong result or hazard, 4 threshold missed, 5 device not usable,
130 interrupted.
"""


class Commands(click.Group):
    """The group of commands, which imports a command's module only when it is used."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the operations, then the other commands."""
        return [*operations.SUMMARIES, *COMMANDS]

    def get_command(self, ctx: click.Context, name: str) -> click.Command | None:
        """Return a command, loading its module."""
        if name in operations.SUMMARIES:
            from cudabench.cli.operation import operation_command

            return operation_command(name)
        if name in COMMANDS:
            command: click.Command = import_module(COMMANDS[name][0]).command
            return command
        return None

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Return the command that the arguments start with, or suggest one."""
        known = self.list_commands(ctx)
        if args and args[0] not in known and not args[0].startswith("-"):
            raise click.UsageError(
                f"'{args[0]}' is neither operation nor command.{did_you_mean(args[0], known)} "
                "'cudabench --help' shows them."
            )
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write both lists from the registries, so that help imports no command."""
        with formatter.section("Operations"):
            formatter.write_dl(list(operations.SUMMARIES.items()))
        with formatter.section("Commands"):
            formatter.write_dl([(name, summary) for name, (_, summary) in COMMANDS.items()])


@click.group(
    cls=Commands, help=HELP, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100}
)
@click.version_option(__version__, prog_name="cudabench")
def group() -> None:
    """Carry the commands; the help text is HELP."""


def main(arguments: list[str] | None = None) -> NoReturn:
    """Run the command line and leave with its exit code. No error reaches the user as a traceback."""
    sys.exit(invoke(arguments))


def invoke(arguments: list[str] | None = None) -> int:
    """Run the command line and return its exit code; errors are one sentence on standard error."""
    try:
        value: Any = group.main(args=arguments, prog_name="cudabench", standalone_mode=False)
        return value if isinstance(value, int) else 0
    except CudabenchError as error:
        return _say(str(error), error.exit_code)
    except click.exceptions.NoArgsIsHelpError as error:
        click.echo(error.format_message())
        return 0
    except click.ClickException as error:
        return _say(error.format_message(), error.exit_code)
    except (KeyboardInterrupt, click.Abort):
        return _say("interrupted.", EXIT_INTERRUPTED)
    except MemoryError:
        return _say("this machine's memory is too small for the problem: use a smaller --size.", 1)
    except BrokenPipeError:
        # The reader of a pipe has gone, as `| head` does; Python would complain again at exit.
        sys.stdout = None
        return 1
    except Exception as error:
        if os.environ.get("CUDABENCH_TRACEBACK"):
            raise
        what = f"{type(error).__name__}: {error}"
        return _say(f"this is a defect of cudabench ({what}); CUDABENCH_TRACEBACK=1 shows where.", 1)


def _say(message: str, code: int) -> int:
    click.secho("Error: ", fg="red", err=True, nl=False)
    click.echo(text.log(message), err=True)
    return code
