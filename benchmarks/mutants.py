"""Mutants of the chapters: which small faults the simulator finds, and which it does not.

    python benchmarks/mutants.py [OPERATION ...]          # minutes for each operation

Each mutant changes one line of one kernel: a barrier or a fence is dropped, a guard too, `<` becomes `<=`, an index is
shifted by one, a row of a shared tile is shorter by one. It is found where the run ends with a hazard or a wrong
result. Prints those that are not found; `EQUIVALENT` says of which ones it is known that they do no harm.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from dataclasses import replace
from typing import NamedTuple

from cudabench import operations
from cudabench.devices.sim import SimDevice
from cudabench.measure.simulated_run import SimulatedRun
from cudabench.model import Case, Settings
from cudabench.plan import cases
from cudabench.plan.cases import Request
from cudabench.toolchain import source

SIZES = {1: (100_003,), 2: (67, 133), 3: (67, 70, 133)}
RULES = {
    "drop a barrier": (r"__sync(threads|warp)\(\)", ";"),
    "drop a fence": (r"__threadfence(_block)?\(\)", ";"),
    "drop a guard": (r"\bif \(((?:[^()]|\([^()]*\))*)\)$", "if (false)"),
    "< to <=": (r"(?<=[\w)\]] )<(?= [\w(])", "<="),
    "shift an index": (r"\[threadIdx\.([xy])\]", r"[threadIdx.\1 + 1]"),
    "shrink a tile": (r"(__shared__ .*\[[^]]+)\];", r"\1 - 1];"),
}
# By operation, rule and the line's text.
EQUIVALENT = {
    ("distance", "drop a fence", "__threadfence();", 1): "the sums are read as volatile, as in the programming guide",
}


class Mutant(NamedTuple):
    """One changed line of a chapter; place: which of the kernel's lines with this text and rule, from 0."""

    rule: str
    line: int
    before: str
    after: str
    place: int
    text: str


def mutants(text: str, first: int, last: int) -> Iterator[Mutant]:
    """Yield the mutants of the lines from first to last of a chapter."""
    lines = text.splitlines()
    seen: dict[tuple[str, str], int] = {}
    for number in range(first, last + 1):
        line = lines[number - 1]
        for rule, (pattern, into) in RULES.items():
            if line.lstrip().startswith(("//", "#")) or not re.search(pattern, line):
                continue
            if rule == "drop a guard" and lines[number].strip() != "return;":
                continue
            changed = re.sub(pattern, into, line, count=1)
            key = (rule, line.strip())
            seen[key] = seen.get(key, -1) + 1
            after = [*lines[: number - 1], changed, *lines[number:]]
            yield Mutant(rule, number, line.strip(), changed.strip(), seen[key], "\n".join(after) + "\n")


def main() -> None:
    """Run the mutants of the operations that are named, or of all."""
    device = SimDevice("sm_90")
    found = missed = 0
    for name in sys.argv[1:] or operations.SUMMARIES:
        operation = operations.get(name)
        options = {option.name: option.default for option in operation.options}
        size = (70,) if name == "solve" else SIZES[len(operation.dimensions)]
        ladder = cases.build(operation, Request(kernels=(), size=size, options=options))
        for case in ladder:
            text = case.source.text
            kernels = source.parse(text, "").kernels
            spans = {kernel.name: (kernel.line, text.count("\n", 0, kernel.end) + 1) for kernel in kernels}
            functions = dict.fromkeys(launch.function for launch in case.launches)
            for function in functions:
                if case.skip_reason or function not in spans:
                    continue
                for mutant in mutants(text, *spans[function]):
                    if is_found(device, operation, case, mutant):
                        found += 1
                        continue
                    reason = EQUIVALENT.get((name, mutant.rule, mutant.before, mutant.place))
                    missed += reason is None
                    print(
                        f"{name} {case.kernel}, line {mutant.line}, {mutant.rule}: {mutant.after}"
                        f" ({reason or 'NOT FOUND'})",
                        flush=True,
                    )
    print(f"{found} mutants found, {missed} not found")


def is_found(device: SimDevice, operation: object, case: Case, mutant: Mutant) -> bool:
    """Return whether a mutant ends otherwise than with a right result."""
    changed = replace(case, source=replace(case.source, text=mutant.text))
    run = SimulatedRun(operation, changed.problem, Settings(cpu=False), device)  # type: ignore[arg-type]
    return run.simulate(changed).status != "ok"


if __name__ == "__main__":
    main()
