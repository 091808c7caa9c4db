"""`cudabench exec main.cu ...` and `cudabench exec ./app`: runs a whole, unedited program.

In the simulator, its host code runs on the CPU, and its kernels are checked and counted. On a GPU, its launches are
listed with their times.
"""

from __future__ import annotations

import re
import tempfile
from collections.abc import Sequence
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
from cudabench.devices import simulates, usable_gpu
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
    from cudabench.programs.gpu_run import GpuRun
    from cudabench.programs.launches import Choice
    from cudabench.programs.run import ProgramRequest, ProgramRun

HELP = """Run a whole, unedited program. Without a GPU, its kernels run in the simulator, which checks, counts and
explains them. On a GPU, its launches are listed with their times.

\b
cudabench exec main.cu                  compile with nvcc, and run
cudabench exec main.cu util.cu -- 1024  more sources, and an argument for the program
cudabench exec ./app -- --size 64       a program that cudabench-nvcc built, or nvcc with -cudart shared
cudabench exec main.cu --device sim     in the simulator, also on a machine with a GPU

The host code runs with your rights, as after any compiler: run only programs that you trust.

\f
The program's own input and output pass through; then come a table with a row for each kernel, and advice.

On a GPU, the table has the number of launches of each kernel and their times, which CUPTI measures. --kernel lists only
some kernels; the other options on launches and bounds need the simulator.

In the simulator, of launches of one kernel with one geometry the 1st, 2nd, 4th, 8th and so on are checked and
counted; the others run unchecked, since later ones need their results. --checked, --kernel and --launches choose
otherwise.

Exit codes: 0 the program ended with 0 and nothing was found, 1 it ended otherwise, 3 a hazard or an error of the host
code, 5 a needed part is missing, 130 interrupted.
"""


class _Program(Headed):
    """A command that passes the words after -- to the program."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Parse the words before --, and put the words after -- into `ctx.meta`."""
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
    if not simulates(given["device"]):
        return _exec_on_gpu(given, files, arguments, output)
    cards = _cards(given)
    choice = _choice(given)
    with tempfile.TemporaryDirectory(prefix="cudabench-") as folder:
        program = _built(given, [card.architecture for card in cards], Path(folder), _words(given))
        request = _request_of(given, _shown(files, arguments), (program, *arguments), choice, cards)
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


def _exec_on_gpu(given: dict[str, Any], files: tuple[str, ...], arguments: tuple[str, ...], output: Output) -> int:
    """Run the program on a GPU, show its launches, and return the exit code.

    Raises UsageError for an option that needs the simulator, and DeviceUnusable without a usable GPU.
    """
    from cudabench.devices import probe
    from cudabench.programs.build import SOURCES
    from cudabench.programs.gpu_run import GpuRequest, GpuRun

    for name in ("launches", "checked", "card", "schedule", "lines", "save_arrays"):
        if given[name]:
            option_name = "--on" if name == "card" else f"--{name.replace('_', '-')}"
            raise UsageError(
                f"{option_name} needs the simulator, and this program would run on a GPU: add --device sim."
            )
    if given["device"] == "all":
        raise UsageError("--device all: a program chooses its GPUs itself; use cuda, cuda:N or sim.")
    index = usable_gpu(given["device"])
    architecture = "sm_" + probe.gpu(index or 0).compute_capability.replace(".", "")
    with tempfile.TemporaryDirectory(prefix="cudabench-") as folder:
        program = _built(given, [architecture], Path(folder), [*_words(given), "-cudart=static"], on_gpu=True)
        request = GpuRequest(
            _shown(files, arguments), (program, *arguments), index, given["kernel"] or "",
            given["budget"], tuple(file for file in files if file.endswith(SOURCES)),
            to_stderr=given["json_path"] == "-",
        )  # fmt: skip
        run = GpuRun(request, output.path)
        stopped = interruption_of(run.collect)
    output.deliver(run.file)
    if not given["quiet"]:
        from cudabench.views import program as page

        page.show_launches(console.table_console(output.to_stdout), run.file, run.elapsed_s)
    codes = _codes_of_end(run)
    if run.problem:
        print_notice(f"CUPTI does not record the program's launches: {run.problem}.")
        codes.append(EXIT_UNUSABLE)
    elif not run.file.results:
        print_notice("The program launched no kernel.")
    if stopped:
        raise stopped
    return most_serious(codes) or EXIT_OK


def _shown(files: tuple[str, ...], arguments: tuple[str, ...]) -> tuple[str, ...]:
    """Return the program and its arguments as the user wrote them."""
    return (*files, "--", *arguments) if arguments else files


def _cards(given: dict[str, Any]) -> tuple[Card, ...]:
    """Return the cards of --on, which must have the same architecture. Raises UsageError if their architectures
    differ."""
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


def _built(
    given: dict[str, Any], architectures: Sequence[str], folder: Path, words: Sequence[str], *, on_gpu: bool = False
) -> str:
    """Return the path of the program. If the files are sources, they are compiled into `folder`; `words`: nvcc's
    options."""
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
        return build.check_program(files[0], any_runtime=on_gpu)
    words = [word.replace("--std", "-std") for word in words]
    with Waiting("compiling", shown=not given["quiet"]):
        return str(build.build_program(files, architectures, words, folder))


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
    if any(finding.kind != "never-freed" for finding in program.findings):
        codes.append(EXIT_WRONG)
    return most_serious([*codes, *_codes_of_end(run)]) or EXIT_OK


def _codes_of_end(run: ProgramRun | GpuRun) -> list[int]:
    """Return EXIT_FAILED for each reason why the program did not end normally, and print the reasons."""
    from cudabench.programs import process

    codes = []
    if run.stopped:
        print_notice(f"{run.stopped} ended the program early: its later launches were not seen.")
        codes.append(EXIT_FAILED)
    if run.program.exit_code:
        print_notice(f"{process.ended(run.program.exit_code)}.")
        codes.append(EXIT_FAILED)
    return codes


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
        options.device_option("auto, cuda, cuda:N, sim, sim:sm_90."),
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
