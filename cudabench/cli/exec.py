"""`cudabench exec main.cu ...` and `cudabench exec ./app`: runs a whole, unedited program in the simulator.

Its host code runs on the CPU; its kernels run in the simulator.
"""

from __future__ import annotations

import re
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from cudabench.cli import options
from cudabench.cli.arguments import Finite
from cudabench.cli.explain import simulated
from cudabench.cli.help import Headed
from cudabench.cli.options import option
from cudabench.cli.output import Output, interruption_of, print_notice
from cudabench.cli.pricing import check_architecture
from cudabench.errors import (
    EXIT_FAILED,
    EXIT_OK,
    EXIT_UNUSABLE,
    EXIT_WRONG,
    UsageError,
    exit_code,
    most_serious,
    refuse,
)
from cudabench.views import console

if TYPE_CHECKING:
    from cudabench.cards.load import Card
    from cudabench.programs.launches import Choice
    from cudabench.programs.run import ProgramRequest, ProgramRun

HELP = """Run a whole program, unedited and without a GPU: its host code as it is, its kernels in the simulator,
checked, counted and explained.

\b
cudabench exec main.cu                  compile with nvcc, and run
cudabench exec main.cu util.cu -- 1024  more sources, and an argument for the program
cudabench exec ./app -- --size 64       a program that cudabench-nvcc built, or nvcc with -cudart shared

The host code runs with your rights, as after any compiler: run only programs that you trust.

\f
The program's own input and output pass through; then come a table with a row for each kernel, and advice.

Of launches of one kernel with one geometry the 1st, 2nd, 4th, 8th and so on are checked and counted; the others run
unchecked, since later ones need their results. --checked, --kernel and --launches choose otherwise.

Exit codes: 0 the program ended with 0 and nothing was found, 1 it ended otherwise, 3 a hazard or an error of the host
code, 5 a needed part is missing, 130 interrupted.
"""


class _Program(Headed):
    """A command that keeps the words after -- for the program."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Parse the words before --, and put those after it into `ctx.meta`."""
        at = args.index("--") if "--" in args else len(args)
        ctx.meta["arguments"] = tuple(args[at + 1 :])
        return super().parse_args(ctx, args[:at])


@click.pass_context
def _exec(ctx: click.Context, /, **given: Any) -> int:
    from cudabench.programs.run import ProgramRun
    from cudabench.views.progress import CornerMessage

    files, arguments = given["files"], ctx.meta["arguments"]
    refuse(
        (
            not files,
            "exec needs a program: cudabench exec main.cu, or cudabench exec ./app; 'cudabench exec --help' shows "
            "examples.",
        )
    )
    output = Output.of(given["json_path"], given["quiet"], report_path=given["report_path"])
    cards = _cards(given)
    choice = _choice(given)
    with tempfile.TemporaryDirectory(prefix="cudabench-") as folder:
        program = _built(given, cards, Path(folder))
        request = _request_of(
            given, (*files, *(("--", *arguments) if arguments else ())), (program, *arguments), choice, cards
        )
        run = ProgramRun(request, path=output.path, record=bool(output.report))
        with CornerMessage(lambda: run.progress_text, shown=not given["quiet"]):
            stopped = interruption_of(run.collect)
    output.deliver(run.file)
    if not given["quiet"]:
        from cudabench.views import program as page

        page.show_program(console.table_console(output.to_stdout), run.file, cards)
    for line in run.lines:
        click.echo(line, err=output.to_stdout)
    code = _exit_code(run)
    if stopped:
        raise stopped
    return code


def _cards(given: dict[str, Any]) -> tuple[Card, ...]:
    """Return the cards of --on, which must have the same architecture. Raises UsageError if they have several."""
    from cudabench.cards import load as loading
    from cudabench.cards import selection

    device = simulated(given["device"], "exec")
    names = given["card"]
    cards = (
        selection.cards_of_option(names)
        if names
        else (replace(loading.package_card(loading.DEFAULT), chosen_by_user=False),)
    )
    architectures = list(dict.fromkeys(card.architecture for card in cards))
    if len(architectures) > 1:
        raise UsageError(
            f"--on {names}: a program is compiled for one architecture, and these cards have "
            f"{', '.join(architectures)}: name cards of one."
        )
    check_architecture(device, cards[0].key, architectures)
    return cards


def _choice(given: dict[str, Any]) -> Choice:
    """Return which launches the simulator checks and counts, from --launches, --checked and --kernel."""
    from cudabench.programs.launches import Choice

    numbers = []
    for word in filter(None, (given["launches"] or "").split(",")):
        match = re.fullmatch(r"([1-9]\d{0,8})(?:-([1-9]\d{0,8}))?", word, re.ASCII)
        if match is None or int(match[2] or match[1]) < int(match[1]):
            raise UsageError(
                f"--launches {given['launches']}: '{word}' is not a launch's number or a range, as in 1,5-9."
            )
        numbers.append((int(match[1]), int(match[2] or match[1])))
    checked = given["checked"]
    if checked is not None and checked != "all" and not re.fullmatch(r"\d{1,9}", checked, re.ASCII):
        raise UsageError(f"--checked {checked} is not a number of launches: write a number, or all.")
    if numbers and checked is not None:
        raise UsageError(f"--launches {given['launches']} and --checked {checked} both choose launches: keep one.")
    checked_count = None if checked in (None, "all") else int(checked)
    return Choice(given["kernel"] or "", tuple(numbers), checked_count, checked == "all")


def _built(given: dict[str, Any], cards: tuple[Card, ...], folder: Path) -> str:
    """Return the path of the program. If the files are sources, they are compiled into `folder`."""
    from cudabench.programs import build
    from cudabench.views.progress import Waiting

    files = given["files"]
    sources = [file for file in files if file.endswith(build.SOURCES)]
    if not sources:
        if len(files) > 1:
            raise UsageError(
                f"exec takes one program, not {' and '.join(files)}: write its arguments after --, as in "
                f"cudabench exec {files[0]} -- {' '.join(files[1:])}."
            )
        return build.check_program(files[0])
    words = [word.replace("--std", "-std") for word in _words(given)]
    with Waiting("compiling", shown=not given["quiet"]):
        return str(build.build_program(files, [card.architecture for card in cards], words, folder))


def _words(given: dict[str, Any]) -> list[str]:
    """Return the compiler options as nvcc takes them: -I, -D and --std."""
    words = [f"-I{value}" for value in given["include"]] + [f"-D{value}" for value in given["defines"]]
    return [*words, f"--std={given['std']}"] if given["std"] else words


def _request_of(
    given: dict[str, Any], shown: tuple[str, ...], command: tuple[str, ...], choice: Choice, cards: tuple[Card, ...]
) -> ProgramRequest:
    from cudabench.programs.run import ProgramRequest

    settings = options.settings(given, simulated=True)
    to_stderr = given["json_path"] == "-"
    arrays = given["save_arrays"]
    if arrays and not given["lines"]:
        raise UsageError(f"--save-arrays {arrays} is for the lines of --lines: add --lines.")
    return ProgramRequest(
        shown, command, choice, settings, cards, tuple(given["include"]),
        lines=given["lines"], arrays=Path(arrays) if arrays else None, words=tuple(_words(given)), to_stderr=to_stderr,
    )  # fmt: skip


def _exit_code(run: ProgramRun) -> int:
    """Return the exit code, and print each reason for it that the table does not show."""
    program, codes = run.program, [exit_code(result.status for result in run.file.results)]
    if any(result.status == "skipped" for result in run.file.results):
        codes.append(EXIT_UNUSABLE)
    for sentence in run.unsupported:
        print_notice(f"{sentence}.")
        codes.append(EXIT_UNUSABLE)
    if program.missing:
        codes.append(EXIT_UNUSABLE)
    if run.never_connected:
        print_notice("The program made no CUDA call that reached cudabench: nothing was run on a simulated card.")
    if run.stopped:
        print_notice(
            f"--budget {run.request.settings.budget:g} s ended the program early: its later launches were not seen."
        )
        codes.append(EXIT_FAILED)
    if any(finding.kind != "never-freed" for finding in program.findings):
        codes.append(EXIT_WRONG)
    if program.exit_code:
        print_notice(f"{run.ended}.")
        codes.append(EXIT_FAILED)
    return most_serious(codes) or EXIT_OK


command = _Program(
    "exec",
    params=[
        click.Argument(["files"], nargs=-1, type=click.Path(path_type=str), metavar="FILE.cu ...|APP [-- ARGS]"),
        option("-k, --kernel GLOB", "Check and count only launches of kernels with such names."),
        option("--launches LIST", "Check and count only these launches of each kernel, from 1: 1,5-9."),
        option("--checked N|all", "Check and count the first N launches of each kernel and geometry, or all."),
        option("-D, --define NAME=VALUE", "Define a macro; repeatable.", "defines", multiple=True),
        option("-I, --include FOLDER", "Folder of headers; repeatable.", multiple=True),
        option("--std", "C++ standard.", type=click.Choice(["c++11", "c++14", "c++17", "c++20"])),
        options.device_option("auto, sim, sim:sm_90."),
        option(
            "--on CARD,...", "The cards whose code is made and whose bounds are shown. Default: h100.", "card",
        ),
        option("--budget S", "End the program after S seconds, and show what was seen.", type=Finite(0, min_open=True)),
        options.SCHEDULE,
        option("--lines", "Print the 'cudabench run' line of each kernel's first launch."),
        option("--save-arrays DIR", "With --lines: save what the arrays of these launches hold."),
        *options.OUTPUT,
    ],
    callback=_exec,
    help=HELP,
)  # fmt: skip
