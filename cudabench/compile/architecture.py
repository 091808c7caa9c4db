"""Chooses the architecture to compile a text for, such as sm_90 or sm_90a.

Some instructions exist in one GPU generation only; a text with such an instruction must be compiled for sm_90a instead
of sm_90. For other texts, the code for sm_90a and sm_90 is equal; both run on the same GPU. A text is compiled for
sm_90a if it contains such an instruction or a macro that tests for sm_90a. A text that ptxas refuses for sm_90 is
compiled again for sm_90a, because a header that was not read may contain the instruction.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import replace

from cudabench.compile.record import Job
from cudabench.errors import NeedsArchitecture

# For each architecture: the words in a text that need the variant with 'a', such as sm_90a. Source: PTX ISA, "Target
# ISA Notes" of each instruction.
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
# Features of only one GPU generation, as (beginning of the name in ptxas' message, the generation's compute
# capability).
_GENERATIONS = (("wgmma", "90"), ("tcgen05", "100"))


def with_needed_features(job: Job, texts: Iterable[str]) -> Job:
    """Return the job, with its architecture changed from 90 to 90a if one of the texts needs that."""
    words = _OWN.get(job.arch)
    if words is None:
        return job
    pattern = re.compile(f"{words}|{_MACRO.format(job.arch)}")
    return with_all_features(job) if any(map(pattern.search, texts)) else job


def with_all_features(job: Job) -> Job:
    """Return a copy of the job for the architecture with all features of its GPU: 90a instead of 90."""
    return replace(job, arch=job.arch + "a")


def lacks_feature(log: str, job: Job) -> bool:
    """Return whether the compiler's output `log` shows that it refused a feature that sm_90 lacks and sm_90a may
    have."""
    return job.arch in _OWN and _REFUSED.search(log) is not None


def other_generation_error(log: str, job: Job) -> NeedsArchitecture | None:
    """Return the error if the compiler's log names a feature that only another GPU generation has, else None."""
    for match in _REFUSED.finditer(log):
        what = (match["what"] or match["these"] or "").partition(" ")[0]
        generation = next((number for name, number in _GENERATIONS if what.startswith(name)), None)
        if generation is not None and not job.arch.startswith(generation):
            major, minor = generation[:-1], generation[-1]
            return NeedsArchitecture(
                f"{job.filename} uses {what}, which only GPUs of compute capability {major}.{minor} have, but this is "
                f"sm_{job.arch.rstrip('af')}: run it on such a GPU, or with --device sim:sm_{generation}."
            )
    return None
