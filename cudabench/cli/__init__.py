"""The command line: parses the words, calls the command, prints the result and exits with the command's exit code.

Each command is a module that is loaded when the command is used.
"""

from __future__ import annotations

import builtins
import errno
import gc
import os
import re
import sys
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from importlib import import_module
from typing import Any, NoReturn

import click

from cudabench import __version__, operations, text
from cudabench.cli import habits
from cudabench.cli.groups import LazyGroup
from cudabench.cli.process import Terminated, handle_sigterm, output_error, prepare_streams
from cudabench.errors import EXIT_FAILED, EXIT_INTERRUPTED, EXIT_TERMINATED, NO_MEMORY, CudabenchError, UsageError
from cudabench.measure import provenance
from cudabench.system.outputs import begin_command

COMMANDS = {
    "list": "Show the kernels of each operation.",
    "run": "Run a kernel of your own from a .cu file, without host code.",
    "exec": "Run a whole program without a GPU: check and count its launches.",
    "explain": "Show line by line why a kernel is slow (simulator).",
    "check": "Find races and stray accesses in your kernels (simulator).",
    "sweep": "Find the best block, macro, template argument or size.",
    "compare": "Compare results files: faster, slower or unclear.",
    "ab": "Measure two kernels or revisions interleaved.",
    "diff": "Compare the machine code of two revisions, without a GPU.",
    "report": "Write results as one HTML page that works offline.",
    "plot": "Draw results: a ladder, time over size, a sweep.",
    "export": "Convert results: CSV, Markdown, JUnit, SARIF and more.",
    "ceilings": "Measure what a card can do at most.",
    "fleet": "Find the slow card among many.",
    "nvcc": "Run nvcc with the options that exec needs.",
    "info": "Show what this machine can run, and how to install the rest.",
    "setup-gpu": "Install PyCUDA on a machine with no CUDA toolkit.",
    "schema": "Print the JSON Schema of the results file.",
    "completion": "Print the script that completes commands in a shell.",
}

# Maps the name of a command to the name of its module, for the modules that contain several commands.
TOGETHER = {
    **dict.fromkeys(("list", "info", "completion"), "overview"),
    **dict.fromkeys(("export", "plot", "report", "schema"), "files"),
}

HELP = """Run CUDA kernels from .cu files: verify them, time them against a copy and the card's peak. Without a GPU a
simulator executes and explains them.

\b
  cudabench transpose                                  all kernels of an operation
  cudabench transpose --kernel smem-pad --block 32 8   one kernel
  cudabench explain transpose smem                     why it is fast or slow
  cudabench run saxpy.cu                               a kernel of your own

Exit codes: 0 done and right, 1 failed, 2 usage, 3 wrong result or hazard, 4 threshold missed, 5 device not usable,
130 interrupted, 143 terminated.
"""

FIRST_STEPS = """cudabench runs, verifies, times and explains CUDA kernels, on a GPU or in a simulator. Start with

  cudabench info                     what this machine can run
  cudabench list transpose           the kernels of an operation, with their ideas
  cudabench transpose                run them all, verified, in one table
  cudabench explain transpose smem   why a kernel is fast or slow, line by line
  cudabench run FILE.cu              a kernel of your own

'cudabench --help' shows all operations and commands."""

# Arguments for gc.set_threshold. Collections are rare, because nearly all records live until the command ends, and few
# are in reference cycles.
COLLECT = 200_000, 50, 100
FULL = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO}  # errors that mean that no more can be written to a stream
SHOWN = 80  # in an error message, an argument longer than twice this number is cut to this many characters
FOREIGN = 400  # a word with more characters than this is cut even if it is not from the command line


def make_command(name: str) -> click.Command:
    """Return the command with this name: an operation's, or one from a module in this folder."""
    if name in operations.SUMMARIES:
        from cudabench.cli.operation import operation_command

        return operation_command(name)
    module = import_module(f"{__name__}.{TOGETHER.get(name, name.replace('-', '_'))}")
    command: click.Command = module.commands[name] if name in TOGETHER else module.command
    return command


@click.group(
    cls=LazyGroup,
    help=HELP,
    sections={"Operations": operations.SUMMARIES, "Commands": COMMANDS},
    make=make_command,
    kind="neither an operation nor a command",
    invoke_without_command=True,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)
@click.version_option(__version__, prog_name="cudabench")
@click.pass_context
def group(ctx: click.Context) -> None:
    """The group of all commands; its help text is HELP."""
    if ctx.invoked_subcommand is None:
        click.echo(FIRST_STEPS)


def main(arguments: Sequence[str] | None = None) -> NoReturn:
    """Run the command line and exit with its code. An error is never shown as a traceback."""
    gc.set_threshold(*COLLECT)
    prepare_streams()
    handle_sigterm()
    code = invoke(arguments)
    fault = output_error()
    if code == EXIT_INTERRUPTED:
        # If Ctrl-C arrives while Python runs a text by `exec` (for example while it defines a class), Python ends
        # itself by the signal at exit and ignores the exit code. Running another text by `exec` prevents this.
        # `builtins.` is needed because the name `exec` may be the command's module here.
        builtins.exec("")
    gc.freeze()  # without this, Python searches all objects for reference cycles at exit, which takes time
    sys.exit(_say(f"standard output cannot be written: {fault.strerror}.", EXIT_FAILED) if fault else code)


def invoke(arguments: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit code. An error is printed as one sentence on standard error."""
    words = habits.rewritten(group, sys.argv[1:] if arguments is None else arguments)
    provenance.COMMAND.set(tuple(words))
    begin_command()
    try:
        _check_completion()
        with _ahead(words):
            value: Any = group.main(args=words, prog_name="cudabench", standalone_mode=False)
        return value if isinstance(value, int) else 0
    except click.exceptions.NoArgsIsHelpError as error:
        click.echo(error.format_message())
        return 0
    except BrokenPipeError:
        # The program that reads the pipe has closed it, as `| head` does. Without this call, Python would print an
        # error at exit.
        output_error()
        return EXIT_FAILED
    except (Exception, KeyboardInterrupt, Terminated) as error:
        if isinstance(error, OSError):
            output_error()
        message, code = _explained(error, words)
        if message is None:
            if os.environ.get("CUDABENCH_TRACEBACK"):
                raise
            description = f"{type(error).__name__}: {error}"
            message = f"this is a defect of cudabench ({description}); CUDABENCH_TRACEBACK=1 shows where."
        return _say(shortened(message, words), code)


def _explained(error: BaseException, words: Sequence[str]) -> tuple[str | None, int]:
    """Return (sentence, exit code) for an error of a command line.

    The sentence is None if the error is a defect of cudabench.
    """
    if isinstance(error, CudabenchError):
        return str(error), error.exit_code
    if isinstance(error, click.ClickException):
        return _usage(error, words), error.exit_code
    if isinstance(error, Terminated):
        return "terminated by SIGTERM: only finished results are shown and written.", EXIT_TERMINATED
    if isinstance(error, (KeyboardInterrupt, click.Abort)):
        return "interrupted.", EXIT_INTERRUPTED
    return _system_error(error), EXIT_FAILED


def _usage(error: click.ClickException, words: Sequence[str]) -> str:
    """Return the sentence for a command line that click cannot parse, with a suggestion if there is one."""
    message = habits.suggestion(group, words, error)
    if not message:
        message = error.format_message()
        if isinstance(error, click.NoSuchOption) and error.ctx:
            message += f" '{error.ctx.command_path} --help-all' shows all options."
    return " ".join(message.split())


def _system_error(error: BaseException) -> str | None:
    """Return the sentence for an error of the operating system; None for an error of another kind."""
    if isinstance(error, MemoryError):
        return "this machine's memory is too small for the problem: use a smaller --size."
    if isinstance(error, OSError):
        cause = error.filename or ("standard output cannot be written" if error.errno in FULL else "the system refuses")
        return f"{cause}: {error.strerror or error}."
    if isinstance(error, ImportError) and any(sign in str(error) for sign in NO_MEMORY):
        return "this process may take too little memory: raise the limit that 'ulimit -v' shows."
    if isinstance(error, RuntimeError) and "can't start new thread" in str(error):
        limits = "raise the limits that 'ulimit -u' and 'ulimit -v' show"
        return f"this process may start no more threads: {limits}."
    return None


def _ahead(words: Sequence[str]) -> AbstractContextManager[None]:
    """Return a context that starts the worker process of the GPU while the command's modules are still loading.

    The option --device names the GPU. Commands that measure nothing get an empty context.
    """
    line = f" {' '.join(words)}"
    device = ["auto", *re.findall(r"(?: -d ?| --device[ =])(\S+)", line)][-1]
    match = re.fullmatch(r"auto|all|cuda|(?:cuda:)?(\d{1,4})", device, re.ASCII)
    measures = words[:1] in [[name] for name in (*operations.SUMMARIES, "run", "ab", "sweep")]
    if match is None or not measures or re.search(r" (-h|--help|--on|--profile)\b", line):
        return nullcontext()
    from cudabench.measure import session

    return session.early_worker(int(match[1] or 0), primary=" --peer" in line)


def _check_completion() -> None:
    """Raise UsageError if the variables of shell completion are incomplete.

    This happens if a user sets them by hand.
    """
    instruction = os.environ.get("_CUDABENCH_COMPLETE")
    if not instruction or re.fullmatch("(bash|zsh|fish)_source", instruction):
        return
    position = os.environ.get("COMP_CWORD", "")
    has_position = position.isdecimal() or (instruction == "fish_complete" and "COMP_CWORD" in os.environ)
    if not re.fullmatch("(bash|zsh|fish)_complete", instruction) or "COMP_WORDS" not in os.environ or not has_position:
        raise UsageError(
            f"_CUDABENCH_COMPLETE={instruction} is for a shell's completion, together with COMP_WORDS and COMP_CWORD: "
            "unset it, and see 'cudabench completion --help'."
        )


def shortened(message: str, words: Sequence[str]) -> str:
    """Return a message in which long words are cut: their first characters and their length remain.

    An argument is cut if it has more than 2 * SHOWN characters. Another word, for example from a file, is cut if it has
    more than FOREIGN characters.
    """

    def cut(text: str) -> str:
        return f"{text[:SHOWN]}... ({len(text)} characters)"

    long = [word for word in words if len(word) > 2 * SHOWN]
    for word in long:
        message = message.replace(word, cut(word))
    # The rest of the function cuts long parts of an argument, such as the value in --size=VALUE.
    return re.sub(
        rf"[^\s']{{{2 * SHOWN},}}",
        lambda match: cut(match[0]) if len(match[0]) > FOREIGN or any(match[0] in word for word in long) else match[0],
        message,
    )


def _say(message: str, code: int) -> int:
    try:
        click.secho("Error: ", fg="red", err=True, nl=False)
        click.echo(text.log(message), err=True)
    except OSError:
        pass  # standard error cannot be written either, so the message cannot be shown
    return code
