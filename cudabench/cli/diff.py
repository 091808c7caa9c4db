"""`cudabench diff OLD NEW`: two revisions of a source by their machine code, for every architecture, without a GPU."""

from __future__ import annotations

import math
import os
import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from cudabench.cli import options as families
from cudabench.cli import run
from cudabench.cli.arguments import SpreadCommand
from cudabench.errors import CudabenchError, DeviceUnusable, UsageError, did_you_mean

if TYPE_CHECKING:
    from cudabench.cli.output import Output
    from cudabench.plan.revisions import Checkout
    from cudabench.plan.series import Series
    from cudabench.records.file import ResultsFile
    from cudabench.records.results import Result
    from cudabench.records.revisions import CodeDifference
    from cudabench.results.diff import Chosen, Failure, Pair, Side
    from cudabench.userkernel.request import UserRequest

HELP = """Compile two revisions of a .cu file for every architecture and compare their machine code. No GPU is needed.

\b
cudabench diff HEAD~1:saxpy.cu saxpy.cu
cudabench diff old.cu new.cu -k 'gemm<float,32>' --arch sm_80,sm_90 --fail-on registers,spills

OLD and NEW are files or git revisions, REVISION:PATH.

\f
The headers of a revision come from that revision too. "Same code" says that there is nothing to measure.
What changed is shown with registers, spills, shared memory, occupancy and instructions, by source line, and with the
first instruction that differs.

With the arguments of 'cudabench run' (--arg, --grid, --block) the simulator launches both where their code differs, and
sectors, wavefronts and executed instructions are compared too.

Without --kernel all kernels are compared but templates, which are named by instance.
"""

TARGETS = ("table", "markdown", "github", "sarif", "json")
PROBLEM = (
    "kernels", "grid", "block", "arguments", "expect", "constants", "shared", "cluster", "rtol", "atol", "include",
    "std",
)  # fmt: skip


class Names(click.ParamType):  # type: ignore[type-arg, unused-ignore]
    """Words joined by commas, of those that are known."""

    name = "names"

    def __init__(self, known: Callable[[], Sequence[str]]) -> None:
        self.known = known

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> tuple[str, ...]:
        """Return the words, or fail with the one that is unknown."""
        if isinstance(value, tuple):
            return value
        words = tuple(dict.fromkeys(word.strip() for word in str(value).split(",") if word.strip()))
        known = self.known()
        for word in words:
            if word not in known:
                self.fail(f"'{word}' is none of {', '.join(known)}.{did_you_mean(word, known)}", param, ctx)
        if not words:
            self.fail(f"it names nothing: choose of {', '.join(known)}.", param, ctx)
        return words


def _figures() -> Sequence[str]:
    from cudabench.results.diff import FAIL_ON

    return FAIL_ON


def _diff(**given: Any) -> int:
    """Compare what the options ask for and return the exit code."""
    from cudabench.cli.output import Output
    from cudabench.cli.reading import reading
    from cudabench.compile import nvdisasm
    from cudabench.plan import cases
    from cudabench.plan.revisions import checked_out
    from cudabench.results import diff
    from cudabench.system import outputs

    if not given["old"] or not given["new"]:
        raise UsageError("diff takes two files or revisions: cudabench diff HEAD~1:k.cu k.cu.")
    target, file = given["target"], given["target_file"]
    path = None if file in (None, "-") else Path(file)
    if target == "json" and path is None and given["json_path"] not in (None, "-"):
        raise UsageError("--to json and --json both name the results file: keep one.")
    to_stdout = target == "json" and path is None
    output = Output.of("-" if to_stdout else given["json_path"], given["quiet"], report_path=given["report_path"])
    if output.to_stdout and path is None and target in ("markdown", "sarif", "github"):
        raise UsageError(f"--to {target} and --json - both write to standard output: name a file with --output.")
    if path:
        outputs.check_target(path, "--output")
    simulated = bool(given["arguments"] or given["grid"] or given["expect"])
    wanted = given["fail_on"] or ()
    launch = [name for name in wanted if name in diff.COUNTED]
    if launch and not simulated:
        raise UsageError(
            f"--fail-on {launch[0]} needs a launch to count: give --arg, --grid and --block as to 'cudabench run'."
        )
    unread = [name for name in wanted if name in diff.DISASSEMBLED]
    if unread and nvdisasm.path() is None:
        raise DeviceUnusable(f"--fail-on {unread[0]} needs nvdisasm, which is not there: {nvdisasm.INSTALL}.")
    architectures = _architectures(given["arch"])
    defines = cases.parse_defines(given["defines"])
    with ExitStack() as stack:
        checkouts = [stack.enter_context(checked_out(given[name], given["include"])) for name in ("old", "new")]
        requests = [_request(checkout, given, defines) for checkout in checkouts]
        try:
            with reading(given["old"], given, len(checkouts)):
                old, new = (_side(c, r) for c, r in zip(checkouts, requests, strict=True))
                pairs = _pairs(requests, given, simulated)
            found = _compiled(old, new, pairs, architectures, output.quiet)
            if simulated:
                found = _counted(found, old, new, requests, pairs, bool(launch), output)
        except CudabenchError as error:
            # A revision's files lie in a folder that is no business of the user's.
            shown = _named_as_given(str(error), checkouts)
            raise type(error)(shown) if shown != str(error) else error from None
        record = _file(given, found, old, new)
    failed = diff.failures(found, wanted)
    _write(record, output)
    _show(given, record, failed, target, path, output)
    return diff.exit_code(failed)


def _named_as_given(text: str, checkouts: Sequence[Checkout]) -> str:
    for checkout in checkouts:
        if checkout.root is not None:
            text = text.replace(checkout.path, checkout.label)
            text = text.replace(f"{checkout.root}{os.sep}", f"{checkout.label.partition(':')[0]}:")
    return text


def _architectures(wanted: str) -> tuple[str, ...]:
    """Return what --arch names, as far as the compiler has it."""
    from cudabench.compile import compiler
    from cudabench.results.diff import ARCHITECTURES

    try:
        known = compiler.supported_architectures("nvrtc")
    except DeviceUnusable:
        known = compiler.supported_architectures("nvcc")
    if wanted == "all":
        return tuple(name for name in ARCHITECTURES if name.rstrip("af") in known)
    words = tuple(dict.fromkeys(word.strip() for word in wanted.split(",") if word.strip()))
    for word in words:
        if not re.fullmatch(r"sm_\d{2,3}[af]?", word) or (known and word.rstrip("af") not in known):
            raise UsageError(f"--arch '{word}' is no architecture that the compiler has: {', '.join(known)}, or all.")
    if not words:
        raise UsageError("--arch names nothing: write all, or sm_80,sm_90.")
    return words


def _request(checkout: Checkout, given: Mapping[str, Any], defines: Mapping[str, str]) -> UserRequest:
    from cudabench.userkernel.request import UserRequest

    return UserRequest(
        **{**{name: given[name] for name in PROBLEM}, "include": checkout.include, "std": given["std"] or ""},
        file=checkout.path,
        defines=defines,
        seed=given["seed"],
    )


def _side(checkout: Checkout, request: UserRequest) -> Side:
    from cudabench.records.launch import Source
    from cudabench.results.diff import Side
    from cudabench.source.files import text_of

    for folder in request.include:
        if not Path(folder).is_dir():
            raise UsageError(f"--include {folder} is no folder: name the one that holds the headers.")
    text = text_of(checkout.path).replace("\r\n", "\n")
    folder = str(Path(checkout.path).resolve().parent)
    include = tuple(str(Path(each).resolve()) for each in request.include)
    hidden = (checkout.path, os.path.abspath(checkout.path), f"{folder}{os.sep}")
    return Side(
        checkout.label, Source(checkout.path, text, folder, False, include, request.std), dict(request.defines), hidden
    )


def _pairs(requests: Sequence[UserRequest], given: Mapping[str, Any], simulated: bool) -> list[Pair]:
    """Return the kernels to compare. Raises UsageError for a name that neither side has."""
    from dataclasses import replace

    from cudabench.results.diff import Chosen, pairs_of
    from cudabench.userkernel import plan
    from cudabench.userkernel.problem import dimensions, number
    from cudabench.userkernel.suggestion import file_of

    chosen: list[dict[str, Chosen]] = [{}, {}]
    files = [file_of(request) for request in requests]
    names = given["kernels"] or ("all",)
    for name in names:
        refused = []
        for at, request in enumerate(requests):
            try:
                picked = plan.select(files[at], replace(request, kernels=(name,)))
            except UsageError as error:
                refused.append(error)
                continue
            for kernel, title, _ in picked:
                line = 1 if kernel.file else kernel.line
                chosen[at].setdefault(title, Chosen(kernel.name, kernel.expression, line, title))
        if len(refused) == 2 or (refused and len(names) == 1 and name == "all"):
            raise refused[-1]
    pairs = pairs_of(*chosen)
    if simulated:
        return [_launched(pair, requests) for pair in pairs]
    numbers = {name: int(value) for name, value in requests[0].defines.items() if re.fullmatch(r"\d{1,18}", value)}
    threads = math.prod(dimensions(given["block"], "--block", numbers)) if given["block"] else None
    shared = number(given["shared"], "--shared", numbers) if given["shared"] else 0
    return [replace(pair, threads=threads, shared=shared) for pair in pairs]


def _launched(pair: Pair, requests: Sequence[UserRequest]) -> Pair:
    """Return a pair with the block and the dynamic shared memory of its launch, the new side's where it has one."""
    from dataclasses import replace

    (case,) = _series(pair.new, requests[1]).cases if pair.new else _series(pair.old, requests[0]).cases
    return replace(pair, threads=case.threads, shared=case.dynamic_shared_bytes)


def _series(chosen: Chosen | None, request: UserRequest) -> Series:
    """Return the launch of one kernel of a side."""
    from dataclasses import replace

    from cudabench.userkernel import plan

    assert chosen is not None
    return plan.build([replace(request, kernels=(chosen.name_asked,))])


def _compiled(
    old: Side, new: Side, pairs: Sequence[Pair], architectures: Sequence[str], quiet: bool
) -> list[CodeDifference]:
    """Return how the pairs differ, with a line of progress."""
    from cudabench.results import diff
    from cudabench.views.progress import Progress

    with Progress(len(architectures), shown=not quiet) as progress:
        return diff.differences(
            old, new, pairs, architectures, lambda done, arch: progress.update(done, arch, "compiling", 0)
        )


def _counted(
    found: Sequence[CodeDifference],
    old: Side,
    new: Side,
    requests: Sequence[UserRequest],
    pairs: Sequence[Pair],
    demanded: bool,
    output: Output,
) -> list[CodeDifference]:
    """Return the differences with the counts of simulated launches, where the code differs.

    Architectures with the same code on both sides count the same: the first of them is simulated. What the simulator
    lacks is told in the record or, where a gate asks for the counts (`demanded`), raised as UnsupportedFeature.
    """
    from cudabench.results import diff

    by_name = {pair.name: pair for pair in pairs}
    known: dict[tuple[str, str | None, str | None], tuple[Result | None, Result | None]] = {}
    counted = []
    for each in found:
        if each.verdict in ("same", "unsupported"):
            counted.append(each)
            continue
        pair = by_name[each.kernel]
        key = (each.kernel, each.old.sha256 if each.old else None, each.new.sha256 if each.new else None)
        if key not in known:
            known[key] = (
                _simulated(pair.old, requests[0], each.arch, demanded, output) if each.old else None,
                _simulated(pair.new, requests[1], each.arch, demanded, output) if each.new else None,
            )
        counted.append(diff.counted(each, old, new, *known[key]))
    return counted


def _simulated(chosen: Chosen | None, request: UserRequest, arch: str, demanded: bool, output: Output) -> Result:
    """Return the result of one launch in the simulator of an architecture."""
    from dataclasses import replace

    from cudabench.cli.output import Screen
    from cudabench.devices import Choice
    from cudabench.errors import NoRoom, UnsupportedFeature
    from cudabench.measure.context import describe
    from cudabench.measure.run import Run
    from cudabench.records.planned import Settings

    series = _series(chosen, request)
    launch = Run(
        [series], [Choice("sim", architecture=arch)], Settings(cpu=False), {}, listener=Screen(output), provenance=False
    )
    try:
        launch.collect()
    except (UnsupportedFeature, NoRoom) as error:  # others of the architectures may have it
        if demanded:
            raise
        return replace(describe(series.cases[0], f"sim:{arch}"), status="skipped", reason=str(error))
    return launch.file.results[0]


def _file(given: Mapping[str, Any], found: list[CodeDifference], old: Side, new: Side) -> ResultsFile:
    """Return the results file: what was asked for, and a record a kernel and architecture."""
    from dataclasses import asdict

    from cudabench.devices import Choice, probe
    from cudabench.measure import provenance
    from cudabench.measure.run import compiler, versions
    from cudabench.records.file import ResultsFile
    from cudabench.records.planned import Settings

    asked = {name: given[name] for name in ("old", "new", "arch", "fail_on", *PROBLEM)}
    simulator = Choice("sim")
    tool = versions(simulator)
    origin = provenance.gather([new.source], compiler(simulator, tool))
    origin["sources"] = {side.label: provenance.digest(side.source) for side in (old, new)}
    return ResultsFile(
        settings={**asdict(Settings(cpu=False)), **asked, "defines": dict(new.defines)},
        tool=tool,
        host=probe.host(),
        provenance=origin,
        diff=found,
    )


def _write(record: ResultsFile, output: Output) -> None:
    place = output.path or output.stream
    if place:
        record.write(place)
    if output.to_stdout:
        click.echo(record.text(), nl=False)
    if output.report:
        from cudabench.cli.output import write_page

        write_page([record], [output.report.stem], output.report)


def _show(
    given: Mapping[str, Any],
    record: ResultsFile,
    failed: Sequence[Failure],
    target: str,
    path: Path | None,
    output: Output,
) -> None:
    """Write what --to says to its file or to standard output, or beside it where the JSON goes there; then the
    failures, to standard error."""
    from cudabench.system import outputs
    from cudabench.views import console
    from cudabench.views import diff as view
    from cudabench.views.export import difference

    names, found = (given["old"], given["new"]), record.diff
    # In a repository a revision's file is shown where it is now.
    source = given["new"] if os.path.exists(given["new"]) else given["new"].partition(":")[2] or given["new"]
    text = {
        "table": lambda: difference.markdown(names, found),
        "markdown": lambda: difference.markdown(names, found),
        "github": lambda: difference.github(source, found, failed),
        "sarif": lambda: difference.sarif_log(source, found, failed),
        "json": record.text,
    }[target]
    if path:
        outputs.write_whole(path, text().encode())
    elif target in ("markdown", "sarif", "github"):
        click.echo(text(), nl=False)
    elif target == "table" and not output.quiet:
        view.show(console.tables(output.to_stdout), names, found)
    if target == "github":
        _summary(difference.markdown(names, found))
        if not path and not output.quiet:
            view.show(console.err(), names, found)
    view.show_failures(console.err(), failed)


def _summary(markdown: str) -> None:
    """Add the tables to the page of a GitHub job, where there is one."""
    place = os.environ.get("GITHUB_STEP_SUMMARY")
    if place:
        with open(place, "a", encoding="utf-8") as stream:
            stream.write(markdown + "\n")


_NOT_HERE = ("file", "save", "profile", "where", "bytes", "flops")

command = SpreadCommand(
    "diff",
    params=[
        click.Argument(["old"], required=False, metavar="OLD"),
        click.Argument(["new"], required=False, metavar="NEW"),
        *(param for param in run.problem_options() if param.name not in _NOT_HERE),
        families.option(
            "-D",
            "--define",
            "defines",
            multiple=True,
            metavar="NAME=VALUE",
            help="Define a macro on both sides; repeatable.",
        ),
        families.option(
            "--arch", default="all", show_default=True, metavar="LIST", help="Architectures, such as sm_80,sm_90."
        ),
        families.option(
            "--fail-on",
            type=Names(_figures),
            metavar="LIST",
            help="Exit 4 if one of these grew: registers,spills,shared,local,instructions,sectors,wavefronts,executed; "
            "if occupancy fell; if code or arithmetic changed.",
        ),
        *(param for param in families.baseline_options() if param.name == "seed"),
        families.option(
            "--to",
            "target",
            type=click.Choice(TARGETS),
            default="table",
            help="Default: table. github writes annotations, and tables into $GITHUB_STEP_SUMMARY; json is the results "
            "file.",
        ),
        families.option(
            "-o", "--output", "target_file", type=click.Path(), metavar="FILE", help="Write what --to says to FILE."
        ),
        *families.output_options(),
    ],
    callback=_diff,
    help=HELP,
    short_help="Compare two revisions' machine code; no GPU needed.",
    context_settings={"help_option_names": ["-h", "--help"]},
)
