"""Compares two revisions of a source: compiles both for every architecture, and simulates the kernels whose code
differs. The revisions are called the old and the new side."""

from __future__ import annotations

import math
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from cudabench.compile import compiler
from cudabench.compile.record import Compiled
from cudabench.devices import Choice
from cudabench.errors import BlockDoesNotFit, CompilerError, UnsupportedFeature, UsageError
from cudabench.measure.context import describe
from cudabench.measure.run import Listener, Run
from cudabench.plan.revisions import Checkout
from cudabench.plan.series import Series
from cudabench.records.launch import Source
from cudabench.records.plan import Settings
from cudabench.records.results import Result
from cudabench.records.revisions import CodeDifference
from cudabench.results import diff
from cudabench.results.diff import CompileResult, Pair, SelectedKernel, Side
from cudabench.source.files import text_of, without_kernels
from cudabench.system import children
from cudabench.userkernel import plan
from cudabench.userkernel.problem import dimensions, number
from cudabench.userkernel.request import UserRequest
from cudabench.userkernel.suggestion import file_of


def side(checkout: Checkout, request: UserRequest) -> Side:
    """Return the `Side` for a revision that is checked out.

    Raises UsageError for a folder of headers that does not exist.
    """
    for folder in request.include:
        if not Path(folder).is_dir():
            raise UsageError(f"--include {folder} is not a folder: name the folder that holds the headers.")
    text = text_of(checkout.path).replace("\r\n", "\n")
    folder = str(Path(checkout.path).resolve().parent)
    include = tuple(str(Path(include_dir).resolve()) for include_dir in request.include)
    hidden = (checkout.path, os.path.abspath(checkout.path), f"{folder}{os.sep}")
    source = Source(checkout.path, text, folder, False, include, request.std)
    return Side(checkout.label, source, dict(request.defines), hidden)


def pairs(requests: Sequence[UserRequest], *, launched: bool) -> list[Pair]:
    """Return the pairs of kernels to compare, with the threads of a block and the dynamic shared memory of a launch.

    `requests`: the request of the old side and that of the new side. `launched`: whether the requests have everything
    that a launch needs. Raises UsageError for the name of a kernel that is on neither side.
    """
    chosen: list[dict[str, SelectedKernel]] = [{}, {}]
    files = [file_of(request) for request in requests]
    names = requests[0].kernels or ("all",)
    for name in names:
        errors = []
        for kernels, file, request in zip(chosen, files, requests, strict=True):
            try:
                selected = plan.select(file, replace(request, kernels=(name,)), "")
            except UsageError as error:
                errors.append(error)
                continue
            for kernel, title, _ in selected:
                line = 1 if kernel.file else kernel.line
                kernels.setdefault(title, SelectedKernel(kernel.name, kernel.expression, line, title))
        if len(errors) == 2 or (errors and len(names) == 1 and name == "all"):
            raise errors[-1]
    found_pairs = _by_name(*chosen)
    # Use the launch of the new side. If the kernel exists only on the old side, use the launch of the old side.
    if launched:
        sides = [(pair.new, requests[1]) if pair.new else (pair.old, requests[0]) for pair in found_pairs]
        cases = [_series(chosen, request).cases[0] for chosen, request in sides if chosen]
        return [
            replace(pair, threads=case.threads, shared=case.dynamic_shared_bytes)
            for pair, case in zip(found_pairs, cases, strict=True)
        ]
    first_request = requests[0]
    numbers = {name: int(value) for name, value in first_request.defines.items() if re.fullmatch(r"\d{1,18}", value)}
    threads = math.prod(dimensions(first_request.block, "--block", numbers)) if first_request.block else None
    shared = number(first_request.shared, "--shared", numbers) if first_request.shared else 0
    return [replace(pair, threads=threads, shared=shared) for pair in found_pairs]


def _by_name(old: Mapping[str, SelectedKernel], new: Mapping[str, SelectedKernel]) -> list[Pair]:
    """Return a pair for each kernel name, the names of the new side first. The pair of a kernel that only one side has
    contains only this kernel. If each side has exactly one such kernel, the two form one pair, as a renamed kernel."""
    pairs = [Pair(name, old.get(name), chosen) for name, chosen in new.items()]
    removed = [Pair(name, chosen, None) for name, chosen in old.items() if name not in new]
    added = [pair for pair in pairs if pair.old is None]
    if len(removed) == len(added) == 1:
        renamed = replace(added[0], name=f"{removed[0].name} -> {added[0].name}", old=removed[0].old)
        return [renamed if pair is added[0] else pair for pair in pairs]
    return [*pairs, *removed]


def _series(chosen: SelectedKernel, request: UserRequest) -> Series:
    """Return the series with the launch of one kernel of a side."""
    return plan.build([replace(request, kernels=(chosen.name_asked,))])


# Compiling -----------------------------------------------------------------------------------------------------------


def compare_code(
    old: Side, new: Side, pairs: Sequence[Pair], architectures: Sequence[str], shown: Any
) -> list[CodeDifference]:
    """Return how each kernel differs on each architecture: for each pair, one record per architecture.

    Code for several architectures is compiled in parallel processes, at most one per core, because NVRTC compiles only
    one source at a time in a process. `shown` shows the progress of each architecture as if it were a kernel.

    Raises the errors of `compiler.compile_cubin`, except CompilerError: code that does not compile gets a verdict.
    """
    by_arch, compare = [], partial(_one_architecture, old, new, tuple(pairs))
    shown.show_progress(architectures[0], "compiling", 0)
    with children.on_processes(compare, architectures, min(len(architectures), children.processors())) as results:
        for differences in results:
            by_arch.append(differences)
            shown.finished("")
            shown.show_progress(architectures[min(len(by_arch), len(architectures) - 1)], "compiling", 0)
    return [differences[index] for index in range(len(pairs)) for differences in by_arch]


def _one_architecture(old: Side, new: Side, pairs: Sequence[Pair], arch: str) -> list[CodeDifference]:
    made_old = _compiled(old, [pair.old for pair in pairs if pair.old], arch)
    made_new = _compiled(new, [pair.new for pair in pairs if pair.new], arch)
    return [diff.difference(pair, arch, (old, made_old), (new, made_new)) for pair in pairs]


def _compiled(side: Side, kernels: Sequence[SelectedKernel], arch: str) -> dict[str, CompileResult]:
    """Return for each kernel, by its C++ expression, the compiled source or the compiler's error.

    If the file does not compile, each kernel is compiled in a copy of the file without the other kernels. So a kernel
    for another architecture does not make the other kernels fail.
    """

    def compiled(text: str, names: Sequence[str]) -> Compiled:
        source = side.source
        return compiler.compile_cubin(
            text, source.name, arch=arch, defines=side.defines, include_dirs=source.folders, names=names, std=source.std
        )

    names = list(dict.fromkeys(kernel.expression for kernel in kernels))
    try:
        return dict.fromkeys(names, compiled(side.source.text, names)) if names else {}
    except CompilerError as error:
        if len(names) == 1:
            return {names[0]: error}
    compiled_kernels: dict[str, CompileResult] = {}
    for kernel in kernels:
        try:
            compiled_kernels[kernel.expression] = compiled(
                without_kernels(side.source.text, {kernel.name}), [kernel.expression]
            )
        except CompilerError as error:
            compiled_kernels[kernel.expression] = error
    return compiled_kernels


# Counting ------------------------------------------------------------------------------------------------------------


def count(
    differences: Sequence[CodeDifference],
    sides: tuple[Side, Side],
    requests: Sequence[UserRequest],
    pairs: Sequence[Pair],
    listener: Listener,
    *,
    demanded: bool,
) -> list[CodeDifference]:
    """Return the differences; where the code differs, the counts of simulated launches of both sides are added.

    If a kernel's old code is the same on several architectures, and its new code too, only the first is simulated. If
    the simulator lacks a feature, the record has the reason; but if an option needs the counts (`demanded`),
    UnsupportedFeature is raised.
    """
    by_name = {pair.name: pair for pair in pairs}
    results_by_code: dict[tuple[str, str | None, str | None], list[Result | None]] = {}
    counted = []
    for difference in differences:
        if difference.verdict in ("same", "unsupported"):
            counted.append(difference)
            continue
        pair = by_name[difference.kernel]
        key = (
            difference.kernel,
            difference.old.sha256 if difference.old else None,
            difference.new.sha256 if difference.new else None,
        )
        if key not in results_by_code:
            launched = ((difference.old, pair.old, requests[0]), (difference.new, pair.new, requests[1]))
            simulate = partial(_simulated, arch=difference.arch, demanded=demanded, listener=listener)
            results_by_code[key] = [
                simulate(chosen, request) if code and chosen else None for code, chosen, request in launched
            ]
        counted.append(diff.add_counts(difference, sides, *results_by_code[key]))
    return counted


def _simulated(chosen: SelectedKernel, request: UserRequest, arch: str, demanded: bool, listener: Listener) -> Result:
    """Simulate a kernel's launch for an architecture, and return the result; 'skipped' if the simulator cannot run it.

    Raises UnsupportedFeature or BlockDoesNotFit instead if counts are `demanded`.
    """
    series = _series(chosen, request)
    device = Choice("sim", architecture=arch)
    launch = Run([series], [device], Settings(cpu=False), {}, listener=listener, provenance=False)
    try:
        launch.collect()
    # This is not an error of the whole command: the simulator may be able to run the kernel for another architecture.
    except (UnsupportedFeature, BlockDoesNotFit) as error:
        if demanded:
            raise
        return replace(describe(series.cases[0], f"sim:{arch}"), status="skipped", reason=str(error))
    return launch.file.results[0]
