"""The records of a whole program that ran: its launches, its end, and the errors of its host code."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated


@dataclass(frozen=True)
class Launches:
    """The launches of one kernel."""

    kernel: Annotated[str, "Name of the kernel, as in its result."]
    launches: Annotated[int, "How often the program launched it."]
    checked: Annotated[int, "How many of these launches were checked and counted; 0 on a GPU."]


@dataclass(frozen=True)
class Finding:
    """An error of the host code."""

    kind: Annotated[
        str,
        "host-touches-device, host-pointer, copy-direction, copy-outside, use-after-free, double-free, "
        "host-read-before-wait, unasked-error, refused-launch, unwritten-memory, never-freed.",
    ]
    message: Annotated[str, "The error, in a sentence."]
    file: Annotated[str, "The source file of the call or access; empty if it is not known."] = ""
    line: Annotated[int | None, "Its line, from 1; null if it is not known."] = None
    source: Annotated[str, "Text of the line."] = ""
    count: Annotated[int, "How often it occurs."] = 1


@dataclass(frozen=True)
class Program:
    """A program that ran."""

    command: Annotated[tuple[str, ...], "The files or the program, and its arguments."]
    launches: Annotated[int, "Launches of all kernels."]
    checked: Annotated[int, "How many of them were checked and counted; 0 on a GPU."]
    exit_code: Annotated[
        int | None, "Exit code of the program, 128 + N if signal N ended it; null if it was ended before its end."
    ]
    kernels: Annotated[tuple[Launches, ...], "The launches of each kernel."] = ()
    findings: Annotated[tuple[Finding, ...], "Errors of the host code."] = ()
    missing: Annotated[
        Mapping[str, int], "Calls that the CUDA runtime of exec lacks, and how often they were made."
    ] = field(default_factory=dict)
