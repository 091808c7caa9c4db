"""Random kernels whose lanes diverge in all ways of C++, so that the compiler cannot make straight code of them.

Each kernel is a function of its seed: nested loops with trip counts from data, `break`, `continue`, `return` and
`goto`, switches that fall through, conditions of several parts, calls that are not inlined, shared memory, shuffles of
all lanes, and atomics whose return value is not used. Results and counts do not depend on the order of lanes or blocks.
"""

from __future__ import annotations

import random

import numpy as np

GRID, BLOCK, WORDS = 3, 96, 1999  # the last warp of data is partly filled; the grid is not a power of two
HEAD = """__device__ __noinline__ unsigned far(unsigned a, unsigned b) {
    for (unsigned k = 0; k < (b & 7); k++) { if (a % 11 == 4) return a + k; a = a * 3 + b; }
    return a ^ b;
}
__device__ unsigned digits(unsigned a) { unsigned d = 0; do { d++; a /= 7; } while (a); return d; }
"""
CONDITIONS = (
    "(s & 1)", "(w > 2500)", "(s % 7 < 3)", "((lane ^ w) & 4)", "(w % 17 == 5)", "((lane & 7) < (w & 7))",
    "(s % 29 == 3)", "(digits(w) > 3)", "(lane < 11)", "((w & 12) == 4)", "(x[s % n] & 2)",
)  # fmt: skip
PLAIN = (
    "s = s * 5 + w;", "w = x[(w + s) % n];", "s ^= x[(s & 1023) % n];", "y[i] = s ^ w;", "s -= w % ((s & 7) + 1);",
    "w = x[(i * 3 + s) % n];", "s += far(s, w);", "s = (unsigned)(__uint2float_rn(s & 4095) * 1.5f) + w;",
    "atomicAdd(y + 2 * n + (w & 63), s & 3);", "t[threadIdx.x] += w;", "s += digits(s);", "w = (w >> 1) + lane;",
)  # fmt: skip
KINDS = ("plain", "plain", "leave", "if", "if", "for", "while", "switch")
LEAVES = ("break;", "continue;", "return;", "goto tail;")


class Writer:
    """Writes the body of one kernel."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.loops = 0

    def condition(self) -> str:
        """Return a condition of one to three parts."""
        parts = self.random.choices(CONDITIONS, k=self.random.choice((1, 1, 2, 3)))
        return "(" + self.random.choice((" && ", " || ")).join(parts) + ")"

    def block(self, depth: int, leaves: tuple[str, ...]) -> str:
        """Return one to three statements; leaves: the statements that leave the enclosing code."""
        return " ".join(self.statement(depth, leaves) for _ in range(self.random.randint(1, 3)))

    def statement(self, depth: int, leaves: tuple[str, ...]) -> str:
        """Return a statement with at most `depth` levels of nested statements."""
        kind = self.random.choice(KINDS if depth else KINDS[:3])
        if kind == "leave":
            leaf = self.random.choice(leaves)  # drawn before the condition: the order of draws determines the kernels
            return f"if {self.condition()} {{ y[n + i] = s; {leaf} }}"
        if kind == "if":
            other = f" else {{ {self.block(depth - 1, leaves)} }}" if self.random.random() < 0.5 else ""
            return f"if {self.condition()} {{ {self.block(depth - 1, leaves)} }}{other}"
        if kind == "switch":
            inner = tuple(leaf for leaf in leaves if leaf != "break;")
            cases = " ".join(
                f"case {place}: {self.block(depth - 1, inner)} {self.random.choice(('break;', 'break;', ''))}"
                for place in range(self.random.choice((3, 4, 8)))
            )
            return f"switch (w & 7) {{ {cases} }}"
        if kind == "plain":
            return self.random.choice(PLAIN)
        self.loops += 1
        k = f"k{self.loops}"
        body = self.block(depth - 1, LEAVES)
        if kind == "while":
            return f"{{ unsigned {k} = 0; while ({k}++ < 9 && s % 31 != 7) {{ w = x[(s + {k}) % n]; {body} }} }}"
        trips = self.random.choice(("3", "5", "(w & 7)", "(s & 3) + 1"))
        unroll = self.random.choice(("", "\n#pragma unroll 1\n", "\n#pragma unroll 2\n"))
        loop = f"for (unsigned {k} = 0; {k} < e{k}; {k}++) {{ w = x[(w + {k} * 13 + i) % n]; {body} }}"
        return f"{{ unsigned e{k} = {trips}; {unroll}{loop} }}"


def source(seed: int) -> str:
    """Return a file with the kernel `parts`(x, y, n): x of n words below 4096, y of 3 n zeros."""
    writer = Writer(seed)
    body = "\n    ".join(writer.statement(2, ("return;", "goto tail;")) for _ in range(3))
    return f"""{HEAD}
extern "C" __global__ void parts(const unsigned* x, unsigned* y, int n) {{
    __shared__ unsigned t[{BLOCK}];
    unsigned i = blockIdx.x * blockDim.x + threadIdx.x, lane = threadIdx.x & 31, s = x[i], w = x[(i * 3) % n];
    t[threadIdx.x] = s;
    s += __shfl_xor_sync(~0u, w, {1 << seed % 5});
    {body}
tail:
    y[n + i] ^= s + t[threadIdx.x];
    y[i] += w;
}}
"""


def arrays(seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Return x and y of a kernel."""
    x = np.random.default_rng(seed).integers(0, 4096, WORDS, dtype=np.uint32)
    return x, np.zeros(3 * WORDS, np.uint32)
