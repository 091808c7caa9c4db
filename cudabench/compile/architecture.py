"""Chooses the architecture for a text: some instructions exist in one generation only, and sm_90 lacks some of sm_90a.

Code for sm_90a equals code for sm_90 unless it uses such instructions, and both run on the same GPU. A text that names
such an instruction, or tests whether it may, is compiled for the GPU's own features. So is a text that ptxas refuses
because it lacks them, for example if a header that was not read has the instruction.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import replace

from cudabench.compile.record import Job
from cudabench.errors import NeedsArchitecture

# By architecture: a text with one of these words needs it. PTX ISA, "Target ISA Notes" of each instruction.
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
# Names in refusals of features that exist in one generation only, and the generation.
_GENERATIONS = (("wgmma", "90"), ("tcgen05", "100"))


def with_needed_features(job: Job, texts: Iterable[str]) -> Job:
    """Return the job for the architecture that the texts need: 90a instead of 90."""
    words = _OWN.get(job.arch)
    if words is None:
        return job
    pattern = re.compile(f"{words}|{_MACRO.format(job.arch)}")
    return with_all_features(job) if any(map(pattern.search, texts)) else job


def with_all_features(job: Job) -> Job:
    """Return the job for all features of its GPU."""
    return replace(job, arch=job.arch + "a")


def lacks_feature(log: str, job: Job) -> bool:
    """Return whether a refusal is about features that the job's architecture lacks and its GPU may have."""
    return job.arch in _OWN and _REFUSED.search(log) is not None


def other_generation_error(log: str, job: Job) -> NeedsArchitecture | None:
    """Return the error if everything that a refusal names belongs to another generation of GPUs, else None."""
    for match in _REFUSED.finditer(log):
        what = (match["what"] or match["these"] or "").partition(" ")[0]
        generation = next((number for name, number in _GENERATIONS if what.startswith(name)), None)
        if generation is not None and not job.arch.startswith(generation):
            major, minor = generation[:-1], generation[-1]
            return NeedsArchitecture(
                f"{job.filename} uses {what}, which only GPUs of compute capability {major}.{minor} have, but this is "
                f"sm_{job.arch.rstrip('af')}: run it on one, or with --device sim:sm_{generation}."
            )
    return None
