"""Mutants of the chapters: which small faults the simulator finds, and which it does not.

    python benchmarks/mutants.py [OPERATION[:KERNEL] ...] [--again LOG]          # minutes for each operation

Each mutant changes one line of one kernel: a barrier or a fence is dropped, a guard too, `<` becomes `<=`, an index is
shifted by one, a row of a shared tile is shorter by one. It is found where the run ends with a hazard or a wrong
result, at one of the sizes, blocks and grids of `TRIES`; the kernel itself is right at all of them, which is held.
Prints those that are not found. `EQUIVALENT` says of which ones it is known that they do no harm, `UNSEEN` of which
ones that they would and that the simulator does not see it. `--again` runs only those that an earlier output calls NOT
FOUND. Ends with exit code 1 where one is neither found nor explained.
"""

from __future__ import annotations

import argparse
import re
import sys
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

from cudabench import operations
from cudabench.devices.sim import SimDevice
from cudabench.errors import CudabenchError
from cudabench.measure.simulated_run import SimulatedRun
from cudabench.model import Case, Settings
from cudabench.plan import cases
from cudabench.plan.cases import Request
from cudabench.toolchain import source

SIZES = {1: (100_003,), 2: (67, 133), 3: (67, 70, 133)}
# What is tried of an operation, in this order, until a mutant is found; without an entry its size alone.
TRIES: dict[str, tuple[dict[str, Any], ...]] = {
    # The second has blocks enough that not all run at once, and a mutant's last block reads what others left.
    "distance": ({}, {"size": (400_003,)}, {"block": (48,)}),
    "matvec": ({}, {"block": (48,)}, {"block": (1024,)}, {"grid": (1000,)}),
    # 110 columns end in the second of two tiles of 32; without padding a tile has no room to spare.
    "transpose": ({}, {"size": (67, 110)}, {"defines": {"IPAD": "0"}}, {"grid": (999,)}),
    # Blocks that are not square have threads to spare; 72 is whole steps, 150 more than one tile of `registers`.
    "matmul": ({}, {"block": (32, 8)}, {"block": (8, 32)}, {"size": (67, 72, 133)}, {"size": (150, 24, 150)}),
    "blur": ({}, {"size": (67, 256)}, {"block": (8, 6)}),
    # Where N + 1 is a multiple of 32 the matrix has no room to spare; 64 rows end where a turn of `fused` does; small
    # blocks leave many candidates; a uniform matrix lets no row stand out.
    "solve": (
        {"size": (70,)},
        {"size": (63,)},
        {"size": (64,)},
        {"size": (70,), "block": (8, 4)},
        {"size": (70,), "block": (8, 4), "grid": (1, 1)},
        {"size": (70,), "options": {"matrix": "uniform"}, "seed": 1},
    ),
}
RULES = {
    "drop a barrier": (r"__sync(threads|warp)\(\)", ";"),
    "drop a fence": (r"__threadfence(_block)?\(\)", ";"),
    "drop a guard": (r"\bif \(((?:[^()]|\([^()]*\))*)\)$", "if (false)"),
    "< to <=": (r"(?<=[\w)\]] )<(?= [\w(])", "<="),
    "shift an index": (r"\[threadIdx\.([xy])\]", r"[threadIdx.\1 + 1]"),
    "shrink a tile": (r"(__shared__ .*\[[^]]+)\];", r"\1 - 1];"),
}
# By operation, rule and the line's text; '#2' is the second line of a kernel with this text.
EQUIVALENT: dict[tuple[str, str, str], str] = {
    ("distance", "drop a fence", "__threadfence(); #2"): "the sums are read as volatile, as in the programming guide",
    (
        "pi",
        "< to <=",
        "for (size_t i = ((size_t)blockIdx.x * BDIMX + threadIdx.x) * STEPS; i < n; "
        "i += (size_t)gridDim.x * BDIMX * STEPS) {",
    ): "the turn at i = n adds nothing: the loop over the steps that are left is empty",
    (
        "transpose",
        "< to <=",
        "for (int k = 0; k < UNROLL; k++, ix += BDIMX)",
    ): "the next block copies the same elements to the same places",
    (
        "transpose",
        "shrink a tile",
        "__shared__ T tile[TILE][TILE + 1];",
    ): "the column only spreads the others over the banks",
    ("transpose", "drop a guard", "if (x0 >= nx)"): "a tile beyond the matrix checks each access",
    (
        "matmul",
        "< to <=",
        "for (size_t row0 = (size_t)blockIdx.y * BDIMY; row0 < m; row0 += (size_t)gridDim.y * BDIMY)",
    ): "a tile beyond the matrix checks each access",
    (
        "matmul",
        "< to <=",
        "for (size_t col0 = (size_t)blockIdx.x * BDIMX; col0 < n; col0 += (size_t)gridDim.x * BDIMX) {",
    ): "a tile beyond the matrix checks each access",
    (
        "matmul",
        "< to <=",
        "for (size_t row0 = (size_t)blockIdx.y * TILE_M; row0 < m; row0 += (size_t)gridDim.y * TILE_M)",
    ): "a tile beyond the matrix checks each access",
    (
        "matmul",
        "< to <=",
        "for (size_t col0 = (size_t)blockIdx.x * TILE_N; col0 < n; col0 += (size_t)gridDim.x * TILE_N) {",
    ): "a tile beyond the matrix checks each access",
    ("matmul", "< to <=", "for (size_t k0 = 0; k0 < k; k0 += STEP) {"): "a step beyond the matrix adds zeros",
    ("matmul", "< to <=", "for (size_t k0 = 0; k0 < k; k0 += TK) {"): "a step beyond the matrix adds zeros",
    ("matvec", "< to <=", "if (warp < WARPS) {"): "the sum of a warp that is not full lies where nobody reads",
    (
        "blur",
        "< to <=",
        "for (int c = 0; c < WIDE; c++)",
    ): "the next block computes the same columns, and what is beyond the row is checked",
    (
        "blur",
        "< to <=",
        "if (nx >= 2 * MARGIN && begin < end) {",
    ): "a strip without rows writes none, and what it reads is in the picture",
    (
        "solve",
        "shrink a tile",
        "__shared__ T factors[WIDEST][SPREAD_ROWS + 1];",
    ): "the column only spreads the others over the banks",
    (
        "solve",
        "shrink a tile",
        "__shared__ T next[WIDEST][SPREAD_ROWS + 1];",
    ): "the column only spreads the others over the banks",
    (
        "solve",
        "< to <=",
        "if (outer + i % outer_cols < col || outer + i % outer_cols >= col + cols)",
    ): "column `col` of the tile is read by nobody",
    (
        "solve",
        "< to <=",
        "factors[c][r] = c < cols && at[r] < n ? *element_of_strip : (T)0;",
    ): "column `cols` of the factors is read by nobody",
}
# The reasons are those of docs/simulator.md.
UNSEEN: dict[tuple[str, str, str], str] = {
    (
        "vecadd",
        "< to <=",
        "for (int k = 0; k < VEC; k++)",
    ): "past an array in registers: the compiler leaves it out, and no trace of it is in the PTX",
    (
        "solve",
        "< to <=",
        "for (int r = 0; r < ROWS; r++) {",
    ): "past an array in registers: the compiler leaves it out, and no trace of it is in the PTX",
    (
        "solve",
        "< to <=",
        "for (unsigned i = idx; i < count; i += BLOCK)",
    ): "reads a candidate that no block of this column left: old, or never written",
    (
        "solve",
        "< to <=",
        "for (unsigned i = idx; i < cols * outer_cols; i += SPREAD)",
    ): "past the end of one shared array, in the next one",
    ("solve", "< to <=", "if (idx < cols * cols)"): "past the end of one shared array, in the one before",
    ("solve", "< to <=", "if (idx < SPREAD_ROWS)"): "past the end of one shared array, in the next one",
}
LINE = re.compile(r"(\S+) (\S+), line (\d+), ([^:]+): .*\(NOT FOUND\)")


class Mutant(NamedTuple):
    """One changed line of a chapter; before: its text, with '#2' where the kernel has it a second time."""

    rule: str
    line: int
    before: str
    after: str
    text: str


def mutants(text: str, first: int, last: int) -> Iterator[Mutant]:
    """Yield the mutants of the lines from first to last of a chapter."""
    lines = text.splitlines()
    seen: Counter[tuple[str, str]] = Counter()
    for number in range(first, last + 1):
        line = lines[number - 1]
        for rule, (pattern, into) in RULES.items():
            if line.lstrip().startswith(("//", "#")) or not re.search(pattern, line):
                continue
            if rule == "drop a guard" and lines[number].strip() != "return;":
                continue
            changed = re.sub(pattern, into, line, count=1)
            seen[rule, line.strip()] += 1
            times = seen[rule, line.strip()]
            before = line.strip() + (f" #{times}" if times > 1 else "")
            after = [*lines[: number - 1], changed, *lines[number:]]
            yield Mutant(rule, number, before, changed.strip(), "\n".join(after) + "\n")


def main() -> int:
    """Run the mutants of the operations that are named, or of all."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("operations", nargs="*", metavar="OPERATION[:KERNEL]")
    parser.add_argument("--again", type=Path, metavar="LOG")
    given = parser.parse_args()
    again = None if given.again is None else {match.groups() for match in LINE.finditer(given.again.read_text())}
    device = SimDevice("sm_90")
    total: Counter[str] = Counter()
    for words in given.operations or operations.SUMMARIES:
        name, _, kernel = words.partition(":")
        counts: Counter[str] = Counter()
        for rung in operations.get(name).kernels:
            if not kernel or rung.name == kernel:
                counts += of_kernel(device, name, rung.name, again)
        print(f"{name}: " + ", ".join(f"{counts[one]} {one}" for one in ENDS), flush=True)
        total += counts
    print("all: " + ", ".join(f"{total[one]} {one}" for one in ENDS))
    return 1 if total["NOT FOUND"] else 0


ENDS = ("found", "equivalent", "not seen", "NOT FOUND")


def of_kernel(device: SimDevice, name: str, kernel: str, again: set[tuple[str, ...]] | None) -> Counter[str]:
    """Run the mutants of one rung; print those that are not found, and return how many are what."""
    counts: Counter[str] = Counter()
    tries = [one for settings in TRIES.get(name, ({},)) if (one := case_of(name, kernel, settings)) is not None]
    if not tries:
        print(f"{name} {kernel} does not run in the simulator")
        return counts
    right: set[int] = set()
    text = tries[0].source.text
    spans = {one.name: (one.line, text.count("\n", 0, one.end) + 1) for one in source.parse(text, "").kernels}
    for function in dict.fromkeys(launch.function for launch in tries[0].launches):
        for mutant in mutants(text, *spans[function]) if function in spans else ():
            if again is not None and (name, kernel, str(mutant.line), mutant.rule) not in again:
                continue
            key = (name, mutant.rule, mutant.before)
            for at, one in enumerate(tries):
                if at not in right and key not in EQUIVALENT:
                    assert not is_found(device, name, one, text), f"{name} {kernel} is not right by itself: try {at}"
                    right.add(at)
                if is_found(device, name, one, mutant.text):
                    if key in EQUIVALENT or key in UNSEEN:
                        print(f"{name} {kernel}, line {mutant.line}, {mutant.rule}: found, against what is listed")
                    counts["found"] += 1
                    if at:
                        print(f"{name} {kernel}, line {mutant.line}, {mutant.rule}: found by {TRIES[name][at]}")
                    break
            else:
                reason = EQUIVALENT.get(key) or UNSEEN.get(key)
                kind = "equivalent" if key in EQUIVALENT else "not seen" if key in UNSEEN else "NOT FOUND"
                counts[kind] += 1
                said = f"{kind}: {reason}" if reason else kind
                print(f"{name} {kernel}, line {mutant.line}, {mutant.rule}: {mutant.after} ({said})", flush=True)
    return counts


def case_of(name: str, kernel: str, settings: dict[str, Any]) -> Case | None:
    """Return a kernel's case with settings of `TRIES`; None where the kernel does not take them."""
    operation = operations.get(name)
    options = {option.name: option.default for option in operation.options} | settings.get("options", {})
    size = settings.get("size", SIZES[len(operation.dimensions)])
    request = Request(kernels=(kernel,), **{**settings, "size": size, "options": options})
    try:
        case = cases.build(operation, request)[0]
    except CudabenchError:
        return None
    return None if case.skip_reason else case


def is_found(device: SimDevice, name: str, case: Case, text: str) -> bool:
    """Return whether a case with this text ends otherwise than with a right result."""
    changed = replace(case, source=replace(case.source, text=text), named=False)
    run = SimulatedRun(operations.get(name), changed.problem, Settings(cpu=False, timeout=120), device)
    run.disassemble = False
    return run.simulate(changed).status != "ok"


if __name__ == "__main__":
    sys.exit(main())
