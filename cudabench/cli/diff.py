"""`cudabench diff OLD NEW`: compares the machine code of two revisions of a source, for every architecture.

It needs no GPU.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import click

from cudabench.cli import options, run
from cudabench.cli.help import Headed
from cudabench.cli.options import PLACE, option
from cudabench.cli.output import Destination, Output, add_summary, show_reading
from cudabench.devices import Choice, probe
from cudabench.errors import DeviceUnusable, UsageError, did_you_mean, most_serious, refuse
from cudabench.plan.revisions import checked_out, user_names_in_errors
from cudabench.records.file import ResultsFile
from cudabench.records.plan import Settings
from cudabench.views import console

if TYPE_CHECKING:
    from cudabench.records.revisions import CodeDifference
    from cudabench.results.diff import Failure, Side

HELP = """Compile two revisions of a .cu file for every architecture and compare their machine code. No GPU is needed.

\b
cudabench diff HEAD~1:saxpy.cu saxpy.cu
cudabench diff old.cu new.cu -k 'gemm<float,32>' --arch sm_80,sm_90 --fail-on registers,spills

OLD and NEW are files or git revisions, REVISION:PATH.

\f
The headers of a revision come from that revision too. "Same code" says that there is nothing to measure.
Changes are shown in registers, spills, shared memory, occupancy and instructions, by source line, with the first
instruction that differs.

With the arguments of 'cudabench run' (--arg, --grid, --block) the simulator launches both kernels if their code
differs, and sectors (of global and local memory), wavefronts and executed machine instructions are compared too.

Without --kernel all kernels except templates are compared; name a template by its instance.
"""

TARGETS = ("table", "markdown", "github", "sarif", "json")
PROBLEM = (
    "kernels", "grid", "block", "arguments", "expect", "constants", "shared", "cluster", "rtol", "atol", "include",
    "std",
)  # fmt: skip


def _distinct(text: str) -> tuple[str, ...]:
    """Return the distinct words of a text in which commas separate them."""
    return tuple(dict.fromkeys(word.strip() for word in text.split(",") if word.strip()))


def _gates(text: str) -> tuple[str, ...]:
    """Return the names in the value of --fail-on. Raises BadParameter for an unknown name and for an empty list."""
    from cudabench.results.diff import FAIL_ON

    words = _distinct(text)
    if unknown := next((word for word in words if word not in FAIL_ON), None):
        raise click.BadParameter(f"'{unknown}' is not one of {', '.join(FAIL_ON)}.{did_you_mean(unknown, FAIL_ON)}")
    if not words:
        raise click.BadParameter(f"it is empty: choose from {', '.join(FAIL_ON)}.")
    return words


def _diff(**given: Any) -> int:
    from cudabench.measure import revisions
    from cudabench.results import diff

    target, printed = given["target"], given["target_file"] in (None, "-")
    conflict = target == "json" and printed and given["json_path"] not in (None, "-")
    refuse(
        (not given["old"] or not given["new"], "diff takes two files or revisions: cudabench diff HEAD~1:k.cu k.cu."),
        (conflict, "--to json and --json both name the results file: keep one."),
    )
    json_path = "-" if target == "json" and printed else given["json_path"]
    output = Output.of(json_path, given["quiet"], report_path=given["report_path"])
    if output.to_stdout and printed and target in ("markdown", "sarif", "github"):
        raise UsageError(f"--to {target} and --json - both write to standard output: name a file with --output.")
    destination = Destination.of(given["target_file"])
    simulated = bool(given["arguments"] or given["grid"] or given["expect"])
    gates = given["fail_on"] or ()
    demanded = _check_gates(gates, simulated)
    architectures = _architectures(given["arch"])
    with ExitStack() as stack:
        checkouts = [stack.enter_context(checked_out(given[name], given["include"])) for name in ("old", "new")]
        requests = [
            run.request_of({**given, "file": checkout.path, "include": checkout.include}) for checkout in checkouts
        ]
        stack.enter_context(user_names_in_errors(checkouts))
        with show_reading(given["old"], given, len(checkouts)):
            old, new = map(revisions.side, checkouts, requests)
            pairs = revisions.pairs(requests, launched=simulated)
        with output.screen(len(architectures)) as progress:
            differences = revisions.compare_code(old, new, pairs, architectures, progress)
        if simulated:
            differences = revisions.count(differences, (old, new), requests, pairs, output.screen, demanded=demanded)
        record = _file(given, differences, old, new)
    failed = diff.failures(differences, gates)
    if output.path:
        record.write(output.path)
    output.deliver(record)
    _show(given, record, failed, destination, output)
    return most_serious(failure.code for failure in failed)


def _check_gates(gates: Sequence[str], simulated: bool) -> bool:
    """Return whether a name of --fail-on needs counts from the simulator.

    Raises UsageError if the launch for the counts is missing, and DeviceUnusable if nvdisasm is missing.
    """
    from cudabench.compile import nvdisasm
    from cudabench.results import diff

    counted = [name for name in gates if name in diff.COUNTED]
    if counted and not simulated:
        raise UsageError(
            f"--fail-on {counted[0]} needs a launch to count: give --arg, --grid and --block as for 'cudabench run'."
        )
    disassembled = [name for name in gates if name in diff.DISASSEMBLED]
    if disassembled and nvdisasm.path() is None:
        raise DeviceUnusable(f"--fail-on {disassembled[0]} needs nvdisasm, which is missing: {nvdisasm.INSTALL}.")
    return bool(counted)


def _architectures(text: str) -> tuple[str, ...]:
    """Return the architectures of --arch; for `all`, those that the compiler supports.

    Raises UsageError for an architecture that the compiler does not support.
    """
    from cudabench.compile import compiler
    from cudabench.results.diff import ARCHITECTURES

    try:
        supported = compiler.supported_architectures("nvrtc")
    except DeviceUnusable:
        supported = compiler.supported_architectures("nvcc")
    if text == "all":
        return tuple(name for name in ARCHITECTURES if name.rstrip("af") in supported)
    names = _distinct(text)
    for arch in names:
        if not re.fullmatch(r"sm_\d{2,3}[af]?", arch) or (supported and arch.rstrip("af") not in supported):
            raise UsageError(f"--arch '{arch}' is unknown to the compiler: use {', '.join(supported)}, or all.")
    if not names:
        raise UsageError("--arch is empty: write all, or sm_80,sm_90.")
    return names


def _file(given: Mapping[str, Any], differences: list[CodeDifference], old: Side, new: Side) -> ResultsFile:
    """Return the results file. It holds the request, and a record for each kernel and architecture."""

    from cudabench.measure import provenance
    from cudabench.measure.run import compiler, versions

    request = {name: given[name] for name in ("old", "new", "arch", "fail_on", *PROBLEM)}
    simulator = Choice("sim")
    tool = versions(simulator)
    origin = provenance.provenance_record([new.source], compiler(simulator, tool))
    origin["sources"] = {side.label: provenance.source_digest(side.source) for side in (old, new)}
    return ResultsFile(
        settings={**asdict(Settings(cpu=False)), **request, "defines": dict(new.defines)},
        tool=tool,
        host=probe.host(),
        provenance=origin,
        diff=differences,
    )


def _show(
    given: Mapping[str, Any], record: ResultsFile, failed: Sequence[Failure], destination: Destination, output: Output
) -> None:
    """Write the differences in the form of --to, then print the failures on standard error.

    They go to the file of --output or to standard output; to standard error if --json uses standard output.
    """
    from cudabench.views import diff as view
    from cudabench.views.export import difference

    target, names, differences = given["target"], (given["old"], given["new"]), record.diff
    # OLD and NEW may be REVISION:PATH. Annotations then name PATH, the current file.
    source = given["new"] if os.path.exists(given["new"]) else given["new"].partition(":")[2] or given["new"]
    texts: dict[str, Callable[[], str]] = {
        "table": lambda: difference.markdown(names, differences),
        "markdown": lambda: difference.markdown(names, differences),
        "github": lambda: difference.github(source, differences, failed),
        "sarif": lambda: difference.sarif_log(source, differences, failed),
        "json": record.text,
    }
    if destination.path or target in ("markdown", "sarif", "github"):
        destination.write(texts[target]())
    elif target == "table" and not output.quiet:
        view.show_differences(console.table_console(output.to_stdout), names, differences)
    if target == "github":
        add_summary(texts["markdown"])
        if not destination.path and not output.quiet:
            view.show_differences(console.err(), names, differences)
    for failure in failed:
        console.say(console.err(), f"{failure.message}.", "red", soft_wrap=True)


_NOT_OF_DIFF = ("file", "save", "profile", "where", "bytes", "flops")

command = Headed(
    "diff",
    params=[
        click.Argument(["old"], required=False, metavar="OLD"),
        click.Argument(["new"], required=False, metavar="NEW"),
        *options.without(run.PROBLEM, *_NOT_OF_DIFF),
        option("-D, --define NAME=VALUE", "Define a macro on both sides; repeatable.", "defines", multiple=True),
        option("--arch LIST", "Architectures, such as sm_80,sm_90.", default="all", show_default=True),
        option(
            "--fail-on LIST",
            "Exit 4 if one of these grew: registers,spills,shared,local,instructions,sectors,wavefronts,executed; "
            "if occupancy fell; if code or arithmetic changed.",
            type=_gates,
        ),
        options.SEED,
        option(
            "--to",
            "Default: table. github writes annotations, and tables into $GITHUB_STEP_SUMMARY; json is the results "
            "file.",
            "target",
            type=click.Choice(TARGETS),
            default="table",
        ),
        option("-o, --output FILE", "Write the form of --to to FILE.", "target_file", type=PLACE),
        *options.OUTPUT,
    ],
    callback=_diff,
    help=HELP,
)
