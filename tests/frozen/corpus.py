"""Command lines for the ladders and for every kernel file of this checkout, by group and case."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import numpy as np

from tests.frozen.shell import ROOT

ARCHITECTURES = ("sm_80", "sm_90", "sm_100", "sm_120")
# For each operation: an awkward size, and the element types for which it has kernels.
OPERATIONS = {
    "transpose": ("33 127", "float32"), "matmul": ("31 33 35", "float32 float16"), "matvec": ("33 127", "float32"),
    "distance": ("4099", "float32"), "pi": ("4099", "float32"), "solve": ("13", "float32"),
    "grayscale": ("33 127", "uint8"), "blur": ("31 33", "float32 uint8"), "vecadd": ("4099", "float32"),
    "lookup": ("4099", "float32"),
}  # fmt: skip
CORPUS = ROOT / "tests" / "corpus"
SIMULATED = ("--no-cpu", "--quiet", "--device")
EXAMPLES = {
    "saxpy": "--grid cdiv(n,256) --block 256 --arg n=1000 --arg a=2.5 --arg x=float32[n]:random"
    " --arg y=float32[n]:random",
    "rows": "-k all --grid cdiv(rows,8) --block 256 --arg rows=33 --arg cols=127 --arg in=float32[rows,cols]:random"
    " --arg out=float32[rows]:empty",
    "stencil": "--grid cdiv(n,256) --block 256 --arg n=1000 --arg in=float32[n+2]:random --arg out=float32[n]:empty",
}  # fmt: skip


def ladder(operation: str, architecture: str = "sm_90") -> list[list[str]]:
    """Return the command lines of an operation's ladder: one for each element type of OPERATIONS."""
    size, types = OPERATIONS[operation]
    words = [operation, "--size", *size.split(), *SIMULATED, f"sim:{architecture}"]
    return [[*words, "--dtype", dtype] for dtype in types.split()]


def wrong(path: Path) -> list[str]:
    """Return the command line of a file's LAUNCH comment; tests/corpus/README.md gives the contents of the arrays."""
    line = re.search(r"^// LAUNCH: grid=(\S+) block=(\S+)(?: shared=(\d+))? args=(\S+)$", path.read_text(), re.M)
    assert line is not None, path
    words = ["check", f"corpus/wrong/{path.name}", "--quiet", "--grid", line[1], "--block", line[2]]
    words += ["--shared", line[3]] if line[3] else []
    for argument in line[4].split(","):
        name, _, what = argument.partition(":")
        array = what.endswith("]")
        start = "i0+1" if what.startswith("float") else "i0%16"
        words += ["--arg", f"{name}={what}:{start}" if array else f"{name}={what.partition('=')[2]}"]
    return words


def right(path: Path, folder: Path) -> list[str]:
    """Return the command line of a kernel with the arguments of its case in `test_corpus.py`, which are saved to a
    folder."""
    from tests.simulator.test_corpus import CASES

    builder, sizes = CASES[path.stem]
    case = builder(np.random.default_rng(1), sizes[len(sizes) // 2])
    head = re.search(r"__global__[^{]*\(([^)]*)\)\s*\{", path.read_text())
    assert head is not None, path
    names = [re.sub(r"\W+$", "", parameter).split()[-1].lstrip("*&") for parameter in head[1].split(",")]
    words = ["check", f"corpus/right/{path.name}", "--quiet", "--shared", str(case.shared)]
    for option, shape in (("--grid", case.grid), ("--block", case.block)):
        words += [option, ",".join(map(str, shape))]
    for name, value in zip(names, case.arguments, strict=True):
        text = str(value)
        if isinstance(value, np.ndarray) and value.ndim:
            np.save(folder / f"{path.stem}.{name}.npy", value)
            text = f"@{path.stem}.{name}.npy"
        words += ["--arg", f"{name}={text}"]
    return words


def public(path: Path) -> list[str]:
    """Return the command line in a file's head; for a file that is refused, the command line that the error
    recommends."""
    from tests.userkernel.test_files import read

    file = read(path)
    return ["run", f"corpus/files/{path.name}", *(file.then or file.run), *SIMULATED, "sim"]


def lines(group: str, folder: Path) -> dict[str, list[str]]:
    """Return the command lines of a group of kernel files, keyed by case."""
    if group == "examples":
        return {
            name: ["run", f"examples/{name}.cu", *shlex.split(words), *SIMULATED, "sim"]
            for name, words in EXAMPLES.items()
        }
    if group == "advised":
        return {"advised": ["run", "--profile", "corpus/advised/kernels.toml", *SIMULATED, "sim"]}
    paths = sorted((CORPUS / group).glob("*.cu*"))
    if group == "files":
        return {path.name: public(path) for path in paths if "// run:" in path.read_text(errors="replace")}
    return {path.stem: wrong(path) if group == "wrong" else right(path, folder) for path in paths}


GROUPS = ("examples", "advised", "right", "wrong", "files")
