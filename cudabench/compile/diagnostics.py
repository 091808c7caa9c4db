"""Turns compilers' output into errors and warnings that name the user's files and lines.

The formats differ: NVRTC and nvcc's own front end write 'file(line): error: ...', and the host compiler writes
'file:line:column: error: ...'. Messages of ptxas and of the compiler drivers have no file and line.
"""

from __future__ import annotations

import os
import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from cudabench.occupancy import MAX_STATIC_SHARED
from cudabench.symbols import readable

HEAD = re.compile(
    r"^(?P<file>.+?)\((?P<line>\d+)\): (?:(?P<error>(?:catastrophic )?[Ee]rror)|warning|remark|note)(?: #[\w-]+)?: "
)
_TOO_MUCH_SHARED = re.compile(r"Entry function '(\w+)' uses too much shared data \(0x([\da-f]+) bytes")
_MISSING = re.compile(
    r'(?:could not|cannot) open source file "([^"]+)"'  # NVRTC and nvcc's front end
    r"|fatal error: ([\w./+-]+): No such file"  # gcc
    r"|fatal error: '([^']+)' file not found"  # clang
)
# Matches a warning in the form of `warnings`, except warnings about unused names and code (111, 128, 177, 550), and the
# warning that every cuda::barrier in shared memory causes (20054).
_WARNED = re.compile(r"^(\S.*?):(\d+): warning(?! #(?:111|128|177|550|20054)-D)(?: #[\w-]+)?: (.*)$")
_FILE = re.compile(r'\s*\.file\s+(\d+)\s+"([^"]*)"')
_LOC = re.compile(r"\s*\.loc\s+(\d+)\s+(\d+)")
_TOOLKIT_HEADERS = ("cuda", "cu", "thrust/", "cub/", "npp", "nv")
# A message of ptxas about a PTX line. Before "line", NVRTC writes "ptxas application ptx input", and nvcc writes a file
# name.
_ASSEMBLER = re.compile(r"ptxas .*, line (?P<line>\d+); (?:error|fatal)\s*: (?P<what>.*)")
# the file names in errors about the text that requests the kernels' names: the first is NVRTC's, the second is set by
# cudabench
OF_NAMES = ("__nv_name_map", "cudabench-names")
_HOST_FAULTS = (
    "calling a constexpr __host__ function",
    "is considered a host function",
    "not allowed in JIT mode",
    "not supported when compiling with NVRTC",
    'incomplete type "std::',
)


def missing_headers(log: str) -> list[str]:
    """Return the names of the headers that the compiler's log reports as missing."""
    return [next(filter(None, groups)) for groups in _MISSING.findall(log)]


def lacks_standard_library(log: str) -> bool:
    """Return whether errors are about names of the C++ standard library, or of cub and thrust, which include it."""
    return re.search(r'"(std|cub|thrust)\b|^  .*\b(cub|thrust)::', log, re.M) is not None


def undefined_names(log: str) -> set[str]:
    """Return the names that the compiler's errors report as undefined."""
    lines = re.findall(r"name (?:followed by .*|must be a )[^\n]*namespace[^\n]*\n([^\n]*)", log)
    return {*re.findall(r'identifier "(\w+)" is undefined', log), *re.findall(r"\w+", "\n".join(lines))}


@dataclass(frozen=True)
class Fault:
    """An error of a compiler; `line`: its source line, from 1; `shown`: the source line as the compiler printed it."""

    line: int
    message: str
    shown: str = ""


def faults(log: str) -> list[Fault]:
    """Return the errors in a compiler's log, in the order of the log."""
    lines = [*log.splitlines(), ""]
    return [
        Fault(int(head["line"]), line[head.end() :], lines[at + 1][2:])
        for at, line in enumerate(lines)
        if (head := HEAD.match(line)) and head["error"]
    ]


def is_about_host_code(log: str) -> bool:
    """Return whether the compiler's errors are about host code."""
    return any(fault in log for fault in _HOST_FAULTS)


def is_toolkit_header(header: str) -> bool:
    """Return whether a header probably belongs to the CUDA toolkit or the C++ library, not to the user."""
    return os.path.splitext(header)[1] in ("", ".cuh") or header.startswith(_TOOLKIT_HEADERS)


def names_ptx_line(log: str) -> bool:
    """Return whether a log has an error of ptxas that names a line of the PTX."""
    return any(map(_ASSEMBLER.match, log.splitlines()))


def is_from_ptxas(log: str) -> bool:
    """Return whether a log shows that ptxas reported an error, with or without a PTX line, or crashed."""
    by_name = re.search(r"^ptxas (?:error|fatal) *:|\bptxas\W+died\b", log, re.M) is not None
    return by_name or names_ptx_line(log) or bool(too_much_shared(log))


def too_much_shared(log: str) -> list[tuple[str, int]]:
    """Return the (kernel, bytes of static shared memory) of each kernel that has more than a block may have.

    Both the errors and the report of ptxas in the log are read.
    """
    sizes = {match[1]: int(match[2], 16) for match in _TOO_MUCH_SHARED.finditer(log)}
    for report in log.split("Compiling entry function ")[1:]:
        match = re.match(r"'(\w+)'(?:.|\n)*?(\d+)(?:\+\d+)? bytes smem", report)
        if match and int(match[2]) > MAX_STATIC_SHARED:
            sizes[match[1]] = int(match[2])
    return list(sizes.items())


def needs_device_runtime(log: str) -> bool:
    """Return whether the errors are about a kernel that launches a kernel or calls the CUDA runtime."""
    pattern = r'requires separate compilation mode|device-side kernel launch|identifier "cuda[A-Z]\w*" is undefined'
    return re.search(pattern, log) is not None


def source_lines(ptx: Iterable[str]) -> dict[int, tuple[str, int, int]]:
    """Return a dict from PTX line numbers to (source file, source line, last known source line).

    For code that the compiler added, the source line is 0, and the last known source line is that of the code before.
    """
    files: dict[str, str] = {}
    places = {}
    path, line, last = "", 0, 0
    for number, text in enumerate(ptx, 1):
        if match := _LOC.match(text):
            path, line = match[1], int(match[2])
            last = line or last
        elif match := _FILE.match(text):
            files[match[1]] = match[2]
        elif text.startswith("}"):
            line = last = 0
        elif last:
            places[number] = path, line, last
    return {number: (files.get(path, ""), line, last) for number, (path, line, last) in places.items()}


def errors(
    log: str, filename: str, lines: Mapping[int, tuple[str, int]] | None = None, requested: Collection[str] = ()
) -> str:
    """Return the errors of a log as 'file:line: error: message', each followed by the source line and the caret line.

    `lines`: the (source file, line) of each PTX line, for errors of ptxas. `requested`: plain names of kernels; if one
    of these kernels has too much shared memory, the same error is not reported for other kernels.
    """
    kept: list[str] = []
    keep = False
    for line in log.splitlines():
        head = HEAD.match(line)
        if head is not None:
            keep = head["error"] is not None and not head["file"].startswith(OF_NAMES)
            if keep:
                place = f"{users_path(head['file'], filename)}:{head['line']}"
                kept.append(f"{place}: error: {line[head.end() :]}")
        elif re.match(r"\d+ (catastrophic )?errors? detected|[Cc]ompilation terminated|Error limit|Remark:", line):
            keep = False
        elif assembler := _ASSEMBLER.match(line):
            known = (lines or {}).get(int(assembler["line"]))
            at = f"{known[0]}:{known[1]}" if known else f"{filename}: line {assembler['line']} of its PTX"
            kept.append(f"{at}: error: {assembler['what']}")
            keep = False
        elif _TOO_MUCH_SHARED.search(line):
            keep = False
        elif re.match(r"(nvrtc|nvcc fatal|ptxas (error|fatal))\s*:", line):
            if not (kept and "Ptx assembly aborted" in line):
                kept.append(f"{filename}: {re.sub(r'^(ptxas|nvcc|nvrtc)[ a-z]*: *', '', line)}")
            keep = False
        # the line is an error of the host compiler, which prints errors in this form
        elif re.match(r".+?:\d+:(\d+:)? (fatal )?error: ", line):
            kept.append(users_path(line, filename))
            keep = True
        elif keep and line.strip():
            kept.append(line)
    over = too_much_shared(log)
    of_requested = [(entry, nbytes) for entry, nbytes in over if readable(entry).rpartition("::")[2] in requested]
    kept += [
        f"{filename}: {entry} has {nbytes} bytes of static shared memory, a block may have {MAX_STATIC_SHARED}: use "
        "less, or dynamic shared memory."
        for entry, nbytes in of_requested or over
    ]
    return (
        re.sub(r"__attribute__\(\((global|device|shared|host)\)\)", r"__\1__", readable("\n".join(kept)))
        or re.sub(r"(?m)^ptxas (info|\s+\.).*\n?", "", log).strip()
        or f"{filename}: the compiler failed without a message, as it does if __constant__ variables have over 65536 "
        "bytes together."
    )


def warnings(log: str, filename: str) -> str:
    """Return the warnings in the log of a successful compile as 'file:line: warning: ...', without ptxas' report."""
    lines = [line for line in log.splitlines() if not re.match(r"ptxas (info|\s+\.)|Remark: The warnings|    \d", line)]
    text = re.sub(r"^(\S.*?)\((\d+)\): (?=warning|error|remark)", r"\1:\2: ", "\n".join(lines), flags=re.M)
    return users_path(re.sub(r"\n{2,}", "\n", text).strip(), filename)


def warned(log: str) -> list[tuple[str, int, str]]:
    """Return (file, line, message) of each warning in the result of `warnings`. Harmless warnings are left out, and
    warnings in files with an absolute path, which are not the user's headers."""
    found = (match.groups() for match in map(_WARNED.match, log.splitlines()) if match)
    return list(dict.fromkeys((file, int(line), what) for file, line, what in found if not os.path.isabs(file)))


def users_path(text: str, filename: str) -> str:
    """Return a text in which the source's absolute path is replaced by the name that the caller gave."""
    return text.replace(os.path.abspath(filename), filename)


def users_files(ptx: str, filename: str, headers: Path | None = None) -> str:
    """Return PTX in which the absolute paths of `.file` lines are shortened.

    The source gets the name that the caller gave, files in the current folder get relative paths, and CUDA's own
    headers, which are in the folder `headers`, get paths that begin with cuda/.
    """
    current = os.getcwd()

    def name(match: re.Match[str]) -> str:
        path = os.path.normpath(match[2])
        if path == os.path.abspath(filename):
            path = filename
        elif path.startswith(current + os.sep):
            path = os.path.relpath(path, current)
        elif headers is not None and path.startswith(str(headers)):
            path = "cuda/" + Path(path).relative_to(headers).as_posix().removeprefix("cccl/")
        return f'{match[1]}{path}"'

    return re.sub(r'^(\s*\.file\s+\d+\s+")([^"]*)"', name, ptx, flags=re.M)
