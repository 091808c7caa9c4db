"""Which architecture a text asks for: some instructions are of one generation alone, and sm_90 has not all of sm_90a.

Code for sm_90a is that of sm_90 where it asks for nothing more, and both run on the same GPU. A text that names such an
instruction, or asks whether it may use them, is compiled for the GPU's own features; so is one that ptxas refuses for
the lack of them, as where a header that was not read has the instruction.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import replace

from cudabench.compile.record import Job
from cudabench.errors import NeedsArchitecture

# By architecture: the words of which one is enough. PTX ISA, "Target ISA Notes" of each instruction.
_OWN = {
    "90": r"\bwgmma\b|\bsetmaxnreg\b|\btensormap\.replace\b",
    "100": r"\btcgen05\b|\bsetmaxnreg\b|\btensormap\.replace\b",
    "103": r"\btcgen05\b|\bsetmaxnreg\b|\btensormap\.replace\b",
    "120": r"\bsetmaxnreg\b|\btensormap\.replace\b|kind::mxf",
    "121": r"\bsetmaxnreg\b|\btensormap\.replace\b|kind::mxf",
}
_MACRO = r"\b__CUDA_ARCH_FEAT_SM{}_ALL\b|\bCUDA_ARCH_HAS_FEATURE\b|\b__CUDA_ARCH_SPECIFIC__\b"
_REFUSED = re.compile(
    r"(?:Instruction|Feature) '(?P<what>[^']+)' (?:not supported on \.target|cannot be compiled for architecture) "
    r"'(?P<target>sm_\d+[af]?)'"
    r"|(?P<these>\S+) requires \.target sm_\d+a"
)
# Of what refusals name, what one generation alone has, and which.
_GENERATIONS = (("wgmma", "90"), ("tcgen05", "100"))


def suited(job: Job, texts: Iterable[str]) -> Job:
    """Return the job for the architecture that the texts ask for: 90a in the place of 90."""
    words = _OWN.get(job.arch)
    if words is None:
        return job
    asked = re.compile(f"{words}|{_MACRO.format(job.arch)}")
    return own(job) if any(map(asked.search, texts)) else job


def own(job: Job) -> Job:
    """Return the job for all features of its GPU."""
    return replace(job, arch=job.arch + "a")


def refused_for_it(log: str, job: Job) -> bool:
    """Tell whether a refusal is for what the job's architecture has not, and its GPU may have."""
    return job.arch in _OWN and _REFUSED.search(log) is not None


def missing(log: str, job: Job) -> NeedsArchitecture | None:
    """Return the error where all that a refusal names is of another generation of GPUs; None where it is not."""
    for match in _REFUSED.finditer(log):
        what = (match["what"] or match["these"] or "").partition(" ")[0]
        generation = next((number for name, number in _GENERATIONS if what.startswith(name)), None)
        if generation is not None and not job.arch.startswith(generation):
            major, minor = generation[:-1], generation[-1]
            return NeedsArchitecture(
                f"{job.filename} uses {what}, which only GPUs of compute capability {major}.{minor} have, and this is "
                f"sm_{job.arch.rstrip('af')}: run it on one, or with --device sim:sm_{generation}."
            )
    return None
