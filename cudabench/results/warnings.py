"""The warnings about results: for every code in `warnings` of a results file, a sentence that says what to do."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

from cudabench.records.results import Warning


@dataclass(frozen=True)
class Kind:
    """A kind of warning.

    `meaning`: what a warning of this kind means; `sentence`: a format string for the message, without a full stop.
    """

    meaning: str
    sentence: str
    repair_option: str = ""  # the option that helps, if the sentence names it with a figure of the warning

    @property
    def option(self) -> str:
        """The option that helps: `repair_option`, or the first option in the sentence; '' if there is none."""
        match = re.search(r"--[a-z-]+", self.sentence)
        return self.repair_option or (match[0] if match else "")


KINDS = {
    "constant": Kind(
        "The kernel reads a __constant__ variable that nothing sets.",
        "{kernel} reads the __constant__ variable {name}, which is zero unless host code sets it: add --const "
        "'{name}={value}'",
    ),
    "dispersion": Kind(
        "The samples scatter: their interquartile range is over 5% of the median.",
        "half of the samples spread over {spread:.1%} of the median: {other} uses the GPU, or its clocks "
        "move; raise --min-time (now {min_time:g})",
    ),
    "shared-gpu": Kind(
        "Another process computes on the same GPU.",
        "{others} also uses this GPU and makes the times longer: let it end, or choose another card with --device",
    ),
    "imprecise": Kind(
        "The longest time passed before the median was known as precisely as requested.",
        "after {elapsed:.2g} s (--max-time, or --budget) the median is known to {known:.1%} only, not {wanted:.1%}",
    ),
    "simulated": Kind(
        "The driver runs launches in the simulator and invents their times.",
        "no GPU ran this: a simulated driver invents the times; choose a real GPU with --device",
    ),
    "clocks": Kind(
        "The SM clock fell while timing.",
        "the SM clock fell from {before} to {after} MHz while timing; the card throttles: let it cool or raise "
        "--min-time",
    ),
    "over-peak": Kind(
        "The bandwidth is more than the memory can give: a cache serves part of it.",
        "{bandwidth:.0f} GB/s is {fraction:.0%} of the memory's peak: the L2 cache serves part of it; use {larger}",
        "--size",
    ),
    "l2-assisted": Kind(
        "The arrays are so small that the L2 cache takes part of the traffic.",
        "the arrays are {share} the {l2_mib:.0f} MiB L2 cache, which still holds part of the output "
        "when the clock stops; {larger}, over {enough} times the cache, would show the memory's own speed",
        "--size",
    ),
    "partial-warp": Kind(
        "The block is not a multiple of a warp.",
        "{threads} a block {leave} {idle} lanes of the last warp idle: make --block a multiple of {warp}",
    ),
    "state": Kind(
        "The kernel changes variables that outlive a launch.",
        "the kernel changes {variables}, which keep their values from one launch to the next. They were reset before "
        "every sample, so the output must not depend on earlier launches: remove these variables, or pass them as an "
        "argument that --expect checks",
    ),
    "malloc": Kind(
        "The kernel allocates memory on the device.",
        "the kernel allocates memory on the device, which outlives the launch unless it is freed: pass it as an --arg",
    ),
    "leak": Kind(
        "Memory that a kernel allocated on the device outlives the launch.",
        "line {line} leaves {bytes} bytes in {count} allocations on the device's heap of {heap_mib} MiB, which "
        "many launches fill: free them, or pass the memory as an --arg",
    ),
    "compiler": Kind(
        "The compiler warned about the source.",
        "{place}: the compiler warns: {what}",
    ),
    "stack": Kind(
        "Recursive calls need more stack than a thread has by default.",
        "recursive calls take at least {bytes} bytes of stack in a thread, which has {limit} unless the program calls "
        "cudaDeviceSetLimit(cudaLimitStackSize, ...): on a card an illegal address is reported",
    ),
    "eviction": Kind(
        "The kernel controls which lines stay in the L2 cache.",
        "the kernel controls the L2 cache ({hints}): lines lose their priority before a sample of --cache cold; "
        "a sample of --cache hot may profit from an earlier launch",
    ),
    "arithmetic": Kind(
        "The machine code computes in a narrower format than the data have.",
        "arithmetic: {formats}, on {dtype} data; the largest error is {ulp:.3g} units in the last place of "
        "{dtype}, and --rtol accepts {rtol:g}",
    ),
    "division": Kind(
        "The kernel divides integers of 64 bits.",
        "{lines}: {count} warp divisions of 64-bit integers are subroutines of about a hundred instructions: "
        "use 32-bit integers, or divide by a constant, such as one of --define",
    ),
    "double": Kind(
        "The kernel computes in double precision between floats.",
        "{lines}: floats become double for a literal and float again: {count} warp instructions at a fraction of "
        "the rate. Write {floats} for {doubles}, also in macros and in --define",
    ),
    "spill": Kind(
        "Values did not fit the registers and go to memory and back.",
        "{lines}: values that do not fit the registers are spilled to local memory: {count} warp instructions and "
        "{bytes} bytes. Keep fewer values at a time, or give a thread more registers by a smaller --block and a "
        "smaller __launch_bounds__",
    ),
    "inputs": Kind(
        "The time depends on the inputs: of two sets of inputs one is faster.",
        "the inputs of --seed {slow} take {ratio:.2f} times as long as those of --seed {fast}: the time depends on "
        "the data; the slower ones count",
    ),
    "unverified": Kind(
        "Nothing was compared: the result is only a time.",
        "the output was not verified, so no threshold accepts its figures: add --expect "
        "'NAME=EXPRESSION' or NAME=@FILE.npy",
    ),
    "binding": Kind(
        "A wrong kernel of --source has parameters with other names than the operation's kernels.",
        "it was called with {pairs}, by the names or the places of its parameters; if that is the mistake, give them "
        "these names",
    ),
    "extent": Kind(
        "An unverified kernel accesses beyond an array, whose size from --arg may be wrong.",
        "--arg sets the size of {name}: if callers give the kernel more elements, give {name} more, or give smaller "
        "numbers to the arguments that bound its indices",
    ),
    "not-compared": Kind(
        "Some of the outputs were not compared.", "{names} {verb} not compared: add --expect '{first}=EXPRESSION'"
    ),
    "tolerance": Kind(
        "The tolerance would accept an output of zeros: it verifies almost nothing.",
        "an output of zeros would pass as {name}: its largest |expected| is {largest:.3g}, and an error of {atol:g} + "
        "{rtol:g} * |expected| is accepted. Give a smaller --atol, and an --rtol under 1",
    ),
    "order-dependent": Kind(
        "The output depends on the order in which blocks run.",
        "{place} is {one} with the blocks {order} and {two} {other}: {name} depends on the order of blocks, which "
        "a GPU does not guarantee; if that is intended, give what holds in any order with --expect",
    ),
    "undecided": Kind(
        "Blocks exchange data, and only one order of blocks was tried.",
        "blocks of {kernel} wait for each other or use each other's results, and they ran {order} only, because "
        "{reason}: other orders were not checked; try --schedule {option}",
    ),
    "unreached": Kind(
        "Every thread returned before its first store: the code after that was not checked.",
        "no thread wrote anything, because no thread reached a store of {kernel}: the code there was not "
        "checked; give an --arg with which threads reach it",
    ),
    "undefined-shuffle": Kind(
        "A shuffle read a lane that takes no part; whether a result depends on it was not checked.",
        "line {line}: {message}. Whether a result depends on it is not known without --expect",
    ),
    "skipped-barrier": Kind(
        "Whole warps pass by a barrier at which other warps of their block wait, and reach no other barrier.",
        "line {line}: {message}",
    ),
    "early-exit": Kind(
        "Threads end before the sync() of a grid, cluster, block or tile, in which all threads must take part.",
        "line {line}: {message}",
    ),
    "lock-missed": Kind(
        "Threads did not get a lock, did not try again, and so skipped the work that it protects.",
        "line {line}: {message}",
    ),
    "ended-before-barrier": Kind(
        "Threads had ended, or were about to end, when the others of their block met a barrier.",
        "{message}. That alone is not a fault",
    ),
    "unsearched": Kind("The search for races between blocks stopped early.", "{message}"),
    "unchecked": Kind(
        "A clean kernel could not run without optimisation, so accesses past arrays in registers were not checked.",
        "accesses past an array in registers were not checked, because {kernel} did not run without optimisation: "
        "{reason}",
    ),
    "unwritten": Kind(
        "Reads of unwritten memory were not searched for in a kernel without hazards.",
        "reads of unwritten memory were not searched for in {kernel}: {reason}; use a smaller problem",
    ),
    "differs": Kind(
        "The simulator executed the PTX and the machine code, and their results differ: one of the two is wrong.",
        "the PTX of {kernel} and its machine code, both executed here, have different results in {names}: the "
        "simulator is wrong in one of them, so believe neither this output nor its counts before a GPU ran it, and "
        "please report the kernel",
    ),
    "uncounted": Kind(
        "The simulator could not count the kernel, so its limits are not known.",
        "the kernel was not counted, so --limits and --report show no counts: {reason}",
    ),
}


def warning(code: str, **figures: Any) -> Warning:
    """Return a warning with this code. `figures`: values that are inserted into the sentence of the warning.

    Raises KeyError for an unknown code or a missing figure.
    """
    return Warning(code, KINDS[code].sentence.format(**figures))
