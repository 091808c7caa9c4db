"""Run command lines with each launch's machine code as well as its PTX, and print where results differ.

python -m tests.machine_code run k.cu -k name ... -d sim     one command line: its launches and their counts
python -m tests.machine_code --all [GROUP ...]    all lines of the frozen corpus, or of these groups, and the ladders
"""

from __future__ import annotations

import os
import sys
import tempfile
from collections import Counter
from pathlib import Path

from cudabench.simulator.report import Code
from tests.machine_code import watch


def main() -> int:
    """Run one command line, or those of --all; return 1 if the results of a launch differ."""
    words = sys.argv[1:]
    lines = [words]
    if words[:1] == ["--all"]:
        from tests.frozen import corpus
        from tests.frozen.shell import ROOT

        folder = Path(tempfile.mkdtemp())
        for name, place in (("examples", ROOT / "examples"), ("corpus", corpus.CORPUS)):
            (folder / name).symlink_to(place)
        os.chdir(folder)
        lines = [words for name in words[1:] or corpus.GROUPS for words in corpus.lines(name, folder).values()]
        lines += [words for name in corpus.OPERATIONS for words in corpus.ladder(name)]
    alike = bad = 0
    left: Counter[str] = Counter()
    for words in lines:
        found, text = watch.run(words)
        if len(lines) > 1:
            print(".", end="", flush=True, file=sys.stderr)
        if not found and len(lines) == 1:
            print(text)
        shown = " ".join(map(str, words))[:100]
        for ran in found:
            if isinstance(ran.code, str) and ran.code.startswith("its results differ"):
                bad += 1
                print(f"{shown}: {ran.kernel}: {ran.code}", flush=True)
            elif isinstance(ran.code, str):
                left[f"{ran.code} [{ran.kernel}]"] += 1
            else:
                alike += 1
            if len(lines) == 1 and isinstance(ran.code, Code):
                warps, lanes, _, pieces = ran.code.table.sum(axis=0)
                print(
                    f"{ran.kernel}: {warps} warp instructions, {lanes} thread instructions, {pieces} sectors and "
                    f"wavefronts; PTX {ran.ptx_instructions}; {ran.seconds:.3f} s; {ran.code.unsettled or 'settled'}"
                )
    print(f"{alike} launches alike, {bad} with differences; not run:")
    for why, times in left.most_common():
        print(f"{times:6} {why}")
    return bool(bad)


if __name__ == "__main__":
    sys.exit(main())
