"""What makes a figure less than it seems: every code of a results file's `warnings`, with its sentence and repair."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

from cudabench.records.results import Warning


@dataclass(frozen=True)
class Kind:
    """A kind of warning: what it means, and the sentence with its figures, a format string without its point."""

    meaning: str
    sentence: str
    mends: str = ""  # the option, where a figure of the sentence names it

    @property
    def option(self) -> str:
        """The option that mends it: the first that the sentence names, '' for none."""
        named = re.search(r"--[a-z-]+", self.sentence)
        return self.mends or (named[0] if named else "")


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
        "this GPU is used by {others} too, whose work is in the times: let that end, or choose another card with "
        "--device",
    ),
    "imprecise": Kind(
        "The longest time went by before the median was known as precisely as asked for.",
        "after {elapsed:.2g} s (--max-time, or --budget) the median is known to {known:.1%} only, not {wanted:.1%}",
    ),
    "simulated": Kind(
        "The driver runs launches in the simulator, with times that it makes up.",
        "no GPU ran this: the times are invented by a driver that simulates one; take a real one with --device",
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
        "The block is no multiple of a warp.",
        "{threads} a block {leave} {idle} lanes of the last warp idle: make --block a multiple of {warp}",
    ),
    "state": Kind(
        "The kernel leaves variables changed that outlive a launch.",
        "launches leave {variables} changed; what is kept must not decide the output, and it was set back before "
        "every sample: drop it, or pass it as an argument that --expect holds",
    ),
    "malloc": Kind(
        "The kernel allocates memory on the device.",
        "the kernel allocates memory on the device, which outlives the launch where it is not freed: pass it as an "
        "--arg",
    ),
    "leak": Kind(
        "What a kernel allocated on the device outlives the launch.",
        "line {line} leaves {bytes} bytes in {count} allocations on the device's heap of {heap_mib} MiB, which "
        "many launches fill: free them, or pass the memory as an --arg",
    ),
    "eviction": Kind(
        "The kernel steers what stays in the L2 cache.",
        "the kernel steers the L2 cache ({hints}): lines lose their priority before a sample of --cache cold; "
        "one of --cache hot may profit from an earlier launch",
    ),
    "arithmetic": Kind(
        "The machine code computes in a narrower format than the data's.",
        "arithmetic: {formats}, on {dtype} data; the largest error is {ulp:.3g} units in the last place of "
        "{dtype}, and --rtol accepts {rtol:g}",
    ),
    "division": Kind(
        "The kernel divides integers of 64 bits.",
        "{lines}: {count} warp divisions of 64-bit integers are subroutines of about a hundred instructions: "
        "give what fits 32 bits, or divide by a constant, such as one of --define",
    ),
    "double": Kind(
        "The kernel computes in double precision between floats.",
        "{lines}: floats become double for a literal and float again, {count} warp instructions at a fraction of "
        "the rate: write {floats} for {doubles}, and so in macros and a --define",
    ),
    "spill": Kind(
        "Values found no register and go to memory and back.",
        "{lines}: values that find no register are spilled to local memory, {count} warp instructions and {bytes} "
        "bytes: keep fewer at a time, or leave a thread more registers by a smaller --block and without "
        "__launch_bounds__ for more",
    ),
    "inputs": Kind(
        "The time depends on the inputs: one set of two is served faster.",
        "the inputs of --seed {slow} take {ratio:.2f} times as long as those of --seed {fast}: the time depends on "
        "the data; the slower ones count",
    ),
    "unverified": Kind(
        "Nothing was compared: the result is no more than a time.",
        "nothing says that the output is right, so its figures count for no threshold: add --expect "
        "'NAME=EXPRESSION' or NAME=@FILE.npy",
    ),
    "extent": Kind(
        "A kernel whose output nothing holds goes beyond an array: that may be as large as no caller makes it.",
        "{name} is as large as --arg says: if callers give the kernel more, give {name} more elements, or smaller "
        "numbers to what bounds its indices",
    ),
    "not-compared": Kind(
        "Some of the outputs were compared with nothing.",
        "{names} {verb} compared with nothing: add --expect '{first}=EXPRESSION'",
    ),
    "tolerance": Kind(
        "The tolerance would accept an output of zeros: it verifies next to nothing.",
        "an output of zeros would pass as {name}, of which no |expected| is over {largest:.3g}, for {atol:g} + "
        "{rtol:g} * |expected| is accepted: give a smaller --atol, and an --rtol under 1",
    ),
    "order-dependent": Kind(
        "What a kernel leaves depends on the order in which its blocks run.",
        "{place} is {one} with the blocks {order} and {two} {other}: {name} depends on the order of blocks, which "
        "no GPU promises; if that is meant, say what holds in any order with --expect",
    ),
    "undecided": Kind(
        "Blocks tell each other something, and one order of them alone was tried.",
        "blocks of {kernel} wait for each other or go by what others did, and they ran {order} only, since "
        "{reason}: what happens in another is not known; try --schedule {option}",
    ),
    "unreached": Kind(
        "Every thread left before its first store: of what stands behind that nothing was looked at.",
        "no thread wrote anything, for none came to one of {kernel}'s stores: nothing is known of what stands "
        "there; give an --arg with which threads get so far",
    ),
    "undefined-shuffle": Kind(
        "A shuffle took a value from a lane that takes no part; nothing says whether a result hangs on it.",
        "line {line}: {message}. Whether a result hangs on it is not known without --expect",
    ),
    "skipped-barrier": Kind(
        "Whole warps pass by a barrier at which others of their block wait, and meet no other one.",
        "line {line}: {message}",
    ),
    "early-exit": Kind(
        "Threads end before the sync() of a grid, cluster, block or tile, in which all are to take part.",
        "line {line}: {message}",
    ),
    "ended-before-barrier": Kind(
        "Threads had ended, or left for their end, when the others of their block met a barrier.",
        "{message}. That alone is not a fault",
    ),
    "unsearched": Kind(
        "Where the search for races between blocks was given up.",
        "{message}",
    ),
    "unchecked": Kind(
        "A clean kernel could not be run without optimisation: past arrays in registers nothing was looked for.",
        "what goes past an array that is held in registers was not looked for, since {kernel} did not run "
        "without optimisation: {reason}; if its time was up, raise --timeout",
    ),
    "uncounted": Kind(
        "The simulator could not count the kernel, so that its limits are not known.",
        "--limits and --report have no counts of it: {reason}",
    ),
}


def warning(code: str, **figures: Any) -> Warning:
    """Return the warning of a code with its figures. Raises KeyError for an unknown code or a figure left out."""
    return Warning(code, KINDS[code].sentence.format(**figures))
