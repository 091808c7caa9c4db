"""Suggests a correct command line to users who type options or commands of other tools.

This module neither runs kernels nor writes files. It repairs a line that click cannot parse, one mistake at a time,
with the tables below and with the names of kernels in operations and in the user's file. A repaired line is suggested
only if click can parse it.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from difflib import get_close_matches
from itertools import takewhile
from pathlib import Path
from typing import Any

import click

from cudabench import operations
from cudabench.cli.groups import CUDA_FILES, FILE, LazyGroup
from cudabench.errors import CudabenchError

MOST_REPAIRS = 12  # at most this many mistakes are repaired in one command line
LEAST_SIMILARITY = 0.8  # a word that is at least this similar to a command's name is taken as a mistyped command
HELP_OPTIONS = {"-h", "--help", "--help-all"}

# For each command: words that other tools, or users, may write instead of the command's name.
COMMANDS = {
    "run": "bench benchmark measure time launch",
    "explain": "profile prof ncu nsys nvprof analyze analyse inspect why",
    "check": "test memcheck racecheck initcheck synccheck sanitize sanitizer compute-sanitizer lint verify validate",
    "list": "ls l show kernels operations collect-only",
    "sweep": "tune autotune optimize axis parameter-list parameter-scan",
    "info": "devices gpus gpu env doctor status nvidia-smi deviceQuery",
    "ceilings": "peak peaks roofline bandwidthTest",
    "compare": "cmp baseline",
    "report": "html page",
    "plot": "draw graph chart",
    "export": "convert csv junit",
}
# The arguments that an error message shows after each command.
EXAMPLES = {
    "run": "FILE.cu",
    "explain": "transpose smem",
    "check": "FILE.cu",
    "sweep": "transpose smem",
    "compare": "BASE.json NEW.json",
    "report": "RESULTS.json -o report.html",
    "plot": "RESULTS.json -o plot.svg",
    "export": "RESULTS.json --to csv",
}


@dataclass(frozen=True)
class Habit:
    """Options of other tools, and their replacement here.

    `options`: the spellings of the options, separated by blanks; `instead`: the replacement, with {} for the value;
    `why`: why the option is not needed, if there is no replacement.
    """

    options: str
    instead: str = ""
    why: str = ""
    valued: bool = False  # the option takes a value; an option whose replacement contains {} always takes one


HABITS = (
    # options of hyperfine, nvbench and Google Benchmark
    Habit("--warmup -w --warmup-runs", why="each kernel is launched before it is timed", valued=True),
    Habit("--runs -r --min-runs --iterations --iters --repeat --repetitions --reps --samples", "--min-samples {}"),
    Habit("--max-runs", why="--max-time ends the sampling", valued=True),
    Habit("--prepare --setup --cleanup --shell -N", why="a .cu file needs no host code", valued=True),
    Habit("--show-output --style", why="a run prints only the table"),
    Habit("--stopping-criterion --max-noise --target-noise", why="--min-time and --max-time end it", valued=True),
    Habit("--run-once --once", "--min-samples 1 --min-time 0"),
    Habit("--no-batch --disable-blocking-kernel --blocking-kernel-timeout", why="launches are timed in turn"),
    Habit("--benchmark --bench --filter --kernel-name --kernel-id --kernels --only-kernel", "--kernel {}"),
    Habit("--devices --gpu --gpus --cuda-device --device-id", "--device cuda:{}"),
    Habit("--sim --simulate --simulator --no-gpu --cpu-only", "--device sim"),
    Habit("--cuda --use-gpu", "--device cuda"),
    Habit("--duration --seconds", "--min-time {}"),
    # options of ncu, nsys and compute-sanitizer
    Habit("--set --section --metrics --page --target-processes --replay-mode --tool", valued=True,
          why="'explain' and 'check' show all counts"),
    Habit("--launch-count --launch-skip -c", why="every launch is counted", valued=True),
    Habit("--details -vv --debug --trace", why="'explain' shows more"),
    # options of nvcc
    Habit("-O0 -O1 -O2 -O3 -O -G -lineinfo --generate-line-info --device-debug -w -c --ptx -ptx -cubin -dc -keep",
          why="code is optimised, and its lines are known"),
    Habit("-arch --gpu-architecture -gencode --generate-code --arch", "--device sim:{}"),
    Habit("-std", "--std {}"),
    Habit("-use_fast_math --use_fast_math --fast-math", why="call __expf and similar functions directly"),
    Habit("-maxrregcount --maxrregcount", why="__launch_bounds__ in the source does it", valued=True),
    Habit("-Xptxas --ptxas-options -Xcompiler --compiler-options -ccbin", valued=True,
          why="'diff' shows registers and spills"),
    Habit("-rdc --relocatable-device-code --expt-relaxed-constexpr --extended-lambda --expt-extended-lambda -lcublas",
          why="a .cu file is compiled by itself"),
    # options of pytest
    Habit("-x --exitfirst --maxfail --capture --tb --lf --ff --durations --color", why="every kernel is tried"),
    Habit("-m", valued=True, why="--kernel takes a name or a glob"),
    # other names for options of cudabench
    Habit("--shape --dim --dims --length --elements --problem-size -n --n", "--size {}",
          why="kernels are always simulated at the same time"),
    Habit("--threads --block-size --blocksize --block-dim --blockdim --threads-per-block --tpb", "--block {}"),
    Habit("--blocks --grid-size --gridsize --grid-dim --griddim --num-blocks", "--grid {}"),
    Habit("--args --param -a --argument", "--arg {}"),
    Habit("--type --precision", "--dtype {}"),
    Habit("--fp16 --half --float16", "--dtype float16"),
    Habit("--fp64 --double --float64", "--dtype float64"),
    Habit("--fp32 --float --float32", "--dtype float32"),
    Habit("--smem --shared-mem --dynamic-shared", "--shared {}"),
    Habit("--tolerance --tol", "--rtol {}"),
    Habit("--export-json", "--json {}"),
    Habit("--html", "--report report.html"),
)  # fmt: skip

# Options of other tools that have one dash and several letters, such as -lineinfo.
LETTERS = {item for habit in HABITS for item in habit.options.split() if re.match(r"-\w\w", item)}

# The option that replaces `-o FILE` of a measuring command, chosen by the ending of FILE. For the endings in CONVERTED
# and PICTURES, a second command must convert the results.
DIRECT = {"json": "--json", "html": "--report", "htm": "--report"}
CONVERTED = {"csv": "csv", "md": "markdown", "markdown": "markdown", "xml": "junit", "junit": "junit", "sarif": "sarif"}
PICTURES = ("svg", "png", "pdf")
OUTPUTS = ("-o", "--output", "--out", "--csv", "--md", "--markdown", "--junit", "--export-csv", "--export-markdown")


@dataclass(frozen=True)
class Line:
    """A command line during its repair.

    `words`: the words of the command line; `reasons`: the reasons for the changes so far; `next_command`: a command to
    run after it, or ''.
    """

    words: tuple[str, ...]
    reasons: tuple[str, ...] = ()
    next_command: str = ""

    def changed_to(self, words: Sequence[str], reason: str, next_command: str = "") -> Line:
        """Return a line with these words instead of the line's present words, and with one more reason."""
        return replace(
            self, words=tuple(words), reasons=(*self.reasons, reason), next_command=next_command or self.next_command
        )

    @property
    def text(self) -> str:
        """The line as the user would type it."""
        return " ".join(["cudabench", *map(shlex.quote, self.words)]) + self.next_command


def rewritten(group: LazyGroup, words: Sequence[str]) -> list[str]:
    """Return a command line in which words that have only one meaning are replaced: help, version, upper case."""
    words = [*words]
    if words[:1] == ["help"]:
        return [*words[1:], "--help"]
    if words in (["version"], ["-V"], ["-v"]):
        return ["--version"]
    if words and words[0] not in group.summaries and words[0].lower() in group.summaries:
        words[0] = words[0].lower()
    if words and words[0].lower().endswith(CUDA_FILES) and HELP_OPTIONS & {*words}:
        return ["run", *words]
    if words[:1] == ["run"] and words[1:2] and words[1] in operations.SUMMARIES and not Path(words[1]).exists():
        return words[1:]
    return words


def suggestion(group: click.Group, words: Sequence[str], error: click.ClickException) -> str | None:
    """Return a sentence that suggests a correct line in place of one that click cannot parse; None if there is none."""
    line = Line(tuple(word for word in words if word not in HELP_OPTIONS))
    fault: click.ClickException | None = error
    with suppress(CudabenchError, OSError, click.exceptions.Exit, click.Abort):
        for _ in range(MOST_REPAIRS):
            repaired = _repaired(line, fault)
            if isinstance(repaired, str):
                return repaired
            if repaired is None:
                return f"{'; '.join(line.reasons)}; {fault.format_message()}" if fault and line.reasons else None
            line = repaired
            try:
                context = parsed(group, line.words)
            except click.ClickException as parse_error:
                fault = parse_error
                continue
            missing = _missing_arguments(context)
            return f"{'; '.join(line.reasons)}; {missing + line.next_command if missing else f'write: {line.text}'}"
    return None


def parsed(group: click.Group, words: Sequence[str]) -> click.Context:
    """Return the parsed context of a line's command. Raises ClickException if click cannot parse the line."""
    context, rest = resolved(group, words)
    return context.command.make_context(context.info_name, rest, parent=context.parent)


def resolved(group: click.Group, words: Sequence[str]) -> tuple[click.Context, list[str]]:
    """Return the context of a line's command, not parsed yet, and the words after the command's name."""
    context, rest = click.Context(group, info_name="cudabench"), [*words]
    while isinstance(context.command, click.Group) and rest and not rest[0].startswith("-"):
        name, command, rest = context.command.resolve_command(context, rest)
        assert command is not None, "resolve_command raises for an unknown name"
        context = click.Context(command, context, name)
    return context, rest


def _missing_arguments(context: click.Context) -> str:
    """Return the error that the command prints if arguments of the user's kernel are missing; '' if none is missing."""
    from cudabench.cli.output import show_reading
    from cudabench.cli.run import request_of
    from cudabench.userkernel import plan

    params = context.params
    files = params.get("files") or (params.get("file"),)
    takes_a_file = context.command.name in ("run", "check", FILE) and not params.get("profile", True)
    if not takes_a_file or not files[0] or files[0] == FILE:
        return ""
    verb = context.command_path.split()[1]
    try:
        request = request_of({**params, "file": files[0], "save": ()})
        with show_reading(request.file, {"quiet": True}, 1):
            plan.series([request], verb)
    except CudabenchError as error:
        message = str(error).rstrip(".")
        return f"{message} {shlex.join(_other_options(context))}".rstrip() if "write: cudabench" in message else message
    return ""


def _other_options(context: click.Context) -> Iterator[str]:
    """Yield the words of those options of a line that do not describe the problem.

    Lines suggested by `plan` lack these words.
    """
    from cudabench.cli.run import PROBLEM

    problem = {param.name for param in PROBLEM} | {"files", "defines", "seed"}
    for param in context.command.params:
        value = context.params.get(str(param.name))
        source = context.get_parameter_source(str(param.name))
        if param.name in problem or source != click.core.ParameterSource.COMMANDLINE:
            continue
        for item in value if isinstance(value, tuple) else (value,):
            yield from (param.opts[-1],) if isinstance(item, bool) else (param.opts[-1], str(item))


# One step ------------------------------------------------------------------------------------------------------------


def _repaired(line: Line, fault: click.ClickException | None) -> Line | str | None:
    """Return the line in which one mistake is repaired.

    Return a sentence if several repairs are possible, and None if the mistake is not known.
    """
    context = getattr(fault, "ctx", None)
    path = context.command_path.split()[1:] if context else []
    depth = len([word for word in path if word != FILE])
    front, rest = line.words[:depth], line.words[depth:]
    # click reads the letters after one dash as separate options: it takes -gencode as `-g encode`.
    at = next((at for at, word in enumerate(rest) if LETTERS & {word, word.partition("=")[0]}), None)
    if at is not None and context and not isinstance(context.command, click.Group):
        return _option(line, context, depth + at)
    if isinstance(fault, click.exceptions.NoSuchOption):
        at = _position(rest, fault.option_name)
        return None if at is None or context is None else _option(line, context, depth + at)
    if isinstance(fault, click.exceptions.MissingParameter):
        example = EXAMPLES.get(path[0], "") if path else ""
        if example and not rest:
            return line.changed_to([path[0], *example.split()], f"{path[0]} needs a file and more")
        option = example.partition(" -")[2].replace("report.html", f"{Path(rest[0]).stem}.html" if rest else "")
        if option and rest:
            return line.changed_to([*line.words, *f"-{option}".split()], f"{path[0]} needs '-{option.split()[0]}'")
        return None
    if isinstance(fault, click.BadParameter) and path == ["export"] and {"html", "htm"} & {*rest}:
        return line.changed_to(["report", rest[0], "-o", f"{Path(rest[0]).stem}.html"], "a page is written by 'report'")
    text = fault.message if fault else ""
    if extra := re.match(r"Got unexpected extra arguments? \((.*)\)$", text, re.DOTALL):
        at = next((i for i in reversed(range(len(rest))) if extra[1].startswith(rest[i] + " ")), None)
        at = next((i for i in reversed(range(len(rest))) if extra[1] == rest[i]), at)
        return None if at is None else _extra(line, front, depth + at)
    if rest and not rest[0].startswith("-") and isinstance(context.command if context else None, click.Group):
        return _first_word(line, front, rest)
    return None


def _position(rest: Sequence[str], option: str) -> int | None:
    """Return the position of the word with the option that click refused: the option itself, OPTION=VALUE, or an option
    with other letters after one dash."""
    exact = [at for at, word in enumerate(rest) if word.partition("=")[0] == option]
    letters = [at for at, word in enumerate(rest) if word.startswith(option) and not word.startswith("--")]
    return next(iter([*exact, *letters]), None)


def _option(line: Line, context: click.Context, at: int) -> Line | None:
    """Return the line in which an option that the command lacks is replaced or removed; None if it is not known."""
    words = line.words
    name, equals, value = words[at].partition("=")
    if glued := re.fullmatch(r"(-[a-z])(\d\w*)", words[at]):
        name, equals, value = glued[1], "=", glued[2]
    spellings = {spelling for param in context.command.params for spelling in param.opts}
    next_word = words[at + 1] if not equals and at + 1 < len(words) and not words[at + 1].startswith("-") else None
    argument = value if equals else next_word
    rest = words[at + 1 + (next_word is not None) :]
    path = context.command_path.split()[1:]
    bare = name.lstrip("-")
    command = _command_for(bare)
    if isinstance(context.command, click.Group):
        depth = len(path)
        names = {*getattr(context.command, "summaries", ())} - {FILE}
        position = next((at for at, word in enumerate(words) if at > depth and word in names), None)
        if position is not None:
            reordered = [*words[:depth], words[position], *words[depth:position], *words[position + 1 :]]
            return line.changed_to(reordered, f"'{words[position]}' stands before the options")
        return line.changed_to([command, *rest], f"'{name}' is the command '{command}'") if command else None
    if "--arg" in spellings and argument is not None and "=" not in argument and bare in _parameters(words):
        typed = f"{bare}={argument}"
        return line.changed_to(
            [*words[:at], "--arg", typed, *rest], f"'{name}' is an argument of the kernel, --arg {typed}"
        )
    forms = next((param.type for param in context.command.params if "--to" in param.opts), None)
    if isinstance(forms, click.Choice) and bare in forms.choices:
        return line.changed_to([*words[:at], "--to", bare, *words[at + 1 :]], f"'{name}' is --to {bare} here")
    if name in OUTPUTS and ("--report" if not (argument or "").endswith(".json") else "--json") in spellings:
        return _output(line, at, name, argument, next_word is not None)
    habit = next((item for item in HABITS if name in item.options.split() or words[at] in item.options.split()), None)
    if habit is None and command and path[:1] != [command]:
        # For `sweep`, an option of another tool with a list of values becomes a macro: -D NAME=V1,V2.
        remaining = ["-D", argument, *rest] if command == "sweep" and argument and "=" in argument else words[at + 1 :]
        return line.changed_to([command, *words[:at], *remaining], f"'{name}' is the command '{command}'")
    if habit is None and "--kernel" in spellings and path[-1] in _operations_with(bare):
        return line.changed_to([*words[:at], "--kernel", bare, *words[at + 1 :]], f"'{name}' is a kernel")
    if habit is None:
        return None
    has_value = habit.valued or "{}" in habit.instead
    remaining = rest if has_value else words[at + 1 :]
    target = habit.instead.split()[0] if habit.instead else ""
    not_a_number = target in ("--size", "--block", "--grid") and not (argument or "")[:1].isdigit()
    if not target or target not in spellings or ("{}" in habit.instead and argument is None) or not_a_number:
        why = habit.why if not target or (target in spellings and not_a_number) else f"{path[-1]} takes no {target}"
        return line.changed_to([*words[:at], *remaining], f"'{name}' is left out: {why}")
    value = (argument or "").removeprefix("regex:") if target == "--kernel" else argument or ""
    if target == "--device":  # the value may be written as for another tool, such as arch=compute_90
        value = re.sub(r"^.*?(?:compute|sm)_(\d+[af]?).*$", r"sm_\1", value).replace("cuda:cuda:", "cuda:")
    replacement = [word.replace("{}", value) for word in habit.instead.split()]
    return line.changed_to([*words[:at], *replacement, *remaining], f"'{name}' is {shlex.join(replacement)} here")


def _output(line: Line, at: int, name: str, argument: str | None, separate: bool) -> Line:
    """Return the line in which an option for an output file is replaced by the option for this kind of file.

    The ending of the file's name tells its kind.
    """
    words = line.words
    form = (name if argument is None else Path(argument).suffix).lstrip("-.").removeprefix("export-").lower()
    is_file = argument is not None and (form in DIRECT or form in CONVERTED or form in PICTURES)
    rest = words[at + 1 + (separate and (is_file or name in OUTPUTS[:3])) :]
    if is_file and form in DIRECT:
        return line.changed_to([*words[:at], DIRECT[form], str(argument), *rest], f"'{name}' is {DIRECT[form]} here")
    if not is_file:
        form = name.lstrip("-").removeprefix("export-")
    if form not in CONVERTED and form not in PICTURES:
        return line.changed_to([*words[:at], *rest], f"'{name}' is left out: the program is not kept")
    results = f"{Path(str(argument)).stem}.json" if is_file else "results.json"
    target = f" -o {shlex.quote(str(argument))}" if is_file else ""
    then = f"plot {results}{target}" if form in PICTURES else f"export {results} --to {CONVERTED[form]}{target}"
    return line.changed_to(
        [*words[:at], "--json", results, *rest], f"'{name}' is a second command", f" && cudabench {then}"
    )


def _first_word(line: Line, front: Sequence[str], rest: Sequence[str]) -> Line | str | None:
    """Return the line with its first word (a file, a kernel or a command of another tool) replaced by a command.

    Return a sentence if the kernel belongs to several operations, and None if the word is not known.
    """
    word, arguments = rest[0], rest[1:]
    if not front and word.lower().endswith(CUDA_FILES):
        return line.changed_to(["run", *rest], f"'{word}' is a file, which 'cudabench run' takes")
    if not front and word.endswith(".json"):
        return line.changed_to(["report", word, "-o", f"{Path(word).stem}.html"], f"'{word}' is a file of results")
    if not front and word.isdecimal() and word.isascii():
        return line.changed_to(["transpose", *rest], f"'{word}' is the id of a kernel, and needs its operation")
    if not front and Path(f"{word}.cu").is_file():
        return line.changed_to(["run", f"{word}.cu", *arguments], f"'{word}.cu' is a file, which 'cudabench run' takes")
    command = _command_for(word)
    if command and not front:
        if command in ("run", "check") and arguments and arguments[0] in operations.SUMMARIES:
            return line.changed_to(arguments, f"an operation is measured and verified without '{word}'")
        words = [command, *(arguments or EXAMPLES.get(command, "").split())]
        return line.changed_to(words, f"'{word}' is 'cudabench {command}' here")
    if get_close_matches(word, [*operations.SUMMARIES, *COMMANDS], cutoff=LEAST_SIMILARITY):
        return None  # the word is a mistyped operation or command, so it is not looked up among the kernels
    kernels = list(takewhile(lambda item: not item.startswith("-") and not item.isdecimal(), rest))
    if front == ("ab",):
        rest = [*(part for kernel in kernels for part in ("-k", kernel)), *rest[len(kernels) :]]
    names = [name for name in _operations_with(word) if all(name in _operations_with(kernel) for kernel in kernels[1:])]
    lines = [line.changed_to([*front, name, *rest], "") for name in names]
    if len(lines) == 1:
        name = lines[0].words[len(front)]
        return line.changed_to(lines[0].words, f"'{word}' is a kernel of {name}")
    if lines:
        several = ", or ".join(item.text for item in lines)
        return f"'{word}' is a kernel of {len(lines)} operations; write: {several}"
    return None


def _extra(line: Line, front: Sequence[str], at: int) -> Line:
    """Return the line in which a word that the command does not take is replaced by an option, or is removed."""
    words, word = line.words, line.words[at]
    before, after = words[:at], words[at + 1 :]
    file = next((item for item in words if item.lower().endswith(CUDA_FILES)), None)
    if file and front[:1] != ("list",):
        name = word.partition("=")[0]
        if "=" in word and name in _parameters(words):
            return line.changed_to([*before, "--arg", word, *after], f"'{word}' is given with --arg")
        if launch := re.fullmatch(r"<<<([^,<>]+),([^,<>]+)>>>", word):
            replacement = ["--grid", launch[1].strip(), "--block", launch[2].strip()]
            return line.changed_to([*before, *replacement, *after], f"'{word}' is --grid and --block")
        if any(kernel.name == word for kernel in _kernels(words)):
            return line.changed_to([*before, "--kernel", word, *after], f"'{word}' is a kernel, given with --kernel")
        if word in _parameters(words):
            return line.changed_to([*before, *after], f"'{word}' is a parameter, and its value is --arg {word}=...")
        if re.fullmatch(r"[\d.]+", word):
            why = "a number has a name, as in --block 256 or --arg n=1000"
            return line.changed_to([*before, *after], f"'{word}' means nothing by itself: {why}")
    return line.changed_to([*before, *after], f"'{word}' is left out: {' '.join(front)} does not take it")


# Meaning of the words ------------------------------------------------------------------------------------------------


def _command_for(word: str) -> str | None:
    """Return the command whose name is this word, or for which another tool has this word; None if there is no such
    command."""
    return next((name for name, words in COMMANDS.items() if word in (name, *words.split())), None)


def _operations_with(word: str) -> list[str]:
    """Return the names of the operations that have a kernel with this name or with this C++ name."""
    lowered = word.lower()
    return [
        name
        for name in operations.SUMMARIES
        if any(lowered in (kernel.name, kernel.function.lower()) for kernel in operations.get(name).kernels)
    ]


def _kernels(words: Sequence[str]) -> Iterator[Any]:
    """Yield the kernels of the .cu files in a line. Files that cannot be read are skipped."""
    from cudabench.source.files import read_file

    for word in words:
        if word.lower().endswith(CUDA_FILES):
            with suppress(CudabenchError):
                yield from read_file(word).kernels


def _parameters(words: Sequence[str]) -> set[str]:
    """Return the names of the parameters of all kernels in a line's files."""
    return {parameter.name for kernel in _kernels(words) for parameter in kernel.parameters}
