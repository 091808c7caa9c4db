"""The parts of the frozen copies: a shell makes the text of each name, which is compared line by line."""

from __future__ import annotations

import difflib
import json
import shlex
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from itertools import chain
from typing import Any

from tests.frozen import corpus
from tests.frozen.shell import DATA, HERE, Shell


@dataclass(frozen=True)
class Part:
    """One part: its subject, its names, the function that makes a name's text, and the rule for intended changes."""

    about: str
    names: Callable[[], list[str]]
    make: Callable[[Shell, str], str]
    rule: str
    grows: bool = False  # lines may be added, but not changed or removed
    compiled: Callable[[str], bool] = lambda name: False  # whether a name's text depends on the compiler's version


# outputs -------------------------------------------------------------------------------------------------------------


def transcripts() -> list[str]:
    """Return the names of the transcripts."""
    return sorted(path.stem for path in (DATA / "outputs").glob("*.txt"))


def transcript(shell: Shell, name: str) -> str:
    """Run the commands of a transcript and return the new transcript."""
    found = []
    for line in (DATA / "outputs" / f"{name}.txt").read_text().splitlines():
        if line.startswith("$ cudabench"):
            ran = shell.run(*shlex.split(line)[2:])
            found.append(f"{line}\n{shell.plain(ran.out)}{shell.plain(ran.err)}[exit {ran.code}]\n")
        elif line.startswith("# ") and not line.startswith("# NVRTC"):
            found.append(f"{line}\n")
    return "\n".join(found)


# api -----------------------------------------------------------------------------------------------------------------


def surface(shell: Shell, name: str) -> str:
    """Return the lines of the Python API, or of the schema of the results file."""
    if name == "python":
        return shell.run(HERE / "contract.py").out
    document = json.loads(shell.run("schema").out)
    flat = chain.from_iterable(schema_lines(key, value) for key, value in document.get("$defs", {}).items())
    return "\n".join(sorted({*schema_lines("", document), *flat})) + "\n"


def schema_lines(place: str, node: Mapping[str, Any]) -> Iterator[str]:
    """Yield a line for each key of a schema's object with its type, and a line for each allowed word."""
    for key, value in node.get("properties", {}).items():
        kept = {name: part for name, part in value.items() if name not in ("description", "enum", "properties")}
        yield f"{place}.{key}: {json.dumps(kept, sort_keys=True)}"
        yield from (f"{place}.{key} may be {json.dumps(word)}" for word in value.get("enum", ()))
        yield from schema_lines(f"{place}.{key}", value)


# results -------------------------------------------------------------------------------------------------------------


def results() -> list[str]:
    """Return the names of the results files."""
    return sorted(path.stem for path in (DATA / "results").glob("*.gz"))


def views(shell: Shell, name: str) -> str:
    """Return the exit code of each view of a results file, with its error if it cannot show this kind of file."""
    file, page = f"results/{name}", f"{name}.html"
    lines = {
        "report": ["report", file, "-o", page],
        "compare": ["compare", file, file],
        "compare with its page": ["compare", page, file],
        "compare as markdown": ["compare", file, file, "--to", "markdown"],
        "plot": ["plot", file, "-o", f"{name}.svg"],
    }
    formats = ("csv", "markdown", "junit", "github-benchmark", "bencher", "sarif")
    lines |= {f"export {to}": ["export", file, "--to", to] for to in formats}
    found = []
    for view, words in lines.items():
        ran = shell.run(*words)
        lack = f": {shell.plain(ran.err).splitlines()[-1]}" if ran.code and ran.err else ""
        found.append(f"{view}: exit {ran.code}{lack}\n")
    if name.endswith(".json"):
        ran = shell.run(HERE / "reread.py", file)
        found.append(f"reread: {ran.out}{shell.plain(ran.err)}")
    return "".join(found)


# machine_code and counts ---------------------------------------------------------------------------------------------


def documents(shell: Shell, name: str, architecture: str = "sm_90") -> Iterator[tuple[str, Any]]:
    """Yield (case, results document) for each element type of an operation's ladder, or for each file of a group."""
    ladder = name in corpus.OPERATIONS
    cases = {words[-1]: words for words in corpus.ladder(name, architecture)} if ladder else {}
    for case, words in (cases or corpus.lines(name, shell.folder)).items():
        yield case, shell.document(*words)


def machine_code(shell: Shell, name: str) -> str:
    """Return hash and registers of each kernel's machine code, for all architectures of an operation, or for a
    group."""
    found = []
    for arch in corpus.ARCHITECTURES if name in corpus.OPERATIONS else ("sm_90",):
        for case, document in documents(shell, name, arch):
            for result in document.get("results", ()):
                code = result["machine_code"]
                if code:
                    found.append(f"{case} {result['kernel']} {arch} {code['sha256']} {code['registers']}")
    return "\n".join(found) + "\n"


def counts(shell: Shell, name: str) -> str:
    """Return the counts and hazards of an operation's ladder, or of a group of kernel files."""
    found: list[str] = []
    for case, document in documents(shell, name):
        found += [f"{case} refused: {document['refused']}"] if "refused" in document else []
        found += chain.from_iterable(counted(case, result) for result in document.get("results", ()))
    lines = (f"{line} ({times} times)" if times > 1 else line for line, times in Counter(found).items())
    return "\n".join(lines) + "\n"


def counted(case: str, result: Mapping[str, Any]) -> Iterator[str]:
    """Yield the lines of a result: its status, each access, branch and hazard."""
    name = f"{case} {result['kernel']}"
    if result["status"] == "skipped":
        return
    yield f"{name}: {result['status']}, {result['instructions']} instructions"
    keys = ("requests", "sectors", "ideal_sectors", "wavefronts", "ideal_wavefronts", "hottest", "merged")

    def place(row: Mapping[str, Any]) -> str:
        return ":".join(filter(None, (row.get("file"), str(row["line"]))))

    for row in result["access"] or ():
        numbers = ", ".join(f"{key} {row[key]}" for key in keys if row[key])
        yield f"{name} {place(row)} {row['space']} {row['op']} {row['bytes']} B {row['array']}: {numbers}"
    for row in result["branches"] or ():
        yield f"{name} {place(row)} branch: {row['executions']} executions, {row['divergent']} divergent"
    for row in result["hazards"] or ():
        yield f"{name} {place(row)} {row['kind']}: {row['count']}"


def groups() -> list[str]:
    """Return the names of all operations and groups of files."""
    return [*corpus.OPERATIONS, *corpus.GROUPS]


# All -----------------------------------------------------------------------------------------------------------------

LOG = "name the change in CHANGELOG.md"
PARTS = {
    "results": Part(
        "every view reads the results files of older versions", results, views,
        "a file that is there stays and is read whole; `write results` makes new ones of data/results.txt",
    ),
    "api": Part(
        "the Python API and the keys of the results file", lambda: ["python", "schema"], surface,
        f"what is added is written; what is removed or changed breaks users: {LOG}", grows=True,
    ),
    "outputs": Part(
        "what commands print, with their exit codes", transcripts, transcript,
        f"read the difference, then write; {LOG} where it says something else than before",
        compiled=lambda name: name in ("compiled", "no_gpu"),
    ),
    "machine_code": Part(
        "hashes of the machine code of rungs and corpora", groups, machine_code,
        "write with the chapter or the compiler option that changes it, never with a refactoring",
        compiled=lambda name: True,
    ),
    "counts": Part(
        "counts and hazards of rungs and corpora", groups, counts,
        f"write with the change of the simulator or the chapter, and {LOG}", compiled=lambda name: True,
    ),
}  # fmt: skip


def made(shell: Shell, part: str, name: str) -> str:
    """Return the text that a shell's tree makes for a name, after a line with the compiler's version if it matters."""
    text = PARTS[part].make(shell, name)
    return f"# NVRTC {nvrtc(shell)}\n{text}" if PARTS[part].compiled(name) else text


def nvrtc(shell: Shell) -> str:
    """Return the NVRTC version of a shell."""
    return str(shell.document(*corpus.ladder("vecadd")[0])["tool"]["nvrtc"])


def other_compiler(old: str, now: str) -> str:
    """Return why texts of two compiler versions cannot be compared, and what to compare instead."""
    was, here = (text.partition("\n")[0].removeprefix("# ") or "nothing" for text in (old, now))
    return f"written with {was}, here is {here}: compare with a revision instead, --against REV"


def stored(part: str, name: str) -> str:
    """Return the written text of a name, or an empty text."""
    path = DATA / part / f"{name}.txt"
    return path.read_text() if path.exists() else ""


def write(part: str, name: str, text: str) -> None:
    """Write the text of a name."""
    path = DATA / part / f"{name}.txt"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def difference(part: str, name: str, old: str, new: str) -> str:
    """Return the differences, with the command that writes the new text and the rule for it; an empty text if equal."""
    was, now = old.splitlines(), new.splitlines()
    if was == now:
        return ""
    if PARTS[part].grows:
        found = [f"-{line}" for line in was if line not in set(now)] + [
            f"+{line}" for line in now if line not in set(was)
        ]
    else:
        found = list(
            difflib.unified_diff(was, now, f"{part}/{name} as written", f"{part}/{name} now", lineterm="", n=2)
        )
    added = all(line.startswith("+") for line in found)
    told = "Only new lines" if PARTS[part].grows and added else "On purpose"
    return "\n".join([*found, "", f"{told}? python -m tests.frozen write {part} {name}", f"Rule: {PARTS[part].rule}."])
