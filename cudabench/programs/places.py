"""Finds the source line that belongs to an address in host code, with addr2line of the binutils."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from cudabench.compile import toolkit

# Matches a call that allocates memory and its first argument, such as &d, (void **)&d, a.b, p->q, x[i].
_ALLOCATED = re.compile(r"cuda\w*Malloc\w*\s*(?:<[^<>]*>)?\s*\(\s*(?:\([^()]*\)\s*)*&?\s*\(?((?:\w|\.|->|\[\w+\]|::)+)")

_OF_CUDA = re.compile(r"/include/(?:crt/|cuda_runtime)")


class SourceLine(NamedTuple):
    """A line of a source file; `file`: the path; `line`: the line number, from 1; `source`: the text of the line."""

    file: str
    line: int
    source: str

    def __str__(self) -> str:
        return f"{os.path.basename(self.file)}:{self.line}"


class SourceLines:
    """Finds source lines; for each program file or library it keeps a process of addr2line running."""

    def __init__(self) -> None:
        self._tools: dict[str, subprocess.Popen[str] | None] = {}
        self._known: dict[str, SourceLine | None] = {}
        self._texts: dict[str, list[str]] = {}
        # for each (file, line): the code addresses of the calls that allocate memory
        self._calls: dict[tuple[str, int], list[str]] = {}

    def close(self) -> None:
        """End the processes of addr2line."""
        for tool in filter(None, self._tools.values()):
            for stream in (tool.stdin, tool.stdout):
                with suppress(OSError):
                    stream.close()  # type: ignore[union-attr]
            tool.kill()
            tool.wait()
        self._tools.clear()

    def of(self, place: str) -> SourceLine | None:
        """Return the source line of a stack of code addresses: 'FILE+0xOFFSET FILE+0xOFFSET', innermost first.

        The result is the innermost line whose source file exists. A line of CUDA's own headers is returned only if
        there is no other line. None if no line is found.
        """
        if place not in self._known:
            lines = [line for line in self._lines(place.split()) if line is not None]
            users = (line for line in lines if not self._is_cudas(line.file))
            self._known[place] = next(users, lines[0] if lines else None)
        return self._known[place]

    def named(self, place: str) -> str:
        """Return a name for the memory that the call at these code addresses allocates.

        The name is the variable in the source line, such as 'd' in `cudaMalloc(&d, n)`, else 'memory of FILE:LINE'; ''
        if the line is unknown. Several calls in one line are assumed to run from left to right.
        """
        location = self.of(place)
        if location is None:
            return ""
        calls = self._calls.setdefault(location[:2], [])
        if place not in calls:
            calls.append(place)
        names = _ALLOCATED.findall(location.source)
        return names[min(calls.index(place), len(names) - 1)] if names else f"memory of {location}"

    def text(self, file: str, line: int) -> str:
        """Return the text of a source line, without blanks around it; '' if it does not exist."""
        if file not in self._texts:
            self._texts[file] = []
            with suppress(OSError):
                self._texts[file] = Path(file).read_text(errors="replace").splitlines()
        lines = self._texts[file]
        return lines[line - 1].strip() if 0 < line <= len(lines) else ""

    def _is_cudas(self, file: str) -> bool:
        headers = toolkit.headers()
        return bool(_OF_CUDA.search(file)) or (headers is not None and file.startswith(os.path.realpath(headers)))

    def _lines(self, frames: Sequence[str]) -> Iterator[SourceLine | None]:
        """Yield the source line of each stack frame, or None.

        The stub that nvcc makes for launching a kernel, and the frame after it, are left out, because both have the
        line of the kernel's definition.
        """
        stub = False
        for frame in frames:
            function, line = self._line(frame)
            of_stub = "__device_stub_" in function
            if not (of_stub or stub):
                yield line
            stub = of_stub

    def _line(self, frame: str) -> tuple[str, SourceLine | None]:
        path, _, offset = frame.rpartition("+")
        tool = self._tool(path)
        if tool is None or tool.stdin is None or tool.stdout is None:
            return "", None
        try:
            tool.stdin.write(f"{offset}\n")
            tool.stdin.flush()
            function = tool.stdout.readline().strip()
            file, _, line = tool.stdout.readline().strip().partition(" ")[0].rpartition(":")
        except OSError:
            return "", None
        if not line.isdigit() or not Path(file).is_file():
            return function, None
        return function, SourceLine(os.path.realpath(file), int(line), self.text(os.path.realpath(file), int(line)))

    def _tool(self, path: str) -> subprocess.Popen[str] | None:
        if path not in self._tools:
            words = shutil.which("addr2line")
            self._tools[path] = words and subprocess.Popen(  # type: ignore[assignment]
                [words, "-f", "-e", path],
                stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, errors="replace",
                start_new_session=True,
            )  # fmt: skip
        return self._tools[path]
